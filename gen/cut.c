#include "cut.h"

#include <string.h>

/* Each vertex v becomes two, v (in) and v + n (out), joined by an arc of its weight; edges are unbounded. Augmenting
 * paths by breadth-first search: the graphs have tens of vertices and the flows are small. */
typedef struct { int to, cap, next; } Arc;
typedef struct { Arc *arc; int narc; int *head, *via, *queue; } Net;

static void arc(Net *t, int a, int b, int cap)
{
    t->arc[t->narc] = (Arc){b, cap, t->head[a]};
    t->head[a] = t->narc++;
    t->arc[t->narc] = (Arc){a, 0, t->head[b]};
    t->head[b] = t->narc++;
}

void cut_init(Cut *c, Arena *a, int n)
{
    memset(c, 0, sizeof *c);
    c->arena = a;
    c->n = n;
    c->weight = NEWS(a, int, n + 1);
    c->source = NEWS(a, bool, n + 1);
    c->sink = NEWS(a, bool, n + 1);
}

void cut_edge(Cut *c, int from, int to)
{
    if (c->nedge == c->cap) {
        int cap = c->cap, n = c->nedge;
        c->from = arena_grow(c->arena, c->from, &cap, n, sizeof(int));
        c->to = arena_grow(c->arena, c->to, &c->cap, n, sizeof(int));
    }
    c->from[c->nedge] = from;
    c->to[c->nedge++] = to;
}

static bool augment(Net *t, int s, int e, int nv)
{
    for (int i = 0; i < nv; i++)
        t->via[i] = -1;
    int qh = 0, qt = 0;
    t->queue[qt++] = s;
    t->via[s] = -2;
    while (qh < qt && t->via[e] == -1) {
        int v = t->queue[qh++];
        for (int a = t->head[v]; a >= 0; a = t->arc[a].next)
            if (t->arc[a].cap > 0 && t->via[t->arc[a].to] == -1) {
                t->via[t->arc[a].to] = a;
                t->queue[qt++] = t->arc[a].to;
            }
    }
    return t->via[e] != -1;
}

int cut_solve(Cut *c, bool *chosen)
{
    int n = c->n, s = 2 * n, e = 2 * n + 1, nv = 2 * n + 2, flow = 0;
    Net t = {.arc = NEWS(c->arena, Arc, 2 * (3 * n + c->nedge)), .head = NEWS(c->arena, int, nv), .via = NEWS(c->arena, int, nv),
             .queue = NEWS(c->arena, int, nv)};
    memset(t.head, -1, sizeof(int) * (size_t)nv);
    for (int v = 0; v < n; v++) {
        arc(&t, v, v + n, c->weight[v]);
        if (c->source[v])
            arc(&t, s, v, CUT_INF);
        if (c->sink[v])
            arc(&t, v + n, e, CUT_INF);
    }
    for (int i = 0; i < c->nedge; i++)
        arc(&t, c->from[i] + n, c->to[i], CUT_INF);
    while (flow < CUT_INF && augment(&t, s, e, nv)) {
        int least = CUT_INF;
        for (int v = e; v != s; v = t.arc[t.via[v] ^ 1].to)
            if (t.arc[t.via[v]].cap < least)
                least = t.arc[t.via[v]].cap;
        for (int v = e; v != s; v = t.arc[t.via[v] ^ 1].to) {
            t.arc[t.via[v]].cap -= least;
            t.arc[t.via[v] ^ 1].cap += least;
        }
        flow += least;
    }
    /* The cut nearest the source: vertices reached on their way in but not out. */
    for (int v = 0; v < n; v++)
        chosen[v] = t.via[v] != -1 && t.via[v + n] == -1;
    return flow;
}

/* Minimum vertex cut by maximum flow. Each vertex v becomes two, 2v (in) and 2v + 1 (out), joined
 * by an arc of its weight; edges are unbounded. Augmenting paths are found by breadth-first search:
 * flows are small, and the caller bounds the work. */
#include "gen/plan/min_cut.h"

#include <string.h>

static void arc(Cut *c, int a, int b, int room)
{
    PUSH(c->arena, c->arc, c->narc, c->arc_cap) = (CutArc){b, room, c->head[a]};
    c->head[a] = c->narc - 1;
    PUSH(c->arena, c->arc, c->narc, c->arc_cap) = (CutArc){a, 0, c->head[b]};
    c->head[b] = c->narc - 1;
}

void cut_begin(Cut *c, int n)
{
    if (c->cap < n || !c->cap) {
        c->cap = 2 * n + 16;
        c->vertex = NEWS(c->arena, CutVertex, c->cap);
        c->net_cap = 2 * c->cap + 2;
        c->head = NEWS(c->arena, int, c->net_cap);
        c->via = NEWS(c->arena, int, c->net_cap);
        c->queue = NEWS(c->arena, int, c->net_cap);
    }
    c->n = n;
    c->narc = 0;
    memset(c->vertex, 0, sizeof *c->vertex * (size_t)n);
    memset(c->head, -1, sizeof *c->head * (size_t)(2 * n + 2));
}

void cut_edge(Cut *c, int from, int to) { arc(c, 2 * from + 1, 2 * to, CUT_INF); }

static bool augment(Cut *c, int s, int e)
{
    memset(c->via, -1, sizeof *c->via * (size_t)(2 * c->n + 2));
    int qh = 0, qt = 0;
    c->queue[qt++] = s;
    c->via[s] = -2;
    while (qh < qt && c->via[e] == -1) {
        int v = c->queue[qh++];
        for (int a = c->head[v]; a >= 0; a = c->arc[a].next, c->work++)
            if (c->arc[a].room > 0 && c->via[c->arc[a].to] == -1) {
                c->via[c->arc[a].to] = a;
                c->queue[qt++] = c->arc[a].to;
            }
    }
    return c->via[e] != -1;
}

static int push(Cut *c, int s, int e)                      /* along the path that augment found */
{
    int least = CUT_INF;
    for (int v = e; v != s; v = c->arc[c->via[v] ^ 1].to)
        if (c->arc[c->via[v]].room < least)
            least = c->arc[c->via[v]].room;
    for (int v = e; v != s; v = c->arc[c->via[v] ^ 1].to) {
        c->arc[c->via[v]].room -= least;
        c->arc[c->via[v] ^ 1].room += least;
    }
    return least;
}

int cut_solve(Cut *c, int64_t most)
{
    int s = 2 * c->n, e = s + 1, flow = 0;
    int64_t end = c->work + most;
    for (int v = 0; v < c->n; v++) {
        arc(c, 2 * v, 2 * v + 1, c->vertex[v].weight);
        if (c->vertex[v].source)
            arc(c, s, 2 * v, CUT_INF);
        if (c->vertex[v].sink)
            arc(c, 2 * v + 1, e, CUT_INF);
    }
    while (flow < CUT_INF && augment(c, s, e)) {
        if (c->work > end)
            return -1;
        flow += push(c, s, e);
    }
    /* The cut nearest the source: vertices whose "in" is reached and whose "out" is not. */
    for (int v = 0; v < c->n; v++)
        c->vertex[v].chosen = c->via[2 * v] != -1 && c->via[2 * v + 1] == -1;
    return flow;
}

/* Where the two ways of a branch meet: immediate post-dominators, by the algorithm of Cooper,
 * Harvey and Kennedy on instructions. A thread needs them only at branches that depend on
 * floats. */
#include "tools/verify/ptx.h"

typedef struct Flow { const PtxKernel *k; int n, *first, *next, *from, *order, *number, *up; } Flow;

static int ways(const PtxKernel *k, int i, int out[2])
{
    const PtxInst *x = &k->inst[i];
    int n = 0;
    bool ends = x->kind == PTX_RET || x->kind == PTX_BRA;
    if (x->kind == PTX_RET)
        out[n++] = k->ninst;
    if (x->kind == PTX_BRA)
        out[n++] = x->target;
    if (!ends || x->guard >= 0)
        out[n++] = i + 1;
    return n;
}

static void add_edge(Flow *f, int from, int to, int *count)
{
    f->from[*count] = from;
    f->next[*count] = f->first[to];
    f->first[to] = (*count)++;
}

/* Numbers the instructions from which the end can be reached, in post-order of the reversed
 * graph. */
static int number_all(Flow *f, Arena *a)
{
    int *stack = NEWS(a, int, f->n + 1), *edge = NEWS(a, int, f->n + 1), top = 0, count = 0;
    stack[top] = f->n - 1;
    edge[top] = f->first[f->n - 1];
    f->number[f->n - 1] = 0;
    while (top >= 0) {
        int e = edge[top];
        if (e < 0) {
            f->number[stack[top]] = count;
            f->order[count++] = stack[top--];
            continue;
        }
        edge[top] = f->next[e];
        int v = f->from[e];
        if (f->number[v] == -1) {
            f->number[v] = 0;
            stack[++top] = v;
            edge[top] = f->first[v];
        }
    }
    return count;
}

static int meet(const Flow *f, int a, int b)
{
    while (a != b) {
        while (f->number[a] < f->number[b])
            a = f->up[a];
        while (f->number[b] < f->number[a])
            b = f->up[b];
    }
    return a;
}

static void find_joins(Arena *a, PtxKernel *k)
{
    int n = k->ninst + 1, count = 0, out[2];
    Flow f = {k,
              n,
              NEWS(a, int, n),
              NEWS(a, int, 2 * n),
              NEWS(a, int, 2 * n),
              NEWS(a, int, n),
              NEWS(a, int, n),
              NEWS(a, int, n)};
    for (int i = 0; i < n; i++)
        f.first[i] = f.number[i] = f.up[i] = -1;
    for (int i = 0; i < k->ninst; i++)
        for (int w = ways(k, i, out); w > 0; w--)
            add_edge(&f, i, out[w - 1], &count);
    int reached = number_all(&f, a);
    f.up[n - 1] = n - 1;
    for (bool changed = true; changed;) {
        changed = false;
        for (int o = reached - 2; o >= 0; o--) {
            int v = f.order[o], best = -1;
            for (int w = ways(k, v, out); w > 0; w--)
                if (f.number[out[w - 1]] >= 0 && f.up[out[w - 1]] >= 0)
                    best = best < 0 ? out[w - 1] : meet(&f, best, out[w - 1]);
            changed = changed || f.up[v] != best;
            f.up[v] = best;
        }
    }
    for (int i = 0; i < k->ninst; i++)
        k->join[i] = f.up[i] == n - 1 || f.up[i] < 0 ? -1 : f.up[i];
}

int ptx_join(Arena *a, PtxKernel *k, int at)
{
    if (k->join[at] == -2)
        find_joins(a, k);
    return k->join[at];
}

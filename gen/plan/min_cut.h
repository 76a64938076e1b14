/* Minimum vertex cut of a directed graph. choose_loads.c uses it to decide which values a pass
 * loads. One Cut is reused for many graphs, one after the other; its arrays grow in the arena. */
#ifndef OPTC_CUT_H
#define OPTC_CUT_H
#include "gen/base/util.h"

enum { CUT_INF = 1 << 28 };

typedef struct CutVertex { int weight; bool source, sink, chosen; } CutVertex;
typedef struct CutArc { int to, room, next; } CutArc;
typedef struct Cut {
    Arena *arena;
    CutVertex *vertex; int n, cap;
    CutArc *arc; int narc, arc_cap;
    int *head, *via, *queue, net_cap;
    int64_t work;                /* arcs visited, over all graphs */
} Cut;

void cut_begin(Cut *c, int n);           /* n vertices of weight 0, no edges */
void cut_edge(Cut *c, int from, int to); /* after cut_begin and before cut_solve */
/* Returns the weight of the minimum cut and sets `chosen` for its vertices. Of several minimum cuts
 * it takes the one nearest the sources. CUT_INF or more: no cut exists. -1: it would visit more
 * than `most` arcs. */
int cut_solve(Cut *c, int64_t most);
#endif

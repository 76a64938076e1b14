/* Minimum vertex cut of a directed graph: which values to load so that everything wanted can be computed. One Cut
 * serves many graphs, one after the other; its arrays grow in the arena. */
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
    int64_t work;                /* arcs looked at, in all */
} Cut;

void cut_begin(Cut *c, int n);           /* n vertices of weight 0, no edges */
void cut_edge(Cut *c, int from, int to); /* after cut_begin and before cut_solve */
/* The total weight; chosen: the vertices in the cut, the one nearest the source. CUT_INF or more: there is none.
 * -1: it would look at more than `most` arcs. */
int cut_solve(Cut *c, int64_t most);
#endif

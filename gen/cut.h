/* Minimum vertex cut of a small directed graph: which values to load so that everything wanted can be computed. */
#ifndef OPTC_CUT_H
#define OPTC_CUT_H
#include "util.h"

enum { CUT_INF = 1 << 28 };

typedef struct Cut { int n, nedge, cap; int *weight; int *from, *to; bool *source, *sink; Arena *arena; } Cut;

void cut_init(Cut *c, Arena *a, int n);
void cut_edge(Cut *c, int from, int to);
int cut_solve(Cut *c, bool *chosen);     /* total weight; chosen[i]: vertex i is in the cut. CUT_INF or more: there is none */
#endif

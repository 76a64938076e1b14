/* Segments of a phase with calls (segments.c): in which segment each value is computed
 * (segment_times.c). */
#ifndef OPTC_SEGMENTS_H
#define OPTC_SEGMENTS_H
#include "gen/plan/planner.h"

typedef struct Cutter {
    Planner *p;                  /* of the whole phase */
    const Graph *g;
    int nv, nseg;
    bool **in;                   /* by variant and value: it is needed */
    unsigned **want;             /* by variant and value: the owners that need it
                                  * (stagger_plan.c) */
    int **seg;                   /* by variant and value: the segment that computes it; of calls:
                                  * the one they follow */
    int **level;                 /* by variant and call: its order among the calls after a
                                  * segment */
    int **when;                  /* by variant and write: the segment that stores it; -1: the call
                                  * does */
    int *result;                 /* by call: the array of its result, or UNPLACED */
    bool *kept;                  /* by value: an operand of a call, which is in memory unrounded
                                  * anyway */
    bool *free;                  /* by value: over two axes, from nothing in memory, such as eye:
                                  * made where needed */
    struct Seg *s;               /* segments.c */
} Cutter;

/* available in every segment */
static inline bool everywhere(const Node *n) { return is_leaf(n); }
static inline bool for_all(const Node *n) { return dom_fixed((Dom)n->dom) || n->dom == GROUP; }

/* the first segment that may use it */
static inline int ready(const Cutter *c, int v, Ref r)
{
    return c->seg[v][r] + is_call(&c->g->n[r]);
}

static inline Type operand_type(const Cutter *c, Ref call, int k)
{
    return type_of_call(c->p->plan, c->g, &c->g->n[call], k);
}

static inline bool leaf_of(const Node *n, int state)
{
    return state == TO_P ? n->op == OP_P : n->op == OP_STATE && n->sym == state;
}

/* ---- segment_times.c ---- */
/* Allocates and sets everything of the Cutter but its segments. */
void segment_times(Cutter *c);
/* The call can read operand k directly: it is in memory, aligned, and of the type that the call
 * needs. */
bool call_reads(const Cutter *c, Ref call, int k);
#endif

/* Inside of the planner: one phase being planned. plan.c owns memory and phases, place.c decides which pass does what, stages.c
 * writes the stages down. */
#ifndef OPTC_PLANNER_H
#define OPTC_PLANNER_H
#include "plan.h"

typedef struct {                 /* planning one phase */
    Plan *plan;
    Phase *ph;
    Graph *g;
    Arena *arena;
    int *at[MAX_VARIANTS];           /* elem reductions: the pass that folds them */
    int *time, *late;            /* passes before a value is known; the last time it may become known */
    int *lev;
    bool *in[MAX_VARIANTS];          /* which nodes a variant needs */
    int npass, nvariant;
    int *put[MAX_VARIANTS];          /* by write: the pass that stores it (elem targets) */
    int *temp, ntemp;            /* small values and kept elem values: their Mem, or -1; how many have one */
    bool *taken;                 /* Mems in use in this phase */
    bool *want;                  /* scratch of gather */
} P;

typedef struct { Access *v; int n, cap; } List;
typedef struct { List load, store, fold; bool tile, cols; } Pass;         /* one elem pass of one variant */

static inline Dom pdom(const P *p, Ref r)      /* constants that need computing are computed with the group's values */
{
    Dom d = (Dom)p->g->n[r].dom;
    return d < GROUP ? GROUP : d;
}

static inline bool inlined(const Node *n) { return n->op == OP_CONST || n->op == OP_HYPER || n->op == OP_STEP || n->op == OP_COUNT; }
static inline bool in_memory(const Node *n) { return n->op == OP_P || n->op == OP_G || n->op == OP_STATE || n->op == OP_INPUT; }
static inline bool computed(const Node *n) { return !inlined(n) && !in_memory(n); }
static inline bool elem_fold(const P *p, Ref r) { const Node *n = &p->g->n[r]; return is_red(n) && n->from == ELEM && !is_global(n); }

/* plan.c */
int new_mem(P *p, Mem m);
int leaf_mem(const Plan *pl, const Node *n);
int temp_of(P *p, Ref r);
static inline int bytes_of(const P *p, int mem) { return type_info[p->plan->mem[mem].type].bytes; }

/* place.c */
void place_work(P *p);                       /* fills in, at, put, time, npass */
int place_loads(P *p, Pass *pass);           /* pass[variant * (npass + 1) + k]; the bytes per element times 16 */

/* stages.c */
void make_stages(P *p, Pass *pass);          /* fills the phase's stages */
#endif

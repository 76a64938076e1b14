/* Internals of the planner, which plans one phase at a time. Everything that becomes part of the
 * plan is allocated in the plan's arena. Everything else is in a scratch arena that is freed after
 * the phase. */
#ifndef OPTC_PLANNER_H
#define OPTC_PLANNER_H
#include "gen/plan/min_cut.h"
#include "gen/plan/plan.h"

typedef struct { Access *v; int n, cap; } List;

typedef struct ElemPass {        /* one element pass of one variant */
    List load, store, fold;
    List keep;                   /* the loads that are temporaries of earlier passes */
    bool tile, cols;             /* it folds to rows, columns or slices; to columns */
    bool coarse;                 /* its cut did not consider all values */
    int64_t bytes;               /* per element, times 16 */
    uint64_t touches[2];         /* bit i: the pass may load or compute the target or the value of
                                  * write i */
} ElemPass;

typedef struct Route {           /* the element passes of one variant */
    const Body *body;
    bool *in;                    /* by value: the variant needs it */
    int *at;                     /* by value, for reductions over elements: the pass that folds
                                  * it */
    int *put;                    /* by write: the pass that stores it; -1: not a write of
                                  * elements */
    int *target;                 /* by state + 1: the write to it, or -1 */
    int *first, *next;           /* by value: its first write; by write: the next one of the same
                                  * value; -1: none */
    Ref *fold; int *fold_from;   /* reductions over elements by pass; the index of the first one of
                                  * each pass */
    ElemPass **pass;
    int *reach;                  /* by pass: how many values its cut may consider */
    List *want;                  /* by pass: values that later passes load as temporaries (see
                                  * choose_loads.c) */
    int *nloaders;               /* by value: how many passes load it as a temporary */
    bool *dirty; int ndirty, top;        /* passes that must be solved again; all of them are <=
                                          * top */
} Route;

typedef struct { Route *route; int k; ElemPass *was; } Undo;

/* A value that a segment stores for later segments or for calls. In bodies it is the target nstate
 * + its index. */
typedef struct Carry { Ref val; Dom dom; Type type; int mem; } Carry;

typedef struct Draft {           /* a stage whose lists still grow */
    Stage s;
    List load, store, fold, fin;
    Ref *body; int nbody, cap;
} Draft;

typedef struct Planner {         /* planning one phase */
    Plan *plan;
    Phase *ph;
    Graph *g;
    Arena *arena;                /* scratch */
    int nvariant;
    Route *route;                /* by variant */
    int *time, *late;            /* by value: element passes before it is known; the latest time
                                  * that delays nothing */
    int *lev;                    /* by small value: its level, the order within a time */
    int npass;
    bool flat_pass;              /* the last pass was added for stores of block codes */
    Ref *fold; int nfold;        /* reductions over elements */
    int *temp;                   /* by value: the array of its temporary, or UNPLACED */

    /* the search */
    int64_t total;               /* bytes per element of all passes, times 16 */
    int64_t limit;               /* the search ends when plan->work exceeds it */
    int reach;                   /* values that the cuts of all passes together may consider */
    List roots;                  /* of the pass being solved */
    bool spent;                  /* the limit was reached */
    Cut cut;
    int *mark, now;              /* by value: its role in the pass being solved, see
                                  * choose_loads.c */
    int *local;                  /* by value: its vertex in the cut */
    Ref *near, *vertex;          /* stacks of choose_loads.c */
    ElemPass **spare; int nspare, spare_cap;
    Undo *undo; int nundo, undo_cap;

    /* the stages */
    Draft *draft; int ndraft, draft_cap;
    int *table, table_cap;       /* drafts by (time, level, kind, variant): hash table of
                                  * stage_at */
    Mem *array; int narray, array_cap;   /* temporaries and partials that have no Mem yet */
    struct Pools *pools;         /* Mems of this and other phases that can be reused */
    Carry *carry; int ncarry, carry_cap;
    int *carried, ncarried, carried_cap;       /* by sym of a CARRIED leaf: its array */
} Planner;

/* The domain that a value is computed in. Constants that need computing are computed with the
 * group's values. */
static inline Dom pdom(const Planner *p, Ref r)
{
    Dom d = (Dom)p->g->n[r].dom;
    return dom_fixed(d) ? GROUP : d;
}

static inline bool inlined(const Node *n)
{
    return n->op == OP_CONST || n->op == OP_HYPER || n->op == OP_STEP || n->op == OP_SLOT ||
           n->op == OP_COUNT;
}
static inline bool in_memory(const Node *n)
{
    return n->op == OP_P || n->op == OP_G || n->op == OP_STATE || n->op == OP_INPUT ||
           n->op == OP_CARRIED;
}
static inline bool computed(const Node *n) { return !inlined(n) && !in_memory(n); }
static inline bool elem_fold(const Planner *p, Ref r)
{
    const Node *n = &p->g->n[r];
    return is_red(n) && n->from == ELEM && !is_global(n);
}
/* A reduction along one axis of a small value over two axes: the stage of the result folds the
 * operand's array. */
static inline bool array_fold(const Node *n)
{
    return is_red(n) && n->from != ELEM && dom_square((Dom)n->from) && !dom_wide((Dom)n->dom);
}
static inline void list_add(Arena *a, List *l, Ref val, int mem)
{
    PUSH(a, l->v, l->n, l->cap) = (Access){.val = val, .mem = mem};
}
void list_sort(List *l);                     /* by value */

/* plan.c */
enum { UNPLACED = -1 };                      /* no Mem and no array yet */
/* a code below UNPLACED that place_arrays replaces by a Mem's number */
int new_array(Planner *p, Mem m);
/* by the number of a Mem or the code of an array */
const Mem *mem_at(const Planner *p, int mem);
/* The domain of a write's target: p, a state, or a carried value. */
static inline Dom target_dom(const Planner *p, int state)
{
    int k = state - p->plan->rule->nstate;
    return state == TO_P ? ELEM : k < 0 ? p->plan->rule->state[state].dom : p->carry[k].dom;
}
int target_mem(const Planner *p, int state);
static inline int bytes_of(const Planner *p, int mem)
{
    return type_info[mem_at(p, mem)->type].bytes;
}
int leaf_mem(const Planner *p, const Node *n);
int temp_of(Planner *p, Ref r);

/* place_reductions.c */
void place_reductions(Planner *p);                 /* fills the routes and npass */

/* choose_loads.c */
void loads_begin(Planner *p);                /* solves every pass once and sets total */
void loads_dirty(Route *t, int k);           /* pass k must be solved again */
/* solves the dirty passes; false: impossible, or over the limit */
bool loads_settle(Planner *p);
void loads_keep(Planner *p);                 /* accepts what loads_settle solved */
/* restores the passes before loads_settle, and this total */
void loads_undo(Planner *p, int64_t total);
/* the time of r was `from` and is another one now */
void loads_moved(Planner *p, Ref r, int from);

/* stages.c */
/* element passes come after the list stages of their time */
enum { ELEM_LEVEL = 1 << 20 };
/* index of its draft, made if new */
int stage_at(Planner *p, int time, int level, StageKind kind, int variant);
/* from the decisions of place_reductions, sorted by time and level */
void make_drafts(Planner *p);
void finish_stages(Planner *p);              /* fills the phase's stages from the drafts */

/* stagger_plan.c. An owner is a tensor or block that has a slot. stagger_wanted returns, by variant
 * and value, which owners need it. 0: none; ALL_OWNERS: all; otherwise those whose slot is due, one
 * bit per array of slots. */
#define ALL_OWNERS (~0u)
unsigned **stagger_wanted(Arena *a, const Plan *p, const Phase *ph);
void plan_stagger(const Plan *p, Phase *ph, Arena *scratch);
/* the bit of the slots that cond tests; 0: none */
unsigned stagger_of(const Rule *r, const Graph *g, Ref cond);
/* symmetric_half.c */
void plan_symmetric_half(const Plan *p, Phase *ph, Arena *scratch);
/* merge_stages.c */
void merge_equal_stages(Plan *p, Arena *scratch);  /* gives equal stages the same fn */

/* segments.c */
void plan_segments(Planner *p);              /* the drafts of a phase with calls */

/* small_stages.c */
void find_levels(Planner *p);
void make_small_stages(Planner *p);
#endif

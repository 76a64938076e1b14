/* Internals of the planner: one phase being planned.
 *
 * What the plan keeps is in the plan's own arena. Everything else is in a scratch arena that is freed with the
 * phase. */
#ifndef OPTC_PLANNER_H
#define OPTC_PLANNER_H
#include "gen/plan/min_cut.h"
#include "gen/plan/plan.h"

typedef struct { Access *v; int n, cap; } List;

typedef struct ElemPass {            /* one elem pass of one variant */
    List load, store, fold;
    List keep;                   /* the loads that are temporaries of earlier passes */
    bool tile, cols;             /* folds to more than the tensor; to columns */
    bool coarse;                 /* its cut did not look at everything */
    int64_t bytes;               /* per element, times 16 */
    uint64_t touches[2];         /* by write: its target or its value is among what the pass may load or compute */
} ElemPass;

typedef struct Route {           /* one variant's way through the passes */
    const Body *body;
    bool *in;                    /* which nodes it needs */
    int *at;                     /* elem reductions: the pass that folds them */
    int *put;                    /* by write: the pass that stores it; -1: not of elements */
    int *target;                 /* by state + 1: the write to it, or -1 */
    /* by value: the first write of it, by write: the next one of the same value; -1: none */
    int *first, *next;
    Ref *fold; int *fold_from;   /* elem reductions in order of their pass; where those of a pass begin */
    ElemPass **pass;
    int *reach;                  /* by pass: how many values its cut may look at */
    List *want;                  /* by pass: values that later passes load as temporaries (see choose_loads.c) */
    int *nloaders;                   /* by value: how many passes load it as a temporary */
    bool *dirty; int ndirty, top;        /* passes to solve again; none above `top` is */
} Route;

typedef struct { Route *route; int k; ElemPass *was; } Undo;

/* What one segment leaves in memory for others and for calls: written as a state is, with a number behind the states'. */
typedef struct Carry { Ref val; Dom dom; Type type; int mem; } Carry;

typedef struct Draft {           /* a stage in the making */
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
    int *time, *late;            /* passes before a value is known; the last time it may become known */
    int *lev;                    /* of small values: the order within a time */
    int npass;
    Ref *fold; int nfold;        /* elem reductions */
    int *temp;                   /* by value: the array of its temporary, or UNPLACED */

    /* the search */
    int64_t total;               /* bytes per element of all passes, times 16 */
    int64_t limit;               /* of plan->work, for the search */
    int reach;                   /* values that the cuts of all passes may look at */
    List roots;                  /* of the pass being solved */
    bool spent;                  /* the limit was met */
    Cut cut;
    int *mark, now;              /* by value: what it is to the pass being solved, see choose_loads.c */
    int *local;                  /* by value: its vertex in the cut */
    Ref *near, *vertex;          /* stacks of choose_loads.c */
    ElemPass **spare; int nspare, spare_cap;
    Undo *undo; int nundo, undo_cap;

    /* the stages */
    Draft *draft; int ndraft, draft_cap;
    int *table, table_cap;       /* drafts by what stage_at is asked for */
    Mem *array; int narray, array_cap;   /* temporaries and partials, before they have a Mem */
    struct Pools *pools;         /* Mems of other phases, and of this one, to use again */
    Carry *carry; int ncarry, carry_cap;
    int *carried, ncarried, carried_cap;       /* by number of a GIVEN leaf: where it lies */
} Planner;

/* constants that need computing are computed with the group's values */
static inline Dom pdom(const Planner *p, Ref r)
{
    Dom d = (Dom)p->g->n[r].dom;
    return dom_fixed(d) ? GROUP : d;
}

static inline bool inlined(const Node *n)
{
    return n->op == OP_CONST || n->op == OP_HYPER || n->op == OP_STEP || n->op == OP_SLOT || n->op == OP_COUNT;
}
static inline bool in_memory(const Node *n)
{
    return n->op == OP_P || n->op == OP_G || n->op == OP_STATE || n->op == OP_INPUT || n->op == OP_CARRIED;
}
static inline bool computed(const Node *n) { return !inlined(n) && !in_memory(n); }
static inline bool elem_fold(const Planner *p, Ref r)
{
    const Node *n = &p->g->n[r];
    return is_red(n) && n->from == ELEM && !is_global(n);
}
/* A reduction along one axis of a small value over two: whoever makes it folds the operand's array itself. */
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
int new_array(Planner *p, Mem m);            /* below UNPLACED: stands for a Mem until place_arrays */
const Mem *mem_at(const Planner *p, int mem);            /* of a Mem, or of an array that is none yet */
/* of a write: p, a state, or what is carried over */
static inline Dom target_dom(const Planner *p, int state)
{
    int k = state - p->plan->rule->nstate;
    return state == TO_P ? ELEM : k < 0 ? p->plan->rule->state[state].dom : p->carry[k].dom;
}
int target_mem(const Planner *p, int state);
static inline int bytes_of(const Planner *p, int mem) { return type_info[mem_at(p, mem)->type].bytes; }
/* gives each array of the drafts, in their order, a Mem for as long as it is needed */
void place_arrays(Planner *p);
int leaf_mem(const Planner *p, const Node *n);
int temp_of(Planner *p, Ref r);

/* place_reductions.c */
void place_reductions(Planner *p);                 /* fills the routes and npass */

/* choose_loads.c */
void loads_begin(Planner *p);                /* every pass solved once: total */
void loads_dirty(Route *t, int k);
bool loads_settle(Planner *p);               /* solves what is dirty; false: impossible, or over the limit */
void loads_keep(Planner *p);                 /* what was settled stays … */
void loads_undo(Planner *p, int64_t total);  /* … or is as it was */
void loads_moved(Planner *p, Ref r, int from);            /* r is known at another time than `from` */

/* stages.c */
enum { ELEM_LEVEL = 1 << 20 };               /* elem passes come after the list stages of their time */
int stage_at(Planner *p, int time, int level, StageKind kind, int variant);      /* number of a draft */
void make_drafts(Planner *p);                /* of what place_reductions decided, in order */
void finish_stages(Planner *p);              /* fills the phase's stages from the drafts */

/* stagger_plan.c: which tensors and blocks need each value of each variant. 0: none; ALL_OWNERS: all; otherwise those
 * whose slot is due, one bit per array of slots. */
#define ALL_OWNERS (~0u)
unsigned **stagger_wanted(Arena *a, const Plan *p, const Phase *ph);
void plan_stagger(const Plan *p, Phase *ph, Arena *scratch);
unsigned stagger_of(const Rule *r, const Graph *g, Ref cond); /* whose turn a truth value is; 0: it is something else */
/* symmetric_half.c */
void plan_symmetric_half(const Plan *p, Phase *ph, Arena *scratch);
/* merge_stages.c */
void merge_equal_stages(Plan *p, Arena *scratch);  /* gives equal ones one number */

/* segments.c */
void plan_segments(Planner *p);              /* the drafts of a phase with calls */

/* small_stages.c */
void find_levels(Planner *p);
void make_small_stages(Planner *p);
#endif

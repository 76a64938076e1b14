/* The plan: which passes over memory a rule takes, what each reads, computes and writes.
 *
 * Memory. Every array a stage touches is a Mem with a number; a tensor (or group) brings a table of pointers by
 * that number. A Mem's domain says how long the array is: elem n values, row slices*rows, tensor one …
 *
 * Shape of a reduction, fixed here for every target and launch configuration:
 *   SEG = 4096 values in a row are a segment; a segment has LANES = 128 lanes; lane l adds up values l, l+128, …
 *   in order, starting from the identity; then halves are folded together, lane l with l+64, then l+32 … down to
 *   one partial.
 *   flat   the tensor's elements in segments: folds to one value per tensor
 *   tile   64 rows x 1024 columns of one matrix, where columns are folded; so narrow that one of 4096 x 4096 has two
 *          for every multiprocessor of a large GPU. A row's part of it folds as a segment does (row folds). A tile's
 *          fold to a slice or tensor value is the lane fold of its rows' results. A column adds rows r, r+8, … of
 *          the tile in lane r mod 8, then folds 8 lanes in halves (column folds).
 *   band   16 rows x 4096 columns, where only rows are: the same, with rows as long as segments
 *   list   row, column and slice values, in segments of their matrix (or tensor)
 *   axis   an array over two axes (rows x rows, …) to one of them, by the stage that has the values along it: entry j
 *          of the row or column in lane j mod 32, in f64, then 32 lanes fold in halves; rounded once. No partials: the
 *          array is in memory
 *   Partials are in the precision of what was folded. Finishing adds partials in f64: lists by the same 128 lanes,
 *   the tiles of a row in order, the tiles of a column in 32 lanes (tile k in lane k mod 32) folded in halves.
 *
 * Order. An elem pass runs when everything it needs is known; `time` counts the elem passes before a value is
 * known. Between two elem passes run list stages (row, col, slice, tensor, group) in order of `level`.
 *
 * Calls. A product (kind S_CALL) is no pass: a callee does it, from arrays to an array. Its body is the one node, its
 * loads are the operands in the node's order, its one store the result; it has no function (fn -1). Operands and
 * results are kept in type_of_call, and results may go straight to a state of that type. A phase with calls is
 * cut into segments: what can be known before the first calls, what needs their results, and so on. Each is planned
 * like a phase, with what earlier ones left given in memory.
 *   TURN   is a load: the operand's array, read with its axes exchanged
 *   folds  along one axis of small values over two read the operand's array themselves: such a fin names that array,
 *          no partials.
 *
 * every(k): each combination of the rule's periods is a phase with a plan of its own, in which those conditions are
 * constants; a step runs the phase of its t. */
#ifndef OPTC_PLAN_H
#define OPTC_PLAN_H
#include "gen/plan/phases.h"
#include "gen/ir/target.h"

enum { SEG = OPTC_SEG, LANES = OPTC_LANES, ROW_LANES = OPTC_ROW_LANES, COL_LANES = OPTC_COL_LANES };

_Static_assert((int)S_FLAT == NDOM - 2, "no stage makes a domain's values: it is no row of SMALL_DOMAINS");

/* a pass over the elements */
static inline bool is_elem(StageKind k) { return stage_info[k].dom == ELEM; }
static inline bool is_tiled(StageKind k) { return stage_info[k].walk == WALK_TILED; }
static inline bool is_list(StageKind k) { return stage_info[k].walk == WALK_LIST; }
static inline bool is_called(StageKind k) { return stage_info[k].walk == WALK_CALL; }
static inline bool is_single(StageKind k) { return stage_info[k].walk == WALK_SINGLE; }

typedef struct Mem {
    MemKind kind;
    int sym;               /* INPUT, STATE: which; TEMP, PART: a running number */
    Dom dom;               /* PART: the domain folded to */
    Dom from;              /* PART: the domain folded */
    StageKind by;          /* PART: the kind of stage that folds, by whose units it is laid out */
    Type type;
    const char *name;
} Mem;

/* name: what the array is called where it holds this value (value_names.c). turned: val is a TURN that this very stage does:
 * mem holds its operand, of which the entry at the exchanged place is read */
typedef struct { Ref val; int mem; const char *name; bool transposed; } Access;

typedef struct Stage {
    StageKind kind;
    int variant;           /* of the rule; group stages belong to all and say 0 */
    int time, level;
    Ref *body; int nbody;                  /* operations in order */
    Access *load; int nload;               /* values read from memory, elem or not */
    Access *store; int nstore;
    Access *fold; int nfold;               /* reductions whose partials this stage writes: val is the reduction node */
    Access *fin; int nfin;                 /* reductions this stage finishes */
    bool uses_rows;                        /* flat, lists over two axes: it reads by row or column, and walks by rows */
    bool folds_arrays;                     /* lists: some of fin are folds of whole arrays, not of partials */
    /* lists over two equal axes: all that it stores is symmetric, and it reads lower triangles only; calls: nothing
     * reads the result's upper triangle (symmetric_half.c) */
    bool half;
    unsigned stagger;                        /* 0, or who need not be in it: stagger_plan.c */
    int bytes_read, bytes_written;         /* per element (flat and tile) or per value of the stage's domain */
    int cost;                              /* operations per element or value */
    int fn;                                /* number of the emitted function; equal stages have one (merge_stages.c) */
    bool shared;                           /* others have it too: it is told the numbers of its arrays */
} Stage;

/* Between such stages there is no order. */
static inline bool stages_abreast(const Stage *a, const Stage *b) { return a->time == b->time && a->level == b->level; }

typedef struct Phase {
    Graph *g;
    Body *body;                    /* by variant */
    Stage *stage; int nstage;
    bool cheaper;                  /* the search for it was cut short by the plan's limits */
} Phase;
typedef struct { const char *name; Phase *phase; int nphase; } PlanEntry;

/* Bytes of a value in all arrays that a half pass writes: a tile of 32 x 64 of each is in shared memory at a time. */
enum { HALF_BYTES = 16 };

/* What planning may cost. A plan that would take more is made with a cheaper search; its phases say so. */
typedef struct PlanLimits {
    int64_t work;                  /* steps: values and arcs looked at */
    /* values that may be computed again: so many in all, and so many times those of a phase */
    int reach, again;
    int stages;                    /* of all entries and phases: each is a launch, and a page of code. More are refused */
    int calls;                     /* likewise, products */
} PlanLimits;

typedef struct Plan {
    Arena *arena;
    Rule *rule;
    Type p, g, state, real;        /* storage types, and what elements are computed in */
    const Target *target;          /* that it is made for */
    Product precision;             /* of products … */
    Type product;                  /* … and what their operands and results are kept in (type_of_call) */
    Mem *mem; int nmem, mem_cap;
    Period period[MAX_PERIODS]; int nperiod;        /* phase number = bits by period */
    PlanEntry *entry; int nentry;
    bool *state_used;              /* [variant * nstate + state] */
    int nstage;                    /* that have a function, of all entries and phases */
    int nfn;
    struct StageAt *at;            /* by number of function; of equal stages the first */
    PlanLimits limits;
    int64_t work;                  /* steps that planning took */
    size_t scratch;                /* the most bytes it had on the side at a time */
} Plan;

extern const PlanLimits plan_limits;                         /* the usual ones */

typedef struct PlanTypes { Type p, g, state; Product precision; const Target *target; } PlanTypes;
Plan *plan_make(Arena *a, Rule *r, const Phases *phases, PlanTypes t, const PlanLimits *limits);
void plan_print(Buf *b, const Plan *p, bool terse);                        /* plan_text.c */
bool plan_verify(const Plan *p, Diag *d);                    /* plan_verify.c; false: the Diag is set */
/* merge_stages.c: the first stage whose number is that of one it does not equal; -1: there is none */
int merged_unequal(const Plan *p, const Phase *ph, Arena *scratch);
/* stagger_verify.c: the first stage that omits a tensor or block which needs its results; -1: none */
int stagger_wrong(const Plan *p, const Phase *ph, Arena *scratch);
int plan_phase(const Plan *p, double t);                     /* the phase of step t */
typedef struct StageAt { const PlanEntry *entry; int phase; const Stage *stage; } StageAt;
/* where the stage of that number stands, the first of them: 0 <= fn < nfn */
StageAt plan_at(const Plan *p, int fn);
/* "divisible by 5", "not 1 behind one divisible by 5": steps at which it is or is not done */
void plan_period(Buf *b, const Period *p, const char *before, bool yes);
/* ", of one in 50 tensors a step": whom a stage is for; of everybody nothing */
void plan_stagger_text(Buf *b, const Rule *r, unsigned stagger);
bool plan_calls(const Plan *p);                              /* it has products, or factors */
CallNeeds plan_needs(const Plan *p);                         /* the kernels that its calls take on a GPU */
unsigned plan_call_flags(const Plan *p, const Graph *g, const Stage *s);   /* of ProgCall */
bool plan_uses_t(const Plan *p);                             /* the number of the step counts */

/* How much there is for a tensor of a shape: gen/abi/counts.h. */
int64_t part_len(const Mem *m, Shape s, int64_t ntensors);
typedef struct Traffic { double read, written; } Traffic;
Traffic stage_traffic(const Plan *p, const Stage *st, Shape s);   /* bytes moved for this tensor */
int plan_mem_of_state(const Plan *p, int state);
bool plan_keeps(const Plan *p, int state);                   /* some tensor or group keeps it, under any variant */
Type type_of_state(const State *s, Type p, Type state);      /* what it is kept in */
Type mem_type_of(const Plan *p, Dom d);                      /* what temporaries of a domain are kept in */
Type part_type_of(const Plan *p, const Node *n);             /* what the partials of a reduction are kept in */
/* what operand k of a call is kept in, or its result (k -1): products are rounded to their type, nothing else is to
 * less than elements are computed in */
Type type_of_call(const Plan *p, const Graph *g, const Node *n, int k);
#endif

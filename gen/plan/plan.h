/* The plan: the stages that a rule runs, and what each reads, computes and writes.
 *
 * Memory. Every array that a stage uses is a Mem and has a number. A tensor (or group) has a table
 * of pointers that is indexed by this number. The domain of a Mem gives the length of the array:
 * elem: n values, row: slices * rows,
 * tensor: one …
 *
 * Order of a reduction. It is fixed here for every target and launch:
 *   SEG = 4096 consecutive values are a segment. A segment has LANES = 128 lanes. Lane l adds
 *   values l, l+128, … in order, starting from the identity. Then the lanes are folded in halves:
 *   lane l with l+64, then l+32 … down to one partial.
 *   flat   The elements of the tensor in segments: folds to one value per tensor.
 *   tile   64 rows x 1024 columns of one matrix, if columns are folded. This is narrow enough that
 *          a matrix of 4096 x 4096 has two tiles for every multiprocessor of a large GPU. The part
 *          of a row in the tile folds like a segment (row folds). A fold of the tile to a slice or
 *          tensor value is the lane fold of its rows' results. A column adds rows r, r+8, … of the
 *          tile in lane r mod 8, then folds 8 lanes in halves (column folds).
 *   band   16 rows x 4096 columns, if only rows are folded: the same, with rows as long as
 *          segments.
 *   list   Row, column and slice values, in segments of their matrix (or tensor).
 *   axis   An array over two axes (rows x rows, …) to one of them, in the stage over that axis:
 *          entry j of the row or column in lane j mod 32, in f64, then 32 lanes fold in halves;
 *          rounded once. There are no partials: the array is in memory.
 *   Partials have the precision of the folded values. Finishing adds partials in f64: lists in the
 *   same 128 lanes, the tiles of a row in order, the tiles of a column in 32 lanes (tile k in lane
 *   k mod 32) folded in halves.
 *
 * Order of stages. An element pass runs when everything it needs is known. The `time` of a value is
 * the number of element passes before it is known. List stages (row, col, slice, tensor, group) run
 * between two element passes, in order of `level`.
 *
 * Calls. A product or factor (kind S_CALL) is not a pass: a callee computes it from arrays to an
 * array. Its body is the one node, its loads are the operands in the node's order, its only store
 * is the result; it has no function (fn -1). Operands and results are stored as type_of_call, and a
 * result may be stored directly in a state of that type. A phase with calls is divided into
 * segments: what is known before the first calls, what needs their results, and so on. Each segment
 * is planned like a phase, with the values that earlier segments left in memory as carried values.
 *   TRANSPOSE  is a load: the operand's array, read with its axes exchanged.
 *   folds      along one axis of a small value over two axes read the operand's array; the Access
 *              in fin then names this array instead of partials.
 *
 * Periods. Each combination of the rule's periods every(k) is a phase with a plan of its own, in
 * which these conditions are constants. A step runs the phase of its t. */
#ifndef OPTC_PLAN_H
#define OPTC_PLAN_H
#include "gen/plan/phases.h"
#include "gen/ir/target.h"

enum { SEG = OPTC_SEG, LANES = OPTC_LANES, ROW_LANES = OPTC_ROW_LANES, COL_LANES = OPTC_COL_LANES };

_Static_assert((int)S_FLAT == NDOM - 2,
               "every domain but const and elem has a stage kind: a row of SMALL_DOMAINS");

/* Whether a stage of this kind is an element pass. */
static inline bool is_elem(StageKind k) { return stage_info[k].dom == ELEM; }
static inline bool is_tiled(StageKind k) { return stage_info[k].walk == WALK_TILED; }
static inline bool is_list(StageKind k) { return stage_info[k].walk == WALK_LIST; }
static inline bool is_called(StageKind k) { return stage_info[k].walk == WALK_CALL; }
static inline bool is_single(StageKind k) { return stage_info[k].walk == WALK_SINGLE; }

typedef struct Mem {
    MemKind kind;
    int sym;               /* INPUT, STATE: index in the rule; TEMP, PART: a running number */
    Dom dom;               /* PART: the domain of the result */
    Dom from;              /* PART: the domain of the folded values */
    StageKind by;          /* PART: the kind of stage that folds; its units determine the layout */
    Type type;
    const char *name;
} Mem;

/* name: of the array while it holds this value (value_names.c). transposed: val is a TRANSPOSE that
 * this stage does
 * itself: mem holds its operand, and the stage reads entry (j, i) for (i, j). */
typedef struct { Ref val; int mem; const char *name; bool transposed; } Access;

typedef struct Stage {
    StageKind kind;
    int variant;           /* of the rule; 0 for group stages, which serve all variants */
    int time, level;
    bool back;             /* walks backwards: begins with what the pass before left in the GPU's
                            * cache */
    Ref *body; int nbody;                  /* operations in order */
    Access *load; int nload;               /* values read from memory, of any domain */
    Access *store; int nstore;
    Access *fold; int nfold;               /* reductions whose partials this stage writes: val is
                                            * the reduction node */
    Access *fin; int nfin;                 /* reductions this stage finishes */
    bool for_codes;                        /* flat: added because tiles do not store block codes
                                            * (place_reductions.c) */
    bool uses_rows;                        /* flat, lists over two axes: needs row or column
                                            * numbers, walks by rows */
    bool folds_arrays;                     /* lists: some of fin are folds of whole arrays, not of
                                            * partials */
    /* Lists over two equal axes: all stored values are symmetric, and the stage reads lower
     * triangles only. Calls: no stage reads the upper triangle of the result (symmetric_half.c). */
    bool half;
    /* 0: runs for all tensors; otherwise a bit for each array of slots: runs only for tensors and
     * blocks whose slot is due (stagger_plan.c) */
    unsigned stagger;
    int bytes_read, bytes_written;         /* per element (flat and tile) or per value of the
                                            * stage's domain */
    int cost;                              /* operations per element or value */
    int fn;                                /* number of the emitted function; equal stages share it
                                            * (merge_stages.c) */
    bool shared;                           /* several stages have this fn: array numbers are an
                                            * argument of it */
} Stage;

/* Stages of the same time and level have no order among them. */
static inline bool stages_abreast(const Stage *a, const Stage *b)
{
    return a->time == b->time && a->level == b->level;
}

typedef struct Phase {
    Graph *g;
    Body *body;                    /* by variant */
    Stage *stage; int nstage;
    bool cheaper;                  /* the plan's limits cut the search short */
} Phase;
typedef struct { const char *name; Phase *phase; int nphase; } PlanEntry;

/* Limit on the bytes per value that a symmetric-half stage writes, over all its arrays: it holds a
 * tile of 32 x 64 of each in shared memory. */
enum { HALF_BYTES = 16 };

/* Limits of planning. Beyond work and reach the planner uses a cheaper search and sets
 * Phase.cheaper. A plan with more stages or calls is refused. */
typedef struct PlanLimits {
    int64_t work;                  /* values and arcs visited */
    int reach, again;              /* a phase of n values may consider reach / phases + again * n
                                    * for recomputing */
    int stages;                    /* of all entries and phases: each is a launch, and a page of
                                    * code */
    int calls;                     /* of all entries and phases */
} PlanLimits;

typedef struct Plan {
    Arena *arena;
    Rule *rule;
    Type p, g, state, real;        /* storage types; real: the type that elements are computed in */
    const Target *target;
    Product precision;             /* of products without one of their own (product_of_call) */
    Type product;                  /* storage type of their operands and results (type_of_call) */
    Type factor;                   /* of operands and results of other calls: f64 if the rule has
                                    * products in f64 */
    Mem *mem; int nmem, mem_cap;
    Period period[MAX_PERIODS]; int nperiod;        /* bit i of a phase number: period i is due */
    PlanEntry *entry; int nentry;
    bool *state_used;              /* [variant * nstate + state] */
    bool *lower_state;             /* by state: a lower triangle (gen/ir/lower_values.c) */
    int nstage;                    /* stages that have a function, of all entries and phases */
    int nfn;                       /* functions: equal stages share one */
    struct StageAt *at;            /* by Stage.fn: the first stage of each function */
    PlanLimits limits;
    int64_t work;                  /* what planning used of limits.work */
    size_t scratch;                /* the largest scratch arena of a phase, in bytes */
} Plan;

extern const PlanLimits plan_limits;                         /* the default */

typedef struct PlanTypes { Type p, g, state; Product precision; const Target *target; } PlanTypes;
Plan *plan_make(Arena *a, Rule *r, const Phases *phases, PlanTypes t, const PlanLimits *limits);
void plan_print(Buf *b, const Plan *p, bool terse);                        /* plan_text.c */
/* plan_verify.c; false: the Diag is set */
bool plan_verify(const Plan *p, Diag *d);
/* merge_stages.c: the first stage that has the fn of a stage which it does not equal; -1: none */
int merged_unequal(const Plan *p, const Phase *ph, Arena *scratch);
/* stagger_verify.c: the first stage that omits a tensor or block which needs its results; -1:
 * none */
int stagger_wrong(const Plan *p, const Phase *ph, Arena *scratch);
typedef struct StageAt { const PlanEntry *entry; int phase; const Stage *stage; } StageAt;
/* The first stage with this fn, 0 <= fn < nfn; all NULL for other numbers. */
StageAt plan_at(const Plan *p, int fn);
/* Prints "<before> t % 5 == 0" (yes) or "<before> t % 5 != 0": the steps at which a period is due
 * or not. */
void plan_period(Buf *b, const Period *p, const char *before, bool yes);
/* Prints ", of one in 50 tensors a step" for a staggered stage; nothing for other stages. */
void plan_stagger_text(Buf *b, const Rule *r, unsigned stagger);
bool plan_calls(const Plan *p);                              /* the plan has products or factors */
/* the GPU kernels that its calls need */
CallNeeds plan_needs(const Plan *p);
unsigned plan_call_flags(const Plan *p, const Graph *g, const Stage *s);   /* for ProgCall.flags */
/* The methods that may compute a factor: shapes, the device and its libraries decide. */
const char *plan_call_methods(Arena *a, const Plan *p, const Graph *g, const Stage *s);
/* a result depends on the number of the step */
bool plan_uses_t(const Plan *p);

/* Partials of m for a tensor of this shape (gen/abi/counts.h). */
int64_t part_len(const Mem *m, Shape s, int64_t ntensors);
typedef struct Traffic { double read, written; } Traffic;
Traffic stage_traffic(const Plan *p, const Stage *st, Shape s);   /* bytes moved for this tensor */
int plan_mem_of_state(const Plan *p, int state);
/* the state is used under some variant */
bool plan_keeps(const Plan *p, int state);
/* The set of types in one word: "bf16,bf16,f32" for parameters, gradients and states;
 * "f32,f32,q8+1b0a9c2e" if the user chose types beside these (Rule.types, as a hash). */
enum { TYPES_KEY = 48 };
void plan_types_key(const Plan *p, char out[TYPES_KEY]);
Type mem_type_of(const Plan *p, Dom d);
Type part_type_of(const Plan *p, const Node *n);
/* The storage type of operand k of a call, or of its result (k = -1). Products are rounded to their
 * own type; other calls keep at least the precision that elements are computed in. */
Type type_of_call(const Plan *p, const Graph *g, const Node *n, int k);
/* The precision of a product: its own, else the plan's. */
static inline Product product_of_call(const Plan *p, const Node *n)
{
    return product_precision(p->precision, (unsigned)n->sym);
}
/* The call uses tensor cores, so its operands must not be arrays of the caller, which may have any
 * alignment. */
bool call_needs_alignment(const Plan *p, const Node *n);
#endif

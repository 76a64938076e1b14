/* The core: binds, lays out, steps and saves a rule that a Program (gen/abi/program.h) describes.
 * The library compiles these sources and packages paste them, with the public names of optc.h
 * renamed. They must compile without a warning as C11 and C++17, and must not use plans or the
 * compiler. Only checkpoints use files.
 *
 *   optc_engine   a device and its threads. Read-only once open
 *   optc_rule     a Program and its code for the engine's device. Read-only once made, except for
 *                 the number of its bindings and the host's notes about them (which launches were
 *                 used), which the host locks
 *   optc_binding  a rule on tensors: per tensor a table of pointers by array number; all states in
 *                 one block. Used by one thread at a time
 *   Device        table of functions: what differs between the CPU, a GPU and (library only) the
 *                 reference evaluator
 *   Host          table of functions: the library, which compiles and tunes rules, or a package,
 *                 which contains them
 *
 * Only packages with functions of matrices contain runtime/core/functions.
 * Packages without products do not contain cpu_calls.h, gpu_calls.h and the sources that include
 * them. They contain runtime/core/matrix/no_matrix_calls.h instead. */
#ifndef OPTC_CORE_H
#define OPTC_CORE_H
#include "gen/abi/stage_abi.h"
#include "runtime/optc.h"
#include "gen/abi/program.h"
#include "runtime/core/base/device.h"
#include "runtime/core/base/profile_hooks.h"

#ifndef CORE
#define CORE                               /* packages define it as `static` */
#endif
#ifndef HOST
#define HOST library_host
const struct Host *library_host(void);
#endif

/* ---- message.c ---- */
enum { MOST_MESSAGE = 2048 };
CORE optc_status fail(optc_status s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
CORE optc_status no_memory(const char *call);
CORE void message_clear(void);

enum { MOST_ROLES = 32 };                  /* variants of a binding's program, which for shards are
                                            * a rule's roles */
typedef struct Connection Connection;
CORE const Device *cpu_device(void);
CORE const Device *gpu_device(void);

struct optc_engine {
    const Device *device;
    struct GpuEngine *gpu;             /* NULL on the CPU */
    int threads;
    int64_t workspace;                 /* limit in bytes for a batch's temporaries plus the calls'
                                        * scratch memory */
    char name[400];
    optc_allocator memory;             /* alloc NULL: the core's own allocation */
    long long ours, peak;              /* bytes that bindings and callers hold, now and at most;
                                        * atomic */
    int rules;                         /* atomic */
    struct LibraryEngine *library;     /* for the host only */
    struct MatrixFunctions *functions; /* runtime/core/functions; NULL: the host has none */
    /* Draws of rules in f64, also those that states start as, are those of f32. Only the evaluator
     * reads it in steps: `optc try` compares a rule in f32 with itself in f64 there. */
    bool f32_draws;
};

struct optc_rule {
    optc_engine *engine;
    const Device *device;
    const Program *program;
    const optc_stage_fn *fn;           /* CPU code by ProgStage.fn; NULL: no CPU code */
    int bindings;                      /* atomic */
    double root_low;                   /* > 0: replaces call_low for roots by products
                                        * (FunctionForm.low) */
    struct LibraryRule *library;       /* for the host only */
};

/* A binding that is never run. PLAN_APART: its temporaries share no memory, for
 * schedule_verify.c */
typedef enum { PLAN_NOT, PLAN_ONLY, PLAN_APART } PlanKind;

typedef struct Tensor {
    char *name;
    int rank; int64_t *dim;            /* as the caller passed them */
    bool permuted;                     /* its elements are not in row-major order of `dim`, nor are
                                        * its states */
    uint64_t layout;                   /* of a permuted tensor: a hash of its strides; else 0 */
    uint64_t identity;                 /* a hash of what all ranks of a sharded binding must pass
                                        * alike */
    int64_t *whole_dim, *offset;       /* of the tensor that this one is a piece of, and where the
                                        * piece begins */
    Shape shape;                       /* as the rule sees the tensor */
    /* The tensor that this one is a piece of, or its own shape, and per domain the number of the
     * whole's values ahead of the piece (only elements can be cut today). Sizes and random draws
     * follow the whole. templates/partials.h has the layout of partials */
    Shape whole;
    int64_t before[NDOM];
    int variant, group;
    int source;                        /* the bound tensor that it belongs to: itself, or (sharded
                                        * bindings) another */
    bool borrows;                      /* sharded bindings: its arrays are parts of another entry's,
                                        * or copies */
    int64_t first_unit;                /* flat stages: its first unit of work; those ahead of it are
                                        * not its own */
    int cohort;                        /* index into optc_binding.group: source of hyperparameters
                                        * and t */
    int64_t lag;                       /* steps of the binding that this tensor did not take part
                                        * in */
    void **mem;                        /* by array number */
    bool needs_grad;                   /* without a gradient it takes no part in entries that read
                                        * gradients */
    bool *caller_owned;                /* by array number: caller-owned state (caller_states.c);
                                        * NULL: none */
    /* its batch, the offset of its temporaries in the pool, and the offset of each array from there
     * (batches.c) */
    int batch;
    int64_t pool_at;
    const int64_t *pool_place;
    optc_view view;
    /* optc_binding.tensor has views of blocks after the bound tensors (matrix_blocks.c). of: the
     * bound tensor (its own index for a bound tensor); blocks: the blocks of a view; first_view,
     * nview: the views of a bound tensor */
    int of;
    BlockSize blocks;
    bool even;                         /* every matrix starts at a multiple of 8 values from the
                                        * start of its array */
    int first_view, nview;
    int64_t first_block, blocks_n;     /* staggered rules: its range in the numbering of all
                                        * tensors' blocks */
} Tensor;

/* A group, or after the groups a cohort: tensors of group `of` that are `lag` steps behind
 * (step_cohorts.c). hyper holds t, the hyperparameters, then the lag. idle: unused cohort; stale:
 * the device does not have its numbers yet */
typedef struct Group {
    double *hyper; void **mem; optc_view view;
    int first, count, of;              /* first, count: the group's tensors */
    int64_t lag;
    bool idle, stale;
    bool *scalar_set;                  /* groups only, by array number: this scalar input has a
                                        * value */
} Group;

/* Tensors of one variant and their units of work: per kind of stage, the units ahead of each tensor
 * and the longest list of values */
typedef struct Units {
    int *tensor, n;
    int64_t *prefix[NSTAGEKIND], longest[NSTAGEKIND], elems;
    int64_t *shorter;                  /* by length up to BRIEF: units of a flat stage up to that
                                        * length */
} Units;
/* Tensors of a variant with calls that are stepped together, sorted by shape (batches.c). group: of
 * shards_group;
 * blocks: views of the same tensors */
typedef struct Batch { int variant, group; Units units, blocks; } Batch;
typedef enum {
#define SCHEDULE_OP(ID, ...) SCHEDULE_##ID,
#include "gen/abi/schedule.def"
    NSCHEDULEOP
} ScheduleKind;

/* One piece of work of a run. The step counter covers all groups. */
typedef struct ScheduleOp {
    ScheduleKind kind;
    int what;                          /* LAUNCH, CALL: the number of the stage; EXCHANGE, WAIT: of
                                        * the exchange; else -1 */
    int batch;                         /* -1: all tensors of the stage */
    int beside;                        /* 0, or 1 + number in the stream of exchanges: of this one,
                                        * or (WAIT) of the one to wait for */
    const ProgStage *stage;            /* LAUNCH, CALL; else NULL */
    const Units *units;                /* what the stage covers; NULL: groups */
    const int *reads, *writes; int nreads, nwrites;   /* arrays of stages */
} ScheduleOp;
/* All that a run of an entry does in a phase, in the order in which it is issued. Made when
 * binding, by runtime/core/schedule/from_program.c */
typedef struct Schedule { ScheduleOp *op; int n; } Schedule;
/* an array of stagger slots and the host's copy: by tensor, or by block of all tensors
 * (stagger_slots.c) */
typedef struct Slots { int array, *slot; } Slots;
/* by array of slots: the slot that runs now; -1: all slots run */
typedef struct StaggerNow { int64_t now[MOST_SLOTS]; } StaggerNow;
/* Statistics of one matrix of a factor since binding (optc_factors). off: largest residual; method:
 * of gpu_roots.c */
typedef struct FactorStats { double computed, refused, off, method; } FactorStats;
/* bytes [lo, hi) of a tensor */
typedef struct Span { uintptr_t lo, hi; int tensor; } Span;
/* A number in memory that the device can read, read before every run (device_scalars.c).
 * Hyperparameters: `at` is the index in Group.hyper. Scalar inputs: `at` is 0 and `input` is the
 * array. type: T_F32 or T_F64. set: the value that the hyperparameter had before, restored when the
 * caller ends the reading */
typedef struct DeviceScalar {
    const void *from; Type type; int group, at, input; double set;
} DeviceScalar;
/* The values that a binding has shared with others for an entry (connect.c). levels: the first so
 * many levels; number: the round of its connection; captured: in a capture. used: the binding has
 * run the entry since. skipped: the host read its guard, and ran no entry that shares */
typedef struct Round { int entry, levels; int64_t number; bool captured, used, skipped; } Round;
typedef struct BindAlloc { struct BindAlloc *next; double align[1]; } BindAlloc;

struct optc_binding {
    optc_rule *rule;
    const Program *program;            /* the rule's; of a sharded binding its own
                                        * (runtime/core/shard) */
    /* ntensor: bound by the caller; nheld: these and the extra entries of a sharded binding; nall:
     * these and views of blocks */
    Tensor *tensor; int ntensor, nheld, nall;
    bool sharded;
    PlanKind plan;
    struct Shards *shards;             /* NULL: the binding is not sharded */
    Connection *connection;            /* of optc_connect (connect.c); NULL: it reads no other
                                        * binding's values */
    Round round;
    /* Some piece consists of runs (piece_runs), and its variant draws per element: other code
     * numbers the elements */
    bool runs;
    const optc_stage_fn *fn;           /* CPU code of this binding, by ProgStage.fn: the rule's, or
                                        * that for runs */
    Span *span; int nspan;             /* parameters, sorted by address */
    Span *caller_span; int ncaller_span;      /* caller-owned states, sorted by address */
    int64_t caller_bytes;
    Group *group; int ngroup, ncohort; /* ngroup groups, then cohorts: ncohort entries in total */
    bool group_states;                 /* the rule has states of the group */
    unsigned *leaves_out;              /* by entry: participation mask */
    /* settled: participation is set up for the mask left_out; absent: tensors without a gradient */
    bool settled; unsigned left_out; int *absent, nabsent;
    Units units[MOST_ROLES], blocks[MOST_ROLES];
    int64_t steps;
    int64_t elems;
    bool complete;                     /* all inputs were set at the last check, and none was
                                        * removed since */
    bool grads_set;                    /* gradients were set after the last run that executed */
    bool conditional;                  /* the device can skip calls too when the guard is set */
    bool recorded;                     /* the last run was captured in the caller's graph and did
                                        * not execute */
    void *block; size_t storage_bytes; /* states, temporaries and partials, in the device's
                                        * memory */
    size_t unshared_bytes;             /* storage_bytes if no two temporaries shared memory */
    int64_t *at;                       /* by array number: offset in the block; the last entry is
                                        * the pool's */
    /* by array number: variants (bits) whose tensors have the array in the pool. All batches use
     * the pool, one after another; its end is the calls' scratch memory */
    unsigned *batched;
    /* call_more: scratch memory outside the block */
    int64_t state_bytes, pool_bytes, call_bytes, call_more;
    Batch *batch; int nbatch;
    struct Blas *blas;                 /* CPU, rules with calls */
    int64_t effort;                    /* CPU: elements, plus calls as the number of elements that
                                        * take as long */
    Schedule *schedule;                /* by entry, then phase */
    Slots slots[MOST_SLOTS]; int nslots;
    StaggerNow stagger;                /* of the current run */
    int64_t graph_bytes;               /* GPU: of the work lists and graphs that are kept for
                                        * staggered steps */
    /* FactorStats of all matrices of all factors, in the device's memory. stats_at: by factor, then
     * tensor or view, the index of its first matrix; the last entry is the total
     * (factor_stats.c) */
    void *stats;
    int64_t *stats_at;
    int nfactor, *stats_factor;        /* stats_factor: by stage, the factor's number; -1: no
                                        * factor */
    DeviceScalar *source; int nsource, most_source;
    DeviceScalar guard;                /* from NULL: no guard. While its value is not 0, runs do
                                        * nothing */
    struct GpuTables *gpu;
    int threads, grain;                /* CPU: threads of a step, units per fetch of a thread; 0: by
                                        * size */
    /* profile: of the current run, NULL: it is not recorded; profiled: what the profiler stores for
     * the binding */
    ProfileBinding *profile, *profiled;
    char warning[480];                 /* optc_binding_warning; "": none */
    BindAlloc *allocs;                 /* small host memory, freed with the binding */
};

/* ---- struct_version.c ---- */
/* A public struct: the function that takes its size, its name, the header's function that passes
 * it, its size here and in the first version of the header */
typedef struct StructVersion { const char *call, *what, *usual; size_t ours, first; } StructVersion;
/* last: the last member of the first version, of those that packages have too */
#define STRUCT_VERSION(call, T, usual, last) \
    {call, #T, usual, sizeof(T), offsetof(T, last) + sizeof(((T *)NULL)->last)}
CORE optc_status struct_read(const StructVersion *s, void *to, const void *from, size_t size);
CORE optc_status struct_write(const StructVersion *s, void *to, size_t size, const void *from);
CORE optc_status struct_read_array(const StructVersion *s, void *to, const void *from, size_t size,
                                   int n);

/* ---- binding.c ---- */
/* zeroed, freed with the binding; NULL: failed */
CORE void *binding_alloc(optc_binding *b, size_t n, size_t size);
#define TAKE(b, T, n) ((T *)binding_alloc((b), (size_t)(n), sizeof(T)))
CORE const char *tensor_label(const optc_binding *b, int i, char buf[96]);
CORE bool state_caller_owned(const optc_binding *b, int tensor, int array);
/* the entry has the state in memory of its own, which binding initialises */
CORE bool state_starts(const optc_binding *b, int entry, int array);
CORE optc_status find_hyper(const Program *p, const char *call, const char *name, int *out);
CORE optc_status check_hyper(const Program *p, const char *call, const char *name, double value,
                             int *out);
/* adds to optc_engine.ours; negative: freed */
CORE void memory_account(optc_engine *e, int64_t bytes);
CORE void *call_space(const optc_binding *b);               /* call_bytes of scratch memory */
/* the host reads the guard, and waits for its value */
CORE bool host_guards(const optc_binding *b);
/* "stage 1 (flat) of rule 'adamw' (adamw.lua:12)", "a product of rule …"; s NULL: the step
 * counter */
CORE void stage_label(const Program *p, const ProgStage *s, char *buf, size_t n);

/* ---- array_bytes.c ---- */
/* two temporaries share memory */
CORE bool temporaries_overlap(const optc_binding *b, int x, int y);

OPTC_COUNT int64_t factor_stats_count(const optc_binding *b)
{
    return b->nfactor ? b->stats_at[(int64_t)b->nfactor * b->nall] : 0;
}
/* a state that callers see, or (report) a report */
OPTC_COUNT bool array_visible(const ProgArray *m, bool report)
{
    return m->kind == MEM_STATE && m->report == report && !m->slots.every && !m->kernel;
}

/* ---- type_values.c ---- */
CORE bool type_is_coded(int t);                             /* block codes: q8, q8u, f8, f8u */
/* a code for values that are never negative */
CORE bool type_is_unsigned(int t);
CORE double type_load(int t, const void *p, int64_t i);
CORE void type_store(int t, void *p, int64_t i, double x);
/* All n values of an array; t may be a block code. */
CORE void values_load(int t, const void *p, int64_t n, double *out);
/* dither: of the first value (templates/codes.h); NULL: block codes are rounded to nearest */
CORE void values_store(int t, void *p, int64_t n, const double *in, const unsigned *dither);
CORE void number_store(int t, void *p, int64_t n, double value);     /* n times the same value */

/* ---- call_costs.c ---- */
/* operations of a call */
CORE double call_flops(const Program *p, const ProgCall *c, Shape s);
/* the same, or what a GPU takes longer for, as operations: for slots */
CORE double call_cost(const Program *p, const ProgStage *s, Shape shape);
#endif

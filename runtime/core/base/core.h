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

/* A pending change of participation and cohorts, for entries whose participation mask is `mask`.
 * any: something changes; takes: a free cohort comes into use; grows: more cohorts are needed than
 * exist */
typedef struct Participation { unsigned mask; bool any, takes, grows; } Participation;

typedef struct Connection Connection;
typedef struct Device Device;
typedef struct Host Host;

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

/* One piece of work of a run. Copies and the step counter cover all tensors or groups. */
typedef struct ScheduleOp {
    ScheduleKind kind;
    int what;                          /* LAUNCH, CALL: the number of the stage; EXCHANGE, WAIT: of
                                        * the exchange; else -1 */
    int batch;                         /* -1: all tensors of the stage */
    int beside;                        /* 0, or 1 + number in the stream of exchanges: of this one,
                                        * or (WAIT) of the one to wait for */
    const ProgStage *stage;            /* LAUNCH, CALL; else NULL */
    const Units *units;                /* what the stage covers; NULL: groups */
    const int *reads, *writes; int nreads, nwrites;   /* arrays of stages and copies */
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
    bool conditional;                  /* the device can skip calls and copies too when the guard is
                                        * set */
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

/* Copies `rows` runs of `bytes` bytes. The runs of each side are `pitch` bytes apart. */
typedef struct MemoryCopy { void *to; const void *from; size_t bytes, rows, pitch; } MemoryCopy;

/* One entry of one binding, of those that optc_run_all runs. Tasks of one level are independent of
 * each other, and depend on all tasks of the levels before. In the order in which they are run one
 * by one. */
typedef struct JointTask { optc_binding *b; int entry, phase, level; } JointTask;
enum { MOST_JOINT = 64 };                  /* tasks of one optc_run_all that can be one graph */

struct Device {
    const char *name;
    /* allocates memory, initialises states, makes tables; groups and tensors are already filled */
    optc_status (*bind)(optc_binding *b);
    /* also after a bind that failed half-way */
    void (*unbind)(optc_binding *b);
    optc_status (*run)(optc_binding *b, int entry, int phase);
    optc_status (*sync)(optc_binding *b);
    /* checks that the device can reach p, which replaces `was` */
    optc_status (*use_pointer)(optc_binding *b, int tensor, const void *was, const void *p,
                               const char *what);
    void (*set_stream)(optc_binding *b, void *stream);
    optc_status (*read)(const optc_binding *b, void *host, const void *from, size_t bytes,
                        const char *call);
    optc_status (*write)(const optc_binding *b, void *to, const void *host, size_t bytes, bool wait,
                         const char *call);
    /* sets n doubles, `pitch` bytes apart, to `value`: all of them, or none and an error */
    optc_status (*spread)(const optc_binding *b, void *to, size_t pitch, int n, double value,
                          const char *call);
    /* sets hyperparameter `at` of n groups on the device, all or none. After success the caller
     * updates Group.hyper */
    optc_status (*send_hyper)(const optc_binding *b, int first, int n, int at, double value,
                              const char *call);
    /* steps of the binding, including replays of captured steps that the host did not see */
    optc_status (*get_t)(const optc_binding *b, int64_t *steps);
    optc_status (*set_t)(optc_binding *b, int64_t steps);    /* for all cohorts */
    /* memory for additional cohorts, freed with the binding */
    optc_status (*alloc_cohorts)(optc_binding *b, size_t bytes, void **out);
    /* ncohort has grown. A failure frees what alloc_cohorts returned last */
    optc_status (*grown)(optc_binding *b);
    /* cohorts or participation changed; moved: pointers changed too */
    void (*arranged)(optc_binding *b, bool moved);
    /* called before such a change, may refuse it; NULL: always allowed */
    optc_status (*may_change_participation)(const optc_binding *b, const Participation *c);
    /* idle cohorts that a binding starts with */
    int spare_cohorts;
    optc_status (*memory)(optc_engine *e, optc_memory *out);
    /* the host can access the device's memory */
    bool reaches;
    /* the device shall read this number before every run; NULL: the host reads it
     * (device_scalars.c) */
    optc_status (*read_ahead)(optc_binding *b, const void *from, bool guard, const char *call);
    /* bytes of scratch memory for calls, which use it one after another; NULL: 0. Must not depend
     * on the number of threads or on free memory: it decides which matrices share a call, and with
     * that bits */
    int64_t (*call_bytes)(const optc_binding *b);
    /* sharded bindings: gathers host memory of all ranks when binding; runs an exchange */
    optc_status (*gather)(optc_engine *e, const optc_comm *c, const void *own, void *all,
                          size_t bytes);
    optc_status (*exchange)(const optc_binding *b, int number);
    /* memory for callers (device_memory.c). take: not initialised. give: refused calls free
     * nothing. fills: `to` is memory of this device */
    optc_status (*take)(optc_engine *e, size_t bytes, void *stream, void **out);
    optc_status (*give)(optc_engine *e, void *memory, size_t bytes, void *stream);
    optc_status (*fills)(optc_engine *e, const void *to);
    optc_status (*set)(optc_engine *e, void *to, int byte, size_t bytes, void *stream);
    optc_status (*copy)(optc_engine *e, const MemoryCopy *c, void *stream);
    /* copies n numbers of 8 bytes to `send`, and gathers those of all ranks, with one more number,
     * to `recv`. Not 0: it failed */
    int (*gather_values)(optc_binding *b, const optc_comm *c, void *const *from, int n, void *send,
                         void *recv);
    /* begins: the bindings other than b[lead] run beside it from here on; otherwise: ends that,
     * also after an error.
     * NULL: bindings run one after another */
    optc_status (*beside)(optc_binding *const *b, int n, int lead, bool begins);
    /* The tasks of an optc_run_all as one graph. ran false: launches it if there is one that still
     * fits, and sets *done. ran true: the tasks ran one by one, and may be the same next time:
     * makes their graph. NULL: none */
    optc_status (*joint)(const JointTask *task, int n, bool ran, bool *done);
    /* sharded bindings: this rank cannot run, or (why OPTC_OK) a guard skips its run. Marks that
     * for the other ranks, which have not waited for it. Returns `why`, with its message. NULL: all
     * ranks compare before a run (shards_begin) */
    optc_status (*refuse)(optc_binding *b, int entry, int phase, optc_status why);
    /* its stream is being captured; NULL: never */
    bool (*capturing)(const optc_binding *b);
    bool overlaps;                     /* exchanges can run beside stages (shard_overlap.c) */
};
CORE const Device *cpu_device(void);
CORE const Device *gpu_device(void);

struct GpuCode;
struct KernelNeeds;
struct FunctionForm;
struct MatrixKit;
struct Host {
    /* lowest CUDA version of the driver that its code needs, such as 13000; 0: DRIVER_NEEDED is
     * enough */
    int cuda;
    /* small blocks come from the GPU's memory pool: cheap by the thousand, but a process's first
     * use takes some 8 ms */
    bool pooled;
    /* ordinal of the GPU that the device name "best" means; -1: the CPU */
    int (*best)(const optc_engine_options *o);
    /* sets e->library; the device is open */
    optc_status (*open)(optc_engine *e, const optc_engine_options *o);
    /* also after an open that failed half-way; the device is still open */
    void (*close)(optc_engine *e);
    /* sets program, fn, library */
    optc_status (*make)(optc_rule *r, const optc_rule_options *o);
    /* also after a make that failed half-way */
    void (*drop)(optc_rule *r);
    /* how the rule runs, for users */
    void (*path)(const optc_rule *r, char *buf, size_t n);
    /* the rule's kernels, with launches for this number of elements */
    optc_status (*code)(optc_rule *r, int64_t elements, const struct GpuCode **out);
    /* Code for a binding with runs: of a CPU rule in fn, of a GPU rule in code. NULL: the host has
     * none */
    optc_status (*runs)(optc_binding *b, const struct GpuCode **code, const optc_stage_fn **fn);
    /* loads these kernels into `code`, which may leave kernels out; NULL: it never does. call: in
     * messages */
    optc_status (*load)(optc_rule *r, const struct GpuCode *code, const struct KernelNeeds *need,
                        const char *call);
    /* sharded bindings of several ranks on GPUs: passes what rank 0 measured to all ranks; NULL:
     * nothing is passed */
    optc_status (*share)(optc_binding *b);
    /* called after binding; may be NULL */
    void (*bound)(optc_binding *b);
    /* names of its rules; NULL: no more */
    const char *(*rule_name)(int i);
    /* Matrices without a rule (runtime/core/functions). function: the rule of a function. kernels:
     * loads the kernels of a MatrixKernels into the kit, inside gpu_enter. NULL: the host has no
     * such functions */
    optc_status (*function)(optc_engine *e, const struct FunctionForm *f, optc_rule **out);
    optc_status (*kernels)(optc_engine *e, struct MatrixKit *k, int which);
    /* it compiles no rules */
    bool packed;
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

/* ---- bind.c, layout.c ---- */
/* zeroed, freed with the binding; NULL: failed */
CORE void *binding_alloc(optc_binding *b, size_t n, size_t size);
#define TAKE(b, T, n) ((T *)binding_alloc((b), (size_t)(n), sizeof(T)))
CORE const char *tensor_label(const optc_binding *b, int i, char buf[96]);
/* ---- tensor_check.c ---- */
CORE TensorFacts tensor_facts(const optc_tensor *t);
CORE int view_of(const Program *p, const TensorFacts *a);
/* of the tensor that this one is a piece of */
CORE int64_t whole_dim(const optc_tensor *t, int k);
CORE int64_t begins_at(const optc_tensor *t, int k);        /* where the piece begins in it */
CORE int64_t elements_before(const optc_tensor *t);
/* A piece with these dimensions consists of runs of *run elements, *apart elements of the whole
 * tensor apart; one run: *apart is 0. false: its runs are not equally far apart */
CORE bool box_runs(int rank, const int64_t *shape, const int64_t *whole, int64_t *run,
                   int64_t *apart);
/* the same for a tensor; true: it has several runs, and the host has code that numbers their
 * elements */
CORE bool piece_runs(const optc_binding *b, const optc_tensor *t, int64_t *run, int64_t *apart);
CORE bool is_row_major(const optc_tensor *t, const int64_t *stride);
CORE optc_status check_tensor(const optc_binding *b, const optc_tensor *t, int i);
/* ---- alias_check.c ---- */
CORE int span_order(const void *a, const void *b);         /* for qsort: by address */
CORE optc_status check_params_apart(optc_binding *b);
/* an array that a step reads must not overlap a parameter or a state, which the step writes */
CORE optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes,
                               const char *what);

/* ---- caller_states.c ---- */
CORE optc_status check_states_apart(optc_binding *b);
CORE optc_status bind_caller_states(optc_binding *b, int tensor, void *const *states);
CORE bool state_caller_owned(const optc_binding *b, int tensor, int array);
/* the tensor of a caller-owned state that overlaps [lo, hi); -1: none does */
CORE int caller_state_at(const optc_binding *b, uintptr_t lo, uintptr_t hi);

/* ---- bind.c, introspect.c, layout.c ---- */
CORE optc_status find_hyper(const Program *p, const char *call, const char *name, int *out);
CORE optc_status check_hyper(const Program *p, const char *call, const char *name, double value,
                             int *out);
/* adds to optc_engine.ours; negative: freed */
CORE void memory_account(optc_engine *e, int64_t bytes);
/* after tensors are filled; sets optc_binding.warning */
CORE void warn_stacks(optc_binding *b);
CORE optc_status layout_measure(optc_binding *b);           /* computes storage_bytes and offsets */
/* two temporaries share memory */
CORE bool temporaries_overlap(const optc_binding *b, int x, int y);
/* after allocation: pointers, views, units of work */
CORE optc_status layout_place(optc_binding *b);


/* ---- matrix_blocks.c ---- */
CORE optc_status blocks_make(optc_binding *b);
/* after the tensors' pointers are set */
CORE void blocks_point(optc_binding *b);
CORE void blocks_views(optc_binding *b);                    /* after the tensors' views are set */
/* x is a view or an extra entry of t: takes its cohort, participation and values per group */
CORE void tensor_follow(const optc_binding *b, Tensor *x, const Tensor *t);
/* after cohorts or participation changed */
CORE void blocks_update(optc_binding *b);
/* after one pointer changed */
CORE void blocks_moved(optc_binding *b, int tensor, int array);
CORE bool array_blocked(const ProgArray *m);
CORE int64_t row_stride(const optc_binding *b, const Tensor *t);           /* of the elements */
/* offset of the nth matrix of an array from t's pointer, in values */
CORE int64_t matrix_at(const optc_binding *b, const Tensor *t, int array, int64_t nth);
/* the tensors, or views of their blocks, that a stage covers; batch -1: all */
CORE const Units *stage_tensors(const optc_binding *b, const ProgStage *s, int batch);
CORE optc_status blocks_units(optc_binding *b, const Units *of, Units *out);
/* ---- units.c: fills u from u->tensor and u->n ---- */
CORE optc_status units_count(optc_binding *b, Units *u);

/* ---- batches.c ---- */
#define MOST_WORKSPACE ((int64_t)1 << 46)
CORE bool parse_size(const char *s, int64_t *out);          /* engine_api.c: "512M", "0" */
CORE void *call_space(const optc_binding *b);               /* call_bytes of scratch memory */

/* ---- runtime/core/schedule ---- */
CORE optc_status schedules_make(optc_binding *b);
CORE const Schedule *schedule_of(const optc_binding *b, int entry, int phase);
/* Ops that are not ordered, also not by way of others, may run side by side. Longer schedules run
 * one op after another. */
enum { MOST_SIDE_BY_SIDE = 64 };
CORE bool ops_ordered(const optc_binding *b, const ScheduleOp *x, const ScheduleOp *y);
OPTC_COUNT bool op_of_ranks(const ScheduleOp *op) { return op->kind >= SCHEDULE_EXCHANGE; }

OPTC_COUNT int64_t factor_stats_count(const optc_binding *b)
{
    return b->nfactor ? b->stats_at[(int64_t)b->nfactor * b->nall] : 0;
}

/* ---- stagger_slots.c ---- */
CORE optc_status stagger_make(optc_binding *b);               /* assigns slots; after blocks_make */
/* takes the slots that the tensors have in a binding of whole tensors */
CORE optc_status stagger_follow(optc_binding *b, const optc_binding *model);
/* writes slots to the device; after allocation */
CORE optc_status stagger_write(optc_binding *b);
CORE StaggerNow stagger_now(const optc_binding *b, int64_t t);
/* A slot array in `stagger` (bits) schedules the tensor, or this matrix of a view of blocks (-1:
 * any of its matrices), at this step. Always true when `stagger` is 0 */
CORE bool stagger_active(const optc_binding *b, const StaggerNow *x, unsigned stagger,
                         const Tensor *y, int64_t matrix);
/* the matrix that a stage's unit belongs to; -1: the unit may contain several */
CORE int64_t stagger_matrix(const ProgStage *s, const Tensor *y, int64_t unit);
/* a state that callers see, or (report) a report */
OPTC_COUNT bool array_visible(const ProgArray *m, bool report)
{
    return m->kind == MEM_STATE && m->report == report && !m->slots.every && !m->kernel;
}

/* ---- runtime/core/shard; for bindings that are not sharded these do nothing ---- */
/* makes the derived program and the extra entries; after tensors are filled */
CORE optc_status shards_make(optc_binding *b, const optc_comm *comm, optc_status so_far);
/* instead of shards_make: tells the other ranks that this one cannot bind; returns s with its
 * message */
CORE optc_status shards_refuse(const optc_rule *r, const optc_comm *comm, optc_status s);
/* memory for buffers and copies, from this offset on */
CORE int64_t shards_bytes(optc_binding *b, int64_t at);
/* after the tensors' pointers are set */
CORE void shards_point(optc_binding *b);
/* after cohorts or participation changed */
CORE void shards_update(optc_binding *b);
/* after one pointer changed */
CORE void shards_moved(optc_binding *b, int tensor, int array);
/* before states that copy p are filled */
CORE optc_status shards_send_params(optc_binding *b);
/* before a run: the ranks compare gradients, guards (skip) and whether each of them can run */
CORE optc_status shards_begin(optc_binding *b, int entry, int phase, optc_status so_far, bool skip);
/* this rank cannot run, though shards_begin succeeded; returns why */
CORE optc_status shards_refuse_run(optc_binding *b, int entry, int phase, optc_status why);
CORE int shards_variant(const optc_binding *b, int tensor);                 /* of the rule */
/* bind.c: everything but the device's memory */
CORE optc_status bind_plan(optc_rule *r, const optc_group *groups, int ngroups,
                           const optc_comm *comm, PlanKind plan, optc_binding **out);
/* shard_plan.c: the same of tensors that are never allocated, cut along dimension 0. sharded: also
 * if ranks is 1 */
typedef struct RankPlan { int rank, ranks; bool sharded; PlanKind kind; } RankPlan;
CORE optc_status bind_rank_plan(optc_rule *r, const optc_group *groups, int ngroups,
                                const RankPlan *x, optc_binding **out);
CORE void shards_exchange(const optc_binding *b, int number);              /* on the CPU */
CORE optc_status exchange_run(const optc_binding *b, int number);
/* after a run: how the exchanges ended */
CORE optc_status shards_end(optc_binding *b);
CORE bool shards_move(const optc_binding *b, int array);    /* some exchange moves the array */
/* the group of tensors that an entry is exchanged with; 0 if exchanges do not run beside
 * computation */
CORE int shards_group(const optc_binding *b, int entry);
/* how binding ended on all ranks */
CORE optc_status shards_agree(optc_binding *b, optc_status s);
CORE optc_status shards_gather(const optc_binding *b, const void *own, void *all, size_t bytes);
/* the number of ranks, 1: not sharded; rank: this one */
CORE int shards_ranks(const optc_binding *b, int *rank);
/* variants of the rule, with their roles */
CORE unsigned shards_roles(const optc_binding *b, unsigned variants);
/* the entry that holds a state of a bound tensor; -1: another rank holds it */
CORE int shards_state_entry(const optc_binding *b, int tensor, int array);
/* optc_params_changed: refuses a state that one rank holds for all pieces */
CORE optc_status shards_check_restart(const optc_binding *b, int tensor, int array);

/* ---- step_cohorts.c ---- */
/* The participation mask of an entry: variants whose stages read a gradient in any phase. */
CORE unsigned gradient_variants(const Program *p, int entry);
CORE optc_status cohort_make(optc_binding *b, Group *g, int of, bool idle);
CORE optc_status cohorts_prepare(optc_binding *b);
CORE void cohorts_place(optc_binding *b);                      /* fills their views */
/* each cohort has its own copy of the array */
CORE bool cohort_owns(const ProgArray *m);
/* cohorts and participation are right for the entry. If not, call cohorts_catch_up, then
 * cohorts_arrange, before a run */
CORE bool cohorts_settled(const optc_binding *b, int entry);
CORE optc_status cohorts_arrange(optc_binding *b, int entry);
/* an entry with this participation mask skips t */
CORE bool tensor_out(const Tensor *t, unsigned mask);
CORE void cohorts_stepped(optc_binding *b);                 /* a step was executed */
CORE optc_status cohorts_catch_up(optc_binding *b);
#define MOST_T ((int64_t)1 << 52)
/* the steps of a tensor; now: the binding's, of Device.get_t */
CORE int64_t tensor_steps(const optc_binding *b, int tensor, int64_t now);
/* of the binding, then of its tensors */
CORE optc_status put_steps(optc_binding *b, const int64_t *steps);
/* before a run: copies the groups' states to their cohorts */
CORE optc_status cohorts_copy_states(optc_binding *b,
                                     optc_status (*copy)(optc_binding *b, void *to,
                                                         const void *from, size_t n));

/* ---- engine_api.c ---- */
/* Reads a device name: NULL or "cpu", "cuda", "cuda:1", "best". No other function parses device
 * names. */
typedef enum DeviceKind { DEVICE_CPU, DEVICE_GPU, DEVICE_BEST } DeviceKind;
/* ordinal: GPUs only */
typedef struct DeviceName { DeviceKind kind; int ordinal; } DeviceName;
/* false: no device has such a name */
CORE bool device_parse(const char *text, DeviceName *out);

/* ---- device_memory.c ---- */
/* number and bytes of optc_alloc's live blocks */
CORE int memory_blocks(const optc_engine *e, int64_t *bytes);

/* ---- device_scalars.c ---- */
/* before a run: the host reads the guard and the scalars that are its task to read; it waits for a
 * device whose memory it cannot access. skip: the guard is set, the run must do nothing */
CORE optc_status device_scalars_read(optc_binding *b, bool *skip);
CORE optc_status device_scalar_now(const optc_binding *b, const DeviceScalar *s, const char *call,
                                   double *out);
/* the host reads the guard, and waits for its value */
CORE bool host_guards(const optc_binding *b);
/* the error of a capture that cannot contain the guard */
CORE optc_status guard_refused(const optc_binding *b);
/* NULL: none */
CORE const DeviceScalar *hyper_device_scalar(const optc_binding *b, int group, int at);
/* group -1: all */
CORE void drop_device_scalars(optc_binding *b, int group, int at, int input);
/* was set, or is read from memory */
CORE bool scalar_known(const optc_binding *b, int group, int input);
/* after a run, which read all of them */
CORE void device_scalars_done(optc_binding *b);

/* ---- connect.c ---- */
CORE bool is_shared_input(const ProgArray *m);              /* a value of one of several bindings */
CORE optc_status check_bindings(const char *call, optc_binding *const *b, int n);
/* if the entry needs values of connected bindings, the list of an optc_run_all has all of them */
CORE optc_status check_lists(optc_binding *const *b, int n, const char *entry);
/* it is connected with other processes */
CORE bool connection_ranks(const optc_binding *b);
/* after the entries of a level, of which so_far says how they ended: the ranks exchange their
 * values */
CORE optc_status connection_gather(optc_binding *b, optc_status so_far);
/* the values that the entry needs are there */
CORE optc_status check_round(const optc_binding *b, int entry);
CORE void round_ran(optc_binding *b, int entry);
/* the host read its guard, which is set */
CORE void round_skipped(optc_binding *b, int entry);
CORE void round_end(optc_binding *b);
/* of all of its bindings; does nothing if it has none */
CORE void connection_end(optc_binding *b);
/* the input is another binding's state */
CORE bool connection_reads(const optc_binding *b, int array);

/* ---- step.c ---- */
CORE int find_entry(const optc_binding *b, const char *name);           /* -1: none */
/* counts a run that succeeded */
CORE void entry_ran(optc_binding *b, int entry, int phase);
/* the next run of the entry needs nothing of the host but the launch: inputs and participation are
 * as before */
CORE bool entry_steady(const optc_binding *b, int entry);
/* Bytes that one stage of a batch (-1: of all tensors), or one copy, moves by the plan. present: of
 * the tensors that take part in the current run, otherwise of all */
CORE void add_bytes(const optc_binding *b, const ScheduleOp *op,
                    const StaggerNow *stagger, bool present, optc_bytes *out);
/* sets hyperparameter `at` of a group (-1: all groups) on the device and in Group.hyper, of its
 * cohorts too; all or none */
CORE optc_status put_hyper(optc_binding *b, int group, int at, double value, const char *call);

/* ---- state_access.c ---- */
CORE optc_status has_state(const optc_binding *b, const char *call, int tensor, const char *name,
                           int *has);
CORE bool type_is_coded(int t);                             /* block codes: q8, q8u, f8, f8u */
/* a code for values that are never negative */
CORE bool type_is_unsigned(int t);
CORE double type_load(int t, const void *p, int64_t i);
CORE void type_store(int t, void *p, int64_t i, double x);
/* All n values of an array; t may be a block code. */
CORE void values_load(int t, const void *p, int64_t n, double *out);
/* dither: of the first value (templates/codes.h); NULL: block codes are rounded to nearest */
CORE void values_store(int t, void *p, int64_t n, const double *in, const unsigned *dither);
CORE optc_status find_input(const optc_binding *b, const char *call, const char *name, bool group,
                            int *out);
CORE void number_store(int t, void *p, int64_t n, double value);     /* n times the same value */
/* coded_start.c: after the device has filled all states */
CORE optc_status coded_states_start(optc_binding *b);
CORE double state_start(const optc_binding *b, const ProgArray *m, int group);
/* n values of a state from index `at` on. side: rows of its square matrices, to find their
 * diagonals. of: the tensor;
 * NULL: a state of the group */
typedef struct StateSpan { int64_t at, n, side; const Tensor *of; } StateSpan;
OPTC_COUNT StateSpan state_span(const Tensor *of, int64_t at, int64_t n, int64_t side)
{
    StateSpan x;
    x.at = at, x.n = n, x.side = side, x.of = of;
    return x;
}
CORE void state_fill(const optc_binding *b, const ProgArray *m, int group, void *dst,
                     const void *param, StateSpan x);

/* ---- lower_states.c ---- */
/* n values of a state from index `at` on, of a plain type with so many bytes; maybe unaligned.
 * label: the tensor */
typedef struct NewValues {
    const char *call, *label; int type, bytes; const void *data; int64_t at, n;
} NewValues;
/* Refuses values right of the diagonal of a state that is a lower triangle. s: the shape of the
 * tensor that holds it */
CORE optc_status check_lower(const ProgArray *m, Shape s, const NewValues *x);

/* ---- thread_barrier.c ---- */
/* begins as zeros */
typedef struct Barrier { int arrived, asleep; unsigned generation; } Barrier;
#ifdef _OPENMP
/* returns after `threads` threads have called it */
CORE void barrier_wait(Barrier *t, int threads);
#endif

/* ---- cpu_device.c ---- */
/* `threads`, or 1 where this process must not start any */
CORE int threads_allowed(int threads);
/* Calls each(with, i) for i in [0, n), divided among the threads of a team. A team of one does not
 * enter OpenMP, whose runtime ends the process when memory runs out. */
CORE void parallel_for(int team, int64_t n, void (*each)(void *with, int64_t i), void *with);
CORE optc_status cpu_bind(optc_binding *b);
CORE void cpu_unbind(optc_binding *b);
CORE optc_status cpu_sync(optc_binding *b);
/* cohorts_copy_states, in the host's memory */
CORE void cpu_follow(optc_binding *b);

/* ---- call_costs.c ---- */
/* operations of a call */
CORE double call_flops(const Program *p, const ProgCall *c, Shape s);
/* the same, or what a GPU takes longer for, as operations: for slots */
CORE double call_cost(const Program *p, const ProgStage *s, Shape shape);

/* ---- cpu_calls.c ---- */
typedef struct CalleeInfo {
    const char *name;
    double (*flops)(const Program *p, const ProgCall *c, Shape s);
    /* without regard to the tensors' shapes */
    optc_status (*check)(const Program *p, const ProgStage *s);
    /* CPU jobs, independent of each other */
    int64_t (*jobs)(const Program *p, const ProgCall *c, Shape s);
    /* thread: index of the calling thread in its team */
    void (*run)(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread);
    /* bytes of scratch memory per CPU thread; NULL: 0 */
    int64_t (*scratch)(const Program *p, const ProgCall *c, Shape s);
} CalleeInfo;
CORE const CalleeInfo *callee_info(const ProgCall *c);
CORE optc_status cpu_calls(optc_binding *b);
/* loads the BLAS of a rule with products; a failure is reported when the rule is bound */
CORE void cpu_calls_load(const optc_rule *r);
CORE int64_t cpu_call_bytes(const optc_binding *b);
/* appends "; " and how products are computed; appends nothing for rules without products */
CORE void cpu_call_path(const optc_rule *r, char *text, size_t n);

/* ---- rule_api.c ---- */
/* "stage 1 (flat) of rule 'adamw' (adamw.lua:12)", "a product of rule …"; s NULL: the step
 * counter */
CORE void stage_label(const Program *p, const ProgStage *s, char *buf, size_t n);
#endif

/* The core: binding, layout, stepping, state and the GPU's launches of a rule that is given as a Program
 * (gen/abi/program.h). These sources are compiled into the library and pasted into packages, there with the public names of
 * optc.h renamed. They know no plan, no compiler and no file; C11 and C++17, without a warning.
 *
 *   optc_engine   what runs: a device, its threads. Read-only once open
 *   optc_rule     a Program and its code for the engine's device. Read-only once made, but for the number of its
 *                 bindings and what its host notes about them (which launches were taken), under a lock of the host's
 *   optc_binding  a rule on tensors: for every tensor a table of pointers by array number, all state in one block. One
 *                 thread at a time
 *   Device        what differs between the CPU, a GPU and (in the library) the evaluator: a table of functions
 *   Host          who stands behind: the library, which compiles rules and tunes them, or a package, which has them. A
 *                 table of functions too
 *
 * Packages without products do not contain cpu_calls.h, gpu_calls.h and the sources that include them. They contain
 * runtime/core/api/no_matrix_calls.h instead. */
#ifndef OPTC_CORE_H
#define OPTC_CORE_H
#include "gen/abi/stage_abi.h"
#include "runtime/optc.h"
#include "gen/abi/program.h"

#ifndef CORE
#define CORE                               /* a package says `static` */
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

/* Who takes part, and who has which row, is about to be arranged for entries that leave out these variants' tensors.
 * any: it is not so yet; takes: a row is taken that was free; grows: there are more than there were */
typedef struct Participation { unsigned mask; bool any, takes, grows; } Participation;

typedef struct Device Device;
typedef struct Host Host;

struct optc_engine {
    const Device *device;
    struct GpuEngine *gpu;             /* of a GPU */
    int threads;
    int64_t workspace;                 /* bytes of a batch's temporaries and of what calls work in, at most */
    char name[400];
    optc_allocator memory;             /* alloc NULL: our own */
    long long ours, peak;              /* bytes of bindings, now and at most; atomic, as the next */
    int rules;
    struct LibraryEngine *library;           /* the host's */
};

struct optc_rule {
    optc_engine *engine;
    const Device *device;
    const Program *program;
    const optc_stage_fn *fn;           /* on the CPU: by number; NULL: it has none */
    int bindings;                      /* atomic */
    struct LibraryRule *library;             /* the host's */
};

typedef struct Tensor {
    char *name;
    int rank; int64_t *dim;            /* as it was handed in; shape: as the rule sees it */
    Shape shape;
    /* the tensor it is a piece of (or itself), and by domain how many of its values come before the piece's: of pieces
     * that are bound only elements count. Sizes and draws are the whole's; templates/partials.h: where reductions leave what */
    Shape whole;
    int64_t before[NDOM];
    int variant, group;
    int cohort;        /* whose hyperparameters and t it has (step_cohorts.c): its group's own, or one behind */
    int64_t lag;                       /* steps of the binding that are none of its own */
    void **mem;                        /* by array number */
    bool *caller_owned;        /* likewise: a state in the caller's memory (caller_states.c). NULL: there is none */
    /* where the temporaries of its batch begin in the pool for it, and by array where they lie from there (batches.c) */
    int batch;
    int64_t pool_at;
    const int64_t *pool_place;
    optc_view view;
    /* Behind the bound tensors are views of their blocks (matrix_blocks.c). of: the tensor, of a bound one itself; blocks: of
     * a view, which they are; of a bound tensor its views */
    int of;
    BlockSize blocks;
    bool even;                         /* all that begins in it does at multiples of 8 values, from where arrays begin */
    int first_view, nview;
    int64_t first_block, blocks_n;     /* of rules with turns: its blocks among those of all tensors, and how many */
} Tensor;

/* A group, or behind the groups a row of tensors of one group with another t (step_cohorts.c): `of` and `lag` say of which, and
 * how far behind. hyper[0] is t, the hyperparameters follow, and then the lag. stale: a device does not have it yet */
typedef struct Group {
    double *hyper; void **mem; optc_view view;
    int first, count, of;
    int64_t lag;
    bool idle, stale;
    bool *scalar_set;                  /* of a group, by array number: this input of the group has a value */
} Group;

/* tensors of one variant and their units of work */
typedef struct Units {
    int *tensor, n;
    int64_t *prefix[NSTAGEKIND], longest[NSTAGEKIND], elems;
    int64_t *shorter;                  /* by length up to BRIEF: how many units of a flat pass have no more elements */
} Units;
/* Tensors of a variant that has calls, stepped together: batches.c. Those of one shape stand next to each other */
typedef struct Batch { int variant; Units units, blocks; } Batch;      /* blocks: views of the same tensors */
/* What a run does, in order: an action over a batch, or (-1) over all that have part in it. Copies and t: all */
typedef struct Task { const ProgAction *action; int batch; } Task;
typedef struct Tasks { Task *task; int n; } Tasks;
/* an array of slots, and what it holds: by tensor, or by block of all tensors (stagger_slots.c) */
typedef struct Slots { int array, *slot; } Slots;
/* by array of slots: whose turn it is; -1: everybody's */
typedef struct StaggerNow { int64_t now[MOST_SLOTS]; } StaggerNow;
/* What is said of a factor's matrix since it was bound (optc_factors); way: gpu_roots.c's */
typedef struct FactorStats { double computed, refused, off, method; } FactorStats;
typedef struct Span { uintptr_t lo, hi; int tensor; } Span;
/* A number where the device reaches it, read ahead of every run (device_scalars.c). Of hyperparameters `at` is their place in a
 * row; of inputs of the group it is 0, and `input` the array. type: T_F32 or T_F64. set: the hyperparameter's value
 * before, which comes back when reading ends */
typedef struct DeviceScalar { const void *from; Type type; int group, at, input; double set; } DeviceScalar;
typedef struct BindAlloc { struct BindAlloc *next; double align[1]; } BindAlloc;

struct optc_binding {
    optc_rule *rule;
    Tensor *tensor; int ntensor, nall; /* nall: with the views of their blocks */
    Span *span; int nspan;             /* where parameters lie, by address */
    Span *caller_span; int ncaller_span;      /* and states in the caller's memory */
    int64_t caller_bytes;
    Group *group; int ngroup, ncohort;    /* groups, and behind them rows: ncohort in all */
    bool group_states;                 /* the rule has states of the group */
    unsigned *leaves_out;              /* by entry: bits, the variants whose tensors it leaves out without a gradient */
    /* who takes part is arranged for entries that leave these out; tensors without a gradient */
    bool settled; unsigned left_out; int *absent, nabsent;
    Units units[MOST_VARIANTS], blocks[MOST_VARIANTS];
    int64_t steps;
    int64_t elems;
    /* every input was there at the last look, and none has been taken away */
    bool complete;
    bool grads_set;                     /* gradients were set since the last run that was done */
    bool conditional;                  /* its device leaves out calls and copies too, where a guard says so */
    bool recorded;                     /* the last run went into a graph of the caller's and was not done */
    void *block; size_t storage_bytes;   /* states, temporaries, partials: on the device the rule runs on */
    size_t unshared_bytes;             /* what it would be if no two temporaries shared memory */
    int64_t *at;                       /* by array number: where in the block it begins; behind them, the pool */
    /* by array number: bits, the variants whose tensors have it in the pool, which every batch has for itself while it
     * is stepped; at the pool's end is what calls work in */
    unsigned *batched;
    int64_t state_bytes, pool_bytes, call_bytes, call_more;        /* call_more: that calls have elsewhere */
    Batch *batch; int nbatch;
    struct Blas *blas;                 /* on the CPU, of a rule with calls */
    int64_t effort;                    /* on the CPU: its elements, and calls in elements that take as long */
    Tasks *tasks;                      /* by entry, then phase */
    Slots slots[MOST_SLOTS]; int nslots;
    StaggerNow stagger;                       /* of the run at hand */
    /* FactorStats of all matrices of all factors, in the device's memory; by factor, then tensor or view, where those
     * of its matrices begin, and behind all of them how many there are (factor_stats.c) */
    void *stats;
    int64_t *stats_at;
    int nfactor, *stats_factor;            /* stats_factor: by stage, which factor it is; -1: none */
    DeviceScalar *source; int nsource, most_source;
    DeviceScalar guard;                    /* from NULL: none. While it is not 0 nothing is done */
    struct GpuTables *gpu;
    int threads, grain;                /* on the CPU: threads of a step, units a thread takes at once; 0: by size */
    char warning[480];                 /* optc_binding_warning; "": none */
    BindAlloc *allocs;                     /* everything small */
};

struct Device {
    const char *name;
    /* once groups and tensors are filled: memory, states, tables */
    optc_status (*bind)(optc_binding *b);
    void (*unbind)(optc_binding *b);                         /* also of what was bound in part */
    optc_status (*run)(optc_binding *b, int entry, int phase);
    optc_status (*sync)(optc_binding *b);
    /* whether it lies where the device can reach it */
    optc_status (*use_pointer)(optc_binding *b, int tensor, const void *was, const void *p, const char *what);
    void (*set_stream)(optc_binding *b, void *stream);
    optc_status (*read)(const optc_binding *b, void *host, const void *from, size_t bytes, const char *call);
    optc_status (*write)(const optc_binding *b, void *to, const void *host, size_t bytes, bool wait, const char *call);
    /* n doubles become `value`, `pitch` bytes apart: all of them, or none and an error */
    optc_status (*spread)(const optc_binding *b, void *to, size_t pitch, int n, double value, const char *call);
    /* hyperparameter `at` of n groups, likewise; the host's own copy is the caller's to change, once that went well */
    optc_status (*send_hyper)(const optc_binding *b, int first, int n, int at, double value, const char *call);
    /* of the binding, also those that it did without us */
    optc_status (*get_t)(const optc_binding *b, int64_t *steps);
    optc_status (*set_t)(optc_binding *b, int64_t steps);                   /* for all rows */
    /* memory for rows behind the groups, which goes with the binding; there are more of them (where that fails what
     * alloc_cohorts gave last is given back); who has which row, or who takes part, has changed (moved: and pointers
     * with it); whether it may, before anything has (NULL: always) */
    optc_status (*alloc_cohorts)(optc_binding *b, size_t bytes, void **out);
    optc_status (*grown)(optc_binding *b);
    void (*arranged)(optc_binding *b, bool moved);
    optc_status (*may_change_participation)(const optc_binding *b, const Participation *c);
    int spare_cohorts;                                                /* rows behind the groups from the beginning */
    optc_status (*memory)(optc_engine *e, optc_memory *out);
    bool reaches;                                            /* the host reaches its memory */
    /* it is to read this number by itself, ahead of runs; NULL: the host does (device_scalars.c) */
    optc_status (*read_ahead)(optc_binding *b, const void *from, bool guard, const char *call);
    /* what calls work in beside their operands, one after another; NULL: nothing. Never by threads or free memory */
    int64_t (*call_bytes)(const optc_binding *b);
};
CORE const Device *cpu_device(void);
CORE const Device *gpu_device(void);

struct GpuCode;
struct Host {
    /* its code needs a driver for this version of CUDA, 13000; 0: any that we open */
    int cuda;
    /* takes small blocks from the GPU's pool: cheap by the thousand, but a process's first use of it takes some 8 ms */
    bool pooled;
    /* the GPU that "best" stands for; -1: the CPU */
    int (*best)(const optc_engine_options *o);
    optc_status (*open)(optc_engine *e, const optc_engine_options *o);      /* e->more; the device is known and open */
    /* also what was opened in part; the device is still there */
    void (*close)(optc_engine *e);
    optc_status (*make)(optc_rule *r, const optc_rule_options *o);          /* program, code, more */
    void (*drop)(optc_rule *r);                                             /* also what was made in part */
    void (*path)(const optc_rule *r, char *buf, size_t n);                  /* how it runs */
    /* its kernels for tensors of so many elements */
    optc_status (*code)(optc_rule *r, int64_t elements, const struct GpuCode **out);
    void (*bound)(optc_binding *b);                                         /* a binding is there; may be NULL */
    const char *(*rule_name)(int i);                                        /* rules it has by name; NULL: no more */
};

/* ---- struct_version.c ---- */
/* a struct: the call that takes its size, its name, the call of the header that passes it, how long it is here */
typedef struct StructVersion { const char *call, *what, *usual; size_t ours; } StructVersion;
CORE optc_status struct_read(const StructVersion *s, void *to, const void *from, size_t size);
CORE optc_status struct_read_array(const StructVersion *s, void *to, const void *from, size_t size, int n);

/* ---- bind.c, layout.c ---- */
CORE void *binding_alloc(optc_binding *b, size_t n, size_t size);   /* zeroed, goes with the binding; NULL: no memory */
#define TAKE(b, T, n) ((T *)binding_alloc((b), (size_t)(n), sizeof(T)))
CORE const char *tensor_label(const optc_binding *b, int i, char buf[96]);
/* ---- alias_check.c ---- */
CORE int span_order(const void *a, const void *b);         /* for qsort: by address */
CORE optc_status check_params_apart(optc_binding *b);
CORE optc_status check_states_apart(optc_binding *b);      /* caller_states.c; and the next three */
CORE optc_status bind_caller_states(optc_binding *b, int tensor, void *const *states);
CORE bool state_caller_owned(const optc_binding *b, int tensor, int array);
CORE int caller_state_at(const optc_binding *b, uintptr_t lo, uintptr_t hi);       /* of which tensor; -1: of none */
/* something that is read must not lie in a parameter, which is written */
CORE optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes, const char *what);
CORE optc_status find_hyper(const Program *p, const char *call, const char *name, int *out);
CORE optc_status check_hyper(const Program *p, const char *call, const char *name, double value, int *out);
CORE void memory_account(optc_engine *e, int64_t bytes);       /* negative: gave back */
CORE void warn_stacks(optc_binding *b);                     /* introspect.c: once tensors are filled */
CORE optc_status layout_measure(optc_binding *b);           /* storage_bytes */
/* once the block is there: pointers, views, units of work */
CORE optc_status layout_place(optc_binding *b);

/* ---- matrix_blocks.c ---- */
CORE optc_status blocks_make(optc_binding *b);
CORE void blocks_point(optc_binding *b);                    /* the tensors' pointers are there */
CORE void blocks_views(optc_binding *b);                    /* the tensors' views are there */
CORE void blocks_update(optc_binding *b);
CORE void blocks_moved(optc_binding *b, int tensor, int array);
CORE bool array_blocked(const ProgArray *m);
CORE int64_t row_stride(const optc_binding *b, const Tensor *t);           /* of elements, in values */
/* where the nth matrix of an array begins, in values from t's pointer to it */
CORE int64_t matrix_at(const optc_binding *b, const Tensor *t, int array, int64_t nth);
/* the tensors, or views of their blocks, that a stage goes over; batch -1: all */
CORE const Units *stage_tensors(const optc_binding *b, const ProgStage *s, int batch);
CORE optc_status blocks_units(optc_binding *b, const Units *of, Units *out);

/* ---- batches.c ---- */
#define MOST_WORKSPACE ((int64_t)1 << 46)
CORE bool parse_size(const char *s, int64_t *out);          /* "512M", "0" */
CORE optc_status tasks_make(optc_binding *b);
/* the tensors that a task's stage goes over: no group's */
CORE const Units *task_units(const optc_binding *b, const Task *t);
CORE void *call_space(const optc_binding *b);               /* call_bytes of them */

OPTC_COUNT int64_t factor_stats_count(const optc_binding *b)
{
    return b->nfactor ? b->stats_at[(int64_t)b->nfactor * b->nall] : 0;
}

/* ---- stagger_slots.c ---- */
CORE optc_status stagger_make(optc_binding *b);               /* once views of blocks are there */
CORE optc_status stagger_write(optc_binding *b);              /* once memory is there */
CORE StaggerNow stagger_now(const optc_binding *b, int64_t t);
/* someone in a tensor, or matrix of a view of blocks (-1: any), has its turn by one of `turns`, or there are none */
CORE bool stagger_active(const optc_binding *b, const StaggerNow *x, unsigned stagger, const Tensor *y, int64_t matrix);
/* the matrix that a stage's unit is of; -1: of several */
CORE int64_t stagger_matrix(const ProgStage *s, const Tensor *y, int64_t unit);
/* a state that callers know of; report: a value for them */
OPTC_COUNT bool array_visible(const ProgArray *m, bool report)
{
    return m->kind == MEM_STATE && m->report == report && !m->slots.every;
}

/* ---- step_cohorts.c ---- */
CORE optc_status cohort_make(optc_binding *b, Group *g, int of, bool idle);
CORE optc_status cohorts_prepare(optc_binding *b);
CORE void cohorts_place(optc_binding *b);                      /* their views */
/* before an entry runs: does all stand as it must? If not: cohorts_catch_up, then cohorts_arrange */
CORE bool cohorts_settled(const optc_binding *b, int entry);
CORE optc_status cohorts_arrange(optc_binding *b, int entry);
CORE bool tensor_out(const Tensor *t, unsigned mask);       /* an entry that leaves out such variants leaves it out */
CORE void cohorts_stepped(optc_binding *b);
CORE optc_status cohorts_catch_up(optc_binding *b);
/* the rows' copies of their groups' states, before a run */
CORE optc_status cohorts_copy_states(optc_binding *b,
                             optc_status (*copy)(optc_binding *b, void *to, const void *from, size_t n));

/* ---- engine_api.c ---- */
/* A device as users name it: NULL or "cpu", "cuda", "cuda:1", "best". The only function that reads such names. */
typedef enum DeviceKind { DEVICE_CPU, DEVICE_GPU, DEVICE_BEST } DeviceKind;
typedef struct DeviceName { DeviceKind kind; int ordinal; } DeviceName;          /* ordinal: of GPUs */
CORE bool device_parse(const char *text, DeviceName *out);                      /* false: it names no device */

/* ---- device_scalars.c ---- */
/* ahead of a run, by the host: where it does not reach them it waits. skip: the guard says that nothing is to be done */
CORE optc_status device_scalars_read(optc_binding *b, bool *skip);
CORE optc_status device_scalar_now(const optc_binding *b, const DeviceScalar *s, const char *call, double *out);
CORE bool host_guards(const optc_binding *b);               /* it looks at the guard, and waits for that */
CORE const DeviceScalar *hyper_device_scalar(const optc_binding *b, int group, int at);         /* NULL: it has none */
CORE void drop_device_scalars(optc_binding *b, int group, int at, int input);             /* group -1: all */
CORE bool scalar_known(const optc_binding *b, int group, int input);       /* it was set, or is read from memory */
CORE void device_scalars_done(optc_binding *b);                    /* a run has read all of them */

/* ---- step.c ---- */
/* the value of hyperparameter `at` of a group (-1: of all), for the device and in the host's rows; all of it or none */
CORE optc_status put_hyper(optc_binding *b, int group, int at, double value, const char *call);

/* ---- state_access.c ---- */
CORE double type_load(int t, const void *p, int64_t i);
CORE void type_store(int t, void *p, int64_t i, double x);
/* All n values of an array; t may be a block code. */
CORE void values_load(int t, const void *p, int64_t n, double *out);
CORE void values_store(int t, void *p, int64_t n, const double *in);
CORE optc_status find_input(const optc_binding *b, const char *call, const char *name, bool group, int *out);
CORE double state_start(const optc_binding *b, const ProgArray *m, int group);
/* n values of a state from number `at` on, in squares of so many rows (a diagonal counts them) */
typedef struct StateSpan { int64_t at, n, side; } StateSpan;
OPTC_COUNT StateSpan state_span(int64_t at, int64_t n, int64_t side)
{
    StateSpan x;
    x.at = at, x.n = n, x.side = side;
    return x;
}
CORE void state_fill(const optc_binding *b, const ProgArray *m, int group, void *dst, const void *param, StateSpan x);

/* ---- thread_barrier.c ---- */
typedef struct Barrier { int arrived, asleep; unsigned generation; } Barrier;          /* begins as zeros */
#ifdef _OPENMP
CORE void barrier_wait(Barrier *t, int threads);                  /* returns when so many have called it */
#endif

/* ---- cpu_device.c ---- */
CORE int threads_allowed(int threads);        /* as many as this process may start: all of them, or 1 */
/* each(with, 0 … n - 1), shared out over the threads of a team. One thread does not enter OpenMP: out of memory its
 * runtime ends the process. */
CORE void parallel_for(int team, int64_t n, void (*each)(void *with, int64_t i), void *with);
CORE optc_status cpu_bind(optc_binding *b);
CORE void cpu_unbind(optc_binding *b);
CORE optc_status cpu_sync(optc_binding *b);
CORE void cpu_follow(optc_binding *b);                      /* cohorts_copy_states, in the host's memory */
CORE void copy_arrays(const optc_binding *b, const ProgAction *a);

/* ---- cpu_calls.c ---- */
typedef struct CalleeInfo {
    const char *name;
    double (*flops)(const Program *p, const ProgCall *c, Shape s);
    optc_status (*check)(const Program *p, const ProgStage *s);             /* whatever the tensors */
    int64_t (*jobs)(const Program *p, const ProgCall *c, Shape s);        /* on the CPU, to be done in any order */
    /* thread: of those that run jobs at a time, from 0 */
    void (*run)(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread);
    /* bytes that a thread works in on the CPU; NULL: none */
    int64_t (*scratch)(const Program *p, const ProgCall *c, Shape s);
} CalleeInfo;
CORE const CalleeInfo *callee_info(const ProgCall *c);
CORE optc_status cpu_calls(optc_binding *b);
/* loads the BLAS of a rule with products; what is wrong with it is told when the rule is bound */
CORE void cpu_calls_load(const optc_rule *r);
CORE int64_t cpu_call_bytes(const optc_binding *b);
/* how products are computed, behind a "; " and what is there; nothing, where there are none */
CORE void cpu_call_path(const optc_rule *r, char *text, size_t n);

/* ---- rule_api.c ---- */
/* "stage 1 (flat) of rule 'adamw' (adamw.lua:12)", "a product of rule …"; s NULL: t moves on */
CORE void stage_label(const Program *p, const ProgStage *s, char *buf, size_t n);
#endif

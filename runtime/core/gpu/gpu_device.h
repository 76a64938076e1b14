/* Rules on an NVIDIA GPU: a program's stages as kernels, one launch a stage over all tensors.
 *
 *   GpuEngine  the device's primary context (retained, pushed around our work, never reset). A sticky error of the
 *              device ends it: `why` keeps the first message, and every call that would need the device is refused
 *   GpuCode    a rule's kernels for one choice of launches, by stage number. The host makes them
 *   GpuTables  what a binding keeps on the device: views, pointer tables, hyperparameters (with t), lists of units. The
 *              host's copy is the binding's own; pointers that moved are sent before the next step, hyperparameters
 *              when they are set
 *   Play       the actions of one entry in one phase, made ready when binding; from its second run on a CUDA graph of
 *              the same launches, which costs the host one call
 *
 * Nothing here waits for the device except binding, reading state and optc_sync. */
#ifndef OPTC_CORE_GPU_H
#define OPTC_CORE_GPU_H
#include "runtime/core/api/core.h"
#include "runtime/core/gpu/cuda_driver.h"

/* How eigenvectors are found: by size, GPU and libraries at hand, or so whatever they are (tests, and what measures):
 * by rotations of one block or of many, by a library. Of roots the last two: products in f32, in f64. Their numbers
 * stand in files of measured results. */
typedef enum { EIGEN_BY_SIZE, EIGEN_ROTATED, EIGEN_SPREAD, EIGEN_F32, EIGEN_F64 } EigenMethod;

enum { MOST_SPARE = 64 };

typedef struct GpuEngine {
    const Driver *d;                       /* `own`, unless somebody puts another in its place */
    Driver own;
    CUdevice device;
    CUcontext ctx;
    int ordinal, arch, sms, pools, l2;
    /* major version of the kernel driver, 580; of CUDA where that cannot be had */
    int driver;
    int64_t memory;                        /* bytes, all of it */
    char name[128];
    int dead;                              /* atomic; 2: why can be read */
    char why[400];
    bool no_graphs;
    int block;                             /* rows of symmetric products' blocks, to measure that; 0: a table's */
    EigenMethod eigen;
    /* What was measured on such a GPU for matrices of 2^power rows, kept in f64 or less, and a bucket of how many there
     * are (size_bucket); EIGEN_BY_SIZE: nothing. NULL: nothing at all */
    EigenMethod (*measured)(const optc_engine *e, bool roots, bool f64, int power, int bucket);
    struct Spare *spare[MOST_SPARE];       /* atomic, each */
} GpuEngine;

/* Handles of libraries that no binding uses any more. Destroying one waits for all of the device, which ends any capture
 * that is under way there, in whatever mode (H200, CUDA 13.0): so the next binding takes it, and who closes the engine
 * destroys it. gone: the library's own, by which it is told from others. */
typedef int (*SpareGone)(void *handle);
CORE void *spare_take(GpuEngine *g, SpareGone gone);               /* NULL: there is none */
CORE void spare_keep(GpuEngine *g, void *handle, SpareGone gone);
CORE void spare_drop(GpuEngine *g);                                /* all; inside gpu_enter */

/* A result of a package. Ways of roots are measured for one number of matrices, METHOD_ROOTS. */
typedef struct KnownMethod { int roots, f64, power, bucket, method; } KnownMethod;
/* powers of rows; buckets to either side */
enum { METHOD_LEAST = 3, METHOD_MOST = 12, METHOD_ROOTS = 256, METHOD_REACH = 2 };

/* fn: by ProgStage.fn. call: by CallKernel, of rules with calls; KERNEL_PHASE is NULL where conditional nodes are not
 * available. */
/* gate: NULL in packages of before it */
typedef struct GpuCode { Launch *launch; CUfunction *fn, advance_t, read_ahead, call[NCALLKERNEL]; } GpuCode;
#define GUARD_KERNEL "optc_guard"

/* optc_launch of the kernels */
typedef struct Args { CUdeviceptr views, mem, units; long long count; int guard, advance_t; Brief brief; } Args;
typedef struct LaunchItem {
    CUfunction fn; unsigned blocks, threads; Args args;
    const ProgStage *stage;                /* NULL: t moves on */
    const ProgAction *copy;                /* not NULL: no kernel, an array over another */
    const struct GpuCall *call;            /* not NULL: products */
    int batch;                             /* -1: all tensors that have part in it */
    CUdeviceptr stagger_at; int64_t stagger_count;       /* units of those that have their turn (gpu_stagger.c) */
} LaunchItem;
/* exec: from its second run on */
typedef struct LaunchList { LaunchItem *item; int n, runs; bool copies, calls, stagger; CUgraphExec exec; } LaunchList;
typedef struct Unit { int tensor, unit; } Unit;    /* optc_unit of the kernels */

typedef struct GpuTables {
    const GpuCode *code;
    CUstream stream;
    CUdeviceptr all; size_t bytes;         /* one allocation; the rest point into it */
    CUdeviceptr views, groups, mem, group_mem, hyper, units[MOST_VARIANTS][NSTAGEKIND];
    CUdeviceptr *batch_units;              /* by batch, then kind of stage */
    struct GpuCalls *calls;                /* NULL: the rule has none */
    bool calls_behind;                     /* they have not followed what the device's tables say */
    bool captured;                         /* a step was captured: from then on only the device knows t */
    bool guarded;                            /* there was a guard: likewise, and who takes part may be marked there */
    unsigned captured_out;                 /* all that was captured leaves such tensors out (optc_binding.leaves_out) */
    bool dirty;                            /* who takes part, and in which row, differs from the device's views */
    struct GpuCohortMemory *cohort_memory;                  /* memory of rows behind the groups */
    bool moved;                            /* a gradient's or input's pointer differs from the device's table */
    CUdeviceptr table;                     /* not 0: of the step that is being captured, in place of mem (gpu_capture_tables.c) */
    struct CaptureTable *capture_tables;
    LaunchList *launch_list;                            /* by entry, then phase */
    int nphase, step;                      /* step: the entry of that name */
    /* for lists of who has its turn, and how long they may be; in_turn: the run at hand goes by them */
    CUdeviceptr stagger_units; int64_t stagger_most; bool stagger_on;
    /* The library's tuning in real steps; all NULL where there is none. */
    struct Live *live;
    LaunchList *(*begin)(optc_binding *b, LaunchList *p);      /* which play this step takes */
    void (*end)(optc_binding *b);                  /* it is launched */
    void (*close)(optc_binding *b);                /* within the context */
} GpuTables;

/* ---- cuda_driver.c ---- */
/* false: why says why not. The driver is never unloaded. cuda: at least that version */
CORE bool driver_open(Driver *d, int cuda, char *why, size_t n);

/* ---- gpu_engine.c ---- */
CORE optc_status gpu_open(optc_engine *e, int ordinal);
CORE void gpu_close(optc_engine *e);
CORE int gpu_count(void);
CORE int gpu_best(void);                        /* the one with the most multiprocessors, then memory; -1: none */
CORE optc_status gpu_error(GpuEngine *g, const char *call, int rc, const char *what);      /* call: up to its '(' */
/* Of the images of code (machine code or PTX) at hand a GPU of `arch` takes one, as the driver does. Goes over them: is
 * x to be taken rather than `best` (arch 0: none so far)? compiles: the driver can make machine code of the PTX */
typedef struct Image { int arch; bool ptx; } Image;
CORE bool image_suits(Image x, Image best, int arch, bool compiles);
CORE optc_status gpu_alive(GpuEngine *g);
CORE const Driver *gpu_enter(const GpuEngine *g);
/* and leaves captures under way alone, until it is left */
CORE const Driver *gpu_enter_aside(const GpuEngine *g);
CORE optc_status gpu_leave(const GpuEngine *g, optc_status s);
CORE optc_status workspace_fails(const optc_binding *b, optc_status s, int64_t bytes);
CORE optc_status gpu_alloc(optc_engine *e, size_t bytes, CUstream stream, const char *what, CUdeviceptr *out);
CORE void gpu_give(optc_engine *e, CUdeviceptr p, size_t bytes, CUstream stream);
CORE optc_status gpu_memory(optc_engine *e, optc_memory *out);
#define TRY(g, call, what)                                          \
    do {                                                            \
        int rc_ = (g)->d->call;                                     \
        if (rc_)                                                    \
            return gpu_error((g), #call, rc_, (what));              \
    } while (0)

/* ---- gpu_bind.c ---- */
CORE optc_status gpu_bind(optc_binding *b);
CORE void gpu_unbind(optc_binding *b);
CORE optc_status gpu_alloc_cohorts(optc_binding *b, size_t bytes, void **out);
CORE optc_status gpu_cohorts_grown(optc_binding *b);
CORE void gpu_participation_changed(optc_binding *b, bool moved);
CORE optc_status gpu_may_change_participation(const optc_binding *b, const Participation *c);
CORE optc_status gpu_send_views(optc_binding *b);
/* whether it lies in the memory of this GPU */
CORE optc_status gpu_owns_pointer(GpuEngine *g, const void *p, const char *what, bool *here);
CORE optc_status gpu_use_pointer(optc_binding *b, int tensor, const void *was, const void *p, const char *what);

/* ---- gpu_calls.c, gpu_products.c: calls ---- */
CORE const char *call_kernel(const Program *p, int k);     /* its name; NULL: the program needs none */
CORE bool call_conditions(const Program *p);               /* steps that are captured take conditional nodes */
/* how products are computed, behind a "; "; "": there are none */
CORE void gpu_call_path(const optc_rule *r, char *buf, size_t n);
CORE int64_t gpu_call_bytes(const optc_binding *b);
/* once arrays have their places; inside gpu_enter, as the next */
CORE optc_status calls_bind(optc_binding *b);
CORE void calls_unbind(optc_binding *b);
/* pointers or who takes part may have changed on the device */
CORE optc_status calls_update(optc_binding *b);
CORE optc_status calls_restagger(optc_binding *b);              /* it is others' turn */
/* NULL: nothing to do */
CORE const struct GpuCall *calls_of(const optc_binding *b, const ProgStage *s, int batch);
CORE optc_status calls_launch(optc_binding *b, const struct GpuCall *c);
CORE optc_status calls_probe(optc_binding *b, const LaunchList *p);       /* ahead of a run: whether it finds memory */
CORE bool calls_capture(const optc_binding *b, const struct GpuCall *c);   /* a capture takes it as it is */
CORE CUstream calls_stream(const optc_binding *b);         /* one of our own, to capture in */

/* ---- gpu_roots_f32.c: roots in f32, and who gets f64 ---- */
CORE optc_status roots_f32_check(optc_binding *b, const LaunchList *p);      /* before it runs, not in a capture */
CORE optc_status roots_f32_save(optc_binding *b, const LaunchList *p);      /* it was launched */

/* ---- gpu_stagger.c: of a rule with every(k, { stagger = true }) ---- */
CORE bool gpu_stagger_any(const LaunchList *p);
CORE optc_status gpu_stagger_bind(optc_binding *b);              /* plays are there; inside gpu_enter, as the next */
CORE void gpu_stagger_unbind(optc_binding *b);
CORE optc_status gpu_stagger_send(optc_binding *b, LaunchList *p);    /* before its shots are fired, not in a capture */
CORE LaunchItem gpu_stagger_item(const optc_binding *b, const LaunchItem *x);      /* over those that have their turn */

/* ---- gpu_capture_tables.c: pointers that captured steps keep; inside gpu_enter ---- */
CORE char *table_now(const optc_binding *b);               /* for free(); NULL: no memory */
CORE optc_status table_keep(optc_binding *b);              /* the step at hand has a table of its own */
CORE void tables_drop(optc_binding *b);

/* ---- gpu_guard.c: numbers that lie on the device, and steps that are left out ---- */
CORE optc_status gpu_read_ahead(optc_binding *b, const void *from, bool guard, const char *call);
CORE optc_status guard_launch(optc_binding *b, int entry);    /* inside gpu_enter; nothing, where there is none */

/* ---- gpu_conditional.c: steps of rules with calls of which the device decides ---- */
CORE void phases_bind(optc_binding *b);                    /* whether it can be asked (optc_binding.conditional) */
CORE bool phases_guarded(const optc_binding *b, int entry);        /* by a guard */
CORE bool phases_conditional(const optc_binding *b, int entry);
CORE optc_status phases_capture(optc_binding *b, int entry);       /* the binding's stream is being captured */
CORE optc_status phases_run(optc_binding *b, int entry);           /* it is not, but was */
CORE void phases_drop(optc_binding *b);

/* ---- gpu_run.c ---- */
/* makes them ready, or anew: where that fails those there were stay */
CORE optc_status gpu_build_lists(optc_binding *b);
CORE void gpu_drop_lists(optc_binding *b);
CORE bool advances_t_inside(const Program *p, const ProgPhase *ph);     /* t moves on in its first stage */
CORE optc_status gpu_run(optc_binding *b, int entry, int phase);
CORE LaunchItem gpu_launch_item(const optc_binding *b, const ProgStage *s, int batch, const Launch *l, CUfunction fn);
CORE optc_status gpu_launch(optc_binding *b, const LaunchItem *x, int guard);       /* inside gpu_enter */
CORE int item_launch(const Driver *d, const LaunchItem *x, int guard, CUstream stream);
CORE void list_graph(optc_binding *b, LaunchList *p);             /* inside gpu_enter */
CORE optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes, const char *call);
CORE optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes, bool wait,
                           const char *call);
CORE optc_status gpu_spread(const optc_binding *b, void *to, size_t pitch, int n, double value, const char *call);
CORE optc_status gpu_send_hyper(const optc_binding *b, int first, int n, int at, double value, const char *call);
CORE optc_status gpu_get_t(const optc_binding *b, int64_t *steps);
CORE optc_status gpu_set_t(optc_binding *b, int64_t steps);
CORE size_t gpu_hyper_bytes(const optc_binding *b);        /* of a row */
CORE optc_status gpu_sync(optc_binding *b);
CORE void gpu_set_stream(optc_binding *b, void *stream);
#endif

/* Rules on an NVIDIA GPU: the plan's stages as kernels, one launch a stage over all tensors.
 *
 * GpuEngine   the device's primary context (retained, pushed around our work, never reset). A sticky error of the device ends it: `why` keeps
 *             the first message, and every call that would need the device is refused with it.
 * GpuCode     a rule's kernels for one choice of launches: modules of machine code, kernels by stage number. A rule keeps those its bindings
 *             asked for.
 * GpuTables   what a binding keeps on the device: views, pointer tables, hyperparameters (with t), lists of units. The host's copy is the
 *             binding's own; pointers that moved are sent before the next step, hyperparameters when they are set.
 * Play        the launches of one entry in one phase, made ready when binding; from its second run on a CUDA graph of the same launches, which
 *             costs the host one call.
 *
 *   gpu.c       engines, errors, memory        gpu_code.c  from a plan to loaded kernels       gpu_run.c  tables and steps
 *   live.c      tuning in real steps
 *
 * Nothing here waits for the device except binding, reading state and optc_sync. */
#ifndef OPTC_GPU_H
#define OPTC_GPU_H
#include "internal.h"

#include "cuda.h"
#include "tuned.h"

#include <pthread.h>

typedef struct GpuEngine {
    const Driver *d;
    CUdevice device;
    CUcontext ctx;
    int ordinal, arch, sms, pools, l2;
    int driver;                            /* major version of the kernel driver, 580; of CUDA where that cannot be had */
    char name[128];
    atomic_int dead;
    char why[400];
    bool no_graphs;
} GpuEngine;

#include "../templates/shots.h"

enum { MOST_PARTS = 8 };
typedef struct GpuCode {
    Launch *launch, *asked;                /* by Stage.fn; a package's own may differ from those asked for */
    CUfunction *fn, tick;
    CUmodule module[MOST_PARTS]; int nmodule;
    struct GpuCode *next;
} GpuCode;
typedef struct GpuRule {
    GpuCode *codes;
    pthread_mutex_t lock;                  /* of codes and of the rule's path */
    bool needs_t;
    char (*hash)[33];                      /* by Stage.fn: what tuning results know it by; "" where there is nothing to choose */
} GpuRule;

typedef struct GpuTables {
    const GpuCode *code;
    CUstream stream;
    CUdeviceptr all; size_t bytes;         /* one allocation; the rest point into it */
    CUdeviceptr views, groups, mem, group_mem, hyper, units[MAX_VARIANTS][NSTAGEKIND];
    bool recorded;                         /* the last run went into a graph of the caller's and was not done */
    bool captured;                         /* a step was captured: from then on only the device knows t */
    bool moved;                            /* a gradient's or input's pointer differs from the device's table */
    Play *play;                            /* by entry, then phase */
    int nphase, step;                      /* step: the entry of that name */
    struct Live *live;                     /* NULL: nothing is tried in real steps */
    Launch *launch_now;                    /* live: by Stage.fn, what steps use now */
    CUmodule *owned; int nowned;           /* live: modules of all launches that were tried */
} GpuTables;

/* ---- gpu.c ---- */
optc_status gpu_open(optc_engine *e, int ordinal);
void gpu_close(optc_engine *e);
int gpu_count(void);
bool gpu_arch(int ordinal, int *arch, int *driver);      /* sm_<arch>, and the driver's version; false: there is none */
int gpu_best(void);                        /* the one with the most multiprocessors, then memory; -1: none */
optc_status gpu_error(GpuEngine *g, const char *call, int rc, const char *what);      /* call: up to its '(' */
optc_status gpu_alive(GpuEngine *g);
const Driver *gpu_enter(const GpuEngine *g);
const Driver *gpu_enter_aside(const GpuEngine *g);                    /* and leaves captures under way alone, until it is left */
optc_status gpu_leave(const GpuEngine *g, optc_status s);
int gpu_depth(void);                       /* entered and not left, by this thread */
void gpu_unwind(const GpuEngine *g, int to);
optc_status gpu_alloc(optc_engine *e, size_t bytes, CUstream stream, const char *what, CUdeviceptr *out);
void gpu_give(optc_engine *e, CUdeviceptr p, size_t bytes, CUstream stream);
optc_status gpu_memory(optc_engine *e, int64_t *total, int64_t *free_bytes);
#define TRY(g, call, what)                                          \
    do {                                                            \
        int rc_ = (g)->d->call;                                     \
        if (rc_)                                                    \
            return gpu_error((g), #call, rc_, (what));              \
    } while (0)

/* ---- gpu_code.c ---- */
optc_status gpu_compile(optc_rule *r);
optc_status gpu_code_for(optc_rule *r, int64_t elements, const GpuCode **out);         /* as is best for that many elements */
optc_status gpu_code_with(optc_rule *r, const Launch *launch, const GpuCode **out);    /* launch: by Stage.fn */
char *gpu_stage_source(const optc_rule *r, const Stage *s, const Launch *l);                 /* its kernel alone, with this launch; malloc'ed; NULL: out of memory */
void gpu_drop(optc_rule *r);
void gpu_tuned_key(const optc_rule *r, int fn, int64_t elements, TunedKey *k);
const Tuned *gpu_tuned(const optc_rule *r, int fn, int64_t elements, const char **from);      /* the result that this many elements use; NULL: none, the model decides */

/* ---- gpu_run.c ---- */
optc_status gpu_bind(optc_binding *b);     /* after groups and tensors are filled: memory, tables, states */
void gpu_unbind(optc_binding *b);
void gpu_use(optc_binding *b, const GpuCode *c);       /* from the next step on; every code gives the same bits */
optc_status gpu_check_pointer(optc_binding *b, int tensor, const void *p, const char *what);
optc_status gpu_run(optc_binding *b, int entry, double t);
Shot gpu_shot(const optc_binding *b, const Stage *s, const Launch *l, CUfunction fn);
optc_status gpu_fire(optc_binding *b, const Shot *x, int guard);       /* inside gpu_enter */
optc_status gpu_send_hyper(optc_binding *b, int group, int first, int count);
optc_status gpu_send(const optc_binding *b, void *device, const void *host, size_t bytes, const char *what);      /* does not wait */
optc_status gpu_read_t(const optc_binding *b, int64_t *steps);
optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes);
optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes);

/* ---- live.c: other launches in real steps ---- */
void live_open(optc_binding *b);           /* where $OPTC_TUNE_LIVE asks for it */
void live_close(optc_binding *b);
Play *live_begin(optc_binding *b, Play *p);
void live_end(optc_binding *b);
#endif

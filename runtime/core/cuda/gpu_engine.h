/* A GPU: its context, errors, memory and spare library handles.
 *
 *   GpuEngine   the device's primary context (retained, pushed around the core's work, never
 *               reset). A sticky error of the device ends it: `why` holds the first message, and
 *               every call that needs the device fails
 */
#ifndef OPTC_CORE_GPU_ENGINE_H
#define OPTC_CORE_GPU_ENGINE_H
#include "runtime/core/base/core.h"
#include "runtime/core/cuda/cuda_driver.h"

/* The column `way` of methods.def: GpuEngine.eigen fixes it, for tests and measurements. Files of
 * tuned results contain these numbers: one that changes its meaning needs another method_key
 * (tune_methods.c). */
typedef enum { EIGEN_BY_SIZE, EIGEN_ROTATED, EIGEN_DIVIDED, EIGEN_F32, EIGEN_F64 } EigenMethod;

enum { MOST_SPARE = 64 };

typedef struct GpuEngine {
    const Driver *d;                       /* &own; tests may replace it */
    Driver own;
    CUdevice device;
    CUcontext ctx;
    /* shared: bytes of memory that a block's threads can share */
    int ordinal, arch, sms, shared, pools, l2;
    int cooperative;                               /* blocks of a launch can wait for each other */
    bool f64_fast;                         /* of `arch`; tests may set it */
    int driver;                            /* major version of the kernel driver (580), or of CUDA
                                            * if that is unknown */
    int64_t memory;                        /* total bytes */
    char name[128];
    int dead;                              /* atomic; 1: failed, 2: failed and `why` is complete */
    char why[400];
    bool no_graphs;
    bool bodies_cooperate;                 /* bodies of conditional nodes may contain cooperative
                                            * launches */
    int block;                             /* rows of blocks of symmetric products, for
                                            * measurements; 0: from a table */
    int symmetric_rows;                    /* see gpu_symmetric.c, for tests; 0: the default */
    int probed_rows;                       /* see gpu_roots.c, for tests; 0: the default */
    EigenMethod eigen;
    /* The tuned method for matrices of 2^power rows, stored in f64 or less, in a bucket of the
     * number of matrices (size_bucket); EIGEN_BY_SIZE: not measured. NULL: no tuned results */
    EigenMethod (*measured)(const optc_engine *e, bool roots, bool f64, int power, int bucket);
    struct Spare *spare[MOST_SPARE];       /* atomic, each */
    /* graphs of several bindings (gpu_joint_graph.c) */
    struct LaunchList *joint; bool joint_locked;
} GpuEngine;

/* Library handles that no binding uses any more. Destroying one waits for the whole device, which
 * ends every capture on it, in any capture mode (H200, CUDA 13.0). So the next binding reuses the
 * handle, and gpu_close destroys it. gone: the library's destroy function, which also identifies
 * the kind of handle. */
typedef int (*SpareGone)(void *handle);
CORE void *spare_take(GpuEngine *g, SpareGone gone);               /* NULL: there is none */
CORE void spare_keep(GpuEngine *g, void *handle, SpareGone gone);
/* destroys all; inside gpu_enter */
CORE void spare_drop(GpuEngine *g);

/* ---- cuda_driver.c ---- */
/* Opens the driver, of CUDA version `cuda` or newer; never unloads it. false: `why` has the
 * reason */
CORE bool driver_open(Driver *d, int cuda, char *why, size_t n);

/* ---- gpu_engine.c ---- */
CORE optc_status gpu_open(optc_engine *e, int ordinal);
CORE void gpu_close(optc_engine *e);
CORE int gpu_count(void);
/* the one with the most multiprocessors, then memory; -1: none */
CORE int gpu_best(void);
/* call: up to its '(' */
CORE optc_status gpu_error(GpuEngine *g, const char *call, int rc, const char *what);
CORE bool f64_fast(int arch);              /* f64 products run at half the rate of f32 or more */

/* Chooses among images (machine code or PTX) for a GPU of `arch`, as the driver does: x is better
 * than `best` (arch 0: none so far). compiles: the driver can compile the PTX */
typedef struct Image { int arch; bool ptx; } Image;
CORE bool image_suits(Image x, Image best, int arch, bool compiles);
CORE optc_status gpu_alive(GpuEngine *g);                  /* fails after a sticky error */
/* Until gpu_leave the context is current, and no call disturbs captures in other streams. */
CORE const Driver *gpu_enter(const GpuEngine *g);
CORE optc_status gpu_leave(const GpuEngine *g, optc_status s);         /* returns s */
/* if s is a failed allocation that includes `bytes` of workspace: adds a hint to the message */
CORE optc_status workspace_fails(const optc_binding *b, optc_status s, int64_t bytes);
CORE optc_status gpu_alloc(optc_engine *e, size_t bytes, CUstream stream, const char *what,
                           CUdeviceptr *out);
CORE void gpu_give(optc_engine *e, CUdeviceptr p, size_t bytes, CUstream stream);
CORE optc_status gpu_memory(optc_engine *e, optc_memory *out);
#define TRY(g, call, what)                                          \
    do {                                                            \
        int rc_ = (g)->d->call;                                     \
        if (rc_)                                                    \
            return gpu_error((g), #call, rc_, (what));              \
    } while (0)
#endif

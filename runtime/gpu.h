/* Rules on an NVIDIA GPU: the plan's stages as kernels, one launch a stage over all tensors.
 *
 * GpuEngine   the device's primary context (retained, pushed around our work, never reset).
 * GpuRule     modules of machine code and their kernels by stage number.
 * GpuTables   what a binding keeps on the device: views, pointer tables, hyperparameters (with t), lists of units. The host's copy is the
 *             binding's own; pointers that moved are sent before the next step, hyperparameters when they are set.
 *
 * Nothing here waits for the device except reading state and optc_sync. */
#ifndef OPTC_GPU_H
#define OPTC_GPU_H
#include "internal.h"

#include "cuda.h"

typedef struct GpuEngine { const Driver *d; CUdevice device; CUcontext ctx; int ordinal, arch, sms; char name[128]; } GpuEngine;
typedef struct GpuRule { CUmodule module[8]; int nmodule; CUfunction *fn, tick; Launch *launch; bool needs_t; } GpuRule;      /* fn, launch: by Stage.fn */
typedef struct GpuTables {
    CUstream stream;
    CUdeviceptr all;                       /* one allocation; the rest point into it */
    CUdeviceptr views, groups, mem, group_mem, hyper, units[NVARIANT][NSTAGEKIND];
    bool moved;                            /* a gradient's or input's pointer differs from the device's table */
} GpuTables;

optc_status gpu_open(optc_engine *e, int ordinal);
void gpu_close(optc_engine *e);
int gpu_count(void);
bool gpu_arch(int ordinal, int *arch, int *driver);      /* sm_<arch>, and the driver's version; false: there is none */
optc_status gpu_build(optc_rule *r);
void gpu_drop(optc_rule *r);
optc_status gpu_alloc(optc_binding *b, size_t bytes, void **out);
void gpu_free(optc_binding *b);            /* block and tables */
optc_status gpu_check_pointer(optc_binding *b, int tensor, const void *p, const char *what);
optc_status gpu_tables(optc_binding *b);   /* after views and units are filled */
optc_status gpu_init_state(optc_binding *b);
optc_status gpu_run(optc_binding *b, int entry, double t);
optc_status gpu_send_hyper(optc_binding *b, int group, int first, int count);
optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes);
optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes);
#endif

/* CUDA, found at run time: the driver and NVRTC as functions we declare ourselves, so that one binary runs with and without them.
 * Names carry the version suffix of the interface they are declared for. */
#ifndef OPTC_CUDA_H
#define OPTC_CUDA_H
#include <stdbool.h>
#include <stddef.h>

typedef int CUresult, CUdevice;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;
typedef unsigned long long CUdeviceptr;

#define DRIVER_FUNCTIONS(F)                                                                                            \
    F(cuInit, (unsigned))                                                                                              \
    F(cuDriverGetVersion, (int *))                                                                                     \
    F(cuGetErrorName, (CUresult, const char **))                                                                       \
    F(cuGetErrorString, (CUresult, const char **))                                                                     \
    F(cuDeviceGetCount, (int *))                                                                                       \
    F(cuDeviceGet, (CUdevice *, int))                                                                                  \
    F(cuDeviceGetName, (char *, int, CUdevice))                                                                        \
    F(cuDeviceGetAttribute, (int *, int, CUdevice))                                                                    \
    F(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                       \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                               \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                        \
    F(cuCtxPushCurrent_v2, (CUcontext))                                                                                \
    F(cuCtxPopCurrent_v2, (CUcontext *))                                                                               \
    F(cuModuleLoadData, (CUmodule *, const void *))                                                                    \
    F(cuModuleUnload, (CUmodule))                                                                                      \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                     \
    F(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                          \
    F(cuMemFree_v2, (CUdeviceptr))                                                                                     \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                                              \
    F(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                         \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                             \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                   \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                              \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                 \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                                                     \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                                           \
    F(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                                               \
    F(cuStreamSynchronize, (CUstream))                                                                                 \
    F(cuStreamCreate, (CUstream *, unsigned))                                                                          \
    F(cuStreamDestroy_v2, (CUstream))                                                                                  \
    F(cuStreamBeginCapture_v2, (CUstream, int))                                                                        \
    F(cuStreamEndCapture, (CUstream, void **))                                                                         \
    F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                                              \
    F(cuGraphLaunch, (void *, CUstream))                                                                               \
    F(cuGraphDestroy, (void *))                                                                                        \
    F(cuGraphExecDestroy, (void *))                                                                                    \
    F(cuEventCreate, (void **, unsigned))                                                                              \
    F(cuEventRecord, (void *, CUstream))                                                                               \
    F(cuEventSynchronize, (void *))                                                                                    \
    F(cuEventElapsedTime, (float *, void *, void *))                                                                   \
    F(cuEventDestroy_v2, (void *))                                                                                     \
    F(cuStreamIsCapturing, (CUstream, int *))

typedef struct _nvrtcProgram *nvrtcProgram;
#define NVRTC_FUNCTIONS(F)                                                                                             \
    F(nvrtcVersion, (int *, int *))                                                                                    \
    F(nvrtcGetNumSupportedArchs, (int *))                                                                              \
    F(nvrtcGetSupportedArchs, (int *))                                                                                 \
    F(nvrtcCreateProgram, (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *)) \
    F(nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))                                                   \
    F(nvrtcGetProgramLogSize, (nvrtcProgram, size_t *))                                                                \
    F(nvrtcGetProgramLog, (nvrtcProgram, char *))                                                                      \
    F(nvrtcGetCUBINSize, (nvrtcProgram, size_t *))                                                                     \
    F(nvrtcGetCUBIN, (nvrtcProgram, char *))                                                                           \
    F(nvrtcGetPTXSize, (nvrtcProgram, size_t *))                                                                       \
    F(nvrtcGetPTX, (nvrtcProgram, char *))                                                                             \
    F(nvrtcDestroyProgram, (nvrtcProgram *))

#define MEMBER(name, args) int (*name) args;
typedef struct Driver { DRIVER_FUNCTIONS(MEMBER) } Driver;
typedef struct Nvrtc { NVRTC_FUNCTIONS(MEMBER) char path[512]; } Nvrtc;
#undef MEMBER

const Driver *driver_get(const char **why);        /* NULL: *why says why not. Loaded once, never unloaded */
const Nvrtc *nvrtc_get(const char **why);

/* Source to machine code for sm_<arch> (PTX where ptx is set). The result is malloc'ed; NULL: log holds why (malloc'ed too). */
char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx, size_t *size, char **log);
int nvrtc_archs(const Nvrtc *n, int *out, int most);
const char *nvrtc_options(void);                   /* what every compilation is given, as text for keys */
#endif

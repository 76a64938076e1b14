/* CUDA, found at run time: the driver and NVRTC as functions we declare ourselves, so that one binary runs with and without them.
 * tests/cuda/headers.cc holds every row of this file against CUDA's own headers. */
#ifndef OPTC_CUDA_H
#define OPTC_CUDA_H
#include <stdbool.h>
#include <stddef.h>

/* Types as the driver's own header names them. Enumerations are ints and handles opaque pointers: a handle is only ever handed back. */
#define CUDA_INTS(F) F(CUresult) F(CUdevice) F(CUdevice_attribute) F(CUpointer_attribute) F(CUstreamCaptureMode) F(CUstreamCaptureStatus)
#define CUDA_HANDLES(F) F(CUcontext) F(CUmodule) F(CUfunction) F(CUstream) F(CUgraph) F(CUgraphNode) F(CUgraphExec) F(CUevent)
#define INT(name) typedef int name;
#define HANDLE(name) typedef void *name;
CUDA_INTS(INT)
CUDA_HANDLES(HANDLE)
#undef INT
#undef HANDLE
typedef unsigned long long CUdeviceptr;
typedef struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra, *kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

#define CUDA_CONSTANTS(F)                                                                                              \
    F(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                     \
    F(CUDA_ERROR_NO_DEVICE, 100)                                                                                       \
    F(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                                               \
    F(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                                            \
    F(CUDA_ERROR_NOT_FOUND, 500)                                                                                       \
    F(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                                                 \
    F(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                                                  \
    F(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                                            \
    F(CUDA_ERROR_ASSERT, 710)                                                                                          \
    F(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                                            \
    F(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                                             \
    F(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                                              \
    F(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                                           \
    F(CUDA_ERROR_INVALID_PC, 718)                                                                                      \
    F(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                                   \
    F(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                    \
    F(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                                                           \
    F(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                                \
    F(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                                \
    F(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                                                 \
    F(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                                             \
    F(CU_MEMORYTYPE_HOST, 1)                                                                                           \
    F(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)
#define CONSTANT(name, value) name = value,
enum { CUDA_CONSTANTS(CONSTANT) };
#undef CONSTANT

/* Name, suffix of the exported symbol, the CUDA version that brought this interface, arguments. The driver is asked for that version by the
 * name without its suffix (cuGetProcAddress), so a later interface of the same name is never handed out; the suffix serves drivers without it.
 * Nothing here is younger than DRIVER_NEEDED, so nothing needs to be optional. */
enum { DRIVER_NEEDED = 12000 };        /* CUDA 12.0: what the oldest NVRTC we open makes is not promised to load on an older driver */
#define DRIVER_FUNCTIONS(F)                                                                                            \
    F(cuInit, , 2000, (unsigned))                                                                                      \
    F(cuDriverGetVersion, , 2020, (int *))                                                                             \
    F(cuGetErrorName, , 6000, (CUresult, const char **))                                                               \
    F(cuGetErrorString, , 6000, (CUresult, const char **))                                                             \
    F(cuDeviceGetCount, , 2000, (int *))                                                                               \
    F(cuDeviceGet, , 2000, (CUdevice *, int))                                                                          \
    F(cuDeviceGetName, , 2000, (char *, int, CUdevice))                                                                \
    F(cuDeviceGetAttribute, , 2000, (int *, CUdevice_attribute, CUdevice))                                             \
    F(cuDeviceTotalMem, _v2, 3020, (size_t *, CUdevice))                                                               \
    F(cuDevicePrimaryCtxRetain, , 7000, (CUcontext *, CUdevice))                                                       \
    F(cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice))                                                               \
    F(cuCtxPushCurrent, _v2, 4000, (CUcontext))                                                                        \
    F(cuCtxPopCurrent, _v2, 4000, (CUcontext *))                                                                       \
    F(cuModuleLoadData, , 2000, (CUmodule *, const void *))                                                            \
    F(cuModuleUnload, , 2000, (CUmodule))                                                                              \
    F(cuModuleGetFunction, , 2000, (CUfunction *, CUmodule, const char *))                                             \
    F(cuLaunchKernel, , 4000, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
    F(cuMemAlloc, _v2, 3020, (CUdeviceptr *, size_t))                                                                  \
    F(cuMemFree, _v2, 3020, (CUdeviceptr))                                                                             \
    F(cuMemAllocAsync, , 11020, (CUdeviceptr *, size_t, CUstream))                                                     \
    F(cuMemFreeAsync, , 11020, (CUdeviceptr, CUstream))                                                                \
    F(cuMemcpyHtoDAsync, _v2, 3020, (CUdeviceptr, const void *, size_t, CUstream))                                     \
    F(cuMemcpyDtoHAsync, _v2, 3020, (void *, CUdeviceptr, size_t, CUstream))                                           \
    F(cuMemcpyDtoDAsync, _v2, 3020, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                      \
    F(cuMemsetD8Async, , 3020, (CUdeviceptr, unsigned char, size_t, CUstream))                                         \
    F(cuMemsetD32Async, , 3020, (CUdeviceptr, unsigned, size_t, CUstream))                                             \
    F(cuMemGetInfo, _v2, 3020, (size_t *, size_t *))                                                                   \
    F(cuPointerGetAttribute, , 4000, (void *, CUpointer_attribute, CUdeviceptr))                                       \
    F(cuStreamSynchronize, , 2000, (CUstream))                                                                         \
    F(cuStreamCreate, , 2000, (CUstream *, unsigned))                                                                  \
    F(cuStreamDestroy, _v2, 4000, (CUstream))                                                                          \
    F(cuStreamBeginCapture, _v2, 10010, (CUstream, CUstreamCaptureMode))                                               \
    F(cuStreamEndCapture, , 10000, (CUstream, CUgraph *))                                                              \
    F(cuStreamIsCapturing, , 10000, (CUstream, CUstreamCaptureStatus *))                                               \
    F(cuGraphCreate, , 10000, (CUgraph *, unsigned))                                                                   \
    F(cuGraphAddKernelNode, _v2, 12000, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphInstantiateWithFlags, , 11040, (CUgraphExec *, CUgraph, unsigned long long))                              \
    F(cuGraphLaunch, , 10000, (CUgraphExec, CUstream))                                                                 \
    F(cuGraphDestroy, , 10000, (CUgraph))                                                                              \
    F(cuGraphExecDestroy, , 10000, (CUgraphExec))                                                                      \
    F(cuEventCreate, , 2000, (CUevent *, unsigned))                                                                    \
    F(cuEventRecord, , 2000, (CUevent, CUstream))                                                                      \
    F(cuEventSynchronize, , 2000, (CUevent))                                                                           \
    F(cuEventQuery, , 2000, (CUevent))                                                                                 \
    F(cuEventElapsedTime, , 2000, (float *, CUevent, CUevent))                                                         \
    F(cuEventDestroy, _v2, 4000, (CUevent))

/* All of it is in NVRTC 12.0. */
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

#define DRIVER_MEMBER(name, suffix, since, args) int (*name##suffix) args;
#define NVRTC_MEMBER(name, args) int (*name) args;
typedef struct Driver { DRIVER_FUNCTIONS(DRIVER_MEMBER) int version; } Driver;     /* version: 12040 is CUDA 12.4 */
typedef struct Nvrtc { NVRTC_FUNCTIONS(NVRTC_MEMBER) int version; char path[1024]; } Nvrtc;
#undef DRIVER_MEMBER
#undef NVRTC_MEMBER

const Driver *driver_get(const char **why);        /* NULL: *why says why not. Loaded once, never unloaded */
const Nvrtc *nvrtc_get(const char **why);

/* Source to machine code for sm_<arch> (PTX where ptx is set). The result is malloc'ed; NULL: log holds why (malloc'ed too). */
char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx, size_t *size, char **log);
int nvrtc_archs(const Nvrtc *n, int *out, int most);
const char *nvrtc_options(void);                   /* what a compilation is given, as text for keys that also name NVRTC's version */
bool nvrtc_fits(int nvrtc, int driver);            /* machine code made by this NVRTC is promised to load with this driver */
const char *nvrtc_package(int driver);             /* the Python package that brings one that fits; driver 0: none is known */
#endif

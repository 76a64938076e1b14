/* Declarations of the CUDA driver's functions, which cuda_driver.c finds at run time. Pasted into
 * packages. tests/cuda/headers.cc compares every row with CUDA's own headers. */
#ifndef OPTC_DRIVER_H
#define OPTC_DRIVER_H
/* Types by their names in the driver's header. Enumerations are ints; handles are opaque
 * pointers. */
#define CUDA_INTS(F) \
    F(CUresult) \
    F(CUdevice) F(CUdevice_attribute) F(CUpointer_attribute) F(CUstreamCaptureMode) \
        F(CUstreamCaptureStatus) F(CUmemorytype) F(CUfunction_attribute) F(CUtensorMapDataType) \
            F(CUtensorMapInterleave) F(CUtensorMapSwizzle) F(CUtensorMapL2promotion) \
                F(CUtensorMapFloatOOBfill)
#define CUDA_HANDLES(F) \
    F(CUcontext) \
    F(CUmodule) F(CUfunction) F(CUstream) F(CUgraph) F(CUgraphNode) F(CUgraphExec) F(CUevent) \
        F(CUarray)
#define INT(name) typedef int name;
#define HANDLE(name) typedef void *name;
CUDA_INTS(INT)
CUDA_HANDLES(HANDLE)
#undef INT
#undef HANDLE
typedef unsigned long long CUdeviceptr, CUgraphConditionalHandle, cuuint64_t;
typedef unsigned cuuint32_t;
/* at multiples of 64 bytes */
typedef struct CUtensorMap { cuuint64_t opaque[16]; } CUtensorMap;
typedef void CUgraphEdgeData;                          /* opaque */

#define CUDA_CONSTANTS(F) \
    F(CUDA_ERROR_INVALID_VALUE, 1) \
    F(CUDA_ERROR_OUT_OF_MEMORY, 2) \
    F(CUDA_ERROR_NO_DEVICE, 100) \
    F(CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
    F(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) \
    F(CUDA_ERROR_NOT_FOUND, 500) \
    F(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
    F(CUDA_ERROR_LAUNCH_TIMEOUT, 702) \
    F(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
    F(CUDA_ERROR_ASSERT, 710) \
    F(CUDA_ERROR_HARDWARE_STACK_ERROR, 714) \
    F(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
    F(CUDA_ERROR_MISALIGNED_ADDRESS, 716) \
    F(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) \
    F(CUDA_ERROR_INVALID_PC, 718) \
    F(CUDA_ERROR_LAUNCH_FAILED, 719) \
    F(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720) \
    F(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
    F(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38) \
    F(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
    F(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    F(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 95) \
    F(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) \
    F(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115) \
    F(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 133) \
    F(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8) \
    F(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9) \
    F(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) \
    F(CU_MEMORYTYPE_HOST, 1) \
    F(CU_MEMORYTYPE_DEVICE, 2) \
    F(CU_STREAM_CAPTURE_MODE_GLOBAL, 0) \
    F(CU_STREAM_CAPTURE_MODE_RELAXED, 2) \
    F(CU_GRAPH_NODE_TYPE_CONDITIONAL, 13) \
    F(CU_GRAPH_COND_TYPE_IF, 0) \
    F(CU_STREAM_SET_CAPTURE_DEPENDENCIES, 1) \
    F(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1) \
    F(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) \
    F(CU_TENSOR_MAP_DATA_TYPE_UINT16, 1) \
    F(CU_TENSOR_MAP_INTERLEAVE_NONE, 0) \
    F(CU_TENSOR_MAP_SWIZZLE_128B, 3) \
    F(CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 2) \
    F(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, 0)
#define CONSTANT(name, value) name = value,
enum { CUDA_CONSTANTS(CONSTANT) };
#undef CONSTANT

typedef struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra, *kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_MEMCPY2D {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

/* Parameters of a conditional node, and of any node: the union has the size of the longest kind. */
typedef struct CUDA_CONDITIONAL_NODE_PARAMS {
    CUgraphConditionalHandle handle;
    int type;
    unsigned size;
    CUgraph *phGraph_out;
    CUcontext ctx;
} CUDA_CONDITIONAL_NODE_PARAMS;
typedef struct CUgraphNodeParams {
    int type, reserved0[3];
    union { long long reserved1[29]; CUDA_CONDITIONAL_NODE_PARAMS conditional; } of;
    long long reserved2;
} CUgraphNodeParams;

/* Name, suffix of the exported symbol, CUDA version that introduced this interface, arguments.
 * cuGetProcAddress takes the name without suffix and that version, so that the driver never returns
 * a later interface of the same name; drivers without it are searched for the symbol with its
 * suffix. No row is newer than DRIVER_NEEDED, so none is optional. */
enum { DRIVER_NEEDED = 12000 };        /* CUDA 12.0: older drivers may not load code of the oldest
                                        * supported NVRTC */
#define DRIVER_FUNCTIONS(F) \
    F(cuInit, , 2000, (unsigned)) \
    F(cuDriverGetVersion, , 2020, (int *)) \
    F(cuGetErrorName, , 6000, (CUresult, const char **)) \
    F(cuGetErrorString, , 6000, (CUresult, const char **)) \
    F(cuDeviceGetCount, , 2000, (int *)) \
    F(cuDeviceGet, , 2000, (CUdevice *, int)) \
    F(cuDeviceGetName, , 2000, (char *, int, CUdevice)) \
    F(cuDeviceGetAttribute, , 2000, (int *, CUdevice_attribute, CUdevice)) \
    F(cuDevicePrimaryCtxRetain, , 7000, (CUcontext *, CUdevice)) \
    F(cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice)) \
    F(cuCtxPushCurrent, _v2, 4000, (CUcontext)) \
    F(cuCtxPopCurrent, _v2, 4000, (CUcontext *)) \
    F(cuModuleLoadData, , 2000, (CUmodule *, const void *)) \
    F(cuModuleUnload, , 2000, (CUmodule)) \
    F(cuModuleGetFunction, , 2000, (CUfunction *, CUmodule, const char *)) \
    F(cuLaunchKernel, , 4000, \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **)) \
    F(cuLaunchCooperativeKernel, , 9000, \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **)) \
    F(cuMemAlloc, _v2, 3020, (CUdeviceptr *, size_t)) \
    F(cuMemFree, _v2, 3020, (CUdeviceptr)) \
    F(cuMemHostAlloc, , 2020, (void **, size_t, unsigned)) \
    F(cuMemFreeHost, , 2000, (void *)) \
    F(cuMemcpyHtoDAsync, _v2, 3020, (CUdeviceptr, const void *, size_t, CUstream)) \
    F(cuMemcpyDtoHAsync, _v2, 3020, (void *, CUdeviceptr, size_t, CUstream)) \
    F(cuMemcpyDtoDAsync, _v2, 3020, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    F(cuMemcpy2DAsync, _v2, 3020, (const CUDA_MEMCPY2D *, CUstream)) \
    F(cuMemsetD8Async, , 3020, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    F(cuPointerGetAttribute, , 4000, (void *, CUpointer_attribute, CUdeviceptr)) \
    F(cuStreamSynchronize, , 2000, (CUstream)) \
    F(cuStreamIsCapturing, , 10000, (CUstream, CUstreamCaptureStatus *)) \
    F(cuThreadExchangeStreamCaptureMode, , 10010, (CUstreamCaptureMode *)) \
    F(cuGraphCreate, , 10000, (CUgraph *, unsigned)) \
    F(cuGraphAddKernelNode, _v2, 12000, \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphGetNodes, , 10000, (CUgraph, CUgraphNode *, size_t *)) \
    F(cuGraphInstantiateWithFlags, , 11040, (CUgraphExec *, CUgraph, unsigned long long)) \
    F(cuGraphLaunch, , 10000, (CUgraphExec, CUstream)) \
    F(cuGraphDestroy, , 10000, (CUgraph)) \
    F(cuGraphExecDestroy, , 10000, (CUgraphExec)) \
    F(cuDeviceTotalMem, _v2, 3020, (size_t *, CUdevice)) \
    F(cuMemAllocAsync, , 11020, (CUdeviceptr *, size_t, CUstream)) \
    F(cuMemFreeAsync, , 11020, (CUdeviceptr, CUstream)) \
    F(cuMemsetD32Async, , 3020, (CUdeviceptr, unsigned, size_t, CUstream)) \
    F(cuMemGetInfo, _v2, 3020, (size_t *, size_t *)) \
    F(cuStreamCreate, , 2000, (CUstream *, unsigned)) \
    F(cuStreamDestroy, _v2, 4000, (CUstream)) \
    F(cuStreamBeginCapture, _v2, 10010, (CUstream, CUstreamCaptureMode)) \
    F(cuStreamEndCapture, , 10000, (CUstream, CUgraph *)) \
    F(cuEventCreate, , 2000, (CUevent *, unsigned)) \
    F(cuEventRecord, , 2000, (CUevent, CUstream)) \
    F(cuEventSynchronize, , 2000, (CUevent)) \
    F(cuEventQuery, , 2000, (CUevent)) \
    F(cuEventElapsedTime, , 2000, (float *, CUevent, CUevent)) \
    F(cuEventDestroy, _v2, 4000, (CUevent)) \
    F(cuStreamWaitEvent, , 3020, (CUstream, CUevent, unsigned)) \
    F(cuFuncSetAttribute, , 9000, (CUfunction, CUfunction_attribute, int)) \
    F(cuTensorMapEncodeTiled, , 12000, \
      (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, \
       const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, \
       CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))

/* Optional functions, NULL if the driver lacks them: conditional graph nodes, which run if a kernel
 * before them sets their handle. (Introduced by 12.3; bodies with more than kernels by 12.4; switch
 * nodes by 12.8.) CONDITION_ASSIGN_DEFAULT is the macro CU_GRAPH_COND_ASSIGN_DEFAULT, and
 * CONDITION_SWITCH the enumerator CU_GRAPH_COND_TYPE_SWITCH, of CUDA's header: older headers lack
 * the latter. Bodies may contain cooperative launches from 12.6 on (COOPERATION_NEEDED), but not
 * under MPS. */
enum {
    CONDITIONS_NEEDED = 12040,
    CONDITION_ASSIGN_DEFAULT = 1,
    SWITCH_NEEDED = 12080,
    CONDITION_SWITCH = 2,
    COOPERATION_NEEDED = 12060
};
#define DRIVER_LATER(F) \
    F(cuStreamGetCaptureInfo, _v3, 12030, \
      (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **, \
       const CUgraphEdgeData **, size_t *)) \
    F(cuStreamUpdateCaptureDependencies, _v2, 12030, \
      (CUstream, CUgraphNode *, const CUgraphEdgeData *, size_t, unsigned)) \
    F(cuStreamBeginCaptureToGraph, , 12030, \
      (CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, \
       CUstreamCaptureMode)) \
    F(cuGraphConditionalHandleCreate, , 12030, \
      (CUgraphConditionalHandle *, CUgraph, CUcontext, unsigned, unsigned)) \
    F(cuGraphAddNode, _v2, 12030, \
      (CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, \
       CUgraphNodeParams *))

#define DRIVER_MEMBER(name, suffix, since, args) int (*name##suffix) args;
/* version: 12040 is CUDA 12.4 */
typedef struct Driver {
    DRIVER_FUNCTIONS(DRIVER_MEMBER) DRIVER_LATER(DRIVER_MEMBER) int version;
} Driver;
#undef DRIVER_MEMBER
#endif

// Checks every row of runtime/library/compile/nvrtc.h and runtime/library/package/fatbin.h against CUDA's own headers: the
// file compiles, or the error names the wrong row. Arguments of functions are read with CUDA's types and must be exactly
// those of that version of the interface (PFN_name_vVERSION). Our types, in `ours`, must have the same size and kind.
// WRONG=1… inserts a row that is wrong on purpose and must not compile (tests/parts/cuda.sh tries each).
#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvrtc.h>
#if __has_include(<nvFatbin.h>)        // not with every toolkit
#include <nvFatbin.h>
#endif

#if __has_include(<cublas_v2.h>)       // likewise
#include <cublas_v2.h>
#endif

#if __has_include(<cublasLt.h>)        // likewise
#include <cublasLt.h>
#define HAS_CUBLASLT
#endif

#if __has_include(<cusolverDn.h>)      // likewise
#include <cusolverDn.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ours {
#include "runtime/library/compile/nvrtc.h"
#include "runtime/library/package/fatbin.h"
#include "runtime/core/matrix/cublas.h"
#include "runtime/core/matrix/cusolver.h"
}

// CUresult f(args) against int f(args)
#define SAME_FUNCTION(theirs, result, args) std::is_same<theirs, result (*) args>::value
static_assert(sizeof(CUresult) == sizeof(int) && sizeof(nvrtcResult) == sizeof(int), "results are ints");

#define FUNCTION(name, suffix, since, args)                                                                                              \
    static_assert(SAME_FUNCTION(PFN_##name##_v##since, CUresult, args), #name ": its arguments are not those of interface " #since);     \
    static_assert(SAME_FUNCTION(decltype(&name##suffix), CUresult, args), #name #suffix ": the exported symbol takes other arguments");  \
    static_assert(since <= ours::DRIVER_NEEDED, #name " is younger than the driver we ask for");
DRIVER_FUNCTIONS(FUNCTION)

#define LATER(name, suffix, since, args)                                                                                                 \
    static_assert(SAME_FUNCTION(PFN_##name##_v##since, CUresult, args), #name ": its arguments are not those of interface " #since);     \
    static_assert(SAME_FUNCTION(decltype(&name##suffix), CUresult, args), #name #suffix ": the exported symbol takes other arguments");  \
    static_assert(since <= ours::CONDITIONS_NEEDED, #name " is younger than the driver that conditions ask for");
#if CUDA_VERSION >= 12030
DRIVER_LATER(LATER)
static_assert(CU_GRAPH_COND_ASSIGN_DEFAULT == ours::CONDITION_ASSIGN_DEFAULT, "CU_GRAPH_COND_ASSIGN_DEFAULT is another number");
#if CUDA_VERSION >= 12080
static_assert(int(CU_GRAPH_COND_TYPE_SWITCH) == int(ours::CONDITION_SWITCH), "CU_GRAPH_COND_TYPE_SWITCH is another number");
#endif
static_assert(sizeof(::CUgraphNodeParams) == sizeof(ours::CUgraphNodeParams) && offsetof(::CUgraphNodeParams, conditional) == offsetof(ours::CUgraphNodeParams, of), "CUgraphNodeParams is laid out otherwise");
#define CONDITION_FIELD(name) && offsetof(::CUDA_CONDITIONAL_NODE_PARAMS, name) == offsetof(ours::CUDA_CONDITIONAL_NODE_PARAMS, name)
static_assert(sizeof(::CUgraphConditionalHandle) == 8 CONDITION_FIELD(handle) CONDITION_FIELD(type) CONDITION_FIELD(size) CONDITION_FIELD(phGraph_out), "CUDA_CONDITIONAL_NODE_PARAMS is laid out otherwise");
#endif

#define NVRTC(name, args) static_assert(SAME_FUNCTION(decltype(&name), nvrtcResult, args), #name ": its arguments are others");
NVRTC_FUNCTIONS(NVRTC)

#ifdef nvFatbin_INCLUDED
#define NVFATBIN(name, args) static_assert(SAME_FUNCTION(decltype(&name), nvFatbinResult, args), #name ": its arguments are others");
NVFATBIN_FUNCTIONS(NVFATBIN)
static_assert(sizeof(nvFatbinResult) == sizeof(int), "results of nvFatbin are ints");
#endif

#ifdef CUBLAS_V2_H_
// Some functions are overloaded in C++: the cast selects the one with these arguments, or fails.
#define CUBLAS(name, suffix, args) static_assert(sizeof(static_cast<cublasStatus_t (*) args>(&name##suffix)) == sizeof(void *), #name #suffix ": its arguments are others");
CUBLAS_FUNCTIONS(CUBLAS)
CUBLAS_LONG_FUNCTIONS(CUBLAS)
static_assert(std::is_same<decltype(&cublasGetStatusString), const char *(*)(cublasStatus_t)>::value, "cublasGetStatusString: its arguments are others");
#define CUBLAS_CONSTANT_OF(name, value) static_assert(static_cast<int>(::name) == (value), #name " is another number");
CUBLAS_CONSTANTS(CUBLAS_CONSTANT_OF)
#define CUBLAS_AN_INT(name) static_assert(sizeof(::name) == sizeof(int) && std::is_enum<::name>::value, #name " is no int");
CUBLAS_INTS(CUBLAS_AN_INT)
static_assert(std::is_pointer<::cublasHandle_t>::value && std::is_pointer<::cudaStream_t>::value && std::is_same<::cudaStream_t, CUstream>::value, "cuBLAS's handle or stream is another type");
#endif

#ifdef HAS_CUBLASLT
#define CUBLASLT(name, suffix, args) static_assert(SAME_FUNCTION(decltype(&name##suffix), cublasStatus_t, args), #name ": its arguments are others");
CUBLASLT_FUNCTIONS(CUBLASLT)
#define CUBLASLT_CONSTANT_OF(name, value) static_assert(static_cast<int>(::name) == (value), #name " is another number");
CUBLASLT_CONSTANTS(CUBLASLT_CONSTANT_OF)
#if CUBLAS_VERSION >= 130000
CUBLASLT_LATER_CONSTANTS(CUBLASLT_CONSTANT_OF)
#endif
#define CUBLASLT_AN_INT(name) static_assert(sizeof(::name) == sizeof(int) && std::is_enum<::name>::value, #name " is no int");
CUBLASLT_INTS(CUBLASLT_AN_INT)
static_assert(sizeof(::cublasLtMatmulAlgo_t) == sizeof(ours::cublasLtMatmulAlgo_t) && sizeof(::cublasLtMatmulHeuristicResult_t) == sizeof(ours::cublasLtMatmulHeuristicResult_t) && offsetof(::cublasLtMatmulHeuristicResult_t, state) == offsetof(ours::cublasLtMatmulHeuristicResult_t, state), "structs of cuBLASLt are laid out otherwise");
#endif

#ifdef CUSOLVERDN_H_
#define CUSOLVER(name, args) static_assert(SAME_FUNCTION(decltype(&name), cusolverStatus_t, args), #name ": its arguments are others");
CUSOLVER_FUNCTIONS(CUSOLVER)
#define CUSOLVER_CONSTANT_OF(name, value) static_assert(static_cast<int>(::name) == (value), #name " is another number");
CUSOLVER_CONSTANTS(CUSOLVER_CONSTANT_OF)
#define CUSOLVER_AN_INT(name) static_assert(sizeof(::name) == sizeof(int) && std::is_enum<::name>::value, #name " is no int");
CUSOLVER_INTS(CUSOLVER_AN_INT)
static_assert(std::is_pointer<::cusolverDnHandle_t>::value && std::is_pointer<::cusolverDnParams_t>::value, "cuSOLVER's handle is another type");
#endif

#define CONSTANT_OF(name, value) static_assert(static_cast<int>(::name) == (value), #name " is another number");
CUDA_CONSTANTS(CONSTANT_OF)

#define AN_INT(name)                                                                                                                     \
    static_assert(sizeof(::name) == sizeof(ours::name) && (std::is_enum<::name>::value || std::is_same<::name, int>::value), #name " is no int");
CUDA_INTS(AN_INT)

#define A_HANDLE(name) static_assert(std::is_pointer<::name>::value && sizeof(::name) == sizeof(ours::name), #name " is no pointer");
CUDA_HANDLES(A_HANDLE)
static_assert(std::is_same<::CUdeviceptr, ours::CUdeviceptr>::value, "CUdeviceptr is another type");

#define FIELD(name) && offsetof(::CUDA_KERNEL_NODE_PARAMS, name) == offsetof(ours::CUDA_KERNEL_NODE_PARAMS, name)
static_assert(sizeof(::CUDA_KERNEL_NODE_PARAMS) == sizeof(ours::CUDA_KERNEL_NODE_PARAMS) FIELD(func) FIELD(gridDimX) FIELD(blockDimX) FIELD(sharedMemBytes) FIELD(kernelParams) FIELD(extra) FIELD(kern) FIELD(ctx),
              "CUDA_KERNEL_NODE_PARAMS is laid out otherwise");

#undef FIELD
#define FIELD(name) && offsetof(::CUDA_MEMCPY2D, name) == offsetof(ours::CUDA_MEMCPY2D, name)
static_assert(sizeof(::CUDA_MEMCPY2D) == sizeof(ours::CUDA_MEMCPY2D) FIELD(srcMemoryType) FIELD(srcHost) FIELD(srcPitch) FIELD(dstMemoryType) FIELD(dstDevice) FIELD(dstPitch) FIELD(WidthInBytes) FIELD(Height),
              "CUDA_MEMCPY2D is laid out otherwise");

// How functions are looked up (Asker in runtime/library/compile/nvrtc.c).
static_assert(SAME_FUNCTION(PFN_cuGetProcAddress_v12000, CUresult, (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *)), "cuGetProcAddress of 12.0");
static_assert(SAME_FUNCTION(PFN_cuGetProcAddress_v11030, CUresult, (const char *, void **, int, cuuint64_t)), "cuGetProcAddress of 11.3");
static_assert(sizeof(cuuint64_t) == sizeof(unsigned long long) && sizeof(CUdriverProcAddressQueryResult) == sizeof(int), "types of cuGetProcAddress");

#if WRONG == 1
FUNCTION(cuMemAlloc, _v2, 2000, (CUdeviceptr *, size_t))                   // the interface of 2.0 took an unsigned, and is not declared any more
#elif WRONG == 2
FUNCTION(cuModuleLoadData, , 2000, (CUmodule *, void *))                   // const left out
#elif WRONG == 3
FUNCTION(cuMemFreeAsync, , 11020, (CUdeviceptr))                           // an argument missing
#elif WRONG == 4
FUNCTION(cuEventRecord, , 2000, (CUstream, CUevent))                       // the wrong way round
#elif WRONG == 5
CONSTANT_OF(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 17)
#elif WRONG == 6
NVRTC(nvrtcGetCUBINSize, (nvrtcProgram, int *))
#elif WRONG == 7
AN_INT(CUdeviceptr)
#elif defined(WRONG)
int last_one;                                                              // compiles: no more wrong rows
#endif

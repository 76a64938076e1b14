/* cuBLAS as a table of functions that is filled at run time. Pasted into packages.
 * tests/cuda/headers.cc compares every row with cuBLAS's own header. */
#ifndef OPTC_CUBLAS_H
#define OPTC_CUBLAS_H
/* Types as the library's own header names them: enumerations are ints, the handle is an opaque
 * pointer. */
#define CUBLAS_INTS(F)                                                                        \
    F(cublasStatus_t) F(cublasOperation_t) F(cublasPointerMode_t) F(cublasMath_t)             \
    F(cublasComputeType_t) F(cublasGemmAlgo_t) F(cudaDataType) F(libraryPropertyType)
#define CUBLAS_INT(name) typedef int name;
CUBLAS_INTS(CUBLAS_INT)
#undef CUBLAS_INT
typedef void *cublasHandle_t;
typedef void *cudaStream_t;                            /* CUstream */
/* cuBLASLt, which is a part of cuBLAS */
#define CUBLASLT_INTS(F) \
    F(cublasLtMatrixLayoutAttribute_t) \
    F(cublasLtMatmulDescAttributes_t) F(cublasLtMatmulPreferenceAttributes_t)
#define CUBLASLT_INT(name) typedef int name;
CUBLASLT_INTS(CUBLASLT_INT)
#undef CUBLASLT_INT
typedef void *cublasLtHandle_t;                        /* a cublasHandle_t can be used as one */
typedef void *cublasLtMatrixLayout_t;
typedef void *cublasLtMatmulDesc_t;
typedef void *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo_t { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#define CUBLAS_CONSTANTS(F)                             \
    F(CUBLAS_STATUS_NOT_INITIALIZED, 1)                 \
    F(CUBLAS_STATUS_ALLOC_FAILED, 3)                    \
    F(CUBLAS_STATUS_INVALID_VALUE, 7)                   \
    F(CUBLAS_STATUS_ARCH_MISMATCH, 8)                   \
    F(CUBLAS_STATUS_EXECUTION_FAILED, 13)               \
    F(CUBLAS_STATUS_NOT_SUPPORTED, 15)                  \
    F(CUBLAS_OP_N, 0)                                   \
    F(CUBLAS_OP_T, 1)                                   \
    F(CUBLAS_POINTER_MODE_HOST, 0)                      \
    F(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16) \
    F(CUBLAS_COMPUTE_32F, 68)                           \
    F(CUBLAS_COMPUTE_64F, 70)                           \
    F(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                 \
    F(CUBLAS_GEMM_DEFAULT, -1)                          \
    F(CUDA_R_32F, 0)                                    \
    F(CUDA_R_64F, 1)                                    \
    F(CUDA_R_16F, 2)                                    \
    F(CUDA_R_16BF, 14)                                  \
    F(MAJOR_VERSION, 0)                                 \
    F(MINOR_VERSION, 1)
#define CUBLASLT_CONSTANTS(F)                           \
    F(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)            \
    F(CUBLASLT_MATMUL_DESC_TRANSA, 3)                   \
    F(CUBLASLT_MATMUL_DESC_TRANSB, 4)                   \
    F(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)      \
    F(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)    \
    F(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)    \
    F(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)    \
    F(CUBLASLT_REDUCTION_SCHEME_NONE, 0)
/* Arrays of pointers: cuBLAS 12.6 does not know them, and refuses the attribute. */
#define CUBLASLT_LATER_CONSTANTS(F)                     \
    F(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, 8)             \
    F(CUBLASLT_BATCH_MODE_POINTER_ARRAY, 1)
#define CUBLAS_CONSTANT(name, value) name = value,
enum {
    CUBLAS_CONSTANTS(CUBLAS_CONSTANT) CUBLASLT_CONSTANTS(CUBLAS_CONSTANT)
        CUBLASLT_LATER_CONSTANTS(CUBLAS_CONSTANT)
};
#undef CUBLAS_CONSTANT

/* Name, suffix of the exported symbol, arguments. cuBLAS 12.0, the oldest version we open, has all
 * of them. */
#define CUBLAS_FUNCTIONS(F) \
    F(cublasCreate, _v2, (cublasHandle_t *)) \
    F(cublasDestroy, _v2, (cublasHandle_t)) \
    F(cublasGetProperty, , (libraryPropertyType, int *)) \
    F(cublasSetStream, _v2, (cublasHandle_t, cudaStream_t)) \
    F(cublasSetWorkspace, _v2, (cublasHandle_t, void *, size_t)) \
    F(cublasSetMathMode, , (cublasHandle_t, cublasMath_t)) \
    F(cublasSetPointerMode, _v2, (cublasHandle_t, cublasPointerMode_t)) \
    F(cublasGemmBatchedEx, , \
      (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, \
       const void *const *, cudaDataType, int, const void *const *, cudaDataType, int, \
       const void *, void *const *, cudaDataType, int, int, cublasComputeType_t, \
       cublasGemmAlgo_t)) \
    F(cublasGemmStridedBatchedEx, , \
      (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, \
       const void *, cudaDataType, int, long long, const void *, cudaDataType, int, long long, \
       const void *, void *, cudaDataType, int, long long, int, cublasComputeType_t, \
       cublasGemmAlgo_t))
/* Only lengths beyond 32 bits need these; older libraries lack them. */
#define CUBLAS_LONG_FUNCTIONS(F) \
    F(cublasGemmBatchedEx, _64, \
      (cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t, \
       const void *, const void *const *, cudaDataType, int64_t, const void *const *, \
       cudaDataType, int64_t, const void *, void *const *, cudaDataType, int64_t, int64_t, \
       cublasComputeType_t, cublasGemmAlgo_t)) \
    F(cublasGemmStridedBatchedEx, _64, \
      (cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t, \
       const void *, const void *, cudaDataType, int64_t, long long, const void *, cudaDataType, \
       int64_t, long long, const void *, void *, cudaDataType, int64_t, long long, int64_t, \
       cublasComputeType_t, cublasGemmAlgo_t))

/* Products with one algorithm for any number of matrices (cublas_lt.c). */
#define CUBLASLT_FUNCTIONS(F) \
    F(cublasLtMatrixLayoutCreate, , \
      (cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t)) \
    F(cublasLtMatrixLayoutDestroy, , (cublasLtMatrixLayout_t)) \
    F(cublasLtMatrixLayoutSetAttribute, , \
      (cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t)) \
    F(cublasLtMatmulDescCreate, , (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType)) \
    F(cublasLtMatmulDescDestroy, , (cublasLtMatmulDesc_t)) \
    F(cublasLtMatmulDescSetAttribute, , \
      (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t)) \
    F(cublasLtMatmulPreferenceCreate, , (cublasLtMatmulPreference_t *)) \
    F(cublasLtMatmulPreferenceDestroy, , (cublasLtMatmulPreference_t)) \
    F(cublasLtMatmulPreferenceSetAttribute, , \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t)) \
    F(cublasLtMatmulAlgoGetHeuristic, , \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int, \
       cublasLtMatmulHeuristicResult_t *, int *)) \
    F(cublasLtMatmul, , \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, \
       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t, \
       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t, \
       cudaStream_t))

#define CUBLAS_MEMBER(name, suffix, args) int (*name##suffix) args;
/* version: 13010 is cuBLAS 13.1. lt: the functions of cuBLASLt are there */
typedef struct Cublas {
    CUBLAS_FUNCTIONS(CUBLAS_MEMBER)
    CUBLAS_LONG_FUNCTIONS(CUBLAS_MEMBER)
    CUBLASLT_FUNCTIONS(CUBLAS_MEMBER)
    bool lt;
    const char *(*cublasGetStatusString)(cublasStatus_t);
    int version;
    char path[1024];
} Cublas;
#undef CUBLAS_MEMBER
#endif

/* cuSOLVER as a table of functions that is filled at run time. Pasted into packages behind
 * cublas.h. tests/cuda/headers.cc compares every row with cuSOLVER's own header. */
#ifndef OPTC_CUSOLVER_H
#define OPTC_CUSOLVER_H
/* Types as the library's own header names them, beside those of cuBLAS: enumerations are ints, the
 * rest opaque pointers. */
#define CUSOLVER_INTS(F) F(cusolverStatus_t) F(cusolverEigMode_t) F(cublasFillMode_t)
#define CUSOLVER_INT(name) typedef int name;
CUSOLVER_INTS(CUSOLVER_INT)
#undef CUSOLVER_INT
typedef void *cusolverDnHandle_t;
typedef void *cusolverDnParams_t;

#define CUSOLVER_STATUSES(F)                            \
    F(CUSOLVER_STATUS_NOT_INITIALIZED, 1)               \
    F(CUSOLVER_STATUS_ALLOC_FAILED, 2)                  \
    F(CUSOLVER_STATUS_INVALID_VALUE, 3)                 \
    F(CUSOLVER_STATUS_ARCH_MISMATCH, 4)                 \
    F(CUSOLVER_STATUS_EXECUTION_FAILED, 6)              \
    F(CUSOLVER_STATUS_INTERNAL_ERROR, 7)                \
    F(CUSOLVER_STATUS_NOT_SUPPORTED, 9)                 \
    F(CUSOLVER_STATUS_INVALID_WORKSPACE, 31)
#define CUSOLVER_CONSTANTS(F)                           \
    CUSOLVER_STATUSES(F)                                \
    F(CUSOLVER_EIG_MODE_VECTOR, 1)                      \
    F(CUBLAS_FILL_MODE_UPPER, 1)
#define CUSOLVER_CONSTANT(name, value) name = value,
enum { CUSOLVER_CONSTANTS(CUSOLVER_CONSTANT) };
#undef CUSOLVER_CONSTANT

/* Name, arguments. */
#define CUSOLVER_FUNCTIONS(F) \
    F(cusolverDnCreate, (cusolverDnHandle_t *)) \
    F(cusolverDnDestroy, (cusolverDnHandle_t)) \
    F(cusolverDnSetStream, (cusolverDnHandle_t, cudaStream_t)) \
    F(cusolverDnCreateParams, (cusolverDnParams_t *)) \
    F(cusolverDnDestroyParams, (cusolverDnParams_t)) \
    F(cusolverGetProperty, (libraryPropertyType, int *)) \
    F(cusolverDnXsyevBatched_bufferSize, \
      (cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t, cublasFillMode_t, int64_t, \
       cudaDataType, const void *, int64_t, cudaDataType, const void *, cudaDataType, size_t *, \
       size_t *, int64_t)) \
    F(cusolverDnXsyevBatched, \
      (cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t, cublasFillMode_t, int64_t, \
       cudaDataType, void *, int64_t, cudaDataType, void *, cudaDataType, void *, size_t, void *, \
       size_t, int *, int64_t))

#define CUSOLVER_MEMBER(name, args) int (*name) args;
/* version: 12000 is cuSOLVER 12.0 */
typedef struct Cusolver {
    CUSOLVER_FUNCTIONS(CUSOLVER_MEMBER)
    int version;
    char path[1024];
} Cusolver;
#undef CUSOLVER_MEMBER
#endif

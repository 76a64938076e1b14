/* One call of cuBLAS: the products of a batch of equal matrices on a GPU. Rules and optc_multiply
 * both use it.
 *
 *   CallType    the precision: a row of products.def
 *   GpuGemm     what is multiplied: sizes, addresses, row strides, transposes, factors. The caller
 *               owns it and the memory that it names; it is only read
 *   cublas_gemm enqueues it in the handle's stream
 *
 * Our matrices are row-major and cuBLAS expects column-major ones. Our C = A B is its C^T = B^T
 * A^T, so cublas_gemm passes the operands in exchanged order. */
#ifndef OPTC_CORE_GPU_GEMM_H
#define OPTC_CORE_GPU_GEMM_H
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/matrix/cuda_library.h"

/* A precision of products in cuBLAS and in our kernels (products.def). */
typedef struct CallType {
    Product product;
    Type type;
    cudaDataType cuda;
    cublasComputeType_t compute;
    int bytes;
    CallKernel mm, over, mirror, symmetric;        /* symmetric: mm if there is none */
    const char *name;
} CallType;
CORE const CallType *call_type_of(Product in);             /* NULL: NPRODUCT */

/* at: the first matrix, and the next ones are `stride` values apart; or an array of their addresses
 * on the device */
typedef struct GemmMatrices { CUdeviceptr at; long long stride; } GemmMatrices;
/* c = alpha a b + beta d for `count` matrices; a is m x k and b is k x n after their transposes.
 * f32: so is c, whatever the type of a and b. d: of c's layout; only cuBLASLt reads it, elsewhere
 * it is c itself */
typedef struct GpuGemm {
    const CallType *type;
    bool strided, trans_a, trans_b, f32;
    int64_t m, n, k, lda, ldb, ldc, count;
    double alpha, beta;
    GemmMatrices a, b, c, d;
    int aligned;                           /* cublas_lt_choose: bytes that all addresses are
                                            * multiples of */
} GpuGemm;
/* An algorithm of cuBLASLt for one shape and type; not known: there is none */
typedef struct GemmAlgorithm { cublasLtMatmulAlgo_t algo; bool known; } GemmAlgorithm;
/* Side of the blocks of a symmetric product, n x n with sums of k terms; n: the whole matrix is one
 * block. */
CORE int64_t gram_block(const CallType *t, int64_t n, int64_t k);
/* ---- cublas.c; these return cuBLAS's status ---- */
CORE int cublas_gemm(const Cublas *f, cublasHandle_t h, const GpuGemm *x);
/* a length exceeds 32 bits: needs the _64 functions */
CORE bool gemm_is_long(const GpuGemm *x);
/* ---- cublas_lt.c: arrays of pointers only; these return cuBLAS's status ---- */
/* The algorithm for any number of matrices of a shape; count: the products of one matrix. An error
 * is no reason to do without one: bits would change. */
CORE int cublas_lt_choose(const Cublas *f, cublasHandle_t h, const GpuGemm *x, GemmAlgorithm *out);
CORE int cublas_lt_gemm(const Cublas *f, cublasHandle_t h, const GpuGemm *x,
                        const GemmAlgorithm *algorithm, CUstream stream);
/* A handle for our products: a spare one of the engine, or a new one. After an error *out is NULL,
 * or a handle for spare_keep. */
CORE int cublas_handle_take(const Cublas *c, GpuEngine *g, cublasHandle_t *out);
CORE int cublas_handle_use(const Cublas *c, cublasHandle_t h, CUstream stream, void *space,
                           size_t bytes);
CORE optc_status cublas_refused(const Cublas *c, const char *call, int rc, const char *what);
#endif

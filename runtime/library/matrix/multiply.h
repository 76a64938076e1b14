/* Products without a rule (optc_multiply, optc_kron), after the caller's struct was read. */
#ifndef OPTC_MATRICES_H
#define OPTC_MATRICES_H
#include "runtime/library/library.h"

#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/gpu_gemm.h"

/* rows x cols after a transpose. ld: row stride in memory; next: distance of matrices; both in values. next 0: one
 * matrix for the whole batch. */
typedef struct Operand { char *at; int64_t rows, cols, ld, next; bool transposed; } Operand;
/* gram: b is a transposed. chain: a third operand d. limit: bytes of workspace. size: bytes of a value. product: the
 * precision on a GPU (products.def); NPRODUCT: cuBLAS has no products of this type. */
typedef struct Multiply {
    Type type;
    Product product;
    int64_t size, batch, limit;
    Operand a, b, d, c;
    bool gram, chain;
    double scale, add;
    void *stream;
} Multiply;

/* An engine's resources for products without a rule. On a GPU, under the engine's lock: cuBLAS's handle, and our
 * kernels by storage type; NULL until first used. */
typedef struct MatrixKit {
    Blas blas;
    Cublas cublas;
    cublasHandle_t handle;
    CUmodule module;
    CUfunction kron[NTYPES];
} MatrixKit;
void matrices_close(optc_engine *e);
/* Address of value (row, col) of the nth matrix. */
char *operand_at(const Operand *x, int64_t nth, int64_t row, int64_t col, int64_t size);
optc_status too_little(int64_t least, int64_t limit);

optc_status multiply_cpu(optc_engine *e, const Blas *blas, const Multiply *x);
void kron_cpu(optc_engine *e, const optc_kronecker *x, Type type);
optc_status multiply_gpu(optc_engine *e, MatrixKit *k, const Multiply *x);
optc_status kron_gpu(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type);
/* ---- kron_kernel.c ---- */
optc_status kron_code(optc_engine *e, MatrixKit *k);       /* inside gpu_enter and the engine's lock */
#endif

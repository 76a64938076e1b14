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

/* How messages name a call and its matrices. */
typedef struct ProductNames { const char *call, *a, *b, *d, *c; } ProductNames;
optc_status multiply_named(optc_engine *e, const optc_product *x, const ProductNames *names);

/* An engine's resources for products without a rule. On a GPU, under the engine's lock: cuBLAS's handle, and our
 * kernels by storage type; NULL until first used. */
typedef struct MatrixKit {
    Blas blas;
    Cublas cublas;
    cublasHandle_t handle;
    CUmodule module, copy_module, gram_module;
    CUfunction kron[NTYPES], copy[NTYPES], gram[NTYPES], blocks[NTYPES];
} MatrixKit;
void matrices_close(optc_engine *e);
optc_status matrices_kit(optc_engine *e, const char *call, MatrixKit **out);       /* opens it on first use */
/* Loads kernels on first use. That allocates memory, so it must not happen in a capture. Inside gpu_enter. */
optc_status matrices_load(optc_engine *e, void *stream, const char *call, bool loaded,
                          optc_status (*open)(optc_engine *e, MatrixKit *k));
/* Fills in ld and next, and checks an operand: NULL, alignment, strides, size. one: next may be OPTC_ONE. */
optc_status operand_check(const char *call, const char *name, Operand *x, int64_t batch, int64_t size, bool one);
bool operands_meet(const Operand *x, const Operand *y, int64_t batch, int64_t size);      /* their memory overlaps */
bool operand_folds(const Operand *x, int64_t batch);       /* its own matrices overlap */
optc_status operand_here(optc_engine *e, const char *call, const char *name, const Operand *x, int64_t batch,
                         int64_t size);
/* Memory of the device for one call, or for as long as an entry lives. `call` is named in messages. */
optc_status matrices_take(optc_engine *e, const char *call, int64_t bytes, void *stream, void **out);
void matrices_give(optc_engine *e, void *memory, int64_t bytes, void *stream);         /* memory NULL: nothing */
/* The compiler's type of a caller's; refuses types that no matrix is stored in. */
optc_status matrix_type(const char *call, optc_type t, Type *out);
/* Address of value (row, col) of the nth matrix. */
char *operand_at(const Operand *x, int64_t nth, int64_t row, int64_t col, int64_t size);
optc_status too_little(int64_t least, int64_t limit);

optc_status multiply_cpu(optc_engine *e, const Blas *blas, const Multiply *x);
void kron_cpu(optc_engine *e, const optc_kronecker *x, Type type);
optc_status multiply_gpu(optc_engine *e, MatrixKit *k, const Multiply *x);
optc_status kron_gpu(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type);
/* ---- kron_kernel.c ---- */
optc_status kron_code(optc_engine *e, MatrixKit *k);       /* inside gpu_enter and the engine's lock */
optc_status copy_code(optc_engine *e, MatrixKit *k);       /* likewise */
optc_status gram_code(optc_engine *e, MatrixKit *k);       /* likewise */
#endif

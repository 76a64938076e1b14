/* Products without a rule (optc_multiply, optc_kron), after the caller's struct was read. */
#ifndef OPTC_MATRICES_H
#define OPTC_MATRICES_H
#include "runtime/core/base/core.h"
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/gpu_gemm.h"

#include <math.h>
#include <pthread.h>

/* rows x cols after a transpose. ld: row stride in memory; next: distance of matrices; both in
 * values. next 0: one matrix for the whole batch. */
typedef struct Operand { char *at; int64_t rows, cols, ld, next; bool transposed; } Operand;
OPTC_COUNT Operand operand_of(const void *at, int64_t rows, int64_t cols, int64_t ld, int64_t next,
                              bool transposed)
{
    Operand x = {(char *)(uintptr_t)at, rows, cols, ld, next, transposed};
    return x;
}

/* A storage type of matrices: types whose values stand for themselves. compute: the type that
 * functions compute in; digits: significant bits; saturates: it has no infinity, and larger values
 * are stored as its largest one. */
typedef struct NumberType {
    const char *name; int bytes; Type compute; int digits; bool number, saturates;
} NumberType;
static const NumberType number_type[NTYPES] __attribute__((unused)) = {
#define NUMBER(number, ID, name, bits, block, planes, draws, c, load, store, compute, digits, \
               least, most, beyond, ...) \
    {name, bits / 8, T_##compute, digits, number, (beyond) < INFINITY},
#define TYPE(...) NUMBER(true, __VA_ARGS__)
#define CODED(...) NUMBER(false, __VA_ARGS__)
#define DRAWN(PLAIN, rounds, ...) NUMBER(false, __VA_ARGS__)
#define INTEGER(...) NUMBER(false, __VA_ARGS__)
#include "gen/abi/types.def"
#undef NUMBER
};
/* gram: b is a transposed. chain: a third operand d. limit: bytes of workspace. size: bytes of a
 * value. product: the precision on a GPU (products.def); NPRODUCT: cuBLAS has no products of this
 * type. */
typedef struct Multiply {
    const char *call;                                      /* of messages */
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
CORE optc_status multiply_named(optc_engine *e, const optc_product *x, const ProductNames *names);

/* Kernels that belong to no rule, by template. Host.kernels loads them. */
typedef enum MatrixKernels { MATRIX_COPY, MATRIX_GRAM, MATRIX_KRON, NMATRIXKERNELS } MatrixKernels;
/* An engine's resources for products without a rule. On a GPU, under the lock of MatrixFunctions:
 * cuBLAS's handle, and our kernels by storage type. loaded: by MatrixKernels; module: what the host
 * unloads, or NULL. */
typedef struct MatrixKit {
    Blas blas;
    Cublas cublas;
    cublasHandle_t handle;
    CUmodule module[NMATRIXKERNELS];
    bool loaded[NMATRIXKERNELS];
    CUfunction kron[NTYPES], copy[NTYPES], gram[NTYPES], blocks[NTYPES];
} MatrixKit;
/* An engine's memory and caches for products and functions without a rule. functions: see
 * function.h. */
typedef struct MatrixFunctions {
    pthread_mutex_t lock;              /* protects all members */
    MatrixKit *kit;                    /* NULL until the first product */
    struct FunctionEntry *idle, *captured;
    struct FunctionRule *rules;
} MatrixFunctions;
/* by the host, when it opens the engine */
CORE optc_status matrices_open(optc_engine *e);
CORE void matrices_close(optc_engine *e);                  /* after functions_close */
/* makes it on first use */
CORE optc_status matrices_kit(optc_engine *e, const char *call, MatrixKit **out);
/* The names of kernels of a template and type, and where the kit has them; second: "" or another
 * one's. */
CORE const char *matrix_kernel_name(MatrixKernels which, bool second);
CORE CUfunction *matrix_kernel_at(MatrixKit *k, MatrixKernels which, bool second);
/* Loads kernels on first use. That allocates memory, so it must not happen in a capture. Inside
 * gpu_enter and the lock. */
CORE optc_status matrices_load(optc_engine *e, void *stream, const char *call, MatrixKernels which);
/* Fills in ld and next, and checks an operand: NULL, alignment, strides, size. one: next may be
 * OPTC_ONE. */
CORE optc_status operand_check(const char *call, const char *name, Operand *x, int64_t batch,
                               int64_t size, bool one);
/* their memory overlaps */
CORE bool operands_meet(const Operand *x, const Operand *y, int64_t batch, int64_t size);
CORE bool operand_folds(const Operand *x, int64_t batch);       /* its own matrices overlap */
CORE optc_status operand_here(optc_engine *e, const char *call, const char *name, const Operand *x,
                              int64_t batch, int64_t size);
/* Memory of the device for one call, or for as long as an entry lives. `call` is named in
 * messages. */
CORE optc_status matrices_take(optc_engine *e, const char *call, int64_t bytes, void *stream,
                               void **out);
/* memory NULL: nothing */
CORE void matrices_give(optc_engine *e, void *memory, int64_t bytes, void *stream);
/* The compiler's type of a caller's; refuses types that no matrix is stored in. */
CORE optc_status matrix_type(const char *call, optc_type t, Type *out);
/* Address of value (row, col) of the nth matrix. */
CORE char *operand_at(const Operand *x, int64_t nth, int64_t row, int64_t col, int64_t size);
CORE optc_status too_little(const Multiply *x, int64_t least);

/* Converts a row of values from a storage type to its compute type, and back. */
CORE void line_load(Type t, const void *from, int64_t n, void *to);
CORE void line_store(Type t, void *to, int64_t n, const void *from);
CORE optc_status multiply_cpu(optc_engine *e, const Blas *blas, const Multiply *x);
CORE void kron_cpu(optc_engine *e, const optc_kronecker *x, Type type);
CORE optc_status multiply_gpu(optc_engine *e, MatrixKit *k, const Multiply *x);
CORE optc_status kron_gpu(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type);
#endif

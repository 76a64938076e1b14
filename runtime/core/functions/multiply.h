/* Matrices without a rule: operands and their checks, memory, kernels of GPUs, and products
 * (optc_multiply, optc_kron) after the caller's struct was read. */
#ifndef OPTC_MATRICES_H
#define OPTC_MATRICES_H
#include "runtime/core/base/core.h"
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/gpu_gemm.h"

#include <math.h>
#include <pthread.h>

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

/* A batch of matrices, rows x cols after a transpose. label: in messages; name: in the spec of a
 * function, NULL: the spec does not have it. ld: row stride in memory; next: distance of matrices;
 * both in values. next 0: one matrix for the whole batch, which the caller may ask for if it is
 * `shared`. result: the call writes it. flags: of its copy (function.h). */
typedef struct MatrixBatch {
    const char *label, *name;
    char *at;
    Type type;
    int64_t rows, cols, ld, next;
    bool transposed, shared, result;
    unsigned flags;
} MatrixBatch;
OPTC_COUNT MatrixBatch operand_of(const char *label, const void *at, Type type, int64_t rows,
                              int64_t cols, int64_t ld, int64_t next)
{
    MatrixBatch x = {label, NULL, (char *)(uintptr_t)at, type, rows, cols, ld, next, false, false,
                 false, 0};
    return x;
}
/* Address of value (row, col) of the nth matrix. */
CORE char *operand_at(const MatrixBatch *x, int64_t nth, int64_t row, int64_t col);
/* Fills in ld and next, and checks all matrices of a call: NULL, alignment, strides, size, memory
 * of the engine's device. A result must not overlap what precedes it. in_place: except for an
 * operand that is stored in the same way. */
CORE optc_status operands_check(optc_engine *e, const char *call, MatrixBatch *const *x, int n,
                                int64_t batch, bool in_place);
/* The compiler's type of a caller's; refuses types that no matrix is stored in. */
CORE optc_status matrix_type(const char *call, optc_type t, Type *out);
/* Reads the struct of a call of as->usual, or says what is NULL; what: the struct in messages. */
CORE optc_status matrix_read(optc_engine *e, const StructVersion *as, const char *what, void *to,
                             const void *from, size_t size);

/* gram: b is a transposed. chain: a third operand d. limit: bytes of workspace. product: the
 * precision on a GPU (products.def); NPRODUCT: cuBLAS has no products of this type. */
typedef struct Multiply {
    const char *call;                                      /* of messages */
    Type type;
    Product product;
    int64_t batch, limit;
    MatrixBatch a, b, d, c;
    bool gram, chain;
    double scale, add;
    void *stream;
} Multiply;
/* How messages name a call and its matrices. */
typedef struct ProductNames { const char *call, *a, *b, *d, *c; } ProductNames;
CORE optc_status multiply_named(optc_engine *e, const optc_product *x, const ProductNames *names);
CORE optc_status too_little(const Multiply *x, int64_t least);

/* Kernels that belong to no rule. Each of them but MATRIX_BLOCKS, which belongs to MATRIX_GRAM,
 * names the template that has it. */
typedef enum MatrixKernel {
    MATRIX_COPY, MATRIX_GRAM, MATRIX_KRON, MATRIX_BLOCKS, NMATRIXKERNEL
} MatrixKernel;
static const char *const matrix_kernel_name[] __attribute__((unused)) = {"copy", "gram", "kron",
                                                                        "blocks"};
/* An engine's libraries and kernels for matrices without a rule, opened on first use. CPU: blas, if
 * has_blas. GPU: cuBLAS's handle, and kernels by storage type; loaded, and module, if it is
 * unloaded with the engine: by template. */
typedef struct MatrixKit {
    Blas blas;
    bool has_blas;
    Cublas cublas;
    cublasHandle_t handle;
    CUmodule module[NMATRIXKERNEL];
    bool loaded[NMATRIXKERNEL];
    CUfunction kernel[NMATRIXKERNEL][NTYPES];
} MatrixKit;
/* An engine's memory and caches for products and functions without a rule. idle, captured, rules:
 * see function.h. */
typedef struct MatrixFunctions {
    pthread_mutex_t lock;              /* protects all members */
    MatrixKit kit;
    struct FunctionEntry *idle, *captured;
    struct FunctionRule *rules;
} MatrixFunctions;
/* by the host, when it opens the engine */
CORE optc_status matrices_open(optc_engine *e);
CORE void matrices_close(optc_engine *e);                  /* after functions_close */
/* Loads the kernels of a template on first use, by Host.kernels. That allocates memory, so it must
 * not happen in a capture. Between matrix_enter and matrix_leave, under the lock. */
CORE optc_status matrices_load(optc_engine *e, void *stream, const char *call, MatrixKernel which);
/* for Host.kernels: finds the kernels of a template in a module */
CORE optc_status matrices_find(optc_engine *e, MatrixKit *k, MatrixKernel which, CUmodule module);
/* Every call is between these two. On a GPU they are gpu_enter and gpu_leave, which may be nested.
 * No matrix_leave follows an error of matrix_enter. */
CORE optc_status matrix_enter(optc_engine *e);
CORE optc_status matrix_leave(optc_engine *e, optc_status s);
/* Memory of the device for one call, or for as long as an entry lives. `call` is named in
 * messages. */
CORE optc_status matrices_take(optc_engine *e, const char *call, int64_t bytes, void *stream,
                               void **out);
/* memory NULL: nothing */
CORE void matrices_give(optc_engine *e, void *memory, int64_t bytes, void *stream);

/* Converts a row of values from a storage type to its compute type, and back. by: distance of the
 * stored values */
CORE void line_load(Type t, const void *from, int64_t n, void *to);
CORE void line_store(Type t, void *to, int64_t by, int64_t n, const void *from);
/* c = scale a b + add c, or the Kronecker product c = a (x) b, whose scale and add are not read. On
 * a GPU inside matrix_enter. */
CORE optc_status multiply_cpu(optc_engine *e, const Multiply *x);
CORE optc_status multiply_gpu(optc_engine *e, const Multiply *x);
CORE optc_status kron_cpu(optc_engine *e, const Multiply *x);
CORE optc_status kron_gpu(optc_engine *e, const Multiply *x);
#endif

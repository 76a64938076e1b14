/* library: */
/* Matrices without a rule: products, powers, eigenvectors, triangles, solutions, orthogonal
 * factors. optc.h includes this file: programs include optc.h only. runtime/FUNCTIONS.md has an
 * example and the details. */
/* :library */
#ifndef OPTC_MATRIX_H
#define OPTC_MATRIX_H

/* ---- products, Kronecker products ---- */
enum { OPTC_ONE = -1 };        /* next_a, next_b, next_d: the same matrix for the whole batch */

/* Computes c = scale a b + add c for each matrix of a batch. a is m x k, b is k x n, c is m x n,
 * all row-major.
 *
 * b NULL: b is the transpose of a, and c is a Gram matrix of m x m. The call computes the lower
 * triangle, mirrors it, and adds only the lower triangle of c. On a GPU small matrices, and all of
 * them without NVRTC, are computed whole.
 *
 * With d, of n x p: c = scale (a b) d + add c, of m x p. A part of a b is stored at a time, in the
 * same type: on the CPU at most 1024 x 512 values per thread (16-bit types: 128 rows), on a GPU
 * some rows or some matrices.
 *
 * The engine's device must reach all arrays, and c must not overlap another one. Several threads
 * may call this on one engine. On a GPU the call returns when the work is in the stream. cuBLAS
 * does the work; without cuBLAS the call returns OPTC_ERROR_UNAVAILABLE. Temporaries stay within
 * `workspace`; a call that needs more is refused, with the number of bytes it needs. On the CPU
 * bits depend neither on the workspace nor on threads. On a GPU cuBLAS chooses by sizes and
 * workspace.
 *
 * OPTC_ERROR_DEVICE can leave a part of c written: Gram matrices, chains and large batches take
 * several launches. Other errors change nothing. */
typedef struct optc_product {
    const void *a, *b, *d;
    void *c;
    optc_type type;            /* of all arrays; 0: f32. Sums of 16-bit values are computed in
                                * f32 */
    int64_t m, n, k, p;        /* k is at least 1, and n too if there is a d; n is not read if b is
                                * NULL */
    int64_t batch;             /* 0: 1 */
    /* 1: stored transposed: a as k x m, b as n x k, d as p x n */
    int turn_a, turn_b, turn_d;
    /* values from row to row, as stored; 0: the length of a row */
    int64_t lda, ldb, ldd, ldc;
    /* from matrix to matrix; 0: consecutive; or OPTC_ONE */
    int64_t next_a, next_b, next_d, next_c;
    double scale, add;         /* scale 0: 1; add 0: c is not read */
    const char *products;      /* "tf32": a GPU rounds f32 to tf32; NULL: no rounding */
    int64_t workspace;         /* bytes; 0: as optc_engine_options.workspace */
    void *stream;              /* a CUstream; NULL on the CPU */
} optc_product;
optc_status optc_multiply_sized(optc_engine *e, const optc_product *x, size_t size);
static inline optc_status optc_multiply(optc_engine *e, const optc_product *x)
{
    return optc_multiply_sized(e, x, sizeof *x);
}

/* Computes c = a (x) b, the Kronecker product, for each matrix of a batch. a is m x n, b is p x q,
 * c is m p x n q, all row-major. Every value is one product, rounded once. On a GPU NVRTC compiles
 * a kernel for it, as for rules; the call needs no temporary memory. */
typedef struct optc_kronecker {
    const void *a, *b;
    void *c;
    optc_type type;            /* 0: f32 */
    int64_t m, n, p, q;
    int64_t batch;             /* 0: 1 */
    int64_t next_a, next_b;    /* from matrix to matrix; 0: consecutive; or OPTC_ONE */
    void *stream;              /* a CUstream; NULL on the CPU */
} optc_kronecker;
optc_status optc_kron_sized(optc_engine *e, const optc_kronecker *x, size_t size);
static inline optc_status optc_kron(optc_engine *e, const optc_kronecker *x)
{
    return optc_kron_sized(e, x, sizeof *x);
}

/* ---- functions ---- */
/* A batch of row-major matrices. ld: values from row to row; 0: the length of a row. next: values
 * from matrix to matrix; 0: consecutive. A vector per matrix (eigenvalues) is a matrix of one
 * row. */
typedef struct optc_matrix { void *data; int64_t ld, next; } optc_matrix;

/* The operands and options of one call. Set the members that the function names below; 0 in a
 * member means its default.
 *
 * The engine's device must reach all arrays. The result x may be the same memory as an operand of
 * the same shape, type and strides; any other overlap is refused. Types of fewer than 32 bits are
 * converted to f32. The calls copy their operands into memory that the engine keeps for the next
 * call of the same function, sizes and type (the last 16 signatures, 256 MB; optc_functions_drop
 * frees it). Several threads may call them on one engine.
 *
 * Errors: OPTC_ERROR_ARGUMENT for NULL, sizes, overlaps and other devices. OPTC_ERROR_RANGE for
 * values: a matrix that is not finite or not symmetric, or that has no such result. The message
 * names the matrix. Any failed call changes
 * nothing: the results are stored last, on a GPU by one launch.
 *
 * On a GPU these checks of values wait for the device. With `unchecked` the call does not wait: the
 * result of a matrix that has none is NaN, and other matrices are not affected. A captured call
 * needs `unchecked`, no `residual`, and one call of the same signature and numbers before the
 * capture. */
typedef struct optc_function {
    optc_matrix a, b, x, y;
    optc_type type;            /* of all arrays; 0: f32 */
    int64_t m, n, batch;       /* batch 0: 1 */
    /* optc_matrix_power. Eigenvalues v become (max(v + ridge + relative * s, floor))^exponent; s:
     * the largest sum of magnitudes of a row */
    double exponent, ridge, relative, floor;
    int steps;                 /* optc_polar: 0: 12, or ntriples */
    const char *coefficients;  /* optc_polar: NULL: "polar_express"; "polar_express_5", "jordan",
                                * "cans", "turbo", "quintic", "deepseekv4", "cubic5" */
    int lower;                 /* symmetric a: 1: the upper triangle is not read, and need not equal
                                * the lower one */
    int upper, right;          /* optc_solve: a is upper triangular; solves x a = b instead of a x =
                                * b */
    int positive;              /* optc_solve: a is symmetric positive definite, not triangular */
    int unchecked;             /* 1: no checks of values, see above */
    void *stream;              /* a CUstream; NULL on the CPU */
    /* NULL: not wanted. residual receives how far the result is from its definition, the largest of
     * the batch, in the Frobenius norm; the call then waits for the device. FUNCTIONS.md has the
     * definitions. NaN: not computed (powers with a floor, or whose exponent is no p / q of numbers
     * up to 16). INFINITY: of a matrix without a result. bytes: the call only stores here how many
     * bytes the engine keeps for calls of this signature, and does nothing else; arrays may then be
     * NULL. */
    double *residual;
    int64_t *bytes;
    const double *triples;     /* optc_polar: up to 8 triples of coefficients, one per step; the
                                * last one repeats */
    int ntriples;              /* 0: `coefficients` names them */
} optc_function;

/* x = a^exponent, of n x n. a is symmetric. For a negative or fractional exponent its eigenvalues
 * must be positive, after ridge, relative and floor. exponent must not be 0. */
optc_status optc_matrix_power_sized(optc_engine *e, const optc_function *f, size_t size);
/* a = x diag(y) x.T, of n x n: y has the n eigenvalues in ascending order, x the eigenvectors as
 * columns, the largest entry of each positive. a is symmetric. y.data NULL: the eigenvalues are not
 * stored. */
optc_status optc_eigh_sized(optc_engine *e, const optc_function *f, size_t size);
/* a = x x.T, of n x n: x is lower triangular. a is symmetric positive definite. */
optc_status optc_cholesky_sized(optc_engine *e, const optc_function *f, size_t size);
/* Solves a x = b: a is n x n and lower triangular (upper: upper triangular; positive: symmetric
 * positive definite), b and x are n x m. right: solves x a = b, with b and x of m x n; not with
 * positive. */
optc_status optc_solve_sized(optc_engine *e, const optc_function *f, size_t size);
/* x = u v.T where a = u s v.T is the singular value decomposition, of m x n, by `steps` iterations
 * of products. With the default coefficients singular values below about 1e-5 of the largest do not
 * reach 1. The coefficients "turbo", as published, give the opposite sign if the rows or columns of
 * a are orthogonal already. */
optc_status optc_polar_sized(optc_engine *e, const optc_function *f, size_t size);
/* a = x y: a is m x n, x has min(m, n) orthonormal columns of m values, y is upper triangular, of
 * min(m, n) x n, with a diagonal that is not negative. y.data NULL: y is not computed. */
optc_status optc_qr_sized(optc_engine *e, const optc_function *f, size_t size);

static inline optc_status optc_matrix_power(optc_engine *e, const optc_function *f)
{
    return optc_matrix_power_sized(e, f, sizeof *f);
}
static inline optc_status optc_eigh(optc_engine *e, const optc_function *f)
{
    return optc_eigh_sized(e, f, sizeof *f);
}
static inline optc_status optc_cholesky(optc_engine *e, const optc_function *f)
{
    return optc_cholesky_sized(e, f, sizeof *f);
}
static inline optc_status optc_solve(optc_engine *e, const optc_function *f)
{
    return optc_solve_sized(e, f, sizeof *f);
}
static inline optc_status optc_polar(optc_engine *e, const optc_function *f)
{
    return optc_polar_sized(e, f, sizeof *f);
}
static inline optc_status optc_qr(optc_engine *e, const optc_function *f)
{
    return optc_qr_sized(e, f, sizeof *f);
}

/* Computes y = (a (x) b) x, the Kronecker product times a vector, for each vector of a batch,
 * without forming the
 * product: y = a x b.T, where x is a matrix of n x q and y one of m x p, row-major without gaps. a
 * is m x n, b is p x q. next_a, next_b: values from matrix to matrix; 0: consecutive; or OPTC_ONE.
 * scale 0: 1; add: y = … + add y. The rest is as in optc_product with three matrices;
 * OPTC_ERROR_DEVICE can leave a part of y written too. */
typedef struct optc_kron_vector {
    const void *a, *b, *x;
    void *y;
    optc_type type;            /* 0: f32 */
    int64_t m, n, p, q, batch; /* batch 0: 1 */
    int64_t next_a, next_b;
    double scale, add;
    int64_t workspace;
    void *stream;
} optc_kron_vector;
optc_status optc_kron_apply_sized(optc_engine *e, const optc_kron_vector *x, size_t size);
static inline optc_status optc_kron_apply(optc_engine *e, const optc_kron_vector *x)
{
    return optc_kron_apply_sized(e, x, sizeof *x);
}

/* The two sides of a linear layer: what it saw, act, of batch x rows x in, and the gradient of its
 * output, out, of batch x rows x outs; row-major without gaps. rows: positions of a sample (0: 1),
 * such as those of a sequence. The gradient of sample s is out[s].T act[s], of outs x in; the
 * functions do not form it. */
typedef struct optc_linear {
    const void *act, *out;
    optc_type type;            /* of act, out, sum, a and g; 0: f32 */
    int64_t batch, rows, in, outs;
    double *norm;              /* batch values */
    void *sum;                 /* outs x in */
    double clip;               /* the largest norm of a sample's gradient in the sum */
    void *a, *g;               /* in x in, outs x outs */
    double decay;              /* from 0 to less than 1 */
    int unchecked;             /* as in optc_function */
    int64_t workspace;         /* as in optc_product */
    void *stream;
} optc_linear;
/* norm[s] = the Frobenius norm of the gradient of sample s. Products of rows are computed in f32
 * (f64 if type is f64): values below 1e-19 count as 0, and norms above 1e19 are refused. */
optc_status optc_sample_norms_sized(optc_engine *e, const optc_linear *x, size_t size);
/* sum = the sum over s of min(1, clip / norm[s]) times the gradient of sample s. norm is not read;
 * NULL: it is not stored. The engine keeps as much memory as `out` and `sum` take, and what the
 * norms need, for the next call. */
optc_status optc_clipped_sum_sized(optc_engine *e, const optc_linear *x, size_t size);
/* K-FAC's factors: a = decay a + (1 - decay) act.T act / (batch rows), g = decay g + (1 - decay)
 * out.T out / batch. decay 0: a and g are not read. NULL: that factor is not computed. The engine
 * keeps as much memory as both take. */
optc_status optc_kfac_factors_sized(optc_engine *e, const optc_linear *x, size_t size);
static inline optc_status optc_sample_norms(optc_engine *e, const optc_linear *x)
{
    return optc_sample_norms_sized(e, x, sizeof *x);
}
static inline optc_status optc_clipped_sum(optc_engine *e, const optc_linear *x)
{
    return optc_clipped_sum_sized(e, x, sizeof *x);
}
static inline optc_status optc_kfac_factors(optc_engine *e, const optc_linear *x)
{
    return optc_kfac_factors_sized(e, x, sizeof *x);
}

/* Frees the memory that the engine keeps for the functions above, except what captured graphs
 * use. */
optc_status optc_functions_drop(optc_engine *e);
/* Stores how many bytes the engine keeps for them, with what captured graphs use. */
optc_status optc_functions_held(optc_engine *e, int64_t *bytes);
#endif

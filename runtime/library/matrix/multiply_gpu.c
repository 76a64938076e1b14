/* Products without a rule on a GPU, by cuBLAS with strides: the only device memory of ours is the workspace. The
 * core's cublas_gemm makes the calls, as for rules. */
#include "runtime/library/matrix/multiply.h"

#include <limits.h>
#include <string.h>

/* LEAST_SPACE: the smallest workspace for cuBLAS (its manual: with 16 KiB its calls do not fail). MOST_BATCH: matrices
 * per call; some of its kernels count them in 16 bits. */
enum { LEAST_SPACE = 1 << 16, MOST_BATCH = 65535 };

static optc_status refused(const MatrixKit *k, const char *call, const char *function, int rc)
{
    char what[80];
    snprintf(what, sizeof what, "%s: %s", call, function);
    return cublas_refused(&k->cublas, what, rc, "");
}

static optc_status open_blas(optc_engine *e, MatrixKit *k)
{
    static const char call[] = "optc_multiply";
    char why[400];
    cublasHandle_t h;
    if (!cublas_open(&k->cublas, e->gpu->d->version, NULL, why, sizeof why))
        return fail(OPTC_ERROR_UNAVAILABLE, "%s: products without a rule need cuBLAS on a GPU: %s", call, why);
    int rc = cublas_handle_take(&k->cublas, e->gpu, &h);
    if (rc && h)
        spare_keep(e->gpu, h, k->cublas.cublasDestroy_v2);
    else
        k->handle = h;
    return rc ? refused(k, call, "cublasCreate", rc) : OPTC_OK;
}

optc_status matrices_load(optc_engine *e, void *stream, const char *call, bool loaded,
                          optc_status (*open)(optc_engine *e, MatrixKit *k))
{
    GpuEngine *g = e->gpu;
    CUstreamCaptureStatus capturing = 0;
    if (loaded)
        return OPTC_OK;
    TRY(g, cuStreamIsCapturing((CUstream)stream, &capturing), call);
    if (capturing)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the first product of an engine opens cuBLAS, which is not possible in "
                                         "a capture; make one product before capturing",
                    call);
    return open(e, e->library->matrices);
}

/* ---- one call ---- */
/* Multiplies n matrices of x, from number `from` on. Inside gpu_enter; the handle's stream is set. */
static optc_status multiply_matrices(const MatrixKit *k, const Multiply *x, const char *call, int64_t from, int64_t n)
{
    const GpuGemm y = {.type = call_type_of(x->product), .strided = true, .trans_a = x->a.transposed,
                       .trans_b = x->b.transposed, .m = x->c.rows, .n = x->c.cols, .k = x->a.cols, .lda = x->a.ld,
                       .ldb = x->b.ld, .ldc = x->c.ld, .count = n, .alpha = x->scale, .beta = x->add,
                       .a = {(CUdeviceptr)(uintptr_t)operand_at(&x->a, from, 0, 0, x->size), x->a.next},
                       .b = {(CUdeviceptr)(uintptr_t)operand_at(&x->b, from, 0, 0, x->size), x->b.next},
                       .c = {(CUdeviceptr)(uintptr_t)operand_at(&x->c, from, 0, 0, x->size), x->c.next}};
    if (gemm_is_long(&y) && !k->cublas.cublasGemmStridedBatchedEx_64)
        return fail(OPTC_ERROR_ARGUMENT, "%s: a length exceeds 32 bits, which %.300s does not support", call,
                    k->cublas.path);
    int rc = cublas_gemm(&k->cublas, k->handle, &y);
    return rc ? refused(k, call, "cublasGemmStridedBatchedEx", rc) : OPTC_OK;
}

static optc_status multiply_batch(const MatrixKit *k, const Multiply *x, const char *call)
{
    optc_status s = OPTC_OK;
    for (int64_t at = 0; at < x->batch && s == OPTC_OK; at += MOST_BATCH)
        s = multiply_matrices(k, x, call, at, x->batch - at < MOST_BATCH ? x->batch - at : MOST_BATCH);
    return s;
}

/* ---- chains: a b is stored between the two products ---- */
typedef struct Between { CUdeviceptr at; int64_t rows, matrices; } Between;      /* rows, and matrices, per round */

static Multiply part_of(const Multiply *x, int64_t nth, int64_t matrices, int64_t row, int64_t rows)
{
    Multiply y = *x;
    y.batch = matrices;
    y.a.at = operand_at(&x->a, nth, row, 0, x->size);
    y.c.at = operand_at(&x->c, nth, row, 0, x->size);
    y.b.at += nth * x->b.next * x->size;
    y.d.at += nth * x->d.next * x->size;
    y.a.rows = y.c.rows = rows;
    return y;
}

static optc_status multiply_chain(const MatrixKit *k, const Multiply *x, const Between *t, const char *call)
{
    optc_status s = OPTC_OK;
    for (int64_t nth = 0; nth < x->batch; nth += t->matrices)
        for (int64_t row = 0; row < x->c.rows && s == OPTC_OK; row += t->rows) {
            int64_t n = x->batch - nth < t->matrices ? x->batch - nth : t->matrices;
            int64_t rows = x->c.rows - row < t->rows ? x->c.rows - row : t->rows, wide = x->b.cols;
            Multiply first = part_of(x, nth, n, row, rows), second = first;
            first.c = second.a = (Operand){(char *)(uintptr_t)t->at, rows, wide, wide, rows * wide, false};
            first.scale = 1, first.add = 0;
            second.b = first.d;
            s = multiply_batch(k, &first, call);
            s = s == OPTC_OK ? multiply_batch(k, &second, call) : s;
        }
    return s;
}

/* Selects how much of a b is computed at a time, within `bytes` of workspace. */
static optc_status fit_between(const Multiply *x, int64_t bytes, Between *t)
{
    int64_t line = dom_times(x->b.cols, x->size), rows = bytes / line;
    if (!rows)
        return too_little(line + 2 * LEAST_SPACE, x->limit);
    t->matrices = rows / x->c.rows;
    t->matrices = t->matrices < 1 ? 1 : t->matrices > x->batch ? x->batch : t->matrices;
    t->rows = rows < x->c.rows ? (rows >= 64 ? rows / 64 * 64 : rows) : x->c.rows;
    return OPTC_OK;
}

/* ---- a product ---- */
static int64_t blas_space(const optc_engine *e, int64_t limit)
{
    int64_t full = e->gpu->arch >= 90 ? 32 << 20 : 4 << 20, share = limit / 4;
    share = share < LEAST_SPACE ? LEAST_SPACE : share;
    return (share < full ? share : full) / 256 * 256;
}

static optc_status multiply_inside(optc_engine *e, MatrixKit *k, const Multiply *x, const char *call)
{
    int64_t space = blas_space(e, x->limit), line = dom_times(x->b.cols, x->size), bytes = space;
    Between t = {0, 0, 0};
    CUdeviceptr at = 0;
    if (x->limit < LEAST_SPACE)
        return too_little(LEAST_SPACE + (x->chain ? line : 0), x->limit);
    optc_status s = x->chain ? fit_between(x, x->limit - space, &t) : OPTC_OK;
    if (s == OPTC_OK && x->chain)
        bytes += t.rows * t.matrices * line;
    if (s == OPTC_OK)
        s = gpu_alloc(e, (size_t)bytes, (CUstream)x->stream, "the workspace of a product", &at);
    t.at = at + (CUdeviceptr)space;
    if (s == OPTC_OK) {
        pthread_mutex_lock(&e->library->lock);
        s = matrices_load(e, x->stream, call, k->handle != NULL, open_blas);
        int rc = s == OPTC_OK ? cublas_handle_use(&k->cublas, k->handle, (CUstream)x->stream, (void *)(uintptr_t)at,
                                                  (size_t)space) : 0;
        if (rc)
            s = refused(k, call, "cublasSetStream", rc);
        if (s == OPTC_OK)
            s = x->chain ? multiply_chain(k, x, &t, call) : multiply_batch(k, x, call);
        pthread_mutex_unlock(&e->library->lock);
    }
    gpu_give(e, at, (size_t)bytes, (CUstream)x->stream);
    return s;
}

optc_status multiply_gpu(optc_engine *e, MatrixKit *k, const Multiply *x)
{
    optc_status s = gpu_alive(e->gpu);
    if (s == OPTC_OK && x->product == NPRODUCT)
        s = fail(OPTC_ERROR_UNAVAILABLE, "optc_multiply: cuBLAS has no products of %s", type_info[x->type].name);
    if (s != OPTC_OK)
        return s;
    gpu_enter_aside(e->gpu);
    return gpu_leave(e->gpu, multiply_inside(e, k, x, "optc_multiply"));
}

/* ---- Kronecker products ---- */
/* Must match optc_kron_of of templates/kron_cuda.txt. */
typedef struct KronArgs {
    const void *a, *b;
    void *c;
    long long all;
    int m, n, p, q, flags, unused;
} KronArgs;
_Static_assert(sizeof(KronArgs) == sizeof(Args), "all launches are of one size");

static optc_status kron_inside(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type)
{
    enum { OF_A_BLOCK = 4096, THREADS = 256 };
    int64_t high = x->m * x->p, wide = x->n * x->q, all;
    if (high > INT_MAX || wide > INT_MAX || __builtin_mul_overflow(high * x->batch, wide, &all) ||
        count_up(all, OF_A_BLOCK) > INT_MAX)
        return fail(OPTC_ERROR_ARGUMENT, "optc_kron: a result of %lld x %lld, batch = %lld is too large for one launch",
                    (long long)high, (long long)wide, (long long)x->batch);
    pthread_mutex_lock(&e->library->lock);
    optc_status s = matrices_load(e, x->stream, "optc_kron", k->module != NULL, kron_code);
    pthread_mutex_unlock(&e->library->lock);
    if (s != OPTC_OK)
        return s;
    KronArgs args = {x->a, x->b, x->c, all, (int)x->m, (int)x->n, (int)x->p, (int)x->q, 0, 0};
    args.flags = (x->next_a ? 0 : 1) | (x->next_b ? 0 : 2);
    void *params[] = {&args};
    TRY(e->gpu, cuLaunchKernel(k->kron[type], (unsigned)count_up(all, OF_A_BLOCK), 1, 1, THREADS, 1, 1, 0,
                               (CUstream)x->stream, params, NULL), "optc_kron");
    return OPTC_OK;
}

optc_status kron_gpu(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type)
{
    optc_status s = gpu_alive(e->gpu);
    if (s != OPTC_OK)
        return s;
    gpu_enter_aside(e->gpu);
    return gpu_leave(e->gpu, kron_inside(e, k, x, type));
}

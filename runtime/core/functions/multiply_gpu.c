/* Products without a rule on a GPU, by cuBLAS with strides: the only device memory of ours is the
 * workspace. The core's cublas_gemm makes the calls, as for rules. */
#include "runtime/core/functions/multiply.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* LEAST_SPACE: the smallest workspace for cuBLAS (its manual: with 16 KiB its calls do not fail).
 * MOST_BATCH: matrices per call; some of its kernels count them in 16 bits. */
enum { LEAST_SPACE = 1 << 16, MOST_BATCH = 65535 };

static optc_status product_refused(const MatrixKit *k, const char *call, const char *function,
                                   int rc)
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
        return fail(OPTC_ERROR_UNAVAILABLE, "%s: products without a rule need cuBLAS on a GPU: %s",
                    call, why);
    int rc = cublas_handle_take(&k->cublas, e->gpu, &h);
    if (rc && h)
        spare_keep(e->gpu, h, k->cublas.cublasDestroy_v2);
    else
        k->handle = h;
    return rc ? product_refused(k, call, "cublasCreate", rc) : OPTC_OK;
}

static optc_status refuse_capture(optc_engine *e, void *stream, const char *call)
{
    CUstreamCaptureStatus capturing = (CUstreamCaptureStatus)0;
    TRY(e->gpu, cuStreamIsCapturing((CUstream)stream, &capturing), call);
    return capturing ? fail(OPTC_ERROR_ARGUMENT,
                            "%s: the first product of a kind loads its code, which is not "
                            "possible in a capture; make one product before capturing",
                            call)
                     : OPTC_OK;
}

CORE optc_status matrices_load(optc_engine *e, void *stream, const char *call, MatrixKernels which)
{
    MatrixKit *k = e->functions->kit;
    if (k->loaded[which])
        return OPTC_OK;
    optc_status s = refuse_capture(e, stream, call);
    if (s == OPTC_OK)
        s = HOST()->kernels(e, k, (int)which);
    k->loaded[which] = s == OPTC_OK;
    return s;
}

static optc_status load_blas(optc_engine *e, MatrixKit *k, void *stream, const char *call)
{
    optc_status s = k->handle ? OPTC_OK : refuse_capture(e, stream, call);
    return s == OPTC_OK && !k->handle ? open_blas(e, k) : s;
}

/* ---- one call ---- */
static GemmMatrices gemm_matrices(const Operand *x, int64_t from, int64_t size)
{
    GemmMatrices y = {(CUdeviceptr)(uintptr_t)operand_at(x, from, 0, 0, size), x->next};
    return y;
}

static GemmMatrices gemm_addresses(CUdeviceptr at)
{
    GemmMatrices y = {at, 0};
    return y;
}

/* Multiplies n matrices of x, from number `from` on. Inside gpu_enter; the handle's stream is
 * set. */
static optc_status multiply_matrices(const MatrixKit *k, const Multiply *x, const char *call,
                                     int64_t from, int64_t n)
{
    GpuGemm y;
    memset(&y, 0, sizeof y);
    y.type = call_type_of(x->product), y.strided = true, y.trans_a = x->a.transposed,
    y.trans_b = x->b.transposed;
    y.m = x->c.rows, y.n = x->c.cols, y.k = x->a.cols, y.lda = x->a.ld, y.ldb = x->b.ld,
    y.ldc = x->c.ld;
    y.count = n, y.alpha = x->scale, y.beta = x->add;
    y.a = gemm_matrices(&x->a, from, x->size), y.b = gemm_matrices(&x->b, from, x->size);
    y.c = gemm_matrices(&x->c, from, x->size);
    if (gemm_is_long(&y) && !k->cublas.cublasGemmStridedBatchedEx_64)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: a length exceeds 32 bits, which %.300s does not support", call,
                    k->cublas.path);
    int rc = cublas_gemm(&k->cublas, k->handle, &y);
    return rc ? product_refused(k, call, "cublasGemmStridedBatchedEx", rc) : OPTC_OK;
}

static optc_status multiply_batch(const MatrixKit *k, const Multiply *x, const char *call)
{
    optc_status s = OPTC_OK;
    for (int64_t at = 0; at < x->batch && s == OPTC_OK; at += MOST_BATCH)
        s = multiply_matrices(k, x, call, at,
                              x->batch - at < MOST_BATCH ? x->batch - at : (int64_t)MOST_BATCH);
    return s;
}

/* ---- Gram matrices: blocks on and below the diagonal, then a mirror ---- */
/* Must match optc_gram_of of templates/gram_cuda.txt. */
typedef struct GramArgs {
    void *a, *c, *to;
    long long next_a, next_c;
    int n, rows, down, ld;
} GramArgs;
static_assert(sizeof(GramArgs) == sizeof(Args), "all launches are of one size");

/* rows: of a block; down: whole blocks a side; each: blocks of a matrix; bytes: of their addresses;
 * tiles: of a mirror,
 * 0: no mirror, because this is no Gram matrix or has no code. rows 0: one product computes all of
 * it. */
typedef struct Gram { int64_t rows, down, each, bytes, tiles; } Gram;

/* cuBLAS does not check the alignment of matrices that it is given by address
 * (gpu_call_build.c). */
static bool aligned_blocks(const Multiply *x, const CallType *t)
{
    int64_t all = (int64_t)(uintptr_t)x->a.at | (int64_t)(uintptr_t)x->c.at |
                  (x->a.ld | x->a.next | x->c.ld | x->c.next) * x->size;
    return (t->bytes > 2 && t->compute != CUBLAS_COMPUTE_32F_FAST_TF32) ||
           (all % 16 == 0 && x->a.cols % 8 == 0);
}

static Gram gram_of(const optc_engine *e, const Multiply *x)
{
    enum { TILE = 32 };
    Gram g = {0, 0, 0, 0, 0};
    int64_t n = x->c.rows, tiles = count_up(n, TILE);
    const CallType *t = call_type_of(x->product);
    if (!x->gram || !t || n > INT_MAX || x->a.ld > INT_MAX || x->c.ld > INT_MAX ||
        dom_times(tiles * (tiles + 1) / 2, x->batch) > INT_MAX)
        return g;
    g.tiles = tiles;
    int64_t rows = e->gpu->block && e->gpu->block < n ? e->gpu->block : gram_block(t, n, x->a.cols);
    if (rows >= n || !x->a.cols || !aligned_blocks(x, t))
        return g;
    g.rows = rows, g.down = n / rows, g.each = g.down * (g.down + 1) / 2;
    g.bytes = count_up(dom_times(3 * (int64_t)sizeof(void *) * g.each, x->batch), 256) * 256;
    if (g.bytes > x->limit - LEAST_SPACE)      /* no memory for the addresses */
        g.rows = g.bytes = 0;
    return g;
}

static optc_status launch_gram(const optc_engine *e, const Multiply *x, CUfunction fn,
                               unsigned blocks, GramArgs *args)
{
    void *params[] = {args};
    TRY(e->gpu, cuLaunchKernel(fn, blocks, 1, 1, 256, 1, 1, 0, (CUstream)x->stream, params, NULL),
        "optc_multiply");
    return OPTC_OK;
}

/* The whole blocks, in as few calls as possible. at: the addresses */
static optc_status multiply_blocks(const optc_engine *e, const MatrixKit *k, const Multiply *x,
                                   const Gram *g, CUdeviceptr at, const char *call)
{
    int64_t all = g->each * x->batch, size = sizeof(void *);
    GramArgs args = {
        x->a.at,     x->c.at,      (void *)(uintptr_t)at, x->a.next,
        x->c.next,   (int)g->down, (int)g->rows,          x->a.transposed ? 1 : (int)x->a.ld,
        (int)x->c.ld};
    optc_status s = launch_gram(e, x, k->blocks[x->type], (unsigned)x->batch, &args);
    for (int64_t i = 0; i < all && s == OPTC_OK; i += MOST_BATCH) {
        GpuGemm y;
        memset(&y, 0, sizeof y);
        y.type = call_type_of(x->product), y.trans_a = x->a.transposed, y.trans_b = x->b.transposed;
        y.m = y.n = g->rows, y.k = x->a.cols, y.lda = x->a.ld, y.ldb = x->b.ld, y.ldc = x->c.ld;
        y.count = all - i < MOST_BATCH ? all - i : (int64_t)MOST_BATCH, y.alpha = x->scale,
        y.beta = x->add;
        y.a = gemm_addresses(at + (CUdeviceptr)(i * size)),
        y.b = gemm_addresses(at + (CUdeviceptr)((all + i) * size));
        y.c = gemm_addresses(at + (CUdeviceptr)((2 * all + i) * size));
        int rc = cublas_gemm(&k->cublas, k->handle, &y);
        s = rc ? product_refused(k, call, "cublasGemmBatchedEx", rc) : OPTC_OK;
    }
    return s;
}

static optc_status multiply_gram(const optc_engine *e, const MatrixKit *k, const Multiply *x,
                                 const Gram *g, CUdeviceptr at, const char *call)
{
    int64_t top = g->rows * g->down, left = x->c.rows - top;
    Multiply rest = *x;                        /* the rows below the last whole block */
    rest.a.at = operand_at(&x->a, 0, top, 0, x->size);
    rest.c.at = operand_at(&x->c, 0, top, 0, x->size);
    rest.a.rows = rest.c.rows = left;
    optc_status s = g->rows ? multiply_blocks(e, k, x, g, at, call) : OPTC_OK;
    if (s == OPTC_OK && left)
        s = multiply_batch(k, &rest, call);
    GramArgs args = {x->a.at,        x->c.at,       NULL, x->a.next,   x->c.next,
                     (int)x->c.rows, (int)g->tiles, 0,    (int)x->c.ld};
    int64_t tiles = g->tiles * (g->tiles + 1) / 2 * x->batch;
    return s == OPTC_OK ? launch_gram(e, x, k->gram[x->type], (unsigned)tiles, &args) : s;
}

/* ---- chains: a b is stored between the two products ---- */
/* rows, and matrices, per round */
typedef struct Between { CUdeviceptr at; int64_t rows, matrices; } Between;

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

static optc_status multiply_chain(const MatrixKit *k, const Multiply *x, const Between *t,
                                  const char *call)
{
    optc_status s = OPTC_OK;
    for (int64_t nth = 0; nth < x->batch; nth += t->matrices)
        for (int64_t row = 0; row < x->c.rows && s == OPTC_OK; row += t->rows) {
            int64_t n = x->batch - nth < t->matrices ? x->batch - nth : t->matrices;
            int64_t rows = x->c.rows - row < t->rows ? x->c.rows - row : t->rows, wide = x->b.cols;
            Multiply first = part_of(x, nth, n, row, rows), second = first;
            first.c = second.a =
                operand_of((const void *)(uintptr_t)t->at, rows, wide, wide, rows * wide, false);
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
        return too_little(x, line + 2 * LEAST_SPACE);
    t->matrices = rows / x->c.rows;
    t->matrices = t->matrices < 1 ? 1 : t->matrices > x->batch ? x->batch : t->matrices;
    t->rows = rows < x->c.rows ? (rows >= 64 ? rows / 64 * 64 : rows) : x->c.rows;
    return OPTC_OK;
}

/* ---- a product ---- */
static int64_t blas_space(const optc_engine *e, int64_t limit)
{
    int64_t full = e->gpu->arch >= 90 ? 32 << 20 : 4 << 20, share = limit / 4;
    share = share < LEAST_SPACE ? (int64_t)LEAST_SPACE : share;
    return (share < full ? share : full) / 256 * 256;
}

static optc_status multiply_inside(optc_engine *e, MatrixKit *k, const Multiply *x,
                                   const char *call)
{
    Gram g = gram_of(e, x);
    int64_t space = blas_space(e, x->limit - g.bytes), line = dom_times(x->b.cols, x->size),
            bytes = space + g.bytes;
    Between t = {0, 0, 0};
    CUdeviceptr at = 0;
    if (x->limit < LEAST_SPACE)
        return too_little(x, LEAST_SPACE + (x->chain ? line : 0));
    optc_status s = x->chain ? fit_between(x, x->limit - space, &t) : OPTC_OK;
    if (s == OPTC_OK && x->chain)
        bytes += t.rows * t.matrices * line;
    if (s == OPTC_OK)
        s = gpu_alloc(e, (size_t)bytes, (CUstream)x->stream, "the workspace of a product", &at);
    t.at = at + (CUdeviceptr)space;
    if (s == OPTC_OK) {
        pthread_mutex_lock(&e->functions->lock);
        s = load_blas(e, k, x->stream, call);
        int rc = s == OPTC_OK ? cublas_handle_use(&k->cublas, k->handle, (CUstream)x->stream,
                                                  (void *)(uintptr_t)at, (size_t)space)
                              : 0;
        if (rc)
            s = product_refused(k, call, "cublasSetStream", rc);
        if (s == OPTC_OK && g.tiles) {
            s = matrices_load(e, x->stream, call, MATRIX_GRAM);
            /* without NVRTC the product computes both halves */
            if (s == OPTC_ERROR_UNAVAILABLE)
                g.tiles = 0, s = OPTC_OK;
        }
        if (s == OPTC_OK)
            s = x->chain  ? multiply_chain(k, x, &t, call)
                : g.tiles ? multiply_gram(e, k, x, &g, at + (CUdeviceptr)space, call)
                          : multiply_batch(k, x, call);
        pthread_mutex_unlock(&e->functions->lock);
    }
    gpu_give(e, at, (size_t)bytes, (CUstream)x->stream);
    return s;
}

/* cuBLAS reports one error for every launch that fails. The stream, and the memory that is left,
 * tell more. */
static optc_status explain_refusal(const optc_engine *e, const Multiply *x, optc_status s)
{
    enum { INVALIDATED = 2 };                  /* CU_STREAM_CAPTURE_STATUS_INVALIDATED */
    char why[MOST_MESSAGE];
    CUstreamCaptureStatus capturing = (CUstreamCaptureStatus)0;
    size_t left = 0, all = 0;
    snprintf(why, sizeof why, "%s", optc_message());
    if (e->gpu->d->cuStreamIsCapturing((CUstream)x->stream, &capturing) == 0 &&
        (int)capturing == INVALIDATED)
        return fail(s, "%.1800s; another call ended the capture of the stream", why);
    if (e->gpu->d->cuMemGetInfo_v2(&left, &all) == 0)
        return fail(
            s,
            "%.1800s; %zu of %zu MB of the GPU's memory are free, and loading a kernel takes some",
            why, left >> 20, all >> 20);
    return s;
}

CORE optc_status multiply_gpu(optc_engine *e, MatrixKit *k, const Multiply *x)
{
    optc_status s = gpu_alive(e->gpu);
    if (s == OPTC_OK && x->product == NPRODUCT)
        s = fail(OPTC_ERROR_UNAVAILABLE, "optc_multiply: cuBLAS has no products of %s",
                 number_type[x->type].name);
    if (s != OPTC_OK)
        return s;
    gpu_enter(e->gpu);
    s = multiply_inside(e, k, x, "optc_multiply");
    return gpu_leave(e->gpu, s == OPTC_ERROR_DEVICE ? explain_refusal(e, x, s) : s);
}

/* ---- Kronecker products ---- */
/* Must match optc_kron_of of templates/kron_cuda.txt. */
typedef struct KronArgs {
    const void *a, *b;
    void *c;
    long long all;
    int m, n, p, q, flags, unused;
} KronArgs;
static_assert(sizeof(KronArgs) == sizeof(Args), "all launches are of one size");

static optc_status kron_inside(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type)
{
    enum { OF_A_BLOCK = 4096, THREADS = 256 };
    int64_t high = x->m * x->p, wide = x->n * x->q, all;
    if (high > INT_MAX || wide > INT_MAX || __builtin_mul_overflow(high * x->batch, wide, &all) ||
        count_up(all, OF_A_BLOCK) > INT_MAX)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_kron: a result of %lld x %lld, batch = %lld is too large for one launch",
                    (long long)high, (long long)wide, (long long)x->batch);
    pthread_mutex_lock(&e->functions->lock);
    optc_status s = matrices_load(e, x->stream, "optc_kron", MATRIX_KRON);
    pthread_mutex_unlock(&e->functions->lock);
    if (s != OPTC_OK)
        return s;
    KronArgs args = {x->a, x->b, x->c, all, (int)x->m, (int)x->n, (int)x->p, (int)x->q, 0, 0};
    args.flags = (x->next_a ? 0 : 1) | (x->next_b ? 0 : 2);
    void *params[] = {&args};
    TRY(e->gpu,
        cuLaunchKernel(k->kron[type], (unsigned)count_up(all, OF_A_BLOCK), 1, 1, THREADS, 1, 1, 0,
                       (CUstream)x->stream, params, NULL),
        "optc_kron");
    return OPTC_OK;
}

CORE optc_status kron_gpu(optc_engine *e, MatrixKit *k, const optc_kronecker *x, Type type)
{
    optc_status s = gpu_alive(e->gpu);
    if (s != OPTC_OK)
        return s;
    gpu_enter(e->gpu);
    return gpu_leave(e->gpu, kron_inside(e, k, x, type));
}

/* Products without a rule on a GPU, by cuBLAS with strides: the only device memory of ours is the
 * workspace. The core's cublas_gemm makes the calls, as for rules. */
#include "runtime/core/functions/multiply.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* LEAST_SPACE: the smallest workspace for cuBLAS (its manual: with 16 KiB its calls do not fail).
 * MOST_BATCH: matrices per call; some of its kernels count them in 16 bits. THREADS: of our
 * kernels */
enum { LEAST_SPACE = 1 << 16, MOST_BATCH = 65535, THREADS = 256 };

static optc_status product_refused(const MatrixKit *k, const char *call, const char *function,
                                   int rc)
{
    char what[80];
    snprintf(what, sizeof what, "%s: %s", call, function);
    return cublas_refused(&k->cublas, what, rc, "");
}

/* ---- loading ---- */
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

CORE optc_status matrices_load(optc_engine *e, void *stream, const char *call, MatrixKernel which)
{
    MatrixKit *k = &e->functions->kit;
    if (k->loaded[which])
        return OPTC_OK;
    optc_status s = refuse_capture(e, stream, call);
    if (s == OPTC_OK)
        s = HOST()->kernels(e, k, (int)which);
    k->loaded[which] = s == OPTC_OK;
    return s;
}

/* Opens cuBLAS on first use, and has it use the call's stream and memory. */
static optc_status use_blas(optc_engine *e, const Multiply *x, CUdeviceptr at, int64_t space)
{
    MatrixKit *k = &e->functions->kit;
    char why[400];
    cublasHandle_t h = NULL;
    optc_status s = k->handle ? OPTC_OK : refuse_capture(e, x->stream, x->call);
    if (s == OPTC_OK && !k->handle &&
        !cublas_open(&k->cublas, e->gpu->d->version, NULL, why, sizeof why))
        return fail(OPTC_ERROR_UNAVAILABLE, "%s: products without a rule need cuBLAS on a GPU: %s",
                    x->call, why);
    int rc = s == OPTC_OK && !k->handle ? cublas_handle_take(&k->cublas, e->gpu, &h) : 0;
    if (rc && h)
        spare_keep(e->gpu, h, k->cublas.cublasDestroy_v2);
    else if (h)
        k->handle = h;
    if (s != OPTC_OK || rc)
        return rc ? product_refused(k, x->call, "cublasCreate", rc) : s;
    rc = cublas_handle_use(&k->cublas, k->handle, (CUstream)x->stream, (void *)(uintptr_t)at,
                           (size_t)space);
    return rc ? product_refused(k, x->call, "cublasSetStream", rc) : OPTC_OK;
}

/* args: as many bytes as a launch of a stage takes */
static optc_status launch_matrices(const optc_engine *e, const Multiply *x, MatrixKernel which,
                                   int64_t blocks, void *args)
{
    void *params[] = {args};
    TRY(e->gpu,
        cuLaunchKernel(e->functions->kit.kernel[which][x->type], (unsigned)blocks, 1, 1, THREADS,
                       1, 1, 0, (CUstream)x->stream, params, NULL),
        x->call);
    return OPTC_OK;
}

/* ---- one product, of a batch ---- */
static GpuGemm gemm_of(const Multiply *x, int64_t m, int64_t n)
{
    GpuGemm y;
    memset(&y, 0, sizeof y);
    y.type = call_type_of(x->product), y.trans_a = x->a.transposed, y.trans_b = x->b.transposed;
    y.m = m, y.n = n, y.k = x->a.cols, y.lda = x->a.ld, y.ldb = x->b.ld, y.ldc = x->c.ld;
    y.alpha = x->scale, y.beta = x->add;
    return y;
}

/* Multiplies `all` matrices. */
static optc_status run_gemm(const MatrixKit *k, const Multiply *x, GpuGemm *y, int64_t all)
{
    GemmMatrices *const each[] = {&y->a, &y->b, &y->c};
    if (gemm_is_long(y) && !k->cublas.cublasGemmStridedBatchedEx_64)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: a length exceeds 32 bits, which %.300s does not support", x->call,
                    k->cublas.path);
    for (; all > 0; all -= y->count) {
        y->count = all < MOST_BATCH ? all : (int64_t)MOST_BATCH;
        int rc = cublas_gemm(&k->cublas, k->handle, y);
        if (rc)
            return product_refused(
                k, x->call, y->strided ? "cublasGemmStridedBatchedEx" : "cublasGemmBatchedEx", rc);
        for (int i = 0; i < 3; i++)
            each[i]->at += (CUdeviceptr)(
                y->count * (y->strided ? each[i]->stride * number_type[x->type].bytes
                                       : (int64_t)sizeof(void *)));
    }
    return OPTC_OK;
}

static GemmMatrices gemm_matrices(const MatrixBatch *x)
{
    GemmMatrices y = {(CUdeviceptr)(uintptr_t)x->at, x->next};
    return y;
}

static optc_status multiply_batch(const MatrixKit *k, const Multiply *x)
{
    GpuGemm y = gemm_of(x, x->c.rows, x->c.cols);
    y.strided = true;
    y.a = gemm_matrices(&x->a), y.b = gemm_matrices(&x->b), y.c = gemm_matrices(&x->c);
    return run_gemm(k, x, &y, x->batch);
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
 * tiles: of a mirror, 0: no mirror, because this is no Gram matrix or has no code. rows 0: one
 * product computes all of it. */
typedef struct Gram { int64_t rows, down, each, bytes, tiles; } Gram;

/* cuBLAS does not check the alignment of matrices that it is given by address
 * (gpu_call_build.c). */
static bool aligned_blocks(const Multiply *x, const CallType *t)
{
    int64_t all = (int64_t)(uintptr_t)x->a.at | (int64_t)(uintptr_t)x->c.at |
                  (x->a.ld | x->a.next | x->c.ld | x->c.next) * number_type[x->type].bytes;
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

/* at: memory of the addresses of whole blocks, which are multiplied in as few calls as possible */
static optc_status multiply_gram(const optc_engine *e, const MatrixKit *k, const Multiply *x,
                                 const Gram *g, CUdeviceptr at)
{
    int64_t top = g->rows * g->down, all = g->each * x->batch;
    optc_status s = OPTC_OK;
    GramArgs args = {
        x->a.at,     x->c.at,      (void *)(uintptr_t)at, x->a.next,
        x->c.next,   (int)g->down, (int)g->rows,          x->a.transposed ? 1 : (int)x->a.ld,
        (int)x->c.ld};
    if (g->rows) {
        GpuGemm y = gemm_of(x, g->rows, g->rows);
        y.a.at = at;
        y.b.at = at + (CUdeviceptr)all * sizeof(void *), y.c.at = 2 * y.b.at - at;
        s = launch_matrices(e, x, MATRIX_BLOCKS, x->batch, &args);
        s = s == OPTC_OK ? run_gemm(k, x, &y, all) : s;
    }
    if (s == OPTC_OK && top < x->c.rows) {     /* the rows below the last whole block */
        Multiply rest = *x;
        rest.a.at = operand_at(&x->a, 0, top, 0), rest.c.at = operand_at(&x->c, 0, top, 0);
        rest.a.rows = rest.c.rows = x->c.rows - top;
        s = multiply_batch(k, &rest);
    }
    args.to = NULL, args.n = (int)x->c.rows, args.rows = (int)g->tiles, args.down = 0;
    return s == OPTC_OK ? launch_matrices(e, x, MATRIX_GRAM,
                                          g->tiles * (g->tiles + 1) / 2 * x->batch, &args)
                        : s;
}

/* ---- chains: a b is stored between the two products ---- */
/* matrices, and rows, per round */
typedef struct Between { int64_t matrices, rows; } Between;

static optc_status multiply_chain(const MatrixKit *k, const Multiply *x, Between t, CUdeviceptr at)
{
    optc_status s = OPTC_OK;
    for (int64_t nth = 0; nth < x->batch; nth += t.matrices)
        for (int64_t row = 0; row < x->c.rows && s == OPTC_OK; row += t.rows) {
            int64_t rows = x->c.rows - row < t.rows ? x->c.rows - row : t.rows, wide = x->b.cols;
            Multiply first = *x, second;
            first.batch = x->batch - nth < t.matrices ? x->batch - nth : t.matrices;
            first.a.at = operand_at(&x->a, nth, row, 0), first.a.rows = first.c.rows = rows;
            first.b.at = operand_at(&x->b, nth, 0, 0);
            second = first;
            first.c = second.a = operand_of("", (const void *)(uintptr_t)at, x->type, rows, wide,
                                            wide, rows * wide);
            first.scale = 1, first.add = 0;
            second.b = x->d, second.b.at = operand_at(&x->d, nth, 0, 0);
            second.c.at = operand_at(&x->c, nth, row, 0);
            s = multiply_batch(k, &first);
            s = s == OPTC_OK ? multiply_batch(k, &second) : s;
        }
    return s;
}

/* How much of a b is computed at a time, of rows of `line` bytes, within `bytes` of workspace. */
static Between fit_between(const Multiply *x, int64_t bytes, int64_t line)
{
    int64_t rows = bytes / line, whole = rows / x->c.rows;
    Between t = {whole < 1 ? 1 : whole < x->batch ? whole : x->batch, x->c.rows};
    if (rows < x->c.rows)
        t.rows = rows >= 64 ? rows / 64 * 64 : rows;
    return t;
}

/* ---- a product ---- */
static int64_t blas_space(const optc_engine *e, int64_t limit)
{
    int64_t full = e->gpu->arch >= 90 ? 32 << 20 : 4 << 20, share = limit / 4;
    share = share < LEAST_SPACE ? (int64_t)LEAST_SPACE : share;
    return (share < full ? share : full) / 256 * 256;
}

/* at: `space` bytes for cuBLAS, then addresses of blocks or a part of a b */
static optc_status multiply_at(optc_engine *e, const Multiply *x, Gram *g, Between t,
                               CUdeviceptr at, int64_t space)
{
    const MatrixKit *k = &e->functions->kit;
    optc_status s = use_blas(e, x, at, space);
    if (s == OPTC_OK && g->tiles) {
        s = matrices_load(e, x->stream, x->call, MATRIX_GRAM);
        /* without NVRTC the product computes both halves */
        if (s == OPTC_ERROR_UNAVAILABLE)
            g->tiles = 0, s = OPTC_OK;
    }
    at += (CUdeviceptr)space;
    return s != OPTC_OK ? s
           : x->chain   ? multiply_chain(k, x, t, at)
           : g->tiles   ? multiply_gram(e, k, x, g, at)
                        : multiply_batch(k, x);
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

CORE optc_status multiply_gpu(optc_engine *e, const Multiply *x)
{
    Gram g = gram_of(e, x);
    Between t = {0, 0};
    int64_t space = blas_space(e, x->limit - g.bytes), bytes = space + g.bytes,
            line = x->chain ? dom_times(x->b.cols, number_type[x->type].bytes) : 0;
    CUdeviceptr at = 0;
    if (x->product == NPRODUCT)
        return fail(OPTC_ERROR_UNAVAILABLE, "%s: cuBLAS has no products of %s", x->call,
                    number_type[x->type].name);
    if (x->limit < LEAST_SPACE)
        return too_little(x, LEAST_SPACE + line);
    if (x->limit - space < line)
        return too_little(x, line + 2 * LEAST_SPACE);
    if (x->chain) {
        t = fit_between(x, x->limit - space, line);
        bytes += t.rows * t.matrices * line;
    }
    optc_status s =
        gpu_alloc(e, (size_t)bytes, (CUstream)x->stream, "the workspace of a product", &at);
    if (s == OPTC_OK) {
        pthread_mutex_lock(&e->functions->lock);
        s = multiply_at(e, x, &g, t, at, space);
        pthread_mutex_unlock(&e->functions->lock);
    }
    gpu_give(e, at, (size_t)bytes, (CUstream)x->stream);
    return s == OPTC_ERROR_DEVICE ? explain_refusal(e, x, s) : s;
}

/* ---- Kronecker products ---- */
/* Must match optc_kron_of of templates/kron_cuda.txt. */
typedef struct KronArgs {
    const void *a, *b;
    void *c;
    long long all;
    int m, n, p, q, next_a, next_b;
} KronArgs;
static_assert(sizeof(KronArgs) == sizeof(Args), "all launches are of one size");

CORE optc_status kron_gpu(optc_engine *e, const Multiply *x)
{
    enum { OF_A_BLOCK = 4096 };
    int64_t high = x->c.rows, wide = x->c.cols, all;
    bool apart = x->batch > 1 && (x->a.next > INT_MAX || x->b.next > INT_MAX);
    if (high > INT_MAX || wide > INT_MAX || apart ||
        __builtin_mul_overflow(high * x->batch, wide, &all) || count_up(all, OF_A_BLOCK) > INT_MAX)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_kron: a result of %lld x %lld, batch = %lld is too large for one launch",
                    (long long)high, (long long)wide, (long long)x->batch);
    pthread_mutex_lock(&e->functions->lock);
    optc_status s = matrices_load(e, x->stream, x->call, MATRIX_KRON);
    pthread_mutex_unlock(&e->functions->lock);
    KronArgs args = {x->a.at,          x->b.at,          x->c.at,          all,
                     (int)x->a.rows,   (int)x->a.cols,   (int)x->b.rows,   (int)x->b.cols,
                     (int)x->a.next,   (int)x->b.next};
    return s == OPTC_OK ? launch_matrices(e, x, MATRIX_KRON, count_up(all, OF_A_BLOCK), &args) : s;
}

/* Launches the steps of calls on a GPU: products by cuBLAS or by our kernels, and rounds of steps
 * over as many matrices as fit. */
#include "runtime/core/matrix/gpu_calls.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(CallArgs) == sizeof(Args), "all launches are of one size");

/* ---- our kernels ---- */
static int launch(const optc_binding *b, CallKernel k, int64_t blocks, const CallArgs *a)
{
    CallArgs copy = *a;
    void *args[] = {&copy};
    return b->rule->engine->gpu->d->cuLaunchKernel(b->gpu->code->call[k], (unsigned)blocks, 1, 1,
                                                   256, 1, 1, 0, b->gpu->stream, args, NULL);
}

/* Fills n pointers from their addresses and the binding's table of pointers. */
CORE optc_status calls_gather(optc_binding *b, CUdeviceptr addresses, CUdeviceptr pointers,
                              int64_t n)
{
    CallArgs a;
    memset(&a, 0, sizeof a);
    a.a = b->gpu->table ? b->gpu->table : b->gpu->mem;
    a.b = addresses;
    a.c = pointers;
    a.m = (int)n;
    int rc = n ? launch(b, KERNEL_GATHER, count_up(n, 256), &a) : 0;
    return rc ? gpu_error(b->rule->engine->gpu, "cuLaunchKernel", rc, "addresses of matrices")
              : OPTC_OK;
}

/* Flags 8, 16, 32: a, b, c have a row stride. */
static int own_flags(const GpuCalls *x, const CallStep *s)
{
    return (int)s->flags | (x->set[s->a].row_stride ? 8 : 0) |
           (x->set[s->b].row_stride ? 16 : 0) | (x->set[s->c].row_stride ? 32 : 0);
}

/* The pointers of matrix i of a round. Records have pointers for one round. */
static CUdeviceptr step_pointers(const GpuCalls *x, int set, Matrices of, int64_t i)
{
    return set_pointers(x, set, of.from) + sizeof(void *) * (size_t)(i * x->set[set].each);
}

CORE CallGroup *step_group(const GpuCalls *x, const CallStep *s)
{
    return &x->group[x->set[s->c].group];
}

CORE optc_status step_failed(optc_binding *b, const GpuCall *c, const CallStep *s, const char *call,
                             int rc)
{
    const GpuCalls *x = b->gpu->calls;
    char what[400];
    b->gpu->launched = b->gpu->launched || !rc;
    if (!rc)
        return OPTC_OK;
    call_label(b, c->stage, step_group(x, s), what, sizeof what);
    return s->kind == STEP_PRODUCT ? cublas_refused(&x->blas, call, rc, what)
                                   : gpu_error(b->rule->engine->gpu, call, rc, what);
}

CORE optc_status launch_kernel(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    const GpuCalls *x = b->gpu->calls;
    CallArgs a = {set_pointers(x, s->a, of.from),
                  set_pointers(x, s->b, of.from),
                  set_pointers(x, s->c, of.from),
                  (int)s->m,
                  (int)s->n,
                  (int)s->k,
                  own_flags(x, s),
                  s->alpha,
                  s->beta};
    const int rc = launch(b, s->kernel, (int64_t)s->blocks * of.n, &a);
    return step_failed(b, c, s, "cuLaunchKernel", rc);
}

/* ---- cuBLAS ---- */
static int use_stream(const optc_binding *b, GpuCalls *x)
{
    char *space = (char *)call_space(b), *at = (char *)(((uintptr_t)space + 255) / 256 * 256);
    if (x->is_on && x->on == b->gpu->stream)
        return 0;
    int rc = cublas_handle_use(&x->blas, x->handle, b->gpu->stream, at, (size_t)blas_bytes(b));
    x->on = b->gpu->stream;
    x->is_on = rc == 0;
    return rc;
}

/* All addresses of a set are multiples of 16 bytes. Matrices of a tensor are whole rows apart;
 * those of views start at multiples of 8 values (misaligned). */
static bool set_aligned(const GpuCalls *x, const CallStep *s, int set, int64_t ld)
{
    const PointerSet *p = &x->set[set];
    return (ld | p->offset | p->down | p->across | p->apart) * s->type->bytes % 16 == 0;
}

/* Tensor cores are fast with addresses and rows of 16 bytes. The number of rows and of terms may be
 * odd. Products on tensor cores read only arrays of ours, which are aligned; others may read the
 * caller's arrays. */
static int step_alignment(const GpuCalls *x, const CallStep *s)
{
    bool cores = s->type->bytes == 2 || s->type->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return cores && set_aligned(x, s, s->a, s->lda) && set_aligned(x, s, s->b, s->ldb) &&
                   set_aligned(x, s, s->c, s->ldc) && (s->d < 0 || set_aligned(x, s, s->d, s->ldc))
               ? 16
               : s->type->bytes;
}

/* A matrix' result must not depend on how many others a call computes: ranks of a sharded model and
 * one process have different numbers of alike matrices. cuBLAS selects its kernel by the count, and
 * kernels sum in different orders. Measured on an H200 (cuBLAS 13.1; tests/gpu/batch_counts.py, 1
 * to 180 matrices with arrays of pointers):
 *   16 bits, all lengths multiples of 16 bytes      0 of 7246 shapes differ
 *   16 bits, rows of multiples of 16 bytes          0 of 1114 (odd numbers of rows or terms; 254 of
 *                                                   them 2000 terms on)
 *   16 bits, other lengths                        833 of 2565
 *   tf32                                         3178 of 4960
 *   f32 and f64, 16 rows or fewer                 446 of  942
 *   f32 and f64, more rows                          0 of 9113
 * For those that can differ, cuBLASLt runs one algorithm for any number of matrices (cublas_lt.c),
 * which is what makes their bits equal. If the library has none, they are one call per matrix.
 * 16-bit products with results in f32 were not measured and use one algorithm too. */
enum { FEW_ROWS = 16 };
static bool count_changes_bits(const GpuCalls *x, const CallStep *s)
{
    bool few = s->m <= FEW_ROWS || s->n <= FEW_ROWS || s->k <= FEW_ROWS;
    if (s->type->compute == CUBLAS_COMPUTE_32F_FAST_TF32 || step_gemm(x, s).f32)
        return true;
    if (s->type->bytes == 2)
        return (s->m | s->n | s->k | s->lda | s->ldb | s->ldc) * s->type->bytes % 16 != 0 &&
               (few || step_alignment(x, s) < 16);
    return s->m <= FEW_ROWS;
}

/* cuBLASLt adds a matrix that is not the result, so the addend needs no copy. For 32 symmetric
 * products of 2048 x 2048 in f16 on an H200 that took 471 us, and cuBLAS 439 us without the addend.
 * In f32 and f64 the copy is faster: 8 of 1024 x 1024 took 253 and 320 us by cuBLAS, 20 and 37 us
 * for the copy, but 340 and 432 us by cuBLASLt. */
static bool use_lt(const GpuCalls *x, const CallStep *s)
{
    return count_changes_bits(x, s) || (s->d >= 0 && s->flags & SYMMETRIC && s->type->bytes == 2);
}

/* The step copies the addend of the product behind it. */
static bool copies_addend(const GpuCalls *x, const CallStep *s)
{
    return s->kernel == s->type->over && s + 1 < x->step + x->nstep && s[1].kind == STEP_PRODUCT &&
           s[1].d >= 0;
}

/* The copy of the addend is left out only if all products of a call have an algorithm. */
static void agree_on_copy(GpuCalls *x, CallStep *first)
{
    CallStep *end = first;
    bool all = true;
    for (; end < x->step + x->nstep && end->kind == STEP_PRODUCT && end->d >= 0; end++)
        all = all && end->algorithm.known;
    for (; first < end; first++)
        first->algorithm.known = all;
}

CORE optc_status calls_choose_algorithms(GpuCalls *x)
{
    for (int i = 0; i < x->nstep; i++) {
        CallStep *s = &x->step[i];
        if (s->kind != STEP_PRODUCT || !use_lt(x, s))
            continue;
        GpuGemm y = step_gemm(x, s);
        y.aligned = step_alignment(x, s);
        /* tf32: not measured with blocks */
        y.count = s->type->bytes == 2 ? x->set[s->c].each : 1;
        int rc = cublas_lt_choose(&x->blas, x->handle, &y, &s->algorithm);
        if (rc)
            return cublas_refused(&x->blas, "cublasLtMatmulAlgoGetHeuristic", rc, "optc_bind");
    }
    for (int i = 0; i < x->nstep; i++)
        if (copies_addend(x, &x->step[i]))
            agree_on_copy(x, &x->step[i + 1]);
    return OPTC_OK;
}

/* Products per call: some kernels of cuBLAS count them in 16 bits. */
enum { LIBRARY_CALL_MOST = 65535 };

CORE optc_status launch_product(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    GpuCalls *x = b->gpu->calls;
    int64_t each = x->set[s->c].each, most = LIBRARY_CALL_MOST / each;
    bool lt = s->algorithm.known;
    most = most < 1 || (count_changes_bits(x, s) && !lt) ? 1 : most;
    GpuGemm y = step_gemm(x, s);
    const char *call = "cublasSetStream";
    int rc = lt ? 0 : use_stream(b, x);
    if (!rc)
        call = lt ? "cublasLtMatmul" : "cublasGemmBatchedEx";
    for (int64_t i = 0; i < of.n && !rc; i += most) {
        y.count = (most < of.n - i ? most : of.n - i) * each;
        y.a.at = step_pointers(x, s->a, of, i);
        y.b.at = step_pointers(x, s->b, of, i);
        y.c.at = step_pointers(x, s->c, of, i);
        y.d.at = lt && s->d >= 0 ? step_pointers(x, s->d, of, i) : y.c.at;
        rc = lt ? cublas_lt_gemm(&x->blas, x->handle, &y, &s->algorithm, b->gpu->stream)
                : cublas_gemm(&x->blas, x->handle, &y);
        b->gpu->launched = b->gpu->launched || !rc;
    }
    return step_failed(b, c, s, call, rc);
}

/* ---- a call ---- */
typedef optc_status LaunchStep(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);
static LaunchStep *const launch_of_step[NCALLSTEP] = {
#define CALL_STEP(ID, name, launch) launch,
#include "gen/abi/call_steps.def"
};

static optc_status launch_step(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    const GpuCalls *x = b->gpu->calls;
    return copies_addend(x, s) && s[1].algorithm.known ? OPTC_OK
                                                       : launch_of_step[s->kind](b, c, s, of);
}

/* ---- memory that runs out ---- */
/* A factor that names a previous result can do without memory as it can do without a good result:
 * it keeps the previous one and counts a refusal. A captured step would do so forever, so there a
 * lack of memory is an error, as for factors without a previous result. */
static bool may_keep_previous(const optc_binding *b, const GpuCall *c)
{
    int capturing = 0;
    return stage_of_kind(c->stage, CALLEE_FACTOR) && c->stage->call->c >= 0 &&
           !b->rule->engine->gpu->d->cuStreamIsCapturing(b->gpu->stream, &capturing) && !capturing;
}

/* Runs only the steps that judge, count and store, with the result marked as failed. */
static optc_status keep_previous(optc_binding *b, const GpuCall *c, int from, int to, Matrices of)
{
    optc_status s = OPTC_OK;
    for (int i = from; i < to && s == OPTC_OK; i++) {
        CallStep x = b->gpu->calls->step[i];
        KernelFailed failed = kernel_info[x.kernel].failed;
        x.flags |= failed == FAILED_FLAG ? 1 : 0;
        x.beta = failed == FAILED_LIMIT ? -1 : x.beta;
        if (failed != FAILED_SKIP && x.kind == STEP_KERNEL)
            s = launch_kernel(b, c, &x, of);
    }
    return s;
}

/* The steps of a body, so that they run only if one of these matrices is not settled. */
CORE optc_status launch_body(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    CallArgs a;
    ConditionBody body;
    memset(&a, 0, sizeof a);
    a.a = set_pointers(b->gpu->calls, s->a, of.from);
    a.m = (int)of.n;
    a.n = (int)s->flags;
    a.k = (int)s->k;
    a.flags = -1;
    optc_status rc = condition_begin(b, &a, &body);
    for (int64_t i = 1; i <= s->n && rc == OPTC_OK; i++)
        rc = launch_step(b, c, s + i, of);
    return condition_end(b, &body, rc);
}

/* Without conditional nodes the steps of bodies are steps like others. */
static optc_status launch_round(optc_binding *b, const GpuCall *c, int from, int to, Matrices of)
{
    const CallStep *step = b->gpu->calls->step;
    optc_status s = OPTC_OK;
    for (int i = from; i < to && s == OPTC_OK; i++) {
        const bool body = step[i].kind == STEP_BODY, runs = !body || condition_possible(b);
        s = runs ? launch_step(b, c, &step[i], of) : OPTC_OK;
        i += body && runs ? (int)step[i].n : 0;
    }
    if (s != OPTC_ERROR_MEMORY || !may_keep_previous(b, c))
        return s;
    message_clear();
    return keep_previous(b, c, from, to, of);
}

CORE int64_t step_at_once(const GpuCalls *x, const CallStep *s)
{
    const int set[] = {s->a, s->b, s->c};
    for (int i = 0; i < 3; i++)
        if (is_area(x->set[set[i]].array))
            return area_of(x, x->set[set[i]].array)->count;
    return 0;
}

/* The end of a round: consecutive steps that work on as many matrices at a time as fit. */
static int end_of_round(const GpuCalls *x, const GpuCall *c, int from)
{
    const CallStep *s = &x->step[from];
    int to = from + 1;
    while (step_at_once(x, s) && to < c->first + c->n && step_at_once(x, &x->step[to]) &&
           step_group(x, &x->step[to]) == step_group(x, s))
        to++;
    return to;
}

CORE optc_status calls_launch(optc_binding *b, const GpuCall *call, bool scheduled)
{
    const GpuCalls *x = b->gpu->calls;
    optc_status s = OPTC_OK;
    GpuCall own = *call;
    const GpuCall *c = &own;
    if (scheduled && call->stage->stagger)
        own.first = call->stagger_first, own.n = call->stagger_n;
    for (int i = c->first, to; i < c->first + c->n; i = to) {
        /* all 0: no tensor takes part */
        int64_t all = step_group(x, &x->step[i])->now, most = step_at_once(x, &x->step[i]);
        to = end_of_round(x, c, i);
        Matrices of = {0, 0};
        for (; of.from < all && s == OPTC_OK; of.from += of.n) {
            of.n = most && most < all - of.from ? most : all - of.from;
            s = launch_round(b, c, i, to, of);
        }
    }
    return s;
}

/* Eigenvectors on a GPU, and functions of eigenvalues that products cannot compute:
 * V f(values) V.T.
 *
 *   the matrix, scaled by a power of two that brings its largest value to about 1 -> a solver ->
 *   eigenvectors with fixed signs and order, or their product in f64 -> the result, or the previous
 *   one after a failure (templates/eigen_cuda.txt)
 *
 * The solver is cuSOLVER's, in calls of a fixed number of matrices (eigen_per_call), our Jacobi
 * rotations in f64 with one thread block per matrix, or divide and conquer (gpu_divide.c);
 * methods.def has the choice. cuSOLVER needs matrices without gaps, so the squares,
 * values and numbers of a round are separate arrays, followed by its workspace. The binding
 * allocates this memory once. A round has as many matrices as half of the engine's workspace holds,
 * at least those of one call.
 *
 * No solver waits for the host, and all of them can be captured. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_library(EigenMethod method) { return method == EIGEN_F32 || method == EIGEN_F64; }

/* Where f64 is not slow, divide and conquer computes in f64 what is stored in f32 if the rule uses
 * the eigenvalues: (A + 1e-6)^(-1/2) of 1000 rows at condition 1e4, made of both, was off by 8e-4
 * with vectors in f32, and by 4e-8 with vectors in f64 that were rounded to f32. Also for so few
 * rows that cuSOLVER would compute in f64. */
static bool divides_in_f64(const GpuEngine *g, const ProgCall *c, int64_t n)
{
    bool few = n <= EIGEN_LIBRARY_MOST && g->eigen != EIGEN_DIVIDED;
    return g->f64_fast && (c->flags & WITH_VALUES || few);
}

CORE void eigen_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets)
{
    int64_t n, wanted;
    int divide_steps, divide_sets;
    factor_sides(b->program, s->call, shape, &n, &wanted);
    divide_bounds(n, &divide_steps, &divide_sets);
    *steps = 14 + divide_steps;
    *sets = 11 + divide_sets;
}

CORE void eigen_path(const optc_rule *r, char *buf, size_t n)
{
    const Program *p = r->program;
    bool any = false;
    Cusolver c;
    char why[400];
    for (int i = 0; i < p->nstage; i++)
        any = any || stage_takes(&p->stage[i], FOR_EIGEN);
    if (!any)
        return;
    if (cusolver_open(&c, r->engine->gpu->d->version, NULL, why, sizeof why))
        snprintf(buf, n, "; eigenvectors by cuSOLVER %d.%d up to %d rows, then by our own kernels",
                 c.version / 1000, c.version % 1000 / 10, EIGEN_LIBRARY_MOST);
    else
        snprintf(buf, n, "; eigenvectors by our own kernels (%.200s)", why);
}

/* Opens cuSOLVER once. Without it our own kernels are used. */
static optc_status eigen_open(const optc_binding *b, Eigen *e)
{
    bool again;
    if (e->asked)
        return OPTC_OK;
    e->asked = true;
    e->library =
        cusolver_open(&e->f, b->rule->engine->gpu->d->version, &again, e->why, sizeof e->why);
    if (!e->library)                               /* a lack of memory must not change results */
        return again ? fail(OPTC_ERROR_MEMORY, "optc_bind: %s", e->why) : OPTC_OK;
    int rc = solver_open(b, e);
    return rc ? fail(rc == CUSOLVER_STATUS_ALLOC_FAILED ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE,
                     "optc_bind: cusolverDnCreate of %.300s: %s (OPTC_CUSOLVER=none uses our own "
                     "kernels)",
                     e->f.path, cusolver_status(rc))
              : OPTC_OK;
}

/* ---- a round's memory ---- */
static bool eigen_by_library(const EigenRound *r) { return is_library(r->method); }
static cudaDataType eigen_type(const EigenRound *r) { return r->f32 ? CUDA_R_32F : CUDA_R_64F; }

static int64_t eigen_past(int64_t at, int64_t bytes)             /* saturates */
{
    return at >= INT64_MAX / 4 || bytes >= INT64_MAX / 4 ? INT64_MAX / 4
                                                         : (at + bytes + 255) / 256 * 256;
}

static optc_status eigen_failed(const optc_binding *b, const ProgStage *stage, int group,
                                const char *call, int rc)
{
    char what[400];
    call_label(b, stage, &b->gpu->calls->group[group], what, sizeof what);
    return fail(rc == CUSOLVER_STATUS_ALLOC_FAILED ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE,
                "%s: %s: %s", call, cusolver_status(rc), what);
}

/* Assigns offsets for a round of `count` matrices. */
static optc_status eigen_lay_out(EigenRound *r, int64_t count)
{
    const Eigen *e = &r->x->eigen;
    const void *any = call_space(r->b);                    /* any device address: it is not read */
    const int64_t square = dom_times(r->n, r->n), wide = dom_times(square, 8),
                  size = r->f32 ? 4 : 8;
    int64_t each[EIGEN_ARRAYS] = {dom_times(square, size),
                                  r->spectral || !eigen_by_library(r) ? wide : 0,
                                  0,
                                  0,
                                  r->spectral ? wide : 0,
                                  eigen_by_library(r) ? r->n * size : (2 * r->n + 2) * 8,
                                  EIGEN_NUMBERS_BYTES,
                                  eigen_by_library(r) ? (int64_t)sizeof(int) : 0};
    int rc = 0;
    if (r->method == EIGEN_DIVIDED)
        divide_sizes(r, each);
    r->count = count;
    r->bytes = 0;
    for (int i = 0; i < EIGEN_ARRAYS; i++) {
        r->each[i] = each[i];
        r->at[i] = r->bytes;
        r->bytes = eigen_past(r->bytes, dom_times(each[i], count));
    }
    r->work_at = r->bytes;
    r->work = r->host = 0;
    if (eigen_by_library(r))
        rc = e->f.cusolverDnXsyevBatched_bufferSize(e->handle, e->params, CUSOLVER_EIG_MODE_VECTOR,
                                                    CUBLAS_FILL_MODE_UPPER, r->n, eigen_type(r),
                                                    any, r->n, eigen_type(r), any, eigen_type(r),
                                                    &r->work, &r->host, r->per_call);
    r->bytes = eigen_past(r->bytes, r->work > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)r->work);
    return rc ? eigen_failed(r->b, r->stage, r->group, "cusolverDnXsyevBatched_bufferSize", rc)
              : OPTC_OK;
}

/* Matrices of a call of the library. The library's bits depend on this number, so it follows from
 * the shape alone, and the last call of a round is padded with zeros. With 2^20 values, at most 64
 * matrices, padding at most doubles the time of a call, by the table above. */
enum { EIGEN_CALL_VALUES = 1 << 20, EIGEN_CALL_MOST = 64 };

static int64_t eigen_per_call(const EigenRound *r)
{
    int64_t n = 1;
    while (eigen_by_library(r) && n < EIGEN_CALL_MOST && 2 * n * r->n * r->n <= EIGEN_CALL_VALUES)
        n *= 2;
    return n;
}

/* Selects as many matrices per round as fit. */
static optc_status eigen_cut(EigenRound *r)
{
    const CallGroup *g = &r->x->group[r->group];
    int64_t calls, half = r->b->rule->engine->workspace / 2;
    r->per_call = eigen_per_call(r);
    calls = count_up(dom_times(g->n, g->shape.slices), r->per_call);
    optc_status s = eigen_lay_out(r, dom_times(calls, r->per_call));
    while (s == OPTC_OK && r->bytes > half && calls > 1) {
        int64_t fewer = (int64_t)((double)calls * (double)half / (double)r->bytes);
        calls = fewer < 1 ? 1 : fewer < calls ? fewer : calls - 1;
        s = eigen_lay_out(r, dom_times(calls, r->per_call));
    }
    return s;
}

/* ---- steps ---- */
CORE PointerSet eigen_set(const EigenRound *r, int array)
{
    PointerSet s;
    memset(&s, 0, sizeof s);
    s.array = OWN_EIGEN;
    s.group = r->group;
    s.bytes = 8;
    s.record = r->each[array];
    s.base = r->at[array];
    s.most = r->count;
    return s;
}

CORE int eigen_array(const EigenRound *r, int array)
{
    PointerSet s = eigen_set(r, array);
    return add_set(r->x, &s);
}

static int eigen_rule_set(const EigenRound *r, int array)
{
    return whole_set(r->x, array, r->group, 0);
}

CORE CallStep *eigen_blocks(EigenRound *r, CallKernel kernel, int from, int64_t m, int64_t n,
                            int64_t blocks)
{
    CallStep *s = add_step(r->x, kernel, call_type_f64(), r->group);
    s->a = s->b = s->c = eigen_array(r, from);
    s->m = m;
    s->n = n;
    s->own = true;
    s->flags = r->f32 ? EIGEN_IN_F32 : 0;
    s->alpha = (double)(r->at[EIGEN_NUMBERS] - r->at[from]);
    s->blocks = (unsigned)blocks;
    r->fits = r->fits && dom_times(blocks, r->count) <= MOST_BLOCKS && m <= INT_MAX && n <= INT_MAX;
    return s;
}

static CallStep *eigen_step(EigenRound *r, CallKernel kernel, int from, int64_t m, int64_t n)
{
    return eigen_blocks(r, kernel, from, m, n, kernel_blocks(kernel, m, n, false));
}

static void eigen_begin(EigenRound *r)
{
    const ProgCall *c = r->stage->call;
    eigen_step(r, KERNEL_EIGEN_START, EIGEN_NUMBERS, 1, 1);
    CallStep *s = eigen_step(r, KERNEL_EIGEN_MEASURE, EIGEN_NUMBERS, r->n, r->n);
    s->a = s->b = eigen_rule_set(r, c->a);
    s = eigen_step(r, KERNEL_EIGEN_LOAD, EIGEN_SQUARES, r->n, r->n);
    s->b = eigen_rule_set(r, c->a);
    s->flags |= r->method == EIGEN_DIVIDED ? EIGEN_MIRRORED : 0;
}

static void eigen_solver(EigenRound *r)
{
    if (r->method == EIGEN_DIVIDED) {
        add_divide(r);
        return;
    }
    CallStep *s = eigen_step(r, KERNEL_EIGEN_ROTATE, EIGEN_SQUARES, r->n, r->n);
    s->own = !eigen_by_library(r);
    s->b = eigen_array(r, eigen_by_library(r) ? EIGEN_INFO : EIGEN_MORE);
    s->c = eigen_array(r, EIGEN_VALUES);
    s->per_call = r->per_call;
    s->work_at = r->work_at;
    s->in_f32 = r->f32;
    s->work = r->work;
    s->host = r->host;
}

/* The product V.T (f(values) V); V's rows are the eigenvectors. */
static void eigen_power(EigenRound *r)
{
    const ProgCall *c = r->stage->call;
    CallStep *s = eigen_step(r, KERNEL_EIGEN_VALUES, EIGEN_SQUARES, 1, r->n);
    s->b = c->b >= 0 ? eigen_rule_set(r, c->b) : s->a;
    s->c = eigen_array(r, EIGEN_VALUES);
    s->k = spectral_number(c->callee);
    s->beta = c->alpha;
    s->flags |= c->b >= 0 ? EIGEN_LIFTED : 0;
    s = eigen_step(r, KERNEL_EIGEN_SCALE, EIGEN_SQUARES, r->n, r->n);
    s->b = eigen_array(r, EIGEN_VALUES);
    s->c = eigen_array(r, EIGEN_MORE);
    s = add_step(r->x, KERNEL_MM_F64, call_type_f64(), r->group);
    int64_t blocks = kernel_blocks(s->kernel, r->n, r->n, false);
    s->a = eigen_array(r, EIGEN_SQUARES);
    s->b = eigen_array(r, EIGEN_MORE);
    s->c = eigen_array(r, EIGEN_PRODUCT);
    s->m = s->n = s->k = s->lda = s->ldb = s->ldc = r->n;
    s->flags = TRANS_A;
    s->alpha = 1;
    s->own = !r->x->library;
    s->blocks = (unsigned)blocks;
    r->fits = r->fits && dom_times(blocks, r->count) <= MOST_BLOCKS;
}

static void eigen_end(EigenRound *r)
{
    const ProgCall *c = r->stage->call;
    bool f64 = r->b->program->array[c->out].type == (int)T_F64;
    int from = r->spectral ? EIGEN_PRODUCT : EIGEN_SQUARES;
    unsigned method = r->spectral ? 0 : EIGEN_VECTORS;
    if (!r->spectral)
        eigen_step(r, KERNEL_EIGEN_SIGNS, EIGEN_SQUARES, r->wanted, r->n);
    CallStep *s = eigen_step(r, KERNEL_EIGEN_CHECK, from, r->wanted, r->n);
    s->flags |= method;
    s->beta = f64 ? DBL_MAX : FLT_MAX;
    s = eigen_step(r, KERNEL_EIGEN_JUDGE, EIGEN_NUMBERS, 1, 1);
    s->b = factor_stats_set(r->x, r->b, r->stage, r->group);
    s->c = eigen_by_library(r) ? eigen_array(r, EIGEN_INFO) : s->a;
    s->flags = eigen_by_library(r) ? 1 : 0;
    s = eigen_step(r, KERNEL_EIGEN_STORE, from, r->n, r->wanted);
    s->c = eigen_rule_set(r, c->out);
    s->b = c->c >= 0 ? eigen_rule_set(r, c->c) : s->c;
    s->flags |= method | (c->c < 0 ? 0u : c->c == c->out ? 3u : 1u);
}

static optc_status eigen_round(EigenRound *r)
{
    GpuCalls *x = r->x;
    int first = x->nstep;
    optc_status s = eigen_cut(r);
    if (s != OPTC_OK)
        return s;
    eigen_begin(r);
    eigen_solver(r);
    if (r->spectral)
        eigen_power(r);
    eigen_end(r);
    for (int i = first; i < x->nstep; i++)
        x->step[i].at_once = r->count;
    if (r->bytes > x->eigen.bytes) {
        x->eigen.bytes = r->bytes;
        call_label(r->b, r->stage, &x->group[r->group], x->eigen.largest, sizeof x->eigen.largest);
    }
    x->eigen.host_bytes = r->host > x->eigen.host_bytes ? r->host : x->eigen.host_bytes;
    return OPTC_OK;
}

/* spectral: the result is a function of the eigenvalues, else the eigenvectors. */
static optc_status build_eigen(const MethodAt *f, bool spectral)
{
    GpuCalls *x = f->x;
    if (is_library(f->way)) {
        optc_status s = eigen_open(f->b, &x->eigen);
        if (s != OPTC_OK)
            return s;
        if (!x->eigen.library) {
            MethodAt ours = *f;
            ours.library = false;
            return method_steps(&ours);
        }
    }
    EigenRound r;
    memset(&r, 0, sizeof r);
    r.b = f->b;
    r.x = x;
    r.stage = f->stage;
    r.group = f->group;
    r.n = f->n;
    r.wanted = f->cols;
    r.method = f->way;
    r.f32 = way_in_f32(f->way, f->exact || divides_in_f64(f->gpu, f->call, f->n));
    r.spectral = spectral;
    r.fits = true;
    if (f->way == EIGEN_ROTATED && r.n > EIGEN_ALONE_LIMIT)
        return too_long(
            f->b, f->stage, &x->group[f->group],
            "eigenvectors have at most 46340 rows; choose a smaller `limit`, or divide the "
            "tensor into blocks");
    optc_status s = eigen_round(&r);
    return s == OPTC_OK ? steps_fit(f, r.fits) : s;
}

CORE optc_status build_vectors(const MethodAt *f) { return build_eigen(f, false); }
CORE optc_status build_spectral(const MethodAt *f) { return build_eigen(f, true); }

CORE void eigen_addresses(const GpuCalls *x, const PointerSet *s, MatrixAddress *to)
{
    for (int64_t i = 0; i < root_pointers(x, s); i++) {
        int64_t at = s->base + i / s->each * s->record + i % s->each * s->apart;
        to[i].slot = -1;
        to[i].offset = (long long)(x->eigen.scratch + (CUdeviceptr)at);
    }
}

/* ---- the library's call ---- */
CORE CUdeviceptr eigen_at(const GpuCalls *x, int set, int64_t i)
{
    return x->eigen.scratch + (CUdeviceptr)(x->set[set].base + i * x->set[set].record);
}

/* Fills the last call of n matrices with zeros, for which the library converges at once. */
static int eigen_pad(const optc_binding *b, const CallStep *s, int64_t n)
{
    const PointerSet *squares = &b->gpu->calls->set[s->a];
    int64_t pad = count_up(n, s->per_call) * s->per_call - n;
    CUdeviceptr at = eigen_at(b->gpu->calls, s->a, n);
    return pad ? b->rule->engine->gpu->d->cuMemsetD8Async(at, 0, (size_t)(pad * squares->record),
                                                          b->gpu->stream)
               : 0;
}

CORE bool eigen_launches(const CallStep *s)
{
    return eigen_uses_library(s) || divide_launches(s);
}

CORE optc_status eigen_launch(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    GpuCalls *x = b->gpu->calls;
    const char *call = "cuMemsetD8Async";
    char what[400];
    int rc = 0, failed = s->own ? divide_launch(b, s, of, &call) : eigen_pad(b, s, of.n);
    if (failed) {
        call_label(b, c->stage, &x->group[s->group], what, sizeof what);
        if (failed == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
            return fail(OPTC_ERROR_DEVICE,
                        "optc_run: %s: the stream has too few of the GPU's %d multiprocessors for "
                        "so many rows; use a stream of no green context, or a smaller `limit`",
                        what, b->rule->engine->gpu->sms);
        return gpu_error(b->rule->engine->gpu, call, failed, what);
    }
    for (int64_t i = 0; i < of.n && !s->own && !rc; i += s->per_call)
        rc = solver_call(b, s, i, &call);
    return rc ? eigen_failed(b, c->stage, s->group, call, rc) : OPTC_OK;
}

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
static bool by_library(const MethodAt *f) { return is_library(f->way); }
static bool is_spectral(const MethodAt *f) { return callee_spectral(f->call->callee); }
CORE bool eigen_f32(const MethodAt *f) { return f->work == call_type_f32(); }

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

/* Matrices of a call of the library. The library's bits depend on this number, so it follows from
 * the shape alone, and the last call of a round is padded with zeros. With 2^20 values, at most 64
 * matrices, padding at most doubles the time of a call, by the table in methods.def. */
enum { EIGEN_CALL_VALUES = 1 << 20, EIGEN_CALL_MOST = 64 };

CORE int64_t solver_per_call(int64_t rows)
{
    int64_t n = 1;
    while (n < EIGEN_CALL_MOST && 2 * n * rows * rows <= EIGEN_CALL_VALUES)
        n *= 2;
    return n;
}

/* Bytes of a matrix in each array; of the library's workspace those of a call. */
static optc_status eigen_sizes(const MethodAt *f, int64_t each[EIGEN_ARRAYS])
{
    Eigen *e = &f->x->eigen;
    const void *any = call_space(f->b);                    /* any device address: it is not read */
    const bool library = by_library(f), spectral = is_spectral(f);
    const cudaDataType t = eigen_f32(f) ? CUDA_R_32F : CUDA_R_64F;
    const int64_t n = f->m, size = f->work->bytes, wide = dom_times(dom_times(n, n), 8);
    size_t work = 0, host = 0;
    int rc = 0;
    memset(each, 0, sizeof *each * EIGEN_ARRAYS);
    each[EIGEN_SQUARES] = dom_times(dom_times(n, n), size);
    each[EIGEN_MORE] = spectral || !library ? wide : 0;
    each[EIGEN_PRODUCT] = spectral ? wide : 0;
    each[EIGEN_VALUES] = library ? n * size : (2 * n + 2) * 8;
    each[EIGEN_NUMBERS] = EIGEN_NUMBERS_BYTES;
    each[EIGEN_INFO] = library ? (int64_t)sizeof(int) : 0;
    if (f->way == EIGEN_DIVIDED)
        divide_sizes(f, each);
    if (library)
        rc = e->f.cusolverDnXsyevBatched_bufferSize(e->handle, e->params, CUSOLVER_EIG_MODE_VECTOR,
                                                    CUBLAS_FILL_MODE_UPPER, n, t, any, n, t, any, t,
                                                    &work, &host, solver_per_call(n));
    each[EIGEN_WORK] = work > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)work;
    e->host_bytes = host > e->host_bytes ? host : e->host_bytes;
    return rc ? eigen_failed(f->b, f->stage, f->group, "cusolverDnXsyevBatched_bufferSize", rc)
              : OPTC_OK;
}

/* Places the arrays of a round of `count` matrices. Returns their bytes. */
static int64_t eigen_place(const MethodAt *f, const int64_t each[EIGEN_ARRAYS], int64_t count,
                           Area area[EIGEN_ARRAYS])
{
    static const char *const names[EIGEN_ARRAYS] = {
        "squares", "more", "parts", "bases", "product", "values", "numbers", "info", "work"};
    int64_t bytes = 0;
    memset(area, 0, sizeof *area * EIGEN_ARRAYS);
    for (int i = 0; i < EIGEN_ARRAYS; i++) {
        Area *x = &area[i];
        x->name = names[i];
        x->eigen = 1;
        x->bytes = i == EIGEN_INFO                               ? (int)sizeof(int)
                   : i == EIGEN_WORK                             ? 1
                   : i < EIGEN_VALUES + (by_library(f) ? 1 : 0) ? f->work->bytes
                                                                 : (int)sizeof(double);
        x->at = bytes;
        x->apart = each[i];
        x->values = each[i] / x->bytes;
        x->count = i == EIGEN_WORK ? 1 : count;
        bytes = eigen_past(bytes, dom_times(each[i], x->count));
    }
    return bytes;
}

/* As many matrices per round as fit. */
static optc_status eigen_memory(MethodAt *f)
{
    Eigen *e = &f->x->eigen;
    const CallGroup *g = &f->x->group[f->group];
    const int64_t half = f->b->rule->engine->workspace / 2,
                  per_call = by_library(f) ? solver_per_call(f->m) : 1;
    int64_t each[EIGEN_ARRAYS], calls = count_up(dom_times(g->n, g->shape.slices), per_call);
    Area area[EIGEN_ARRAYS];
    optc_status s = eigen_sizes(f, each);
    if (s != OPTC_OK)
        return s;
    int64_t bytes = eigen_place(f, each, dom_times(calls, per_call), area);
    while (bytes > half && calls > 1) {
        int64_t fewer = (int64_t)((double)calls * (double)half / (double)bytes);
        calls = fewer < 1 ? 1 : fewer < calls ? fewer : calls - 1;
        bytes = eigen_place(f, each, dom_times(calls, per_call), area);
    }
    if (bytes > e->bytes) {
        e->bytes = bytes;
        call_label(f->b, f->stage, g, e->largest, sizeof e->largest);
    }
    return add_areas(f, area, EIGEN_ARRAYS);
}

/* ---- steps ---- */
CORE int eigen_array(const MethodAt *f, int array) { return part_set(f, at(array, 0, 0)); }

CORE CallStep *eigen_blocks(MethodAt *f, CallKernel kernel, int from, int64_t m, int64_t n,
                            int64_t blocks)
{
    const Area *area = f->x->area + f->areas;
    const int set = eigen_array(f, from);
    CallStep *s = add_launch_of(f, kernel, set, set, set, m, n, blocks);
    s->flags = eigen_f32(f) ? EIGEN_IN_F32 : 0;
    s->alpha = (double)(area[EIGEN_NUMBERS].at - area[from].at);
    return s;
}

static CallStep *eigen_step(MethodAt *f, CallKernel kernel, int from, int64_t m, int64_t n)
{
    return eigen_blocks(f, kernel, from, m, n, kernel_blocks(kernel, m, n, false));
}

static void eigen_begin(MethodAt *f)
{
    const int from = whole_set(f, f->call->a);
    eigen_step(f, KERNEL_EIGEN_START, EIGEN_NUMBERS, 1, 1);
    CallStep *s = eigen_step(f, KERNEL_EIGEN_MEASURE, EIGEN_NUMBERS, f->m, f->m);
    s->a = s->b = from;
    s = eigen_step(f, KERNEL_EIGEN_LOAD, EIGEN_SQUARES, f->m, f->m);
    s->b = from;
    s->flags |= f->way == EIGEN_DIVIDED ? EIGEN_MIRRORED : 0;
}

static void eigen_solver(MethodAt *f)
{
    if (f->way == EIGEN_DIVIDED) {
        add_divide(f);
        return;
    }
    CallStep *s = eigen_step(f, KERNEL_EIGEN_ROTATE, EIGEN_SQUARES, f->m, f->m);
    s->kind = by_library(f) ? STEP_SOLVER : STEP_KERNEL;
    s->b = eigen_array(f, by_library(f) ? EIGEN_INFO : EIGEN_MORE);
    s->c = eigen_array(f, EIGEN_VALUES);
}

/* The product V.T (f(values) V); V's rows are the eigenvectors. */
static void eigen_power(MethodAt *f)
{
    const ProgCall *c = f->call;
    const ProductSize z = {f->m, f->m, f->m};
    CallStep *s = eigen_step(f, KERNEL_EIGEN_VALUES, EIGEN_SQUARES, 1, f->m);
    s->b = c->b >= 0 ? whole_set(f, c->b) : s->a;
    s->c = eigen_array(f, EIGEN_VALUES);
    s->k = spectral_number(c->callee);
    s->beta = c->alpha;
    s->flags |= c->b >= 0 ? EIGEN_LIFTED : 0;
    s = eigen_step(f, KERNEL_EIGEN_SCALE, EIGEN_SQUARES, f->m, f->m);
    s->b = eigen_array(f, EIGEN_VALUES);
    s->c = eigen_array(f, EIGEN_MORE);
    add_product(f, operand(eigen_array(f, EIGEN_SQUARES), f->m),
                operand(eigen_array(f, EIGEN_MORE), f->m),
                operand(eigen_array(f, EIGEN_PRODUCT), f->m), z, TRANS_A, 1, 0);
}

static void eigen_end(MethodAt *f)
{
    const bool spectral = is_spectral(f), library = by_library(f);
    const int from = spectral ? EIGEN_PRODUCT : EIGEN_SQUARES;
    const unsigned method = spectral ? 0 : EIGEN_VECTORS;
    if (!spectral)
        eigen_step(f, KERNEL_EIGEN_SIGNS, EIGEN_SQUARES, f->n, f->m);
    CallStep *s = eigen_step(f, KERNEL_EIGEN_CHECK, from, f->n, f->m);
    s->flags |= method;
    s->beta = result_most(f);
    s = eigen_step(f, KERNEL_EIGEN_JUDGE, EIGEN_NUMBERS, 1, 1);
    s->b = stats_set(f);
    s->c = library ? eigen_array(f, EIGEN_INFO) : s->a;
    s->flags = library;
    s = eigen_step(f, KERNEL_EIGEN_STORE, from, f->m, f->n);
    s->flags |= method;
    store_result(f, s);
}

CORE optc_status build_eigen(MethodAt *f)
{
    if (by_library(f)) {
        optc_status s = eigen_open(f->b, &f->x->eigen);
        if (s != OPTC_OK)
            return s;
        if (!f->x->eigen.library) {
            MethodAt ours = *f;
            ours.library = false;
            return method_steps(&ours);
        }
    }
    if (f->way == EIGEN_ROTATED && f->m > EIGEN_ALONE_LIMIT)
        return too_long(f, "eigenvectors have at most 46340 rows; choose a smaller `limit`, or "
                           "divide the tensor into blocks");
    f->work = way_in_f32(f->way, f->exact || divides_in_f64(f->gpu, f->call, f->m))
                  ? call_type_f32()
                  : call_type_f64();
    optc_status s = eigen_memory(f);
    if (s != OPTC_OK)
        return s;
    eigen_begin(f);
    eigen_solver(f);
    if (is_spectral(f))
        eigen_power(f);
    eigen_end(f);
    return OPTC_OK;
}

/* ---- the library's call ---- */
/* Fills the last call of n matrices with zeros, for which the library converges at once. */
static int eigen_pad(const optc_binding *b, const CallStep *s, int64_t n)
{
    const GpuCalls *x = b->gpu->calls;
    const int64_t each = solver_per_call(s->n), pad = count_up(n, each) * each - n;
    const size_t bytes = (size_t)(pad * area_of(x, x->set[s->a].array)->apart);
    return pad ? b->rule->engine->gpu->d->cuMemsetD8Async(set_matrix(x, s->a, n), 0, bytes,
                                                          b->gpu->stream)
               : 0;
}

CORE optc_status launch_solver(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    const GpuCalls *x = b->gpu->calls;
    const char *call = "";
    int rc = eigen_pad(b, s, of.n);
    if (rc)
        return step_failed(b, c, s, "cuMemsetD8Async", rc);
    for (int64_t i = 0; i < of.n && !rc; i += solver_per_call(s->n))
        rc = solver_call(b, s, i, &call);
    return rc ? eigen_failed(b, c->stage, x->set[s->c].group, call, rc) : OPTC_OK;
}

/* Eigenvectors on a GPU: cuSOLVER's handle and calls, and memory of a binding (gpu_eigen.c has the
 * steps). */
#include "runtime/core/matrix/gpu_eigen.h"

#include <stdlib.h>

/* ---- the library ---- */
CORE int solver_open(const optc_binding *b, Eigen *e)
{
    e->handle = (cusolverDnHandle_t)spare_take(b->rule->engine->gpu, e->f.cusolverDnDestroy);
    int rc = e->handle ? 0 : e->f.cusolverDnCreate(&e->handle);
    e->handle = rc ? NULL : e->handle;
    if (!rc && (rc = e->f.cusolverDnCreateParams(&e->params)))
        e->params = NULL;
    return rc;
}

static void solver_close(const optc_binding *b, Eigen *e)
{
    if (e->params)
        e->f.cusolverDnDestroyParams(e->params);
    /* The caller may destroy the binding's stream. NVIDIA's documentation does not tell which
     * functions use the stream of a handle. The next binding calls bufferSize before it sets
     * another one. */
    if (e->handle) {
        (void)e->f.cusolverDnSetStream(e->handle, NULL);
        spare_keep(b->rule->engine->gpu, e->handle, e->f.cusolverDnDestroy);
    }
}

static void *eigen_matrix(const GpuCalls *x, int set, int64_t i)
{
    return (void *)(uintptr_t)set_matrix(x, set, i);
}

CORE int solver_call(optc_binding *b, const CallStep *s, int64_t from, const char **call)
{
    const GpuCalls *x = b->gpu->calls;
    Eigen *e = &b->gpu->calls->eigen;
    const Area *array = area_of(x, x->set[s->a].array) - EIGEN_SQUARES, *work = array + EIGEN_WORK;
    cudaDataType t = array->bytes == 4 ? CUDA_R_32F : CUDA_R_64F;
    int rc = 0;
    if (!e->is_on || e->on != b->gpu->stream) {
        *call = "cusolverDnSetStream";
        rc = e->f.cusolverDnSetStream(e->handle, b->gpu->stream);
        e->on = b->gpu->stream;
        e->is_on = rc == 0;
    }
    /* a row-major lower triangle is a column-major upper one */
    if (!rc) {
        *call = "cusolverDnXsyevBatched";
        rc = e->f.cusolverDnXsyevBatched(
            e->handle, e->params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, s->n, t,
            eigen_matrix(x, s->a, from), s->n, t, eigen_matrix(x, s->c, from), t,
            (void *)(uintptr_t)area_at(x, work), (size_t)work->apart, e->host, e->host_bytes,
            (int *)eigen_matrix(x, s->b, from), solver_per_call(s->n));
    }
    return rc;
}

/* ---- binding ---- */
/* Allocates the memory of all rounds; addresses are known from here on. */
CORE optc_status eigen_bind(optc_binding *b, GpuCalls *x)
{
    Eigen *e = &x->eigen;
    if (!e->bytes)
        return OPTC_OK;
    optc_status s =
        gpu_alloc(b->rule->engine, (size_t)e->bytes, b->gpu->stream, e->largest, &e->scratch);
    if (s != OPTC_OK)
        return workspace_fails(b, s, e->bytes);
    b->call_more = e->bytes;
    e->host = e->host_bytes ? malloc(e->host_bytes) : NULL;
    return e->host_bytes && !e->host ? no_memory("optc_bind") : OPTC_OK;
}

/* The library loads code at its first call for a size, which may fail in a capture, and takes 0.13
 * s (H200, CUDA 13.0). So a call of each size computes zeros when binding, if possible while other
 * threads compile our kernels. A run reports what fails. */
CORE void eigen_warm(optc_binding *b, GpuCalls *x)
{
    const CallStep *like = NULL;                           /* most steps equal the previous one */
    const char *call;
    for (int i = 0; i < x->nstep && !x->eigen.warm; i++) {
        const CallStep *s = &x->step[i];
        if (s->kind != STEP_SOLVER || (like && like->n == s->n && like->flags == s->flags))
            continue;
        size_t bytes = (size_t)(solver_per_call(s->n) * area_of(x, x->set[s->a].array)->apart);
        if (!b->rule->engine->gpu->d->cuMemsetD8Async(set_matrix(x, s->a, 0), 0, bytes,
                                                      b->gpu->stream))
            (void)solver_call(b, s, 0, &call);
        like = s;
    }
    x->eigen.warm = true;
}

CORE void eigen_unbind(optc_binding *b, GpuCalls *x)
{
    Eigen *e = &x->eigen;
    solver_close(b, e);
    free(e->host);
    if (e->scratch)
        gpu_give(b->rule->engine, e->scratch, (size_t)e->bytes, b->gpu->stream);
}

/* Calls of cuSOLVER, and several of them side by side.
 *
 * Above 512 rows a call computes one matrix, and the host waits in it: it launches a few short kernels per column, so
 * neither the GPU nor the host is busy. So up to EIGEN_LANES calls run at a time, each in a lane: a thread, a handle, a
 * stream and a workspace. The lanes begin where the binding's stream is, and that stream waits for all of them. The
 * results do not depend on the number of lanes. */
#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

/* ---- handles ---- */
CORE int lane_open(const optc_binding *b, Eigen *e, EigenLane *l)
{
    l->handle = (cusolverDnHandle_t)spare_take(b->rule->engine->gpu, e->f.cusolverDnDestroy);
    int rc = l->handle ? 0 : e->f.cusolverDnCreate(&l->handle);
    l->handle = rc ? NULL : l->handle;
    if (!rc && (rc = e->f.cusolverDnCreateParams(&l->params)))
        l->params = NULL;
    return rc;
}

static void lane_close(const optc_binding *b, const Eigen *e, EigenLane *l)
{
    GpuEngine *g = b->rule->engine->gpu;
    if (l->params)
        e->f.cusolverDnDestroyParams(l->params);
    /* The lane's stream is destroyed here, and the caller may destroy the binding's. NVIDIA's documentation does not
     * tell which functions use the handle's stream. The next binding calls bufferSize before it sets another one. */
    if (l->handle) {
        (void)e->f.cusolverDnSetStream(l->handle, NULL);
        spare_keep(g, l->handle, e->f.cusolverDnDestroy);
    }
    if (l->ended)
        g->d->cuEventDestroy_v2(l->ended);
    if (l->own)
        g->d->cuStreamDestroy_v2(l->own);
    free(l->host);
    memset(l, 0, sizeof *l);
}

/* Lanes that cannot be opened are left out. */
CORE optc_status lanes_bind(const optc_binding *b, Eigen *e)
{
    enum { NO_TIMING = 2 };
    const Driver *d = b->rule->engine->gpu->d;
    EigenLane *l = &e->lane[0];
    l->host = e->host_bytes ? malloc(e->host_bytes) : NULL;
    if (e->host_bytes && !l->host)
        return no_memory("optc_bind");
    bool ok = e->most_lanes > 1 && d->cuEventCreate(&e->begins, NO_TIMING) == 0;
    e->begins = ok ? e->begins : NULL;
    for (e->lanes = 1; ok && e->lanes < e->most_lanes; e->lanes += ok) {
        l = &e->lane[e->lanes];
        l->host = malloc(e->host_bytes + 1);
        ok = l->host && lane_open(b, e, l) == 0;
        ok = ok && d->cuStreamCreate(&l->own, 1) == 0 && d->cuEventCreate(&l->ended, NO_TIMING) == 0;
        if (!ok)
            lane_close(b, e, l);
    }
    return OPTC_OK;
}

CORE void lanes_unbind(const optc_binding *b, Eigen *e)
{
    for (int k = 0; k < EIGEN_LANES; k++)
        lane_close(b, e, &e->lane[k]);
    if (e->begins)
        b->rule->engine->gpu->d->cuEventDestroy_v2(e->begins);
    e->begins = NULL;
}

/* ---- calls ---- */
static void *eigen_matrix(const GpuCalls *x, int set, int64_t i) { return (void *)(uintptr_t)eigen_at(x, set, i); }

CORE int lane_call(GpuCalls *x, const CallStep *s, int64_t from, int lane, CUstream stream, const char **call)
{
    Eigen *e = &x->eigen;
    EigenLane *l = &e->lane[lane];
    cudaDataType t = s->in_f32 ? CUDA_R_32F : CUDA_R_64F;
    void *work = (void *)(uintptr_t)(e->scratch + (CUdeviceptr)(s->work_at + lane * s->work_apart));
    if (!l->is_on || l->on != stream) {
        *call = "cusolverDnSetStream";
        l->is_on = false;
        int rc = e->f.cusolverDnSetStream(l->handle, stream);
        if (rc)
            return rc;
        l->on = stream;
        l->is_on = true;
    }
    /* a row-major lower triangle is a column-major upper one */
    *call = "cusolverDnXsyevBatched";
    return e->f.cusolverDnXsyevBatched(l->handle, l->params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, s->n, t,
                                       eigen_matrix(x, s->a, from), s->n, t, eigen_matrix(x, s->c, from), t, work,
                                       s->work, l->host, s->host, (int *)eigen_matrix(x, s->b, from), s->per_call);
}

/* n matrices in `lanes` lanes. rc: of the library's first call that failed, `call`; failed: of the driver's. */
typedef struct LaneWork {
    optc_binding *b;
    const CallStep *s;
    int64_t n;
    int lanes, rc[EIGEN_LANES], failed[EIGEN_LANES];
    const char *call[EIGEN_LANES];
} LaneWork;

/* A thread's part: every lanes-th call. `ended` is recorded after a failure too: the binding's stream waits for it. */
static void lane_run(void *with, int64_t lane)
{
    LaneWork *w = (LaneWork *)with;
    const GpuEngine *g = w->b->rule->engine->gpu;
    GpuCalls *x = w->b->gpu->calls;
    EigenLane *l = &x->eigen.lane[lane];
    int64_t per_call = w->s->per_call;
    const Driver *d = gpu_enter_aside(g);                  /* library calls may need the relaxed capture mode */
    int rc = 0, failed = lane ? d->cuStreamWaitEvent(l->own, x->eigen.begins, 0) : 0;
    for (int64_t i = lane * per_call; i < w->n && !rc && !failed; i += w->lanes * per_call)
        rc = lane_call(x, w->s, i, (int)lane, lane ? l->own : w->b->gpu->stream, &w->call[lane]);
    if (lane && !failed)
        failed = d->cuEventRecord(l->ended, l->own);
    gpu_leave(g, OPTC_OK);
    w->rc[lane] = rc;
    w->failed[lane] = failed;
}

CORE int lanes_call(optc_binding *b, const CallStep *s, int64_t n, const char **call, int *failed)
{
    const Driver *d = b->rule->engine->gpu->d;
    Eigen *e = &b->gpu->calls->eigen;
    LaneWork w;
    int rc = 0;
    memset(&w, 0, sizeof w);
    w.b = b;
    w.s = s;
    w.n = n;
    w.lanes = s->lanes < e->lanes ? s->lanes : e->lanes;
    w.lanes = s->captured || n <= s->per_call || w.lanes < 2 ? 1 : threads_allowed(w.lanes);
    *failed = w.lanes > 1 ? d->cuEventRecord(e->begins, b->gpu->stream) : 0;
    if (*failed)
        return 0;
    parallel_for(w.lanes, w.lanes, lane_run, &w);
    for (int k = 0; k < w.lanes; k++) {
        if (k && !w.failed[k])
            w.failed[k] = d->cuStreamWaitEvent(b->gpu->stream, e->lane[k].ended, 0);
        *failed = *failed ? *failed : w.failed[k];
        *call = rc || !w.rc[k] ? *call : w.call[k];
        rc = rc ? rc : w.rc[k];
    }
    return rc;
}

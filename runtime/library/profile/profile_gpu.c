/* Times of a GPU's runs: one event before the first launch and one after each. They are read after
 * they have passed, so a recorded run never waits for the device. */
#include "runtime/library/profile/profile.h"

#include <stdlib.h>

/* runs ahead of the device; further ones are counted, not timed */
enum { MOST_PENDING = 1024 };

/* ---- events ---- */
static CUevent take_event(EngineProfile *e, const Driver *d)
{
    CUevent x = NULL;
    if (e->nspare)
        return e->spare[--e->nspare];
    return d->cuEventCreate(&x, 0) ? NULL : x;
}

static void give_event(EngineProfile *e, const Driver *d, CUevent x)
{
    if (!x)
        return;
    if (e->nspare == e->spare_cap) {
        int cap = e->spare_cap ? 2 * e->spare_cap : 64;
        CUevent *more = realloc(e->spare, sizeof *more * (size_t)cap);
        if (!more) {
            d->cuEventDestroy_v2(x);
            return;
        }
        e->spare = more;
        e->spare_cap = cap;
    }
    e->spare[e->nspare++] = x;
}

static void drop_run(EngineProfile *e, const Driver *d, GpuRun *run)
{
    for (int i = 0; run && i < run->n; i++)
        give_event(e, d, run->mark[i].at);
    free(run);
}

/* ---- reading ---- */
/* Chains the times of runs: a float of milliseconds since the first event would lose microseconds
 * after a minute. */
static bool place_run(EngineProfile *e, const Driver *d, const GpuRun *run, double *begin)
{
    float ms = 0;
    *begin = (double)run->begin;
    if (e->last && d->cuEventElapsedTime(&ms, e->last, run->mark[0].at))
        return false;
    *begin = e->last ? e->last_ns + 1e6 * (double)ms : *begin;
    return true;
}

static void record_run(Recording *r, EngineProfile *e, const Driver *d, GpuRun *run)
{
    int thread = GPU_THREAD + e->engine->gpu->ordinal;
    double at;
    float ms = 0;
    ProfileSpan all = {.row = run->entry, .thread = thread, .ns = -1};
    bool ok = place_run(e, d, run, &at) &&
              !d->cuEventElapsedTime(&ms, run->mark[0].at, run->mark[run->n - 1].at);
    all.begin = (int64_t)at;
    all.ns = ok ? (int64_t)(1e6 * (double)ms) : -1;
    for (int i = 1; i < run->n; i++) {
        const GpuMark *m = &run->mark[i];
        ProfileSpan x = {.row = m->row,
                         .thread = thread,
                         .begin = (int64_t)at,
                         .ns = -1,
                         .bytes = m->bytes,
                         .flops = m->flops};
        if (ok && !d->cuEventElapsedTime(&ms, run->mark[i - 1].at, m->at)) {
            x.ns = (int64_t)(1e6 * (double)ms);
            at += 1e6 * (double)ms;
        }
        all.bytes += m->bytes;
        all.flops += m->flops;
        profile_add(r, &x);
    }
    profile_add(r, &all);
    if (!ok)
        return;
    give_event(e, d, e->last);
    e->last = run->mark[--run->n].at;
    e->last_ns = at;
}

/* inside gpu_enter */
static void profile_gpu_read(Recording *r, EngineProfile *e, bool wait)
{
    const Driver *d = e->engine->gpu->d;
    for (GpuRun *run; (run = e->first);) {
        CUevent end = run->mark[run->n - 1].at;
        if (!wait && d->cuEventQuery(end))
            return;
        if (wait)
            /* after a failure no time can be read, and the run has none */
            (void)d->cuEventSynchronize(end);
        e->first = run->next;
        e->end = e->first ? e->end : NULL;
        e->pending--;
        record_run(r, e, d, run);
        drop_run(e, d, run);
    }
}

void profile_gpu_drain(Recording *r, EngineProfile *e)
{
    if (!e->engine || !e->engine->gpu)
        return;
    const Driver *d = gpu_enter(e->engine->gpu);
    profile_gpu_read(r, e, true);
    for (int i = 0; i < e->nspare; i++)
        d->cuEventDestroy_v2(e->spare[i]);
    if (e->last)
        d->cuEventDestroy_v2(e->last);
    gpu_leave(e->engine->gpu, OPTC_OK);
    free(e->spare);
    e->spare = NULL;
    e->nspare = e->spare_cap = 0;
    e->last = NULL;
}

/* ---- one run ---- */
static GpuRun *open_run(Recording *r, EngineProfile *e, int entry, int items)
{
    profile_gpu_read(r, e, false);
    GpuRun *run = e->pending < MOST_PENDING
                      ? calloc(1, sizeof *run + sizeof *run->mark * (size_t)(items + 2))
                      : NULL;
    if (run)
        run->most = items + 2, run->entry = entry, run->begin = profile_now();
    return run;
}

void profile_gpu_launched(optc_binding *b, const LaunchList *list, int first, int n)
{
    const Driver *d = b->rule->engine->gpu->d;
    int entry, items;
    GpuRun **at = profile_run(b, &entry, &items);
    GpuMark mark = {.row = -1};
    if (n)
        profile_items(b, first, n, &mark);
    Recording *r = profile_lock();
    EngineProfile *e = r->on ? profile_engine(r, b->rule->engine) : NULL;
    if (e && !n && !*at)
        *at = open_run(r, e, entry, list && list->n > items ? list->n : items);
    GpuRun *run = *at;
    if (e && run && run->n < run->most && (mark.at = take_event(e, d))) {
        if (!d->cuEventRecord(mark.at, b->gpu->stream))
            run->mark[run->n++] = mark;
        else
            give_event(e, d, mark.at);
    }
    profile_unlock();
}

void profile_gpu_end(Recording *r, optc_binding *b, GpuRun *run, bool keep)
{
    GpuEngine *g = b->rule->engine->gpu;
    EngineProfile *e = r->on ? profile_engine(r, b->rule->engine) : NULL;
    int entry, items;
    *profile_run(b, &entry, &items) = NULL;
    if (e && keep && run && run->n > 1) {
        *(e->end ? &e->end->next : &e->first) = run;
        e->end = run;
        e->pending++;
        return;
    }
    if (e && keep && !b->recorded)                     /* it ran, and has no times */
        profile_add(r, &(ProfileSpan){.row = entry, .ns = -1});
    if (!run)
        return;
    const Driver *d = gpu_enter(g);
    if (e)
        drop_run(e, d, run);
    for (int i = 0; !e && i < run->n; i++)
        d->cuEventDestroy_v2(run->mark[i].at);
    if (!e)
        free(run);
    gpu_leave(g, OPTC_OK);
}

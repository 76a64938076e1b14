/* Tuning while a program runs: real steps try other launches. All launches give the same bits, so
 * the only risk is lost time, which is bounded.
 *
 * A binding has at most one candidate at a time: one stage with one other launch. A separate thread
 * compiles it. Then steps alternate between the candidate and the launch in use. Each is timed with
 * two events, which are read only after they have passed: the host never waits for the device.
 * Emitting and loading a candidate costs the host about a millisecond. A candidate that is clearly
 * slower is dropped at once. One that wins is adopted, and the thread writes it to the user's
 * results. The time lost in slower steps stays below a share of the time of all steps: above it, no
 * new candidate is tried. */
#include "runtime/library/rule/gpu_code.h"
#include "runtime/library/tune/launch_search.h"

#include "gen/gen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 12, FEW = 3, RING = 8 };

typedef struct Timing { CUevent begin, end; int side; bool used; } Timing;

typedef struct Live {
    double bound;                              /* share of the time that may be lost: 0.05 is 5 % */
    /* stages with a choice of launches; index of the current one */
    int *stage, nstage, at;
    /* by Stage.fn: the model's time over that of the launch in use */
    double *gain;
    Launch *launch_now;                        /* by Stage.fn: the launch in use */
    CUmodule *owned; int nowned;               /* modules of all launches that were tried */
    Launch *space; int nspace, next;           /* untried launches near the one in use */
    /* the candidate */
    int fn;
    Launch launch;
    CUmodule module;
    /* the step with the candidate; item NULL: no candidate */
    LaunchList launch_list;
    /* milliseconds of steps without [0] and with [1] the candidate */
    double t[2][SAMPLES]; int n[2];
    Timing ring[RING]; int slot;
    /* milliseconds: of all steps (untimed ones count as `usual`), lost in slower steps, of a usual
     * step */
    double total, lost, usual;
    int turn;
    bool done;
    /* the thread */
    pthread_t thread;
    bool busy;                                 /* started and not joined */
    int ready;                                 /* atomic */
    char *source, *cubin;
    Tuned result; bool save;
} Live;

/* ---- what is tried ---- */
static const Launch *launch_of(const optc_binding *b, int fn)
{
    return &b->gpu->live->launch_now[fn];
}

static void refill(optc_binding *b, Live *v)
{
    const Plan *p = b->rule->library->plan;
    int fn = v->stage[v->at];
    const Stage *s = plan_at(p, fn).stage;
    const Launch *now = launch_of(b, fn);
    v->nspace = v->next = 0;
    for (int k = 0; k < NKNOB; k++) {
        int value[MOST_VALUES], n = knob_values(stage_form(s), (Knob)k, value);
        for (int i = 0; i < n; i++) {
            Launch l = *now;
            l.v[k] = value[i];
            if (value[i] != now->v[k] && launch_valid(p, s, &l))
                v->space[v->nspace++] = l;
        }
    }
}

/* Chooses the next candidate. false: all stages are done. */
static bool choose(optc_binding *b, Live *v)
{
    while (v->next == v->nspace) {
        if (++v->at >= v->nstage) {
            v->at = v->nstage;
            return false;
        }
        refill(b, v);
    }
    v->fn = v->stage[v->at];
    v->launch = v->space[v->next++];
    return true;
}

/* ---- the thread: compiles candidates, writes results ---- */
static void *work(void *arg)
{
    optc_binding *b = arg;
    Live *v = b->gpu->live;
    size_t size;
    char *log = NULL, path[4200], why[400];
    if (v->save && tuned_path(path, sizeof path)) {
        TunedList one = {0};
        TunedMerge m;
        if (tuned_put(&one, &v->result))
            /* not an error if it cannot be written: this run uses it nevertheless */
            tuned_update(path, &one, TUNED_NEWEST, false, 2000, &m, why, sizeof why);
        tuned_free(&one);
    }
    v->save = false;
    if (v->source)
        v->cubin = nvrtc_build(nvrtc_get(NULL), v->source, "live", b->rule->engine->gpu->arch,
                               false, &size, &log);
    free(log);
    __atomic_store_n(&v->ready, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void start(optc_binding *b, Live *v)
{
    free(v->source);
    v->source = v->cubin = NULL;
    if (!v->done && choose(b, v))
        v->source =
            gpu_stage_source(b->rule, plan_at(b->rule->library->plan, v->fn).stage, &v->launch);
    else
        v->done = true;
    __atomic_store_n(&v->ready, 0, __ATOMIC_SEQ_CST);
    v->busy = (v->source || v->save) && pthread_create(&v->thread, NULL, work, b) == 0;
    v->done = v->done || !v->source;
}

/* ---- the candidate's step ---- */
/* Drops the candidate. Its module stays loaded until the binding is freed: a step may still be
 * running it, and unloading would wait for that. */
static void drop(optc_binding *b, Live *v)
{
    list_drop_graphs(b->rule->engine->gpu->d, &v->launch_list);
    CUmodule *more = v->module ? realloc(v->owned, sizeof *more * (size_t)(v->nowned + 1)) : NULL;
    if (more) {
        v->owned = more;
        more[v->nowned++] = v->module;
    }
    v->module = NULL;
    free(v->launch_list.item);
    v->launch_list = (LaunchList){.segment = v->launch_list.segment};
    /* steps still in flight are assumed to lose as much as the others */
    for (int i = 0; i < RING; i++) {
        if (v->ring[i].used && v->ring[i].side && v->n[0] && v->n[1])
            v->lost += fmax(0, median(v->t[1], v->n[1]) - median(v->t[0], v->n[0]));
        v->ring[i].used = false;
    }
    v->usual = v->n[0] ? median(v->t[0], v->n[0]) : v->usual;
    v->n[0] = v->n[1] = 0;
}

static void take(optc_binding *b, Live *v, const LaunchList *p)
{
    const Driver *d = b->rule->engine->gpu->d;
    CUfunction fn;
    pthread_join(v->thread, NULL);
    v->busy = false;
    const ProgStage *stage = program_stage(b->program, v->fn);
    bool ok = v->cubin && !d->cuModuleLoadData(&v->module, v->cubin) &&
              !d->cuModuleGetFunction(&fn, v->module, stage->kernel);
    free(v->source);
    free(v->cubin);
    v->source = v->cubin = NULL;
    v->launch_list.item = ok ? malloc(sizeof *v->launch_list.item * (size_t)(p->n + 1)) : NULL;
    if (!v->launch_list.item) {
        drop(b, v);
        return;
    }
    v->launch_list.n = p->n;
    v->launch_list.calls = p->calls;
    v->launch_list.apart = p->apart;
    for (int i = 0; i < p->n; i++) {
        v->launch_list.item[i] = p->item[i];
        if (!p->item[i].stage || p->item[i].stage->fn != v->fn)
            continue;
        int advance_t = p->item[i].args.advance_t;
        v->launch_list.item[i] = gpu_launch_item(b, p->item[i].op, &v->launch, fn);
        v->launch_list.item[i].args.advance_t = advance_t;
        ok = ok && v->launch_list.item[i].blocks;
    }
    if (!ok) {                                 /* more blocks than a launch can have */
        drop(b, v);
        return;
    }
    if (list_whole(p))                         /* a list of one launch has no graph */
        list_graph(b, &v->launch_list);
}

/* Makes the candidate the launch in use: its launch items replace the old ones. Its module stays
 * loaded as long as the binding. */
static void adopt(optc_binding *b, Live *v, LaunchList *p, double gain)
{
    LaunchList old = *p;
    memcpy(p->item, v->launch_list.item, sizeof *p->item * (size_t)p->n);
    p->segment = v->launch_list.segment, p->nsegment = v->launch_list.nsegment;
    p->nodes = v->launch_list.nodes;
    v->launch_list.segment = old.segment, v->launch_list.nsegment = old.nsegment;
    v->launch_now[v->fn] = v->launch;
    pthread_mutex_lock(&b->rule->library->gpu->lock);
    gpu_tuned_key(b->rule, v->fn, b->elems, &v->result.key);
    pthread_mutex_unlock(&b->rule->library->gpu->lock);
    v->result.launch = v->launch;
    /* Times are those of whole steps. The gain is relative to the model, so it includes the
     * previous launch's gain. */
    v->gain[v->fn] *= gain;
    v->result.ms = median(v->t[1], v->n[1]);
    v->result.model_ms = v->result.ms * v->gain[v->fn];
    v->result.samples = v->n[1];
    snprintf(v->result.label, sizeof v->result.label, "%.40s live", b->rule->library->rule->name);
    v->save = true;
    drop(b, v);
    /* the same stage again: the new launch has other neighbours */
    v->at--;
    v->next = v->nspace = 0;
}

static void judge(optc_binding *b, Live *v, LaunchList *p)
{
    if (v->n[0] < FEW || v->n[1] < FEW)
        return;
    double without = median(v->t[0], v->n[0]), with = median(v->t[1], v->n[1]);
    if (with > (1 + v->bound) * without ||
        (v->n[0] == SAMPLES && v->n[1] == SAMPLES && with > 0.995 * without))
        drop(b, v);
    else if (v->n[0] == SAMPLES && v->n[1] == SAMPLES)
        adopt(b, v, p, without / with);
}

static void collect(optc_binding *b, Live *v)
{
    const Driver *d = b->rule->engine->gpu->d;
    for (int i = 0; i < RING; i++) {
        Timing *x = &v->ring[i];
        float ms;
        if (!x->used || d->cuEventQuery(x->end) || d->cuEventElapsedTime(&ms, x->begin, x->end))
            continue;
        x->used = false;
        v->total += ms;
        if (v->n[x->side] < SAMPLES)
            v->t[x->side][v->n[x->side]++] = ms;
        if (x->side && v->n[0])
            v->lost += ms > median(v->t[0], v->n[0]) ? ms - median(v->t[0], v->n[0]) : 0;
    }
}

/* ---- the core calls these ---- */
static void live_close(optc_binding *b)
{
    Live *v = b->gpu->live;
    const Driver *d = b->rule->engine->gpu->d;
    if (!v)
        return;
    if (v->busy)
        pthread_join(v->thread, NULL);
    free(v->source);
    free(v->cubin);
    /* the last candidate won, and its result is not written yet */
    if (v->save) {
        v->source = NULL;
        work(b);
    }
    drop(b, v);
    for (int i = 0; i < RING; i++) {
        if (v->ring[i].begin)
            d->cuEventDestroy_v2(v->ring[i].begin);
        if (v->ring[i].end)
            d->cuEventDestroy_v2(v->ring[i].end);
    }
    for (int i = 0; i < v->nowned; i++)
        d->cuModuleUnload(v->owned[i]);
    free(v->owned);
    free(v);
    b->gpu->live = NULL;
}

/* The numbers of matrices changed: the candidate's list and graph have the old ones. Adopted
 * launches stay, with their
 * modules: the binding's lists contain their kernels. */
static void live_forget(optc_binding *b)
{
    if (b->gpu->live)
        drop(b, b->gpu->live);
}

/* Returns the launch list of this step, and starts its timing if there is a candidate; live_end
 * ends it. */
static LaunchList *live_begin(optc_binding *b, LaunchList *p)
{
    Live *v = b->gpu->live;
    collect(b, v);
    if (v->launch_list.item)
        judge(b, v, p);
    else
        /* there is no candidate, so this step is not timed */
        v->total += v->usual;
    if (!v->launch_list.item && !v->busy && (!v->done || v->save) && v->lost <= v->bound * v->total)
        start(b, v);
    if (!v->launch_list.item && v->busy && __atomic_load_n(&v->ready, __ATOMIC_SEQ_CST))
        take(b, v, p);
    if (v->done && !v->launch_list.item && !v->busy && !v->save)
        /* nothing is left to try: steps need no call of this file any more */
        b->gpu->begin = NULL;
    Timing *x = &v->ring[v->slot];
    v->turn = v->launch_list.item && !x->used ? !v->turn : 0;
    if (v->launch_list.item && !x->used) {
        x->side = v->turn;
        b->rule->engine->gpu->d->cuEventRecord(x->begin, b->gpu->stream);
    }
    return v->turn ? &v->launch_list : p;
}

static void live_end(optc_binding *b)
{
    Live *v = b->gpu->live;
    Timing *x = &v->ring[v->slot];
    if (!v->launch_list.item || x->used)
        return;
    x->used = b->rule->engine->gpu->d->cuEventRecord(x->end, b->gpu->stream) == 0;
    v->slot = (v->slot + 1) % RING;
}

void live_open(optc_binding *b)
{
    const char *env = getenv("OPTC_TUNE_LIVE");
    const Plan *p = b->rule->library->plan;
    char *end;
    double bound = env ? strtod(env, &end) : 0;
    if (bound <= 0 || b->rule->engine->library->untuned || !nvrtc_get(NULL) || p->nperiod)
        return;
    Live *v = calloc(1, sizeof *v);
    int *stage = TAKE(b, int, p->nfn);
    double *gain = TAKE(b, double, p->nfn);
    Launch *space = TAKE(b, Launch, NKNOB * MOST_VALUES), *now = TAKE(b, Launch, p->nfn);
    if (!v || !stage || !gain || !space || !now) {
        free(v);
        return;
    }
    *v = (Live){.bound = *end == '%' ? bound / 100 : bound,
                .stage = stage,
                .gain = gain,
                .space = space,
                .launch_now = now,
                .at = -1};
    memcpy(now, b->gpu->code->launch, sizeof(Launch) * (size_t)p->nfn);
    b->gpu->live = v;
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        if (!at.stage || !stage_tunes(at.stage) || strcmp(at.entry->name, "step") ||
            !b->units[at.stage->variant].elems)
            continue;
        const char *from;
        const Tuned *t = gpu_tuned(b->rule, f, b->elems, &from);
        /* a package's own launch may be in use instead of the tuned one */
        v->gain[f] =
            t && !memcmp(&t->launch, launch_of(b, f), sizeof t->launch) ? t->model_ms / t->ms : 1;
        v->stage[v->nstage++] = f;
    }
    const Driver *d = gpu_enter(b->rule->engine->gpu);
    for (int i = 0; i < RING; i++)
        if (d->cuEventCreate(&v->ring[i].begin, 0) || d->cuEventCreate(&v->ring[i].end, 0))
            v->done = true;
    b->gpu->begin = live_begin;
    b->gpu->end = live_end;
    b->gpu->forget = live_forget;
    b->gpu->close = live_close;
    v->done = v->done || !v->nstage;
    if (!v->done)
        start(b, v);
    gpu_leave(b->rule->engine->gpu, OPTC_OK);
}

const Launch *live_launches(const optc_binding *b, int *tried)
{
    *tried = b->gpu->live->nowned;
    return b->gpu->live->launch_now;
}

/* Searches for better launches of a stage (launch_search.h describes how). Needs a Meter; uses no
 * device itself. */
#include "runtime/library/internal.h"
#include "runtime/library/tune/launch_search.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

Space search_stage_space(const Plan *p, const Stage *st, int64_t elements)
{
    return (Space){stage_form(st), launch_model(p, st, elements), launch_rival(p, st, elements), p,
                   st};
}

bool search_valid(const Space *space, const Launch *l)
{
    return !space->stage || launch_valid(space->plan, space->stage, l);
}

int search_space(const Space *space, Launch **out)
{
    LaunchForm f = space->form;
    int value[NKNOB][MOST_VALUES], count[NKNOB], at[NKNOB] = {0}, n = 0, cap = 0;
    *out = NULL;
    for (int k = 0; k < NKNOB; k++)
        count[k] = knob_values(f, (Knob)k, value[k]);
    for (;;) {
        Launch l;
        for (int k = 0; k < NKNOB; k++)
            l.v[k] = value[k][at[k]];
        if (search_valid(space, &l)) {
            if (n == cap) {
                cap = cap ? cap * 2 : 256;
                Launch *more = realloc(*out, sizeof *more * (size_t)cap);
                if (!more)
                    return free(*out), *out = NULL, -1;
                *out = more;
            }
            (*out)[n++] = l;
        }
        int k = 0;
        while (k < NKNOB && ++at[k] == count[k])
            at[k++] = 0;
        if (k == NKNOB)
            return n;
    }
}

/* ---- what was tried ---- */
static int find(const Search *s, const Launch *l)
{
    for (int i = 0; i < s->n; i++)
        if (!memcmp(&s->trial[i].launch, l, sizeof *l))
            return i;
    return -1;
}

static int add(Search *s, const Launch *l)
{
    if (s->n == s->cap) {
        int cap = s->cap ? s->cap * 2 : 256;
        Tried *more = realloc(s->trial, sizeof *more * (size_t)cap);
        if (!more)
            return -1;
        s->trial = more;
        s->cap = cap;
    }
    s->trial[s->n] = (Tried){.launch = *l};
    return s->n++;
}

/* each: seconds of a sample in the last race; 0: none yet; broken: the device failed */
typedef struct Run {
    const Space *space; const Meter *m; Search *s; double t0, each; bool broken;
} Run;

/* Launches that may still be tried. */
static int trials_left(const Search *s)
{
    int n = s->trials ? s->trials : INT_MAX;
    for (int i = 0; s->trials && i < s->n; i++)
        n -= s->trial[i].samples || s->trial[i].failed;
    return n > 0 ? n : 0;
}

static bool over(const Run *r)
{
    return r->broken || (r->s->stop && *r->s->stop) ||
           r->m->now(r->m->ctx) - r->t0 > r->s->budget || !trials_left(r->s);
}

static void say(const Run *r, int tried, int of)
{
    if (r->s->progress)
        r->s->progress(r->s->progress_ctx, r->s, tried, of,
                       r->s->budget - (r->m->now(r->m->ctx) - r->t0));
}

/* Ratios of times. A win must be below better_by (above it is noise), after few samples below
 * clearly. A launch may take at most not_by of the model's time on each layout, and beside_not_by
 * at a neighbouring size. */
static const double better_by = 0.997, clearly = 0.97, not_by = 1.005, beside_not_by = 1.01;
enum { ENOUGH = 9, CONFIRM = 25, MOST_SAMPLES = 75 };

/* Most seconds of samples in one call of Meter.race: neither the budget nor `stop` is checked
 * during a call. */
static const double at_once = 0.5;

/* Races x against y within `limit` seconds. Returns the number of samples, at least one; 0: the
 * device failed. */
static int race_within(Run *r, double limit, int layout, const Launch *x, const Launch *y,
                       int samples, double *ms_x, double *ms_y)
{
    if (r->m->steady) {                                /* samples are short: all in one call */
        r->broken = !r->m->race(r->m->ctx, layout, x, y, samples, ms_x, ms_y);
        return r->broken ? 0 : samples;
    }
    double b[MOST_SAMPLES], ratio[MOST_SAMPLES], begun = r->m->now(r->m->ctx), ends = begun;
    int n = 0, parts = 0;
    for (int turn = 0; n < samples && (!n || (!over(r) && ends - begun + r->each <= limit));
         turn++) {
        double from = ends, most = r->each > 0 ? at_once / r->each : 1, t[2];
        /* the side that runs first alternates */
        int some = most > samples - n ? samples - n : most > 1 ? (int)most : 1, first = turn % 2;
        if (!r->m->race(r->m->ctx, layout, first ? y : x, first ? x : y, some, &t[first],
                        &t[!first]))
            return r->broken = true, 0;
        ends = r->m->now(r->m->ctx);
        r->each = (ends - from) / some;
        *ms_x = t[0];
        *ms_y = t[1];
        for (int i = 0; i < some; i++, n++) {
            b[n] = t[1];
            ratio[n] = t[0] / t[1];
        }
        parts = turn + 1;
    }
    if (parts > 1) {
        *ms_y = median(b, n);
        *ms_x = *ms_y * median(ratio, n);
    }
    return n;
}

/* Uses at most a twentieth of the budget, so that there is time to try several launches when steps
 * are long. */
static int race(Run *r, int layout, const Launch *x, const Launch *y, int samples, double *ms_x,
                double *ms_y)
{
    return race_within(r, r->s->budget / 20 > at_once ? r->s->budget / 20 : at_once, layout, x, y,
                       samples, ms_x, ms_y);
}

/* ratio: time of the first launch over the second's, over all layouts; to_model: the first one's
 * over the model's by layout, as far as the second's is known; worst: the largest of these */
typedef struct Duel { double ratio, to_model[MOST_LAYOUTS], worst; int samples; } Duel;

/* Races trials i and j with many samples on each layout from … to alone. If there was no time for
 * all samples, earlier times of the two count too, weighted by samples. */
static bool duel_on(Run *r, int i, int j, int from, int to, Duel *d)
{
    const Tried *x = &r->s->trial[i], *y = &r->s->trial[j];
    double a = 0, b = 0, ms_x, ms_y;
    *d = (Duel){.samples = CONFIRM};
    for (int k = from; k < to; k++) {
        int n = race(r, k, &x->launch, &y->launch, CONFIRM, &ms_x, &ms_y);
        if (!n)
            return false;
        if (n < CONFIRM && k < r->m->layouts && y->samples)
            ms_x = (ms_x * n + ms_y * x->ms / y->ms * x->samples) / (n + x->samples);
        d->samples = n < d->samples ? n : d->samples;
        a += ms_x;
        b += ms_y;
        d->to_model[k] = ms_x / ms_y * (y->to_model[k] > 0 ? y->to_model[k] : 1);
        d->worst = d->to_model[k] > d->worst ? d->to_model[k] : d->worst;
    }
    d->ratio = a / b;
    return true;
}

/* The first launch won by more than noise; after few samples it must win clearly. */
static bool won(const Run *r, int i, const Duel *d)
{
    return d->ratio <=
           (d->samples == CONFIRM || r->s->trial[i].samples >= ENOUGH ? better_by : clearly);
}

static bool duel(Run *r, int i, int j, Duel *d) { return duel_on(r, i, j, 0, r->m->layouts, d); }

/* Stores the outcome of a duel in the trial. */
static void note(Run *r, int i, const Duel *d, double ms)
{
    Tried *t = &r->s->trial[i];
    memcpy(t->to_model, d->to_model, sizeof t->to_model);
    t->samples += d->samples;
    t->uneven = d->worst > not_by;
    t->ms = t->uneven ? r->s->model_ms * d->worst : ms;
}

/* Races the launch against the model at the neighbouring sizes, once. */
static void look_beside(Run *r, int i)
{
    Tried *t = &r->s->trial[i];
    Duel d;
    if (t->looked || !r->m->widen ||
        !duel_on(r, i, r->s->model, r->m->layouts, r->m->widen(r->m->ctx), &d))
        return;
    t->looked = true;
    if (d.worst <= beside_not_by)
        return;
    t->uneven = true;
    t->ms = r->s->model_ms * d.worst;
}

/* A new best must beat the old one again, with more samples: the luckiest of many launches always
 * looks better than it is. */
static void crown(Run *r, int i)
{
    Search *s = r->s;
    Duel d;
    if (!duel(r, i, s->best, &d))
        return;
    note(r, i, &d, s->trial[s->best].ms * d.ratio);
    if (won(r, i, &d) && !s->trial[i].uneven)
        look_beside(r, i);
    if (won(r, i, &d) && !s->trial[i].uneven && !r->broken)
        s->best = i;
}

/* Measures a trial against the best launch so far (against itself if it is the first). */
static void measure(Run *r, int i, int samples)
{
    Search *s = r->s;
    Tried *t = &s->trial[i], *best = &s->trial[s->best];
    double a, b;
    samples = race(r, -1, &t->launch, &best->launch, samples, &a, &b);
    if (!samples)
        return;
    if (i == s->model && !t->samples) {
        t->ms = s->model_ms = a;
    } else if (i != s->best) {
        /* weighted by samples, so that a lucky time from few samples is corrected */
        double now = best->ms * a / b;
        t->ms = t->samples ? (t->ms * t->samples + now * samples) / (t->samples + samples) : now;
    }
    t->samples += samples;
    if (i != s->best && t->ms < (samples >= ENOUGH ? better_by : clearly) * best->ms)
        crown(r, i);
}

/* A launch slower than this multiple of the best is not timed again. The margin is several times
 * the error of that many samples. */
static double hopeless(const Run *r, int samples)
{
    double by = samples < 3 ? 0.3 : samples < ENOUGH ? 0.15 : samples < CONFIRM ? 0.06 : 0.03;
    return 1 + (r->m->steady ? by / 2 : by);
}

static bool fit(const Tried *t) { return !t->failed && !t->uneven; }

/* Measures the trials of `list` that compile. One that is far behind after the first samples gets
 * no more. from, of: for progress, the position of the list in all. */
static void measure_all(Run *r, const int *list, int n, int samples, int from, int of)
{
    for (int i = 0; i < n && !over(r); i++) {
        const Tried *t = &r->s->trial[list[i]];
        int look = t->samples ? 0 : r->m->steady ? 1 : samples;
        if (fit(t) && look)
            measure(r, list[i], look);
        if (fit(t) && look < samples &&
            t->ms < hopeless(r, t->samples) * r->s->trial[r->s->best].ms && !over(r))
            measure(r, list[i], samples - look);
        say(r, from + i + 1, of);
    }
}

static void ready_batch(Run *r, const int *list, int n)
{
    Launch l[SEARCH_BATCH] = {0};
    bool ok[SEARCH_BATCH];
    for (int i = 0; i < n; i++)
        l[i] = r->s->trial[list[i]].launch;
    r->m->ready(r->m->ctx, l, n, ok);
    for (int i = 0; i < n; i++)
        r->s->trial[list[i]].failed = !ok[i];
}

/* Announces launches, so that they are compiled while others are timed. */
static void prepare(Run *r, const int *list, int n)
{
    Launch l[SEARCH_AHEAD];
    n = n < SEARCH_AHEAD ? n : SEARCH_AHEAD;
    for (int i = 0; i < n; i++)
        l[i] = r->s->trial[list[i]].launch;
    if (n > 0 && r->m->prepare)
        r->m->prepare(r->m->ctx, l, n);
}

/* Without `prepare` launches are made ready one by one, so that a short budget tries more of
 * them. */
static int batch_of(const Run *r) { return r->m->prepare ? SEARCH_BATCH : 1; }

/* Prepares a batch; keeps those that compile in list and returns their number. */
static int make_ready(Run *r, int *list, int n)
{
    int kept = 0;
    ready_batch(r, list, n);
    for (int i = 0; i < n; i++)
        if (!r->s->trial[list[i]].failed)
            list[kept++] = list[i];
    return kept;
}

static void sort_by_time(const Search *s, int *list, int n)
{
    for (int i = 1; i < n; i++) {
        int x = list[i], j = i;
        for (; j > 0 && s->trial[x].ms < s->trial[list[j - 1]].ms; j--)
            list[j] = list[j - 1];
        list[j] = x;
    }
}

/* Successive halving: few samples for many launches, then many samples for few. Launches are
 * prepared and timed batch by batch, so that a short budget still times some of them. */
static void halve(Run *r, int *list, int n, int samples)
{
    int batch = batch_of(r), left = trials_left(r->s);
    /* launches that will not be tried are not compiled */
    n = n < left ? n : left;
    for (int at = 0; at < n && !over(r); at += batch) {
        int part[SEARCH_BATCH], k = n - at < batch ? n - at : batch;
        memcpy(part, list + at, sizeof *part * (size_t)k);
        prepare(r, list + at, n - at);
        k = make_ready(r, part, k);
        if (!over(r))
            prepare(r, list + at + batch, n - at - batch);
        say(r, at, n);
        measure_all(r, part, k, samples, at, n);
    }
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (r->s->trial[list[i]].samples && !r->s->trial[list[i]].failed)
            list[kept++] = list[i];
    n = kept;
    sort_by_time(r->s, list, n);
    while (n > 1 && !over(r)) {
        n = n > 12 ? (n + 2) / 3 : n > 4 ? 4 : n;
        while (n > 4 &&
               r->s->trial[list[n - 1]].ms > hopeless(r, samples) * r->s->trial[list[0]].ms)
            n--;
        samples = samples * 3 < MOST_SAMPLES ? samples * 3 : MOST_SAMPLES;
        measure_all(r, list, n, samples, 0, n);
        sort_by_time(r->s, list, n);
        if (n <= 4)
            break;
    }
}

/* ---- seeds ---- */
static int propose(Search *s, int *list, int n, int most, const Launch *l)
{
    if (n == most || find(s, l) >= 0)
        return n;
    int i = add(s, l);
    if (i >= 0)
        list[n++] = i;
    return n;
}

static bool may_try(const Run *r, const Launch *l)
{
    return search_valid(r->space, l) && (!r->m->worth || r->m->worth(r->m->ctx, l));
}

static int all_to_try(const Run *r, Launch **all)
{
    int n = 0, count = search_space(r->space, all);
    for (int i = 0; i < count; i++)
        if (may_try(r, &(*all)[i]))
            (*all)[n++] = (*all)[i];
    return count < 0 ? count : n;
}

/* How far the bytes in flight of a multiprocessor are from 64 KiB, as a factor of at least 1. An
 * estimate: the number of registers is unknown. */
static double under_way(const Space *space, const Launch *l)
{
    const Plan *p = space->plan;
    const Stage *st = space->stage;
    int loads = 0;
    if (!st)
        return 1;
    for (int i = 0; i < st->nload; i++)
        loads +=
            p->mem[st->load[i].mem].dom == ELEM ? type_info[p->mem[st->load[i].mem].type].bytes : 0;
    int blocks = l->v[KNOB_BLOCKS] ? l->v[KNOB_BLOCKS] : 1024 / l->v[KNOB_THREADS];
    double bytes =
        (double)blocks * l->v[KNOB_THREADS] * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS] * loads;
    double want = 64 * 1024;
    /* both too few and too many are bad */
    return bytes < want ? want / bytes : bytes / want;
}

static int propose_about(Run *r, int *list, int n, int most, const Launch *at)
{
    for (int k = 0; k < NKNOB; k++) {
        int v[MOST_VALUES], c = knob_values(r->space->form, (Knob)k, v);
        for (int i = 0; i < c; i++) {
            Launch l = *at;
            l.v[k] = v[i];
            if (may_try(r, &l))
                n = propose(r->s, list, n, most, &l);
        }
    }
    return n;
}

static int seeds(Run *r, int *list, int most)
{
    Search *s = r->s;
    int n = propose_about(r, list, 0, most, &r->space->model);
    n = propose_about(r, list, n, most, &r->space->rival);
    Launch *all;
    int count = all_to_try(r, &all);
    while (n < most && count > 0) {
        int pick = -1;
        double least = 0;
        for (int i = 0; i < count; i++) {
            double d = under_way(r->space, &all[i]);
            if (find(s, &all[i]) < 0 && all[i].v[KNOB_LOAD] == 0 && all[i].v[KNOB_STORE] == 0 &&
                all[i].v[KNOB_GRID] == 0 && (pick < 0 || d < least)) {
                pick = i;
                least = d;
            }
        }
        if (pick < 0)
            break;
        n = propose(s, list, n, most, &all[pick]);
    }
    free(all);
    return n;
}

/* ---- climbing ---- */
static int neighbours(Run *r, const Launch *from, int *list, int most)
{
    Launch *all;
    int n = 0, count = all_to_try(r, &all);
    for (int far = 1; far <= 2; far++)
        for (int i = 0; i < count && n < most; i++) {
            int apart = 0;
            for (int k = 0; k < NKNOB; k++)
                apart += all[i].v[k] != from->v[k];
            if (apart == far)
                n = propose(r->s, list, n, most, &all[i]);
        }
    free(all);
    return n;
}

static void climb(Run *r)
{
    Search *s = r->s;
    int list[64], still = 0;
    for (;;) {
        int was = s->best, n = neighbours(r, &s->trial[was].launch, list, 64);
        if (!n || over(r))
            break;
        halve(r, list, n, 3);
        if (s->best == was && ++still == 2)
            /* two rounds of up to 64 neighbours, and none is better */
            break;
        still = s->best == was ? still : 0;
    }
}

static bool everything(Run *r)
{
    Launch *all;
    int count = all_to_try(r, &all), n = 0;
    int *list = count > 0 ? malloc(sizeof *list * (size_t)count) : NULL;
    for (int i = 0; list && i < count; i++)
        n = propose(r->s, list, n, count, &all[i]);
    if (list)
        halve(r, list, n, 3);
    free(all);
    free(list);
    return list != NULL;
}

/* Measures the model whatever the budget is, because all results are relative to it; then the
 * launch that steps use and that of an earlier run, one of which is most likely the best. */
static bool begin(Run *r)
{
    Search *s = r->s;
    const Launch *first[] = {s->used, s->known};
    int list[3], n = 0;
    Launch model = r->space->model;
    s->model = s->best = list[n++] = add(s, &model);
    for (int i = 0; i < 2; i++)
        if (first[i] && may_try(r, first[i]) && find(s, first[i]) < 0)
            list[n++] = add(s, first[i]);
    for (int i = 0; i < n; i++)
        if (list[i] < 0)
            return false;
    bool together = batch_of(r) > 1;
    ready_batch(r, list, together ? n : 1);
    if (s->trial[s->model].failed)
        return false;
    double a, b;
    /* warm-up: the first are slower */
    int warm = race_within(r, at_once, -1, &model, &model, ENOUGH, &a, &b);
    if (warm && warm < ENOUGH && 4 * r->each > s->budget) {
        /* there is no time for other samples: use those of the warm-up */
        s->trial[s->model].ms = s->model_ms = a;
        s->trial[s->model].samples = warm;
    } else if (warm) {
        measure(r, s->model, CONFIRM);
    }
    for (int i = 1; i < n && !over(r); i++) {
        if (!together)
            ready_batch(r, list + i, 1);
        if (!s->trial[list[i]].failed)
            measure(r, list[i], ENOUGH);
    }
    return true;
}

/* The fastest launch that was in a duel and was not rejected; the model, if there is none. */
static int next_best(const Search *s)
{
    int best = s->model;
    for (int i = 0; i < s->n; i++)
        if (s->trial[i].to_model[0] > 0 && !s->trial[i].uneven && !s->trial[i].failed &&
            s->trial[i].ms < better_by * s->model_ms &&
            (best == s->model || s->trial[i].ms < s->trial[best].ms))
            best = i;
    return best;
}

bool search_run(const Space *space, const Meter *m, Search *s)
{
    Run r = {.space = space, .m = m, .s = s, .t0 = m->now(m->ctx)};
    int list[48];
    s->n = 0;
    s->used_ms = 0;
    s->finished = false;
    if (!begin(&r))
        return false;
    if (!r.broken && s->exhaustive) {
        if (!everything(&r))
            return false;
    } else if (!r.broken) {
        halve(&r, list, seeds(&r, list, 48), 3);
        climb(&r);
    }
    s->finished = !over(&r);
    /* The best launch must beat the model directly once more; after a draw the model wins. If it
     * fails, the next best one gets the same test. */
    Duel d;
    while (s->best != s->model && duel(&r, s->best, s->model, &d)) {
        note(&r, s->best, &d, s->model_ms * d.ratio);
        if (won(&r, s->best, &d) && !s->trial[s->best].uneven)
            /* next_best may return a launch that was not measured there */
            look_beside(&r, s->best);
        if (won(&r, s->best, &d) && !s->trial[s->best].uneven)
            break;
        s->trial[s->best].uneven = true;
        s->best = next_best(s);
    }
    int used = s->used ? find(s, s->used) : s->model;
    if (used == s->best || used == s->model)
        s->used_ms = s->trial[used].ms;
    else if (used >= 0 && !s->trial[used].failed && duel(&r, s->best, used, &d))
        s->used_ms = s->trial[s->best].ms / d.ratio;
    s->spent = m->now(m->ctx) - r.t0;
    return !r.broken;
}

void search_free(Search *s)
{
    free(s->trial);
    s->trial = NULL;
    s->n = s->cap = 0;
}

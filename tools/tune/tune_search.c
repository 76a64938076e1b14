#include "tools/tune/tune_search.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static void progress(void *ctx, const Search *s, int tried, int of, double left)
{
    const TuneRun *r = ctx;
    char t[32];
    if (!r->shows)
        return;
    fputs("\r\033[K", stderr);
    cli_put_clean(stderr, r->label, false);
    fprintf(stderr, " 2^%d [%d/%d] %d tried (%d/%d), %.0f s left, best %s",
            (int)lround(log2((double)r->elements)), r->nth, r->of, s->n, tried, of,
            left > 0 ? left : 0, cli_time(t, s->trial[s->best].ms * 1e-3));
    if (s->model_ms > 0)
        fprintf(stderr, " (%+.1f %%)", 100 * (s->trial[s->best].ms / s->model_ms - 1));
    fflush(stderr);
}

void tune_clear_progress(const TuneRun *r)
{
    if (r->shows)
        fputs("\r\033[K", stderr);
}

/* ---- earlier results ---- */
static bool same_key(const TunedKey *a, const TunedKey *b) { return tuned_compare(a, b) == 0; }

/* The end of a label: the search was stopped, and the next run continues it. */
static const char unfinished[] = " (unfinished)";

/* A result of an older version may have a launch that is not valid any more. Steps do not use it,
 * nor does the search.
 * */
static const Launch *usable(const Tuned *t, const Space *space)
{
    return t && search_valid(space, &t->launch) ? &t->launch : NULL;
}

bool tune_known(const TuneRun *r, const TunedKey *k, const Space *space)
{
    const Tuned *t = tuned_find(&r->known, k);
    return usable(t, space) && same_key(&t->key, k) && !strstr(t->label, unfinished);
}

/* ---- storing ---- */
/* A line for each launch that was tried: for people and scripts, no command reads it. */
static void log_tried(const TuneRun *r, const TunedKey *k, const Search *s, const char *label)
{
    for (int i = 0; i < s->n; i++) {
        const Tried *t = &s->trial[i];
        if (!t->samples && !t->failed)
            continue;                      /* proposed, never tried */
        fprintf(r->log, "device %s | units %d | driver %d | %s %s %s 2^%d", k->device, k->units,
                k->driver, form_name[k->form], k->types, k->stage, k->bucket);
        for (int knob = 0; knob < NKNOB; knob++)
            if (knob_text(k->form, (Knob)knob))
                fprintf(r->log, " %s=%d", knob_text(k->form, (Knob)knob), t->launch.v[knob]);
        if (t->failed)
            fputs(" ms=failed", r->log);
        else
            fprintf(r->log, " ms=%.17g", t->ms);
        fprintf(r->log, " n=%d from=%s # %s\n", t->samples, i == s->model ? "model" : "search",
                label);
    }
    fflush(r->log);
}

static bool keep(TuneRun *r, const TunedKey *k, const Search *s, const char *label)
{
    char why[400];
    const Tried *best = &s->trial[s->best];
    Tuned t = {.key = *k,
               .launch = best->launch,
               .ms = best->ms,
               .model_ms = s->model_ms,
               .samples = best->samples};
    snprintf(t.label, sizeof t.label, "%.64s%s", label, s->finished ? "" : unfinished);
    if (r->dry)
        return true;
    TunedList one = {0};
    TunedMerge m;
    /* known: a rule may be named twice */
    bool ok = tuned_put(&one, &t) && tuned_put(&r->known, &t);
    if (!ok)
        snprintf(why, sizeof why, "%.90s: out of memory", label);
    ok = ok && tuned_update(r->path, &one, TUNED_NEWEST, false, TUNE_WAIT_MS, &m, why, sizeof why);
    if (!ok)
        cli_error("tune: %s", why);
    tuned_free(&one);
    return ok;
}

static int tried(const Search *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->trial[i].samples > 0;
    return n;
}

static void report(const TuneRun *r, const TunedKey *k, const Search *s, double bytes,
                   const char *label)
{
    char t[32], l[120], size[24];
    const Tried *best = &s->trial[s->best];
    tune_clear_progress(r);
    snprintf(size, sizeof size, "2^%d", k->bucket);
    printf("  %-28s %-5s %-6s %10s %7.0f GB/s %+6.1f %%", label, form_name[k->form], size,
           cli_time(t, best->ms * 1e-3), bytes / best->ms * 1e-6,
           100 * (best->ms / s->model_ms - 1));
    if (s->used_ms > 0)
        printf(" %+6.1f %%", 100 * (best->ms / s->used_ms - 1));
    else
        printf("        -");
    printf("  %4d tried in %3.0f s%s  %s\n", tried(s), s->spent, s->finished ? " " : "*",
           s->best == s->model ? "as the model has it"
                               : tune_launch_text(l, k->form, &best->launch));
    fflush(stdout);
}

/* Other processes used the machine: the result would be wrong and stay in the file, so it is not
 * stored. */
static bool crowded(TuneRun *r, const Meter *m)
{
    double share = m->busy && !r->dry && !r->crowd ? m->busy(m->ctx) : 0;
    r->busy += share > TOO_BUSY;
    r->busiest = share > r->busiest ? share : r->busiest;
    return share > TOO_BUSY;
}

bool tune_search(TuneRun *r, const TunedKey *k, const Space *space, const Meter *m, double bytes,
                 double budget, const char *label)
{
    int lo = 0, hi = INT_MAX;
    if (space->stage)
        launch_range(space->plan, space->stage, r->elements, &lo, &hi);
    tuned_reach(k, &lo, &hi);
    Search s = {.budget = budget,
                .trials = r->most,
                .exhaustive = r->exhaustive,
                .stop = r->stop,
                .progress = progress,
                .progress_ctx = r};
    /* an earlier result for this size or the nearest one, in this file */
    s.known = usable(tuned_find(&r->known, k), space);
    /* the result that steps use now, from all lists */
    s.used = usable(tuned_look(&r->engine->library->tuned, k, lo, hi, NULL), space);
    r->label = label;
    errno = 0;
    bool ok = search_run(space, m, &s);
    if (!ok && !*r->stop && errno == ENOMEM)
        cli_error("tune: %s: out of memory", label);
    else if (!ok && !*r->stop)
        cli_error("tune: %s: %s", label,
                  *optc_message() ? optc_message()
                                  : "the model's launch could not be built or timed");
    r->late += ok && !s.finished && tried(&s) < 2;
    if (ok && (s.finished || tried(&s) > 1)) {
        report(r, k, &s, bytes, label);
        if (r->log)
            log_tried(r, k, &s, label);
        if (crowded(r, m)) {
            search_free(&s);
            return true;
        }
        r->found++;
        r->better += s.best != s.model;
        r->gain += log(s.model_ms / s.trial[s.best].ms);
        ok = keep(r, k, &s, label);
    }
    search_free(&s);
    return ok || *r->stop;
}

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
    for (int i = 0; i < s->n; i++) {
        Trial x = {.key = *k,
                   .launch = s->trial[i].launch,
                   .ms = s->trial[i].failed || !s->trial[i].samples ? INFINITY : s->trial[i].ms,
                   .samples = s->trial[i].samples ? s->trial[i].samples : 1,
                   .model = i == s->model};
        if (!s->trial[i].samples && !s->trial[i].failed)
            continue;                      /* proposed, never tried */
        snprintf(x.label, sizeof x.label, "%.79s", label);
        if (!trials_append(r->trials, &x, why, sizeof why)) {
            cli_warning("tune: %s", why);
            break;
        }
    }
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

/* The fastest launches of earlier runs, each once, the best first. */
enum { BEFORE = 6 };
static int best_before(const TuneRun *r, const TunedKey *k, Launch out[BEFORE])
{
    double ms[BEFORE];
    int n = 0;
    for (const Trial *t = NULL; (t = trials_of(&r->tried, k, t));) {
        int at = 0;
        while (at < n && memcmp(&out[at], &t->launch, sizeof *out))
            at++;
        if (!isfinite(t->ms) || (at < n ? t->ms >= ms[at] : n == BEFORE && t->ms >= ms[n - 1]))
            continue;
        /* its index: that of the same launch, or a new one, or the last one's */
        at = at < n ? at : n < BEFORE ? n++ : n - 1;
        for (; at > 0 && t->ms < ms[at - 1]; at--) {
            ms[at] = ms[at - 1];
            out[at] = out[at - 1];
        }
        ms[at] = t->ms;
        out[at] = t->launch;
    }
    return n;
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
    Launch before[BEFORE + 1];
    /* results for this size or the nearest one: in this file */
    const Launch *near = usable(tuned_find(&r->known, k), space);
    if (near)
        before[s.nknown++] = *near;
    s.nknown += best_before(r, k, before + s.nknown);
    s.known = before;
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

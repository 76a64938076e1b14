/* optc tune: searches launches for rules on a device and keeps what is better. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tune.h"

#include "emit.h"
#include "gpu.h"
#include "search.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SIZES = 16 };

typedef struct Run {
    CompileOpts compile;
    const char *device, *into, *stage;
    double budget; int most;       /* for a rule; for a search, 0: as many as there is time for */
    bool exhaustive, again, dry, json, crowd;
    int64_t size[MOST_SIZES]; int nsize;
    char path[TUNE_PATH], trials[TUNE_PATH];
    TunedList known;               /* the user's file as it was */
    TrialList tried;
    optc_engine *engine;
    Workers *workers;              /* compile candidates for a GPU */
    bool shows;                    /* a progress line on a terminal */
    /* of the rule at hand: when, and searches still to come; what one does not spend the others have */
    double begun; int left;
    /* what is searched now */
    const char *label; int64_t elements; int nth, of;
    /* small: no memory for them; without: rules that have no such stage */
    int found, skipped, late, small, better, without, busy; double gain, busiest;
} Run;

static volatile int stop;
static void on_interrupt(int sig) { (void)sig; stop = 1; }

static bool lib(int s)
{
    if (s != OPTC_OK)
        cli_error("tune: %s", optc_message());
    return s == OPTC_OK;
}

static void progress(void *ctx, const Search *s, int tried, int of, double left)
{
    const Run *r = ctx;
    char t[32];
    if (!r->shows)
        return;
    fputs("\r\033[K", stderr);
    cli_put_clean(stderr, r->label, false);
    fprintf(stderr, " 2^%d [%d/%d] %d tried (%d/%d), %.0f s left, best %s", (int)lround(log2((double)r->elements)),
            r->nth, r->of, s->n, tried, of, left > 0 ? left : 0, cli_time(t, s->trial[s->best].ms * 1e-3));
    if (s->model_ms > 0)
        fprintf(stderr, " (%+.1f %%)", 100 * (s->trial[s->best].ms / s->model_ms - 1));
    fflush(stderr);
}

static void clear_progress(const Run *r)
{
    if (r->shows)
        fputs("\r\033[K", stderr);
}

/* ---- what was found before ---- */
static bool same_key(const TunedKey *a, const TunedKey *b) { return tuned_compare(a, b) == 0; }

/* at the end of a label: a search that was stopped, to be gone on with */
static const char unfinished[] = " (unfinished)";

/* Results of a version that tried other launches may be here still: steps do not use them, and neither do we. */
static const Launch *usable(const Tuned *t, const Space *space)
{
    return t && search_valid(space, &t->launch) ? &t->launch : NULL;
}

static bool known(const Run *r, const TunedKey *k, const Space *space)
{
    const Tuned *t = tuned_find(&r->known, k);
    return usable(t, space) && same_key(&t->key, k) && !strstr(t->label, unfinished);
}

/* ---- keeping ---- */
static bool keep(Run *r, const TunedKey *k, const Search *s, const char *label)
{
    char why[400];
    const Tried *best = &s->trial[s->best];
    Tuned t = {.key = *k, .launch = best->launch, .ms = best->ms, .model_ms = s->model_ms, .samples = best->samples};
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
    bool ok = tuned_put(&one, &t) && tuned_put(&r->known, &t);           /* known: the same may be asked for twice */
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

static void report(const Run *r, const TunedKey *k, const Search *s, double bytes, const char *label)
{
    char t[32], l[120], size[24];
    const Tried *best = &s->trial[s->best];
    clear_progress(r);
    snprintf(size, sizeof size, "2^%d", k->bucket);
    printf("  %-28s %-5s %-6s %10s %7.0f GB/s %+6.1f %%", label, form_name[k->form], size, cli_time(t, best->ms * 1e-3),
           bytes / best->ms * 1e-6, 100 * (best->ms / s->model_ms - 1));
    if (s->used_ms > 0)
        printf(" %+6.1f %%", 100 * (best->ms / s->used_ms - 1));
    else
        printf("        -");
    printf("  %4d tried in %3.0f s%s  %s\n", tried(s), s->spent, s->finished ? " " : "*",
           s->best == s->model ? "as the model has it" : tune_launch_text(l, k->form, &best->launch));
    fflush(stdout);
}

/* The fastest launches of earlier runs, each once, the best first. */
enum { BEFORE = 6 };
static int best_before(const Run *r, const TunedKey *k, Launch out[BEFORE])
{
    double ms[BEFORE];
    int n = 0;
    for (const Trial *t = NULL; (t = trials_of(&r->tried, k, t));) {
        int at = 0;
        while (at < n && memcmp(&out[at], &t->launch, sizeof *out))
            at++;
        if (!isfinite(t->ms) || (at < n ? t->ms >= ms[at] : n == BEFORE && t->ms >= ms[n - 1]))
            continue;
        /* its place: the one it has, a new one, the last one's */
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

/* One search, from its key to its result. */
/* Others had the machine: what came out is theirs, and would stay. */
static bool crowded(Run *r, const Meter *m)
{
    double share = m->busy && !r->dry && !r->crowd ? m->busy(m->ctx) : 0;
    r->busy += share > TOO_BUSY;
    r->busiest = share > r->busiest ? share : r->busiest;
    return share > TOO_BUSY;
}

static bool search_one(Run *r, const TunedKey *k, const Space *space, const Meter *m, double bytes, double budget,
                       const char *label)
{
    int lo = 0, hi = INT_MAX;
    if (space->stage)
        launch_range(space->plan, space->stage, r->elements, &lo, &hi);
    tuned_reach(k, &lo, &hi);
    Search s = {.budget = budget,
                .trials = r->most,
                .exhaustive = r->exhaustive,
                .stop = &stop,
                .said = progress,
                .said_ctx = r};
    Launch before[BEFORE + 1];
    /* this size or the nearest: in this file … */
    const Launch *near = usable(tuned_find(&r->known, k), space);
    if (near)
        before[s.nknown++] = *near;
    s.nknown += best_before(r, k, before + s.nknown);
    s.known = before;
    /* … and in all that steps use */
    s.used = usable(tuned_look(&r->engine->more->tuned, k, lo, hi, NULL), space);
    r->label = label;
    errno = 0;
    bool ok = search_run(space, m, &s);
    if (!ok && !stop && errno == ENOMEM)
        cli_error("tune: %s: out of memory", label);
    else if (!ok && !stop)
        cli_error("tune: %s: %s", label,
                  *optc_message() ? optc_message() : "the model's launch could not be built or timed");
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
    return ok || stop;
}

/* ---- devices ---- */
/* Seconds for the next search; 0: what came before took them all, and it does not take place. */
static double share(Run *r)
{
    double rest = r->budget - (cli_now() - r->begun);
    if (rest > 0)
        return rest / r->left--;
    r->late++;
    r->left--;
    return 0;
}

/* No memory for this size is no reason not to tune for the others. */
static bool opened(Run *r, int status, const char *label)
{
    char size[32];
    r->small += status == OPTC_ERROR_MEMORY;
    if (status == OPTC_ERROR_MEMORY)
        cli_warning("tune: %s at %s elements is left out: %s", label, cli_size(size, r->elements), optc_message());
    return status == OPTC_ERROR_MEMORY || lib(status);
}

static const char *kernel_name(const optc_rule *rule, StageAt at)
{
    return program_stage(rule->program, at.stage->fn)->kernel;
}

/* It has something to choose, and is asked for: by its name or the beginning of it, of which step_1 is not one of
 * step_12's. */
static bool to_tune(const Run *r, optc_rule *rule, StageAt at)
{
    if (!at.stage || !stage_tunes(at.stage))
        return false;
    size_t n = r->stage ? strlen(r->stage) : 0;
    const char *name = kernel_name(rule, at);
    return !n || (!strncmp(name, r->stage, n) &&
                  !(isdigit((unsigned char)r->stage[n - 1]) && isdigit((unsigned char)name[n])));
}

/* Stage by stage, each at all sizes: what was compiled for one serves the others. */
static bool tune_gpu(Run *r, optc_rule *rule, const char *name)
{
    GpuTuner *u = NULL;
    bool ok = true;
    for (int f = 0; f < rule->more->plan->nfn && ok && !stop; f++) {
        StageAt at = plan_at(rule->more->plan, f);
        bool ready = false;
        for (int i = 0; i < r->nsize && to_tune(r, rule, at) && ok && !stop; i++) {
            TunedKey k;
            char label[160];
            gpu_tuned_key(rule, f, r->size[i], &k);
            snprintf(label, sizeof label, "%s %s", name, kernel_name(rule, at));
            Space space = search_stage_space(rule->more->plan, at.stage, r->size[i]);
            if (known(r, &k, &space) && !r->again) {
                r->skipped++;
                r->left--;
                continue;
            }
            r->elements = r->size[i];
            double budget = share(r);
            if (budget <= 0)
                continue;
            int sized = OPTC_OK;
            ok = (u || lib(gpu_tuner_open(rule, r->workers, &u))) && (ready || lib(gpu_tuner_stage(u, f))) &&
                 opened(r, sized = gpu_tuner_size(u, r->size[i]), label);
            ready = true;
            if (!ok || sized != OPTC_OK)
                continue;
            Meter m = gpu_tuner_meter(u);
            ok = search_one(r, &k, &space, &m, gpu_tuner_bytes(u), budget, label);
        }
    }
    gpu_tuner_close(u);
    return ok;
}

static bool tune_cpu_size(Run *r, optc_rule *rule, const char *name, int64_t elements)
{
    CpuTuner *u;
    TunedKey k;
    cpu_tuned_key(rule, elements, &k);
    const Space space = cpu_tuner_space();
    if (known(r, &k, &space) && !r->again)
        return r->skipped++, r->left--, true;
    double budget = share(r);
    if (budget <= 0)
        return true;
    int status = cpu_tuner_open(rule, elements, &u);
    if (status != OPTC_OK)
        return opened(r, status, name);
    Meter m = cpu_tuner_meter(u);
    bool ok = search_one(r, &k, &space, &m, cpu_tuner_bytes(u), budget, name);
    cpu_tuner_close(u);
    return ok;
}

static int stages_to_tune(const Run *r, optc_rule *rule)
{
    int n = 0;
    for (int f = 0; rule->engine->gpu && f < rule->more->plan->nfn; f++)
        n += to_tune(r, rule, plan_at(rule->more->plan, f));
    return rule->engine->gpu ? n : 1;
}

static void no_stage(const Run *r, optc_rule *rule)
{
    char names[600] = "";
    size_t at = 0;
    for (int f = 0; f < rule->more->plan->nfn && at < sizeof names - 80; f++)
        if (to_tune(&(Run){0}, rule, plan_at(rule->more->plan, f)))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%.70s", at ? ", " : "",
                                   kernel_name(rule, plan_at(rule->more->plan, f)));
    if (r->of == 1)
        cli_error("tune: %s has no stage '%s' with something to tune (there are: %s)", optc_rule_name(rule), r->stage,
                  names);
    else
        cli_error("tune: none of the rules has a stage '%s' with something to tune (%s has: %s)", r->stage,
                  optc_rule_name(rule), names);
}

static optc_type public_of(int t)
{
    return t < 0 ? OPTC_DEFAULT : (optc_type)(t + 1);
}

/* A rule that is asked for, ready to be tuned. */
typedef struct Ask { optc_rule *rule; char *name; } Ask;

static bool open_rule(const Run *r, const char *arg, Ask *out)
{
    const CompileOpts *o = &r->compile;
    optc_rule_options ro = {.spec = arg,
                            .with = o->with,
                            .options = o->options,
                            .param = public_of(o->p),
                            .grad = public_of(o->g),
                            .state = public_of(o->state),
                            .products = spec_products(o)};
    *out = (Ask){NULL, NULL};
    bool ok = lib(optc_compile(r->engine, &ro, &out->rule));
    if (ok && !out->rule->engine->gpu && !optc_rule_native(out->rule))
        ok = (cli_error("tune: %s runs on the %s: there is nothing to tune", arg, optc_rule_path(out->rule)), false);
    Buf b = {0};
    if (ok)
        buf_printf(&b, "%.90s", optc_rule_name(out->rule));
    out->name = buf_take(&b);
    if (ok && !out->name)
        cli_error("tune: out of memory");
    return ok && out->name;
}

static void close_rule(Ask *a)
{
    (void)optc_release(a->rule);
    free(a->name);
    *a = (Ask){NULL, NULL};
}

static bool tune_rule(Run *r, const Ask *a)
{
    optc_rule *rule = a->rule;
    bool ok = true;
    r->begun = cli_now();
    r->left = stages_to_tune(r, rule) * r->nsize;
    if (r->stage && !r->left && ++r->without == r->of) {
        no_stage(r, rule);
        ok = false;
    }
    if (ok && rule->engine->gpu)
        ok = tune_gpu(r, rule, a->name);
    for (int i = 0; i < r->nsize && ok && !rule->engine->gpu && !stop; i++) {
        r->elements = r->size[i];
        ok = tune_cpu_size(r, rule, a->name, r->size[i]);
    }
    return ok;
}

/* ---- what is asked ---- */
static bool parse_sizes(Run *r, const char *text)
{
    char part[32], same[32];
    for (bool more = true; more;) {
        size_t n = strcspn(text, ",");
        if (n >= sizeof part || r->nsize == MOST_SIZES)
            return false;
        memcpy(part, text, n);
        part[n] = 0;
        int64_t size;
        if (!cli_parse_size(part, &size) || size > (int64_t)1 << 36)
            return false;
        int at = 0;
        while (at < r->nsize && tuned_bucket(r->size[at]) != tuned_bucket(size))
            at++;
        if (at == r->nsize)
            r->size[r->nsize++] = size;
        else if (r->size[at] != size)
            cli_warning("tune: %s elements share their results with %s: only these are tuned for", part,
                        cli_size(same, r->size[at]));
        more = text[n] != 0;
        text += n + more;
    }
    return true;
}

/* This process may run on, and there is work for at once. */
static int cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    return n < SEARCH_AHEAD ? n : SEARCH_AHEAD;
}

static bool start(Run *r)
{
    char why[400];
    if (r->into)
        snprintf(r->path, sizeof r->path, "%s", r->into);
    if (!trials_path(r->path, r->trials, sizeof r->trials))
        return cli_error("tune: the path '%s' is too long", r->path), false;
    if (*r->path &&
        (!tuned_read(&r->known, r->path, why, sizeof why) || !trials_read(&r->tried, r->trials, why, sizeof why)))
        return cli_error("tune: %s", why), false;
    if (!strncmp(r->device, "cuda", 4))
        r->workers = workers_start(cores() > 2 ? cores() - 1 : cores());
    if (!lib(optc_open(&(optc_engine_options){.device = r->device, .spec_path = r->compile.path}, &r->engine)))
        return false;
    if (r->engine->gpu && !nvrtc_get(NULL)) {
        const char *no;
        nvrtc_get(&no);
        return cli_error("tune: a GPU is tuned with NVRTC: %s", no), false;
    }
    if (r->stage && !r->engine->gpu)
        return cli_error("tune: --stage is for a GPU: on the CPU a rule is tuned as a whole"), false;
    r->shows = isatty(STDERR_FILENO);
    return true;
}

/* Before anything is measured: that there is a place for it. */
static bool can_keep(const Run *r)
{
    char why[400];
    TunedMerge m;
    bool ok = r->dry || tuned_update(r->path, &(TunedList){0}, TUNED_NEWEST, false, TUNE_WAIT_MS, &m, why, sizeof why);
    if (!ok)
        cli_error("tune: results could not be kept: %s", why);
    return ok;
}

static void head(const Run *r)
{
    printf("%s\n%d rule%s, %d size%s", optc_device_name(r->engine), r->of, r->of == 1 ? "" : "s", r->nsize,
           r->nsize == 1 ? "" : "s");
    if (r->most)
        printf(", up to %d launches a search", r->most);
    if (isfinite(r->budget))
        printf(", up to %g s each, %g s in all", r->budget, r->of * r->budget);
    printf(" (*: that ended a search)\n\n  %-28s %-5s %-6s %10s %12s %8s %8s\n", "stage", "form", "size", "best",
           "by its plan", "to model", "to used");
}

static int finish(Run *r, bool ok)
{
    clear_progress(r);
    if (r->found)
        printf("\n%d stage%s searched, %d better than the model, %.1f %% faster on average%s%s\n", r->found,
               r->found == 1 ? "" : "s", r->better, 100 * (exp(r->gain / r->found) - 1),
               r->dry || !ok ? "" : "; kept in ", r->dry || !ok ? "" : r->path);
    if (r->skipped)
        printf("%d done before, left as they are (--again searches them anew)\n", r->skipped);
    if (r->busy)
        printf("%d not kept: the machine was busy, its threads waited for a core up to %.0f %% of their time; the same "
               "command tries again\n",
               r->busy, 100 * r->busiest);
    if (r->late && !stop)
        printf("%d had no time left: the same command goes on with them, or take a larger %s\n", r->late,
               isfinite(r->budget) ? "--budget" : "--trials");
    if (stop)
        fprintf(stderr, "optc: interrupted: what was found is kept; the same command goes on from there\n");
    return stop ? 130 : ok && !r->small ? CLI_OK : CLI_FAILED;
}

/* The rules named, or the whole library. */
static bool tune_rules(Run *r, char **argv, int n)
{
    bool ok = start(r), library = !n;
    for (int i = 0; ok && library && i < optc_library_size(); i++)
        n += !strchr(optc_library_name(i), '/');
    Ask *ask = calloc((size_t)n + 1, sizeof *ask);
    if (ok && !ask)
        cli_error("tune: out of memory");
    ok = ok && ask;
    /* all of them first: who mistyped the last is told at once */
    for (int i = 0; ok && !library && i < n; i++)
        ok = open_rule(r, argv[i], &ask[i]);
    r->of = n;
    if (ok && (ok = can_keep(r)))
        head(r);
    for (int i = 0, at = -1; ok && i < n && !stop; i++) {
        while (library && strchr(optc_library_name(++at), '/'))
            ;
        r->nth = i + 1;
        ok = (!library || open_rule(r, optc_library_name(at), &ask[i])) && tune_rule(r, &ask[i]);
        close_rule(&ask[i]);
    }
    for (int i = 0; ask && i < n; i++)
        close_rule(&ask[i]);
    free(ask);
    return ok;
}

int tune_run(const Command *self, int argc, char **argv)
{
    Run r = {.compile = COMPILE_OPTS_INIT};
    bool live = false;
    const char *slowdown = NULL, *budget = NULL, *sizes = NULL;
    const Opt opts[] = {
        {"budget", 0, OPT_TEXT, &budget, "TIME", "for each rule: 60s (default), 5m, 1h"},
        {"trials", 0, OPT_COUNT, &r.most, "N",
         "for each search: so many launches, however long it takes (unless --budget is there too)"},
        {"device", 0, OPT_TEXT, &r.device, "NAME", "cuda:N or cpu (default: the best here)"},
        {"sizes", 0, OPT_TEXT, &sizes, "LIST", "elements to tune for (default: 2^20,2^24,2^28)"},
        {"stage", 0, OPT_TEXT, &r.stage, "NAME", "only this stage of the rules, on a GPU: step_12, or the whole name"},
        {"exhaustive", 0, OPT_FLAG, &r.exhaustive, NULL, "try everything, not only what looks good"},
        {"again", 0, OPT_FLAG, &r.again, NULL, "also what was done before"},
        {"into", 0, OPT_TEXT, &r.into, "FILE", "keep results there (default: the user's file)"},
        {"dry-run", 0, OPT_FLAG, &r.dry, NULL, "keep nothing"},
        {"busy", 0, OPT_FLAG, &r.crowd, NULL, "on the CPU: keep results even where other work had the cores meanwhile"},
        {"live", 0, OPT_FLAG, &live, NULL,
         "run a program (behind --) and let its real steps on a GPU try launches; all give the same bits"},
        {"slowdown", 0, OPT_TEXT, &slowdown, "SHARE",
         "with --live: what trying may cost of the steps' time (default: 5%)"},
        COMPILE_OPTS(r.compile),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (r.into && !*r.into)
        return cli_misuse(self, "--into names no file");
    if (live && (budget || r.most || sizes || r.device || r.stage || r.exhaustive || r.again || r.dry || r.crowd))
        return cli_misuse(self, "--live goes by the program's own steps: only --slowdown and --into are for it");
    if (live)
        return tune_live(self, slowdown ? slowdown : "5%", r.into, argv, n);
    if (slowdown)
        return cli_misuse(self, "--slowdown is for --live");
    if (!budget && r.most)
        r.budget = INFINITY;
    else if (!tune_budget(budget ? budget : "60s", &r.budget))
        return cli_misuse(self, "--budget must be a time such as 60s or 5m, not '%s'", budget);
    if (!parse_sizes(&r, sizes ? sizes : "2^20,2^24,2^28"))
        return cli_misuse(self, "--sizes must be element counts such as 2^20,2^28 or 64M, not '%s'", sizes);
    r.device = r.device && strcmp(r.device, "best") ? r.device : optc_best_device();
    if (!r.into && r.dry && !tuned_path(r.path, TUNE_PATH))
        r.path[0] = 0;                         /* nothing is known, nothing kept */
    else if (!r.into && (rc = tune_user_path(r.path)) != CLI_GO)
        return rc;
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    bool ok = tune_rules(&r, argv, n);
    rc = r.engine ? finish(&r, ok) : CLI_FAILED;
    (void)optc_close(r.engine);
    workers_end(r.workers);
    tuned_free(&r.known);
    trials_free(&r.tried);
    return rc;
}

/* optc tune: searches launches for rules on a device and stores the better ones. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/tune/tune_search.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int stop;
static void on_interrupt(int sig) { (void)sig; stop = 1; }

static bool lib(int s)
{
    if (s != OPTC_OK)
        cli_error("tune: %s", optc_message());
    return s == OPTC_OK;
}

/* ---- devices ---- */
static double rest(const TuneRun *r) { return r->budget - (cli_now() - r->begun); }

/* Seconds for the next search. 0: the budget is used up, and the search is skipped. */
static double share(TuneRun *r)
{
    double left = rest(r);
    if (left > 0)
        return left / r->left--;
    r->late++;
    r->left--;
    return 0;
}

/* Handles the status of opening a tuner. If memory is too small for this size, the other sizes are
 * still tuned. */
static bool opened(TuneRun *r, int status, const char *label)
{
    char size[32];
    r->small += status == OPTC_ERROR_MEMORY;
    if (status == OPTC_ERROR_MEMORY)
        cli_warning("tune: %s at %s elements is left out: %s", label, cli_size(size, r->elements),
                    optc_message());
    return status == OPTC_ERROR_MEMORY || lib(status);
}

static const char *kernel_name(const optc_rule *rule, StageAt at)
{
    return program_stage(rule->program, at.stage->fn)->kernel;
}

/* --stage selects a stage by its name or a prefix of it; step_1 is not a prefix of step_12. */
static bool stage_named(const TuneRun *r, const char *name)
{
    size_t n = r->stage ? strlen(r->stage) : 0;
    return !n || (!strncmp(name, r->stage, n) &&
                  !(isdigit((unsigned char)r->stage[n - 1]) && isdigit((unsigned char)name[n])));
}

/* The stage has something to tune, and --stage selects it. */
static bool to_tune(const TuneRun *r, optc_rule *rule, StageAt at)
{
    if (!at.stage || !stage_tunes(at.stage))
        return false;
    return stage_named(r, kernel_name(rule, at));
}

/* Tunes stage by stage, each at all sizes, because a compiled kernel is used for all sizes. */
static bool tune_gpu(TuneRun *r, optc_rule *rule, const char *name)
{
    GpuTuner *u = NULL;
    bool ok = true;
    for (int f = 0; f < rule->library->plan->nfn && ok && !stop; f++) {
        StageAt at = plan_at(rule->library->plan, f);
        bool ready = false;
        for (int i = 0; i < r->nsize && to_tune(r, rule, at) && ok && !stop; i++) {
            TunedKey k;
            char label[160];
            gpu_tuned_key(rule, f, r->size[i], &k);
            snprintf(label, sizeof label, "%s %s", name, kernel_name(rule, at));
            Space space = search_stage_space(rule->library->plan, at.stage, r->size[i]);
            if (tune_known(r, &k, &space) && !r->again) {
                r->skipped++;
                r->left--;
                continue;
            }
            r->elements = r->size[i];
            double budget = share(r);
            if (budget <= 0)
                continue;
            int sized = OPTC_OK;
            ok = (u || lib(gpu_tuner_open(rule, r->workers, &u))) &&
                 (ready || lib(gpu_tuner_stage(u, f))) &&
                 opened(r, sized = gpu_tuner_size(u, r->size[i]), label);
            ready = true;
            if (!ok || sized != OPTC_OK)
                continue;
            Meter m = gpu_tuner_meter(u);
            ok = tune_search(r, &k, &space, &m, gpu_tuner_bytes(u), budget, label);
        }
    }
    gpu_tuner_close(u);
    return ok;
}

/* ---- methods for eigenvectors and roots; all rules share these results ---- */
static int methods_to_tune(const TuneRun *r, optc_rule *rule)
{
    int n = 0;
    for (int roots = 0; roots < 2; roots++)
        for (MethodWork w = {roots, 0, 0}; method_for(rule->program, roots) && method_next(&w);) {
            char name[64];
            method_label(w, name);
            n += stage_named(r, name);
        }
    return n;
}

static bool tune_method(TuneRun *r, MethodWork w, bool f64)
{
    TunedKey k;
    MethodTuner *u;
    char label[64];
    method_label(w, label);
    method_key(r->engine->gpu, w, f64, &k);
    Space any = {.form = k.form};
    if (tune_known(r, &k, &any) && !r->again)
        return r->skipped++, r->left--, true;
    if (rest(r) <= 0)
        return share(r), true;
    r->elements = w.matrices;
    int status = method_tuner_open(r->engine, w, f64, &u);
    double budget = share(r);                  /* after loading, which uses up time too */
    if (status != OPTC_OK)
        return opened(r, status, label);
    Space space = method_tuner_space(u);
    Meter m = method_tuner_meter(u);
    bool ok = !method_tuner_choice(u) || budget <= 0 ||
        tune_search(r, &k, &space, &m, method_tuner_bytes(u), budget, label);
    method_tuner_close(u);
    return ok;
}

static bool tune_methods(TuneRun *r, optc_rule *rule)
{
    bool ok = true;
    for (int roots = 0; roots < 2; roots++)
        for (MethodWork w = {roots, 0, 0};
             method_for(rule->program, roots) && ok && !stop && method_next(&w);) {
            char name[64];
            method_label(w, name);
            ok = !stage_named(r, name) || tune_method(r, w, !roots && method_f64(rule->program));
        }
    return ok;
}

static bool tune_cpu_size(TuneRun *r, optc_rule *rule, const char *name, int64_t elements)
{
    CpuTuner *u;
    TunedKey k;
    cpu_tuned_key(rule, elements, &k);
    const Space space = cpu_tuner_space();
    if (tune_known(r, &k, &space) && !r->again)
        return r->skipped++, r->left--, true;
    double budget = share(r);
    if (budget <= 0)
        return true;
    int status = cpu_tuner_open(rule, elements, &u);
    if (status != OPTC_OK)
        return opened(r, status, name);
    Meter m = cpu_tuner_meter(u);
    bool ok = tune_search(r, &k, &space, &m, cpu_tuner_bytes(u), budget, name);
    cpu_tuner_close(u);
    return ok;
}

static int stages_to_tune(const TuneRun *r, optc_rule *rule)
{
    int n = 0;
    for (int f = 0; rule->engine->gpu && f < rule->library->plan->nfn; f++)
        n += to_tune(r, rule, plan_at(rule->library->plan, f));
    return rule->engine->gpu ? n : 1;
}

static void no_stage(const TuneRun *r, optc_rule *rule)
{
    char names[600] = "";
    size_t at = 0;
    for (int f = 0; f < rule->library->plan->nfn && at < sizeof names - 80; f++)
        if (to_tune(&(TuneRun){0}, rule, plan_at(rule->library->plan, f)))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%.70s", at ? ", " : "",
                                   kernel_name(rule, plan_at(rule->library->plan, f)));
    for (int roots = 0; roots < 2 && at < sizeof names - 80; roots++)
        if (method_for(rule->program, roots))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   roots ? "roots" : "eigenvectors");
    if (r->of == 1)
        cli_error("tune: %s has no stage '%s' with something to tune (there are: %s)",
                  optc_rule_name(rule), r->stage, names);
    else
        cli_error("tune: none of the rules has a stage '%s' with something to tune (%s has: %s)",
                  r->stage, optc_rule_name(rule), names);
}

/* A rule from the command line, compiled. */
typedef struct Ask { optc_rule *rule; char *name; } Ask;

static bool open_rule(const TuneRun *r, const char *arg, Ask *out)
{
    optc_rule_options ro = spec_rule_options(&r->compile, arg, r->compile.with);
    *out = (Ask){NULL, NULL};
    bool ok = lib(optc_compile(r->engine, &ro, &out->rule));
    if (ok && !out->rule->engine->gpu && !optc_rule_native(out->rule))
        ok = (cli_error("tune: %s runs on the %s: there is nothing to tune", arg,
                        optc_rule_path(out->rule)),
              false);
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

static bool tune_rule(TuneRun *r, const Ask *a)
{
    optc_rule *rule = a->rule;
    bool ok = true;
    r->begun = cli_now();
    r->left =
        stages_to_tune(r, rule) * r->nsize + (rule->engine->gpu ? methods_to_tune(r, rule) : 0);
    if (r->stage && !r->left && ++r->without == r->of) {
        no_stage(r, rule);
        ok = false;
    }
    if (ok && rule->engine->gpu)
        ok = tune_gpu(r, rule, a->name) && tune_methods(r, rule);
    for (int i = 0; i < r->nsize && ok && !rule->engine->gpu && !stop; i++) {
        r->elements = r->size[i];
        ok = tune_cpu_size(r, rule, a->name, r->size[i]);
    }
    return ok;
}

/* ---- options ---- */
static bool parse_sizes(TuneRun *r, const char *text)
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
            cli_warning("tune: %s elements share their results with %s: only these are tuned for",
                        part, cli_size(same, r->size[at]));
        more = text[n] != 0;
        text += n + more;
    }
    return true;
}

/* Worker processes to start: the cores that this process may use, at most as many as there is work
 * for. */
static int cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
    return n < SEARCH_AHEAD ? n : SEARCH_AHEAD;
}

static bool start(TuneRun *r)
{
    char why[400];
    if (r->into && strlen(r->into) >= sizeof r->path)
        return cli_error("tune: the path '%s' is too long", r->into), false;
    if (r->into)
        strcpy(r->path, r->into);
    if (*r->path && !tuned_read(&r->known, r->path, why, sizeof why))
        return cli_error("tune: %s", why), false;
    if (r->log_path && !(r->log = fopen(r->log_path, "a")))
        return cli_error("tune: cannot write %s: %s", r->log_path, strerror(errno)), false;
    if (device_target(r->device) == &target_cuda)
        r->workers = workers_start(cores() > 2 ? cores() - 1 : cores());
    if (!lib(optc_open(&(optc_engine_options){.device = r->device, .spec_path = r->compile.path},
                       &r->engine)))
        return false;
    if (r->engine->gpu && !nvrtc_get(NULL)) {
        const char *no;
        nvrtc_get(&no);
        return cli_error("tune: a GPU is tuned with NVRTC: %s", no), false;
    }
    if (r->stage && !r->engine->gpu)
        return cli_error("tune: --stage is for a GPU: on the CPU a rule is tuned as a whole"),
               false;
    r->shows = isatty(STDERR_FILENO);
    return true;
}

/* Checks before measuring that the results can be written. */
static bool can_keep(const TuneRun *r)
{
    char why[400];
    TunedMerge m;
    bool ok = r->dry || tuned_update(r->path, &(TunedList){0}, TUNED_NEWEST, false, TUNE_WAIT_MS,
                                     &m, why, sizeof why);
    if (!ok)
        cli_error("tune: results could not be kept: %s", why);
    return ok;
}

static void head(const TuneRun *r)
{
    printf("%s\n%d rule%s, %d size%s", optc_device_name(r->engine), r->of, r->of == 1 ? "" : "s",
           r->nsize, r->nsize == 1 ? "" : "s");
    if (r->most)
        printf(", up to %d launches a search", r->most);
    if (isfinite(r->budget))
        printf(", up to %g s each, %g s in all", r->budget, r->of * r->budget);
    printf(" (*: that ended a search)\n\n  %-28s %-5s %-6s %10s %12s %8s %8s\n", "stage", "form",
           "size", "best", "by its plan", "to model", "to used");
}

static int finish(TuneRun *r, bool ok)
{
    tune_clear_progress(r);
    if (r->found)
        printf("\n%d stage%s searched, %d better than the model, %.1f %% faster on average%s%s\n",
               r->found, r->found == 1 ? "" : "s", r->better, 100 * (exp(r->gain / r->found) - 1),
               r->dry || !ok ? "" : "; kept in ", r->dry || !ok ? "" : r->path);
    if (r->skipped)
        printf("%d done before, left as they are (--again searches them anew)\n", r->skipped);
    if (r->busy)
        printf("%d not kept: the machine was busy, its threads waited for a core up to %.0f %% of "
               "their time; the same "
               "command tries again\n",
               r->busy, 100 * r->busiest);
    if (r->late && !stop)
        printf("%d had no time left: the same command goes on with them, or take a larger %s\n",
               r->late, isfinite(r->budget) ? "--budget" : "--trials");
    if (stop)
        fprintf(stderr,
                "optc: interrupted: what was found is kept; the same command goes on from there\n");
    return stop ? 130 : ok && !r->small ? CLI_OK : CLI_FAILED;
}

/* The rules named, or the whole library. */
static bool tune_rules(TuneRun *r, char **argv, int n)
{
    bool ok = start(r), library = !n;
    for (int i = 0; ok && library && i < optc_library_size(); i++)
        n += !strchr(optc_library_name(i), '/');
    Ask *ask = calloc((size_t)n + 1, sizeof *ask);
    if (ok && !ask)
        cli_error("tune: out of memory");
    ok = ok && ask;
    /* compiles all of them first, so that a mistyped name is reported at once */
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

/* budget, sizes: NULL: the default */
static int read_search(const Command *self, TuneRun *r, const char *budget, const char *sizes)
{
    if (!budget && r->most)
        r->budget = INFINITY;
    else if (!tune_budget(budget ? budget : "60s", &r->budget))
        return cli_misuse(self, "--budget must be a time such as 60s or 5m, not '%s'", budget);
    return parse_sizes(r, sizes ? sizes : "2^20,2^24,2^28")
               ? CLI_GO
               : cli_misuse(self,
                            "--sizes must be element counts such as 2^20,2^28 or 64M, not '%s'",
                            sizes);
}

/* The device, and the file of results. */
static int choose_place(TuneRun *r)
{
    DeviceName name;
    if (!r->device || (device_parse(r->device, &name) && name.kind == DEVICE_BEST))
        r->device = optc_best_device();
    if (!r->into && r->dry && !tuned_path(r->path, TUNE_PATH))
        r->path[0] = 0;                         /* reads and stores no results */
    else if (!r->into)
        return tune_user_path(r->path);
    return CLI_GO;
}

int tune_run(const Command *self, int argc, char **argv)
{
    TuneRun r = {.stop = &stop, .compile = COMPILE_OPTS_INIT};
    bool live = false;
    const char *slowdown = NULL, *budget = NULL, *sizes = NULL;
    const Opt opts[] = {
        {"budget", 0, OPT_TEXT, &budget, "TIME", "for each rule: 60s (default), 5m, 1h"},
        {"trials", 0, OPT_COUNT, &r.most, "N",
         "for each search: so many launches, however long it takes (unless --budget is there too)"},
        {"device", 0, OPT_TEXT, &r.device, "NAME", "cuda:N or cpu (default: the best here)"},
        {"sizes", 0, OPT_TEXT, &sizes, "LIST", "elements to tune for (default: 2^20,2^24,2^28)"},
        {"stage", 0, OPT_TEXT, &r.stage, "NAME",
         "only this stage of the rules, on a GPU: step_12, or the whole name"},
        {"exhaustive", 0, OPT_FLAG, &r.exhaustive, NULL,
         "try everything, not only what looks good"},
        {"again", 0, OPT_FLAG, &r.again, NULL, "also what was done before"},
        {"into", 0, OPT_TEXT, &r.into, "FILE", "keep results there (default: the user's file)"},
        {"dry-run", 0, OPT_FLAG, &r.dry, NULL, "keep nothing"},
        {"log", 0, OPT_TEXT, &r.log_path, "FILE",
         "append every launch that was tried, a line each"},
        {"busy", 0, OPT_FLAG, &r.crowd, NULL,
         "on the CPU: keep results even where other work had the cores meanwhile"},
        {"live", 0, OPT_FLAG, &live, NULL,
         "run a program (behind --) and let its real steps on a GPU try launches; all give the "
         "same bits"},
        {"slowdown", 0, OPT_TEXT, &slowdown, "SHARE",
         "with --live: what trying may cost of the steps' time (default: 5%)"},
        COMPILE_OPTS(r.compile),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (r.into && !*r.into)
        return cli_misuse(self, "--into names no file");
    if (live && (budget || r.most || sizes || r.device || r.stage || r.exhaustive || r.again ||
                 r.dry || r.crowd || r.log_path))
        return cli_misuse(
            self, "--live goes by the program's own steps: only --slowdown and --into are for it");
    if (live)
        return tune_live(self, slowdown ? slowdown : "5%", r.into, argv, n);
    if (slowdown)
        return cli_misuse(self, "--slowdown is for --live");
    rc = read_search(self, &r, budget, sizes);
    if (rc == CLI_GO)
        rc = choose_place(&r);
    if (rc != CLI_GO)
        return rc;
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    bool ok = tune_rules(&r, argv, n);
    rc = r.engine ? finish(&r, ok) : CLI_FAILED;
    (void)optc_close(r.engine);
    workers_end(r.workers);
    tuned_free(&r.known);
    if (r.log && fclose(r.log) != 0)
        rc = cli_fail("tune: cannot write %s: %s", r.log_path, strerror(errno));
    return rc;
}

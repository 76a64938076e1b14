/* optc race: options, the list of tasks and rules, and the files that are written. race/ has the
 * rest. */
#include "tools/race/race.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

typedef struct RaceOpts {
    const char *tasks, *out, *json, *curves, *from, *path, *schedule;
    int seeds, first, trials, steps, threads;
    double target;
    bool full, check;
} RaceOpts;

static bool write_reports(const RaceReport *p, const RaceOpts *o)
{
    Buf html = {0}, json = {0};
    bool ok = true;
    if (o->json) {
        race_json(p, &json);
        ok = cli_write_file(o->json, cli_text(&json));
    }
    if (o->curves) {
        Arena a = {0};
        Buf curves = {.arena = &a};
        race_curves(p, &curves);
        ok = cli_write_file(o->curves, curves.len ? buf_text(&curves) : "") && ok;
        arena_free(&a);
    }
    if (o->out) {
        (page_is_svg(o->out) ? race_picture : race_html)(p, &html);
        ok = cli_write_file(o->out, cli_text(&html)) && ok;
        if (ok && strcmp(o->out, "-") && !(o->json && !strcmp(o->json, "-")))
            cli_print("\nwrote %s\n", o->out);
    }
    buf_free(&html);
    buf_free(&json);
    return ok;
}

static int check_gradients(void)
{
    int rc = CLI_OK;
    for (int i = 0; race_tasks[i]; i++) {
        const char *where;
        double off = task_check_gradients(race_tasks[i], 1, &where);
        /* central differences in double precision: 1e-8 or less */
        bool ok = off < 1e-6;
        printf("%s  %-10s  largest difference %.1e (%s)\n", ok ? "ok" : "WRONG",
               race_tasks[i]->name, off, where);
        rc = ok ? rc : CLI_FAILED;
    }
    return rc;
}

/* ---- tasks ---- */
static const RaceTask *find_task(const char *name, size_t n)
{
    for (int i = 0; race_tasks[i]; i++)
        if (strlen(race_tasks[i]->name) == n && !strncmp(race_tasks[i]->name, name, n))
            return race_tasks[i];
    return NULL;
}

static int choose_tasks(const Command *self, Race *race, const RaceOpts *o)
{
    RaceReport *p = race->report;
    const char *names[RACE_MOST_TASKS + 1] = {0};
    for (int i = 0; race_tasks[i]; i++) {
        names[i] = race_tasks[i]->name;
        if (!o->tasks && (!race_tasks[i]->full || o->full))
            race->task[p->ntask++] = race_tasks[i];
    }
    for (const char *s = o->tasks; s && *s;) {
        size_t n = strcspn(s, ",");
        const RaceTask *t = find_task(s, n);
        if (!t)
            return cli_unknown(self, "task", arena_strndup(&p->arena, s, n), names);
        for (int i = 0; i < p->ntask; i++)
            if (race->task[i] == t)
                return cli_misuse(self, "task %s is named twice", t->name);
        race->task[p->ntask++] = t;
        s += n + (s[n] == ',');
    }
    if (!p->ntask)
        return cli_misuse(self, "--tasks names no task");
    if (o->target > 0 && p->ntask > 1)
        return cli_misuse(self, "--target needs one task: --tasks NAME");
    p->task = NEWS(&p->arena, RaceTaskInfo, p->ntask);
    for (int i = 0; i < p->ntask; i++) {
        const RaceTask *t = race->task[i];
        p->task[i] = (RaceTaskInfo){t->name, t->about, o->steps ? o->steps : t->steps, t->every,
                                    o->target > 0 ? o->target : t->target};
    }
    return CLI_GO;
}

static void make_entries(RaceReport *p)
{
    p->entry = NEWS(&p->arena, RaceEntry, p->ntask * p->nrule);
    for (int i = 0; i < p->ntask * p->nrule; i++) {
        RaceEntry *e = &p->entry[i];
        *e = (RaceEntry){.trial = NEWS(&p->arena, RaceTrial, p->most_trials + 1), .best = -1,
                         .run = NEWS(&p->arena, RaceRun, p->nseed), .nrun = p->nseed};
        for (int k = 0; k < p->nseed; k++) {
            e->run[k].seed = p->seed[k];
            e->run[k].loss = NEWS(&p->arena, double, race_points(&p->task[i / p->nrule]));
        }
    }
}

static int default_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores < RACE_MOST_THREADS ? (int)cores : RACE_MOST_THREADS;
}

static void make_seeds(RaceReport *p, const RaceOpts *o)
{
    /* tuning seeds are never among the reported ones */
    enum { TUNING_SEEDS = 3, FAR = 1000000 };
    p->nseed = o->seeds;
    p->ntune = TUNING_SEEDS;
    p->most_trials = o->trials;
    p->linear = !strcmp(o->schedule, "linear");
    p->seed = NEWS(&p->arena, int64_t, p->nseed);
    p->tune = NEWS(&p->arena, int64_t, p->ntune);
    for (int i = 0; i < p->nseed; i++)
        p->seed[i] = (int64_t)o->first + i;
    for (int i = 0; i < p->ntune; i++)
        p->tune[i] = (int64_t)o->first + FAR + i;
}

/* ---- rules ---- */
static bool open_rules(Race *race, char **label, int n, const char *path)
{
    RaceReport *p = race->report;
    bool terminal = isatty(STDOUT_FILENO);
    if (optc_open(&(optc_engine_options){.device = "cpu", .threads = 1, .spec_path = path},
                  &race->engine) != OPTC_OK)
        return cli_error("%s", optc_message()), false;
    p->nrule = n;
    p->rule = NEWS(&p->arena, RaceRuleInfo, n);
    for (int i = 0; i < n; i++) {
        if (terminal) {
            cli_print("compiling %s …", label[i]);
            fflush(stdout);
        }
        bool ok =
            race_rule_open(&race->rule[i], &p->rule[i], &p->arena, race->engine, label[i], path);
        if (terminal)
            printf("\r\033[K");
        if (!ok)
            return false;
        if (terminal)
            cli_print("%s: %s\n", label[i], p->rule[i].path);
        if (!optc_rule_native(race->rule[i].rule))
            cli_warning("%s runs on the %s: its steps are slow", label[i], p->rule[i].path);
    }
    return true;
}

static void describe(RaceReport *p, int threads)
{
    char model[128], date[64];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
    p->date = arena_strdup(&p->arena, date);
    p->version = optc_version();
    p->machine = arena_printf(&p->arena, "%s, %d of %ld cores", cpu_model(model, sizeof model),
                              threads, sysconf(_SC_NPROCESSORS_ONLN));
}

static int run_race(const Command *self, Race *race, const RaceOpts *o, char **label, int n)
{
    RaceReport *p = race->report;
    int rc = choose_tasks(self, race, o);
    if (rc != CLI_GO)
        return rc;
    race->threads = o->threads ? o->threads : default_threads();
    make_seeds(p, o);
    describe(p, race->threads);
    if (!cli_writable(self, o->out) || !cli_writable(self, o->json) ||
        !cli_writable(self, o->curves) || !open_rules(race, label, n, o->path))
        return CLI_FAILED;
    make_entries(p);
    race_set_budgets(p);
    bool quiet = (o->json && !strcmp(o->json, "-")) || !strcmp(o->out, "-");
    struct winsize window;
    bool wide = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 &&
                (window.ws_col >= RACE_COLUMNS || !window.ws_col);
    race->show = wide && !quiet ? race_show : NULL;
    double began = cli_now(), cpu = cli_cpu_seconds();
    cli_catch_interrupt(&race_stop);
    bool ok = race_execute(race);
    p->interrupted = race_stop;
    p->seconds = cli_now() - began;
    p->cpu_seconds = cli_cpu_seconds() - cpu;
    if (!ok)
        return CLI_FAILED;
    if (!quiet) {
        race_table(p);
        printf("\n%.1f s, %.1f s CPU%s\n", p->seconds, p->cpu_seconds,
               p->interrupted ? "; interrupted" : "");
    }
    return !write_reports(p, o) ? CLI_FAILED : p->interrupted ? 130 : CLI_OK;
}

/* The smallest p-value of n seeds against n is 2 / C(2 n, n), before Holm's correction. */
static void warn_few_seeds(int seeds, int rules)
{
    int pairs = rules * (rules - 1) / 2, need = 0;
    double ways = 1;
    for (int n = 1; !need && n <= RACE_MOST_SEEDS; n++) {
        ways *= 2 * (2 * n - 1.0) / n;
        need = pairs * 2 / ways < RACE_ALPHA ? n : 0;
    }
    if (need > seeds)
        cli_warning("race: %d seeds cannot separate any two of %d rules; use --seeds %d or more",
                    seeds, rules, need);
}

static int check_args(const Command *self, const RaceOpts *o, char **label, int n)
{
    if (o->from && n)
        return cli_misuse(self, "--from renders a finished race: it takes no rules");
    if (o->from || o->check)
        return CLI_GO;
    if (!n)
        return cli_misuse(self,
                          "no rule is given: name at least one, such as adamw muon ./mine.lua");
    if (n > RACE_MOST_RULES)
        return cli_misuse(self, "%d rules are given: at most %d race at once", n, RACE_MOST_RULES);
    if (o->seeds < RACE_LEAST_SEEDS || o->seeds > RACE_MOST_SEEDS)
        return cli_misuse(self,
                          "--seeds %d: a race has %d to %d seeds; fewer rarely separate two rules",
                          o->seeds, RACE_LEAST_SEEDS, RACE_MOST_SEEDS);
    if (o->first > RACE_LARGEST_SEED - o->seeds + 1)
        return cli_misuse(self, "--seed %d: at most %d with %d seeds; the last seed is at most %d",
                          o->first, RACE_LARGEST_SEED - o->seeds + 1, o->seeds, RACE_LARGEST_SEED);
    if (strcmp(o->schedule, "linear") && strcmp(o->schedule, "constant"))
        return cli_misuse(self, "--schedule knows linear and constant, not '%s'", o->schedule);
    if (o->trials > RACE_MOST_TRIALS)
        return cli_misuse(self, "--trials %d: at most %d", o->trials, RACE_MOST_TRIALS);
    if (o->steps > RACE_MOST_STEPS)
        return cli_misuse(self, "--steps %d: at most %d", o->steps, RACE_MOST_STEPS);
    if (o->threads > RACE_MOST_THREADS)
        return cli_misuse(self, "--threads %d: at most %d", o->threads, RACE_MOST_THREADS);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(label[i], label[k]))
                return cli_misuse(self, "%s is named twice", label[i]);
    warn_few_seeds(o->seeds, n);
    if (o->trials < RACE_DECAY_TRIALS)
        cli_warning("race: decay is not tuned with fewer than %d trials", RACE_DECAY_TRIALS);
    return CLI_GO;
}

static int execute(const Command *self, RaceReport *p, const RaceOpts *o, char **label, int n)
{
    if (o->check)
        return check_gradients();
    if (o->from) {
        if (!race_read(p, o->from))
            return CLI_FAILED;
        if (strcmp(o->out, "-") && !(o->json && !strcmp(o->json, "-")))
            race_table(p);
        return write_reports(p, o) ? CLI_OK : CLI_FAILED;
    }
    Race race = {.report = p};
    int rc = run_race(self, &race, o, label, n);
    for (int i = 0; i < p->nrule; i++)
        optc_release(race.rule[i].rule);
    optc_close(race.engine);
    return rc;
}

int cmd_race(const Command *self, int argc, char **argv)
{
    RaceOpts o = {.out = "race.html", .seeds = 8, .first = 1, .trials = 12, .schedule = "linear"};
    const Opt opts[] = {
        {"tasks", 0, OPT_TEXT, &o.tasks, "LIST",
         "of matrix, logistic, spirals, embedding, digits, text (default: the first four)"},
        {"full", 0, OPT_FLAG, &o.full, NULL,
         "all tasks: also digits, and a small transformer on text"},
        {"seeds", 0, OPT_COUNT, &o.seeds, "N",
         "runs of every rule on every task, from 6 (default: 8)"},
        {"seed", 0, OPT_COUNT, &o.first, "N", "the first seed (default: 1)"},
        {"trials", 0, OPT_COUNT, &o.trials, "N",
         "trials of rate and decay, on three other seeds (default: 12)"},
        {"steps", 0, OPT_COUNT, &o.steps, "N", "the step budget (default: that of the task)"},
        {"target", 0, OPT_REAL, &o.target, "LOSS",
         "the loss to reach; with one task (default: that of the task)"},
        {"schedule", 0, OPT_TEXT, &o.schedule, "NAME",
         "linear (default): rates fall to 0 over the steps; or constant. Rules that average are "
         "always constant"},
        {"threads", 0, OPT_COUNT, &o.threads, "N",
         "runs at the same time (default: one for each core)"},
        {"out", 'o', OPT_TEXT, &o.out, "FILE",
         "the HTML report (default: race.html); FILE.svg: only the curves"},
        {"json", 0, OPT_TEXT, &o.json, "FILE",
         "also write the report as JSON; '-' is standard output"},
        {"curves", 0, OPT_TEXT, &o.curves, "FILE",
         "also write the median curves, one line of JSON per rule and task"},
        {"from", 0, OPT_TEXT, &o.from, "FILE", "only write the HTML report of such a JSON file"},
        {"path", 0, OPT_TEXT, &o.path, "DIRS",
         "folders with your own specs, separated by ':' (default: $OPTC_PATH)"},
        {"check-gradients", 0, OPT_FLAG, &o.check, NULL,
         "only compare the tasks' gradients with finite differences"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    /* the arena jumps to `out` if memory ends */
    static RaceReport report;
    jmp_buf out;
    volatile int rc = CLI_FAILED;
    report.arena.out = &out;
    if (setjmp(out)) {
        cli_error("out of memory");
    } else {
        int n;
        report.command = cli_command_text(&report.arena, self, argc, argv);
        rc = cli_parse(self, opts, argc, argv, &n);
        if (rc == CLI_GO)
            rc = check_args(self, &o, argv, n);
        if (rc == CLI_GO)
            rc = execute(self, &report, &o, argv, n);
    }
    arena_free(&report.arena);
    return rc;
}

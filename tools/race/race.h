/* optc race: trains small tasks with several rules and reports which rule wins.
 *
 * Data and owners
 *   RaceReport   everything that is written: tasks, rules, and for each rule on each task an entry
 *                with its trials and runs. All of it is in the report's arena, allocated before the
 *                first run. The JSON writer and reader, the statistics, the tables and the HTML
 *                page use only this struct.
 *   Race         one command: options, engine, compiled rules, scheduler. cmd_race owns it.
 *   RaceRule     a compiled rule and what the race has to know about it. Runs share it and do not
 *                change it.
 *   TaskData     the data of a task for one seed (race_task.h). The run owns it.
 *
 * Order of work: cmd_race.c reads options; race_rules.c compiles rules; race_schedule.c gives runs
 * to threads and decides by race_search.c what to try next; race_run.c does one run; race_stats.c
 * compares; race_json.c, race_read.c, race_html.c, race_svg.c and race_terminal.c write and read. A
 * run depends only on the rule, the task, the seed, the rate and the decay, so a race repeats bit
 * for bit on any number of threads; only times differ. */
#ifndef OPTC_RACE_H
#define OPTC_RACE_H
#include "tools/page/json.h"
#include "tools/page/page.h"
#include "tools/race/race_task.h"

#include "optc.h"

#include <pthread.h>
#include <signal.h>

enum {
    RACE_LEAST_SEEDS = 6,
    RACE_MOST_SEEDS = 64,
    RACE_MOST_RULES = 16,
    RACE_MOST_TASKS = 16,
    RACE_MOST_TRIALS = 64,
    RACE_MOST_STEPS = 100000,
    RACE_MOST_THREADS = 64,
    RACE_LARGEST_SEED = 2000000000,
    RACE_DECAY_TRIALS = 6
};                        /* fewer trials are all spent on the rate */

/* ---- the report ---- */
typedef struct RaceRun {
    int64_t seed;
    bool done, diverged;       /* done: the run ended; otherwise the race was interrupted before */
    int reached;               /* the first evaluated step with a loss at or below the target; 0:
                                * none */
    int npoint;                /* evaluations: point i is after step race_step(task, i); fewer if it
                                * diverged */
    double *loss;
    double seconds, target_seconds;        /* CPU time of gradients and steps: all, and to the
                                            * target */
    double gradients;          /* per step */
    int budget, budget_point;  /* the steps that take as many gradients as the task has steps; its
                                * last point */
} RaceRun;

typedef struct RaceTrial {
    double rate, decay;        /* NAN: the rule has none */
    double factor, shift;      /* of the rule's default rates, and its log2 */
    int seeds, reached, diverged;          /* numbers of tuning runs */
    double steps, loss;        /* means: steps to the target of those that reached it, final loss of
                                * those that ended */
} RaceTrial;

typedef struct RaceEntry {     /* a rule on a task */
    RaceTrial *trial;
    int ntrial, best;          /* best: index of the chosen trial; -1: none yet */
    RaceRun *run;
    int nrun;
    double stride;             /* of the search: log2 of the factor between rates; not written */
    int decays;                /* of the search: trials of a decay so far; not written */
} RaceEntry;

typedef struct RaceTaskInfo {
    const char *name, *about; int steps, every; double target;
} RaceTaskInfo;
typedef struct RaceRuleInfo {
    const char *name, *text, *path;        /* as the user named it, the spec's text, how it runs */
    const char *rate, *decay;              /* names of the tuned hyperparameters, "" if there is
                                            * none */
    const char *note;                      /* what the race does for this rule, "" if nothing */
    double compile_seconds;
    double gradients;                      /* that a step takes in the mean: 2 with sam */
} RaceRuleInfo;

typedef struct RaceReport {
    Arena arena;
    const char *command, *machine, *version, *date;
    int ntask, nrule, nseed, ntune, most_trials;
    int64_t *seed, *tune;      /* reported seeds, and those of the trials */
    RaceTaskInfo *task;
    RaceRuleInfo *rule;
    RaceEntry *entry;          /* of task t and rule r: race_entry */
    bool linear;               /* rates fall linearly to 0 over the budget; otherwise they are
                                * constant */
    bool interrupted;
    double seconds, cpu_seconds;
} RaceReport;

static inline RaceEntry *race_entry(const RaceReport *p, int task, int rule)
{
    return &p->entry[task * p->nrule + rule];
}
static inline int race_step(const RaceTaskInfo *t, int point)
{
    return point * t->every < t->steps ? point * t->every : t->steps;
}
/* of all runs, after rules and tasks are known */
void race_set_budgets(RaceReport *p);
static inline int race_points(const RaceTaskInfo *t)
{
    return (t->steps + t->every - 1) / t->every + 1;
}

/* ---- race_rules.c ---- */
enum { RACE_HYPERS = 8, RACE_SETTINGS = 16 };
typedef struct RaceRule {
    optc_rule *rule;
    optc_setting fixed[RACE_SETTINGS]; int nfixed;     /* of "adamw(beta2=0.95)" */
    /* names; matrix rules also have adamw.lr */
    const char *rate[RACE_HYPERS], *decay[RACE_HYPERS];
    double rate_default[RACE_HYPERS], rate_lo[RACE_HYPERS], rate_hi[RACE_HYPERS], decay_default;
    int nrate, ndecay;
    /* a fallback rule; entries to_eval, set_hessian */
    bool fallback, averages, hessian;
    /* inputs, all of which take the loss of each batch */
    int nloss;
    /* wrapper loss_scale: gradients are multiplied by its state */
    bool scales;
} RaceRule;
/* Compiles a rule and fills in its row of the report. Prints the reason of a failure. label: a spec
 * with its own hyperparameters, options and wrappers: "adamw(beta2=0.95,amsgrad=true)+clip(1)". */
bool race_rule_open(RaceRule *r, RaceRuleInfo *info, Arena *a, optc_engine *e, const char *label,
                    const char *path);

/* ---- race_run.c ---- */
/* decay NAN: the default */
typedef struct RaceSettings { double factor, decay; bool linear; } RaceSettings;
/* Trains once. `run` has room for race_points losses. false: an error of the library, in
 * `error`. */
bool race_run(const RaceRule *r, const RaceTask *t, const RaceTaskInfo *info, RaceSettings s,
              const volatile sig_atomic_t *stop, RaceRun *run, char error[512]);

/* ---- race_search.c ---- */
/* The next trial of an entry, in e->trial[e->ntrial]; false: there are no more. */
bool race_search(const RaceRule *r, RaceEntry *e, int most);
void race_trial_summary(RaceTrial *x, const RaceRun *run, int n);
void race_choose(RaceEntry *e);                        /* sets e->best */
/* rates below and above the chosen one were tried */
bool race_bracketed(const RaceEntry *e);

/* ---- race_schedule.c ---- */
typedef struct Race Race;
struct Race {
    RaceReport *report;
    const RaceTask *task[RACE_MOST_TASKS];
    RaceRule rule[RACE_MOST_RULES];
    optc_engine *engine;
    int threads;                                       /* 1 to RACE_MOST_THREADS */
    /* called several times a second; NULL: nothing is shown */
    void (*show)(const Race *race, bool last);
    /* The scheduler's own: */
    struct RaceUnit *unit;                             /* progress of each entry */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int running;                                       /* threads that have not ended */
    bool failed;
    char error[512];
    double started;
};
/* set by Ctrl-C: runs end, the report is written */
extern volatile sig_atomic_t race_stop;
bool race_execute(Race *race);
/* Share of the work that is done, and the seconds that remain; -1: not known yet. The caller holds
 * the lock. */
double race_progress(const Race *race, double *remaining);

/* ---- race_stats.c ---- */
/* RACE_STEPS, RACE_TIME: to the target; runs that miss it come later, by final loss. RACE_LOSS: the
 * final loss.
 * RACE_GRADIENTS: to the target, of at most as many gradients as the task has steps; others by the
 * loss after those. Diverged runs are last. Times are CPU times and differ from race to race. */
typedef enum { RACE_STEPS, RACE_LOSS, RACE_TIME, RACE_GRADIENTS, RACE_METRICS } RaceMetric;
extern const char *const race_metric_names[RACE_METRICS];              /* "steps to target", … */
/* a rule takes another number of them than one per step */
bool race_counts_gradients(const RaceReport *p);
int race_compare(RaceMetric by, const RaceRun *a, const RaceRun *b);   /* below 0: a is better */
double race_median(double *v, int n);                  /* sorts v; NAN if there is none */
/* The median loss at each point, up to the first that is not finite. Diverged runs count as
 * infinite. Returns the number of points; out has room for race_points. */
int race_median_curve(const RaceReport *p, int task, int rule, double *out);
double race_final(const RaceRun *r);                   /* INFINITY: it diverged */
typedef struct RaceSummary {   /* of the runs that are done */
    int done, reached, diverged;
    /* medians; steps, seconds: INFINITY if most did not reach it */
    double steps, seconds, loss, step_seconds;
} RaceSummary;
RaceSummary race_summary(const RaceReport *p, int task, int rule);
/* a is the better one */
typedef struct RaceVerdict { int a, b; double p, adjusted; bool beats; } RaceVerdict;
/* What a reader must know of the rates of a verdict's rules: "; best rate of adamw at the end of
 * the range". */
void race_rate_note(const RaceReport *p, int task, const RaceVerdict *v, Buf *b);
/* All pairs of rules of a task, by the exact Mann-Whitney test with Holm's correction over the
 * pairs. v: room for all pairs. */
int race_verdicts(const RaceReport *p, int task, RaceMetric by, RaceVerdict *v);
/* two-sided p; for tests too */
double race_mann_whitney(const int *rank2, int na, int nb, double sum2);
/* Rules of a task, the best one first. */
void race_order(const RaceReport *p, int task, int *rule);
#define RACE_ALPHA 0.05

/* ---- race_curves.c ---- */
void race_curves(const RaceReport *p, Buf *b);         /* b must be in an arena */

/* ---- race_fields.c: of RaceReport, RaceTaskInfo, … in JSON; compile: of RaceRuleInfo; time: of
 * RaceRun ---- */
extern const JsonField race_report_fields[], race_machine_fields[], race_task_fields[],
    race_rule_fields[], race_compile_fields[], race_trial_fields[], race_run_fields[],
    race_time_fields[], race_summary_fields[];

/* ---- race_json.c, race_read.c ---- */
void race_json(const RaceReport *p, Buf *b);
/* Reads what race_json or optc.torch.race wrote. Prints the reason of a failure. */
bool race_read(RaceReport *p, const char *path);

/* ---- race_html.c, race_svg.c ---- */
void race_html(const RaceReport *p, Buf *b);
/* box: at_x and at_y, where the plot goes in a picture; NULL: in a page. */
void svg_curves(const RaceReport *p, int task, bool zoom, const Plot *box, Buf *b);
void svg_sweep(const RaceReport *p, int task, Buf *b);
void race_picture(const RaceReport *p, Buf *b);        /* an SVG file */

/* ---- race_terminal.c ---- */
/* of the live plot; narrower terminals get none */
enum { RACE_COLUMNS = 76 };
void race_show(const Race *race, bool last);           /* the live plot */
void race_table(const RaceReport *p);
#endif

/* The scheduler: threads take runs from it until all are done. The trials of an entry follow each
 * other, because the results of one decide the next; entries, and the reported seeds of an entry,
 * run in parallel. */
#include "tools/race/race.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

volatile sig_atomic_t race_stop;

typedef struct RaceUnit {      /* progress of one entry; the lock protects it */
    RaceRun *trial_run;        /* one for each tuning seed; losses are in the report's arena */
    int started, ended;        /* runs of the current trial, or of the reported seeds */
    bool tuning;
    int runs;                  /* ended runs in all, and their CPU seconds */
    double seconds;
} RaceUnit;
typedef struct Item { int task, rule; RaceRun *run; RaceSettings settings; bool trial; } Item;

static RaceUnit *unit_of(const Race *race, int task, int rule)
{
    return &race->unit[task * race->report->nrule + rule];
}

/* Finds a run to start. *waiting: runs are in progress whose results are needed first. */
static bool take_item(Race *race, Item *item, bool *waiting)
{
    RaceReport *p = race->report;
    *waiting = false;
    for (int t = 0; t < p->ntask; t++)
        for (int r = 0; r < p->nrule; r++) {
            RaceUnit *u = unit_of(race, t, r);
            RaceEntry *e = race_entry(p, t, r);
            int most = u->tuning ? p->ntune : p->nseed;
            if (u->started < most) {
                const RaceTrial *x = &e->trial[u->tuning ? e->ntrial : e->best];
                *item = (Item){t, r, u->tuning ? &u->trial_run[u->started] : &e->run[u->started],
                               {x->factor, x->decay, p->linear}, u->tuning};
                u->started++;
                return true;
            }
            *waiting = *waiting || u->ended < most;
        }
    return false;
}

static void end_trial(Race *race, RaceUnit *u, RaceEntry *e, const RaceRule *r)
{
    race_trial_summary(&e->trial[e->ntrial], u->trial_run, race->report->ntune);
    e->ntrial++;
    race_choose(e);
    u->started = u->ended = 0;
    u->tuning = race_search(r, e, race->report->most_trials);
}

static void end_item(Race *race, const Item *item)
{
    RaceUnit *u = unit_of(race, item->task, item->rule);
    u->ended++;
    u->runs++;
    u->seconds += item->run->seconds;
    if (item->trial && u->ended == race->report->ntune && !race_stop)
        end_trial(race, u, race_entry(race->report, item->task, item->rule),
                  &race->rule[item->rule]);
}

static void *work(void *arg)
{
    Race *race = arg;
    pthread_mutex_lock(&race->lock);
    while (!race_stop && !race->failed) {
        Item item;
        bool waiting;
        if (!take_item(race, &item, &waiting)) {
            if (!waiting)
                break;
            pthread_cond_wait(&race->changed, &race->lock);
            continue;
        }
        char error[512];
        RaceRun mine = *item.run;                  /* others see the run when it has ended */
        pthread_mutex_unlock(&race->lock);
        bool ok = race_run(&race->rule[item.rule], race->task[item.task],
                           &race->report->task[item.task], item.settings, &race_stop, &mine, error);
        pthread_mutex_lock(&race->lock);
        *item.run = mine;
        if (!ok && !race->failed) {
            race->failed = true;
            snprintf(race->error, sizeof race->error, "race: %s on %s: %.400s",
                     race->report->rule[item.rule].name, race->report->task[item.task].name, error);
        }
        end_item(race, &item);
        pthread_cond_broadcast(&race->changed);
    }
    race->running--;
    pthread_cond_broadcast(&race->changed);
    pthread_mutex_unlock(&race->lock);
    return NULL;
}

double race_progress(const Race *race, double *remaining)
{
    const RaceReport *p = race->report;
    double done = 0, all = 0, left = 0, seconds = 0;
    int runs = 0, each = p->most_trials * p->ntune + p->nseed;
    for (int i = 0; i < p->ntask * p->nrule; i++) {
        runs += race->unit[i].runs;
        seconds += race->unit[i].seconds;
    }
    for (int t = 0; t < p->ntask; t++) {
        double task_seconds = 0;
        int task_runs = 0;
        for (int r = 0; r < p->nrule; r++) {
            task_seconds += unit_of(race, t, r)->seconds;
            task_runs += unit_of(race, t, r)->runs;
        }
        for (int r = 0; r < p->nrule; r++) {
            const RaceUnit *u = unit_of(race, t, r);
            bool finished = !u->tuning && u->ended == p->nseed;
            double mean = u->runs      ? u->seconds / u->runs
                          : task_runs ? task_seconds / task_runs
                                      : seconds / (runs + !runs);
            all += each;
            done += finished ? each : u->runs;
            left += finished ? 0 : (each - u->runs) * mean;
        }
    }
    /* Times of runs exclude evaluations and data; the wall clock includes them. */
    double passed = cli_now() - race->started;
    *remaining = seconds > 0 ? passed * left / seconds : -1;
    return done / all;
}

static bool make_units(Race *race)
{
    RaceReport *p = race->report;
    race->unit = NEWS(&p->arena, RaceUnit, p->ntask * p->nrule);
    for (int t = 0; t < p->ntask; t++)
        for (int r = 0; r < p->nrule; r++) {
            RaceUnit *u = unit_of(race, t, r);
            u->trial_run = NEWS(&p->arena, RaceRun, p->ntune);
            for (int i = 0; i < p->ntune; i++) {
                u->trial_run[i].seed = p->tune[i];
                u->trial_run[i].loss = NEWS(&p->arena, double, race_points(&p->task[t]));
            }
            u->tuning = race_search(&race->rule[r], race_entry(p, t, r), p->most_trials);
        }
    return true;
}

/* Starts the threads, and shows progress until they have ended. */
bool race_execute(Race *race)
{
    pthread_t thread[RACE_MOST_THREADS];
    int n = race->threads, made = 0;
    make_units(race);
    race->started = cli_now();
    pthread_mutex_init(&race->lock, NULL);
    pthread_cond_init(&race->changed, NULL);
    race->running = n;
    for (; made < n; made++)
        if (pthread_create(&thread[made], NULL, work, race))
            break;
    pthread_mutex_lock(&race->lock);
    race->running -= n - made;
    while (race->running) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        double shown = cli_now();
        while (race->running &&
               pthread_cond_timedwait(&race->changed, &race->lock, &until) != ETIMEDOUT &&
               cli_now() - shown < 0.2);
        if (race->show && race->running)
            race->show(race, false);
        if (race_stop)
            /* wakes threads that wait for a result */
            pthread_cond_broadcast(&race->changed);
    }
    pthread_mutex_unlock(&race->lock);
    for (int i = 0; i < made; i++)
        pthread_join(thread[i], NULL);
    if (race->show)
        race->show(race, true);
    pthread_cond_destroy(&race->changed);
    pthread_mutex_destroy(&race->lock);
    if (!made)
        return cli_error("race: cannot start a thread"), false;
    return race->failed ? (cli_error("%s", race->error), false) : true;
}

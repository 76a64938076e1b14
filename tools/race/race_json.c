/* The report as JSON. Everything outside of "machine" repeats bit for bit with the same rules,
 * tasks and seeds. */
#include "tools/race/race.h"

#include <math.h>

static void seeds(JsonText *t, const char *name, const int64_t *v, int n)
{
    json_list(t, name, false);
    for (int i = 0; i < n; i++)
        json_int(t, NULL, v[i]);
    json_end(t);
}

static void item(JsonText *t, const JsonField *f, const void *of)
{
    json_object(t, NULL, false);
    json_fields(t, f, of);
    json_end(t);
}

static void result(JsonText *t, const RaceReport *p, int task, int rule)
{
    const RaceEntry *e = race_entry(p, task, rule);
    RaceSummary s = race_summary(p, task, rule);
    json_object(t, NULL, true);
    json_string(t, "task", p->task[task].name);
    json_string(t, "rule", p->rule[rule].name);
    json_int(t, "best", e->best);
    json_bool(t, "rate_at_end",
              e->best >= 0 && isfinite(e->trial[e->best].rate) && !race_bracketed(e));
    json_object(t, "summary", false);
    json_fields(t, race_summary_fields, &s);
    json_end(t);
    json_list(t, "trials", true);
    for (int i = 0; i < e->ntrial; i++)
        item(t, race_trial_fields, &e->trial[i]);
    json_end(t);
    json_list(t, "runs", true);
    for (const RaceRun *r = e->run; r < e->run + e->nrun; r++) {
        json_object(t, NULL, false);
        json_fields(t, race_run_fields, r);
        json_list(t, "loss", false);
        for (int k = 0; k < r->npoint && r->done; k++)
            json_real(t, NULL, r->loss[k]);
        json_end(t);
        json_end(t);
    }
    json_end(t);
    json_end(t);
}

static void verdicts(JsonText *t, const RaceReport *p, RaceMetric by)
{
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    for (int k = 0; k < p->ntask; k++)
        for (int i = 0, n = race_verdicts(p, k, by, v); i < n; i++) {
            json_object(t, NULL, false);
            json_string(t, "task", p->task[k].name);
            json_string(t, "by", race_metric_names[by]);
            json_string(t, "a", p->rule[v[i].a].name);
            json_string(t, "b", p->rule[v[i].b].name);
            json_real(t, "p", v[i].p);
            json_real(t, "adjusted", v[i].adjusted);
            json_bool(t, "beats", v[i].beats);
            json_end(t);
        }
}

static void machine(JsonText *t, const RaceReport *p)
{
    json_object(t, "machine", true);
    json_fields(t, race_machine_fields, p);
    json_list(t, "rules", true);
    for (int r = 0; r < p->nrule; r++)
        item(t, race_compile_fields, &p->rule[r]);
    json_end(t);
    json_list(t, "times", true);
    for (const RaceEntry *e = p->entry; e < p->entry + p->ntask * p->nrule; e++) {
        json_list(t, NULL, false);
        for (int i = 0; i < e->nrun; i++)
            item(t, race_time_fields, &e->run[i]);
        json_end(t);
    }
    json_end(t);
    json_list(t, "verdicts", true);
    verdicts(t, p, RACE_TIME);
    json_end(t);
    json_end(t);
}

void race_json(const RaceReport *p, Buf *b)
{
    JsonText t = {.b = b};
    json_object(&t, NULL, true);
    json_string(&t, "format", "optc-race 1");
    json_fields(&t, race_report_fields, p);
    json_string(&t, "schedule", p->linear ? "linear" : "constant");
    seeds(&t, "seeds", p->seed, p->nseed);
    seeds(&t, "tuning_seeds", p->tune, p->ntune);
    json_list(&t, "tasks", true);
    for (int i = 0; i < p->ntask; i++)
        item(&t, race_task_fields, &p->task[i]);
    json_end(&t);
    json_list(&t, "rules", true);
    for (int i = 0; i < p->nrule; i++)
        item(&t, race_rule_fields, &p->rule[i]);
    json_end(&t);
    json_list(&t, "results", true);
    for (int i = 0; i < p->ntask * p->nrule; i++)
        result(&t, p, i / p->nrule, i % p->nrule);
    json_end(&t);
    json_string(&t, "test",
                "exact Mann-Whitney, two-sided; Holm's correction over the pairs of a task");
    json_list(&t, "verdicts", true);
    verdicts(&t, p, RACE_STEPS);
    verdicts(&t, p, RACE_LOSS);
    if (race_counts_gradients(p))
        verdicts(&t, p, RACE_GRADIENTS);
    json_end(&t);
    machine(&t, p);
    json_end(&t);
}

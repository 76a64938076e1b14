/* The report as JSON. Everything outside of "machine" repeats bit for bit with the same rules,
 * tasks and seeds. */
#include "tools/race/race.h"

#include <math.h>

static void string(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++)
        if ((unsigned char)*s < 0x20)
            buf_printf(b, "\\u%04x", (unsigned)*s);
        else
            buf_printf(b, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    buf_puts(b, "\"");
}

void json_field(Buf *b, const char *name, const char *s)
{
    string(b, name);
    buf_puts(b, ": ");
    string(b, s);
}

static void number(Buf *b, double x)
{
    if (isfinite(x))
        buf_double(b, x);
    else
        buf_puts(b, "null");
}

static void real(Buf *b, const char *name, double x)
{
    buf_printf(b, ", \"%s\": ", name);
    number(b, x);
}

static const char *truth(bool x) { return x ? "true" : "false"; }

static void seeds(Buf *b, const char *name, const int64_t *v, int n)
{
    buf_printf(b, "  \"%s\": [", name);
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%lld", i ? ", " : "", (long long)v[i]);
    buf_puts(b, "],\n");
}

static void result(const RaceReport *p, int task, int rule, Buf *b)
{
    const RaceEntry *e = race_entry(p, task, rule);
    RaceSummary s = race_summary(p, task, rule);
    buf_puts(b, "    {");
    json_field(b, "task", p->task[task].name);
    buf_puts(b, ", ");
    json_field(b, "rule", p->rule[rule].name);
    bool at_end = e->best >= 0 && isfinite(e->trial[e->best].rate) && !race_bracketed(e);
    buf_printf(b, ", \"best\": %d, \"rate_at_end\": %s,\n     "
                  "\"summary\": {\"runs\": %d, \"reached\": %d, \"diverged\": %d", e->best,
               truth(at_end), s.done, s.reached, s.diverged);
    real(b, "median_steps", s.steps);
    real(b, "median_loss", s.loss);
    buf_puts(b, "},\n     \"trials\": [");
    for (int i = 0; i < e->ntrial; i++) {
        const RaceTrial *x = &e->trial[i];
        buf_printf(b, "%s\n      {\"seeds\": %d, \"reached\": %d, \"diverged\": %d", i ? "," : "",
                   x->seeds, x->reached, x->diverged);
        real(b, "rate", x->rate);
        real(b, "factor", x->factor);
        real(b, "decay", x->decay);
        real(b, "steps", x->steps);
        real(b, "loss", x->loss);
        buf_puts(b, "}");
    }
    buf_puts(b, "],\n     \"runs\": [");
    for (int i = 0; i < e->nrun; i++) {
        const RaceRun *r = &e->run[i];
        buf_printf(b,
                   "%s\n      {\"seed\": %lld, \"done\": %s, \"diverged\": %s, \"reached\": %d, "
                   "\"loss\": [",
                   i ? "," : "", (long long)r->seed, truth(r->done), truth(r->diverged),
                   r->reached);
        for (int k = 0; k < r->npoint && r->done; k++) {
            buf_puts(b, k ? ", " : "");
            number(b, r->loss[k]);
        }
        buf_puts(b, "]}");
    }
    buf_puts(b, "]}");
}

/* first: no verdict was written yet */
static void metric_verdicts(const RaceReport *p, RaceMetric by, bool first, Buf *b)
{
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    for (int t = 0; t < p->ntask; t++)
        for (int i = 0, n = race_verdicts(p, t, by, v); i < n; i++, first = false) {
            buf_puts(b, first ? "\n    {" : ",\n    {");
            json_field(b, "task", p->task[t].name);
            buf_puts(b, ", ");
            json_field(b, "by", race_metric_names[by]);
            buf_puts(b, ", ");
            json_field(b, "a", p->rule[v[i].a].name);
            buf_puts(b, ", ");
            json_field(b, "b", p->rule[v[i].b].name);
            real(b, "p", v[i].p);
            real(b, "adjusted", v[i].adjusted);
            buf_printf(b, ", \"beats\": %s}", truth(v[i].beats));
        }
}

static void verdicts(const RaceReport *p, Buf *b)
{
    buf_puts(b, "  \"test\": \"exact Mann-Whitney, two-sided; Holm's correction over the pairs of "
                "a task\",\n"
                "  \"verdicts\": [");
    metric_verdicts(p, RACE_STEPS, true, b);
    metric_verdicts(p, RACE_LOSS, p->nrule < 2, b);
    if (race_counts_gradients(p))
        metric_verdicts(p, RACE_GRADIENTS, p->nrule < 2, b);
    buf_puts(b, "],\n");
}

static void machine(const RaceReport *p, Buf *b)
{
    buf_puts(b, "  \"machine\": {\n    ");
    json_field(b, "command", p->command);
    buf_puts(b, ",\n    ");
    json_field(b, "device", p->machine);
    buf_puts(b, ",\n    ");
    json_field(b, "date", p->date);
    real(b, "seconds", p->seconds);
    real(b, "cpu_seconds", p->cpu_seconds);
    buf_puts(b, ",\n    \"rules\": [");
    for (int r = 0; r < p->nrule; r++) {
        buf_puts(b, r ? ",\n      {" : "\n      {");
        json_field(b, "path", p->rule[r].path);
        real(b, "compile_seconds", p->rule[r].compile_seconds);
        buf_puts(b, "}");
    }
    buf_puts(b, "],\n    \"times\": [");
    for (int i = 0; i < p->ntask * p->nrule; i++) {
        const RaceEntry *e = &p->entry[i];
        buf_puts(b, i ? ",\n      [" : "\n      [");
        for (int k = 0; k < e->nrun; k++) {
            buf_puts(b, k ? ", {\"all\": " : "{\"all\": ");
            number(b, e->run[k].seconds);
            real(b, "target", e->run[k].target_seconds);
            buf_puts(b, "}");
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "],\n    \"verdicts\": [");
    metric_verdicts(p, RACE_TIME, true, b);
    buf_puts(b, "]\n  }\n}\n");
}

void race_json(const RaceReport *p, Buf *b)
{
    LocaleMark was = locale_plain();
    buf_puts(b, "{\n  \"format\": \"optc-race 1\",\n  ");
    json_field(b, "version", p->version);
    buf_printf(b, ",\n  \"interrupted\": %s,\n  \"most_trials\": %d,\n  \"schedule\": \"%s\",\n",
               truth(p->interrupted), p->most_trials, p->linear ? "linear" : "constant");
    seeds(b, "seeds", p->seed, p->nseed);
    seeds(b, "tuning_seeds", p->tune, p->ntune);
    buf_puts(b, "  \"tasks\": [");
    for (int t = 0; t < p->ntask; t++) {
        buf_puts(b, t ? ",\n    {" : "\n    {");
        json_field(b, "name", p->task[t].name);
        buf_puts(b, ", ");
        json_field(b, "about", p->task[t].about);
        buf_printf(b, ", \"steps\": %d, \"every\": %d", p->task[t].steps, p->task[t].every);
        real(b, "target", p->task[t].target);
        buf_puts(b, "}");
    }
    buf_puts(b, "],\n  \"rules\": [");
    for (int r = 0; r < p->nrule; r++) {
        const RaceRuleInfo *x = &p->rule[r];
        const char *const name[] = {"name", "rate", "decay", "note", "text"};
        const char *const value[] = {x->name, x->rate, x->decay, x->note, x->text};
        buf_puts(b, r ? ",\n    {" : "\n    {");
        for (int i = 0; i < 5; i++) {
            buf_puts(b, i ? ", " : "");
            json_field(b, name[i], value[i]);
        }
        real(b, "gradients", x->gradients);
        buf_puts(b, "}");
    }
    buf_puts(b, "],\n  \"results\": [\n");
    for (int t = 0; t < p->ntask; t++)
        for (int r = 0; r < p->nrule; r++) {
            result(p, t, r, b);
            buf_puts(b, t == p->ntask - 1 && r == p->nrule - 1 ? "\n" : ",\n");
        }
    buf_puts(b, "  ],\n");
    verdicts(p, b);
    machine(p, b);
    locale_back(was);
}

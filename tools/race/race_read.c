/* Reads a report from JSON, as race_json writes it. optc.torch.race writes the same format, so that
 * there is one page for both. Verdicts and medians are computed again from the runs. */
#include "tools/race/race.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first mistake; later ones are not reported. */
typedef struct Reading { RaceReport *p; const char *path; bool bad; } Reading;

/* at: the value, or the object that lacks it; NULL: the file has neither. */
static void wrong(Reading *in, const Json *at, const char *what, const char *need)
{
    if (!in->bad)
        cli_error("race: %s:%d: '%s' must be %s", in->path, at ? at->line : 1, what, need);
    in->bad = true;
}

static const char *found_text(const Json *m)
{
    static const char *const name[] = {
        [JSON_NULL] = "null",       [JSON_FALSE] = "false",
        [JSON_TRUE] = "true",       [JSON_NUMBER] = "a number beyond the range of doubles",
        [JSON_STRING] = "a text",   [JSON_LIST] = "a list",
        [JSON_OBJECT] = "an object"};
    return name[m->kind];
}

static const char *text_of(Reading *in, const Json *x, const char *key)
{
    const Json *m = json_member(x, key);
    if (!m)
        return "";
    if (m->kind != JSON_STRING)
        wrong(in, m, key, "a text");
    return m->text;
}

static void read_real(Reading *in, const Json *x, const char *key, double missing, double *to)
{
    const Json *m = json_member(x, key);
    if (m && m->kind != JSON_NUMBER && m->kind != JSON_NULL)
        wrong(in, m, key, "a number or null");
    *to = m && m->kind == JSON_NUMBER ? m->number : missing;
}

static int64_t whole_of(Reading *in, const Json *x, const char *key, int least, int most)
{
    double v;
    read_real(in, x, key, NAN, &v);
    if (!(v >= least && v <= most) || v != floor(v)) {
        const Json *m = json_member(x, key);
        char need[64];
        snprintf(need, sizeof need, "a whole number from %d to %d", least, most);
        wrong(in, m ? m : x, key, need);
        return least;
    }
    return (int64_t)v;
}

static bool truth_of(Reading *in, const Json *x, const char *key)
{
    const Json *m = json_member(x, key);
    if (m && m->kind != JSON_TRUE && m->kind != JSON_FALSE)
        wrong(in, m, key, "true or false");
    return m && m->kind == JSON_TRUE;
}

static void read_fields(Reading *in, const Json *x, const JsonField *f, void *to)
{
    for (; f->name; f++) {
        void *at = (char *)to + f->at;
        switch (f->kind) {
        case FIELD_INT: *(int *)at = (int)whole_of(in, x, f->name, f->least, f->most); break;
        case FIELD_INT64: *(int64_t *)at = whole_of(in, x, f->name, f->least, f->most); break;
        case FIELD_BOOL: *(bool *)at = truth_of(in, x, f->name); break;
        case FIELD_TEXT: *(const char **)at = text_of(in, x, f->name); break;
        case FIELD_REAL: read_real(in, x, f->name, NAN, at); break;
        case FIELD_REACHED: read_real(in, x, f->name, INFINITY, at);
        }
    }
}

static int list_of(Reading *in, const Json *x, const char *key, int least, int most,
                   const Json **list)
{
    char need[64];
    *list = json_member(x, key);
    snprintf(need, sizeof need, "a list of %d to %d items", least, most);
    if (*list && (*list)->kind == JSON_LIST && (*list)->count >= least && (*list)->count <= most)
        return (*list)->count;
    wrong(in, *list ? *list : x, key, need);
    return 0;
}

static int64_t *seeds_of(Reading *in, const Json *x, const char *key, int *n)
{
    const Json *list;
    *n = list_of(in, x, key, 0, RACE_MOST_SEEDS, &list);
    int64_t *v = NEWS(&in->p->arena, int64_t, *n + 1);
    for (int i = 0; i < *n; i++) {
        const Json *m = json_item(list, i);
        bool whole =
            m->kind == JSON_NUMBER && fabs(m->number) < 0x1p53 && m->number == floor(m->number);
        if (!whole)
            wrong(in, m, key, "a list of whole numbers");
        v[i] = whole ? (int64_t)m->number : 0;
    }
    return v;
}

static void read_trials(Reading *in, const Json *x, RaceEntry *e)
{
    const Json *list;
    e->ntrial = list_of(in, x, "trials", 0, RACE_MOST_TRIALS, &list);
    e->trial = NEWS(&in->p->arena, RaceTrial, e->ntrial + 1);
    for (int i = 0; i < e->ntrial; i++)
        read_fields(in, json_item(list, i), race_trial_fields, &e->trial[i]);
    e->best = e->ntrial ? (int)whole_of(in, x, "best", 0, e->ntrial - 1) : -1;
}

/* The losses of a run. null is a loss that was not finite: a diverged or unfinished run ends there,
 * and any other run is refused, because NaN ties with every other loss. */
static void read_losses(Reading *in, const Json *result, const Json *points, RaceRun *run)
{
    int n = run->npoint, k = 0;
    run->loss = NEWS(&in->p->arena, double, n + 1);
    for (const Json *m = n ? points->first : NULL; m; m = m->next, k++) {
        bool ends = m->kind == JSON_NULL && (run->diverged || !run->done);
        if (!ends && !(m->kind == JSON_NUMBER && isfinite(m->number))) {
            char need[256];
            snprintf(need, sizeof need,
                     "a list of numbers: item %d of %.40s on %.40s, seed %lld, is %s; only runs "
                     "with \"diverged\": true may have null",
                     k + 1, text_of(in, result, "rule"), text_of(in, result, "task"),
                     (long long)run->seed, found_text(m));
            wrong(in, m, "loss", need);
        }
        run->npoint = ends && run->npoint == n ? k : run->npoint;
        run->loss[k] = m->number;
    }
    if (run->done && !run->npoint && !run->diverged)
        wrong(in, points, "loss", "a list of numbers in a run that is done");
}

static void read_runs(Reading *in, const Json *x, RaceEntry *e, const RaceTaskInfo *task)
{
    const Json *list, *points;
    e->nrun = list_of(in, x, "runs", 0, RACE_MOST_SEEDS, &list);
    e->run = NEWS(&in->p->arena, RaceRun, e->nrun + 1);
    for (int i = 0; i < e->nrun && !in->bad; i++) {
        const Json *r = json_item(list, i);
        RaceRun *run = &e->run[i];
        read_fields(in, r, race_run_fields, run);
        if (run->reached > task->steps)
            wrong(in, json_member(r, "reached"), "reached", "a step of the task");
        run->npoint = list_of(in, r, "loss", 0, race_points(task), &points);
        read_losses(in, x, points, run);
    }
}

static void read_machine(Reading *in, const Json *x)
{
    RaceReport *p = in->p;
    const Json *m = json_member(x, "machine"), *rules = json_member(m, "rules"),
               *times = json_member(m, "times");
    read_fields(in, m, race_machine_fields, p);
    for (int r = 0; r < p->nrule; r++)
        read_fields(in, json_item(rules, r), race_compile_fields, &p->rule[r]);
    for (int i = 0; i < p->ntask * p->nrule; i++)
        for (int k = 0; k < p->entry[i].nrun; k++)
            read_fields(in, json_item(json_item(times, i), k), race_time_fields,
                        &p->entry[i].run[k]);
}

static void read_tree(Reading *in, const Json *x)
{
    RaceReport *p = in->p;
    const Json *tasks, *rules, *results;
    if (strcmp(text_of(in, x, "format"), "optc-race 1"))
        wrong(in, json_member(x, "format"), "format",
              "\"optc-race 1\": the file is no report of a race");
    read_fields(in, x, race_report_fields, p);
    p->linear = !strcmp(text_of(in, x, "schedule"), "linear");
    p->seed = seeds_of(in, x, "seeds", &p->nseed);
    p->tune = seeds_of(in, x, "tuning_seeds", &p->ntune);
    p->ntask = list_of(in, x, "tasks", 1, RACE_MOST_TASKS, &tasks);
    p->nrule = list_of(in, x, "rules", 1, RACE_MOST_RULES, &rules);
    if (in->bad)
        return;
    p->task = NEWS(&p->arena, RaceTaskInfo, p->ntask);
    p->rule = NEWS(&p->arena, RaceRuleInfo, p->nrule);
    p->entry = NEWS(&p->arena, RaceEntry, p->ntask * p->nrule);
    for (int t = 0; t < p->ntask; t++) {
        const Json *m = json_item(tasks, t);
        read_fields(in, m, race_task_fields, &p->task[t]);
        if (!isfinite(p->task[t].target))
            wrong(in, m, "target", "a number");
    }
    for (int r = 0; r < p->nrule; r++) {
        const Json *m = json_item(rules, r);
        p->rule[r].path = "";
        read_fields(in, m, race_rule_fields, &p->rule[r]);
        if (!json_member(m, "gradients"))          /* older reports lack it */
            p->rule[r].gradients = 1;
        if (!(p->rule[r].gradients >= 1 && p->rule[r].gradients <= 1000))
            wrong(in, m, "gradients", "a number from 1 to 1000");
    }
    int n = p->ntask * p->nrule;
    list_of(in, x, "results", n, n, &results);
    for (int i = 0; i < n && !in->bad; i++) {
        const Json *m = json_item(results, i);
        if (strcmp(text_of(in, m, "task"), p->task[i / p->nrule].name) ||
            strcmp(text_of(in, m, "rule"), p->rule[i % p->nrule].name))
            wrong(in, m, "results", "in the order of tasks, and inside a task of rules");
        read_trials(in, m, &p->entry[i]);
        read_runs(in, m, &p->entry[i], &p->task[i / p->nrule]);
    }
    if (!in->bad)
        read_machine(in, x);
    race_set_budgets(p);
}

bool race_read(RaceReport *p, const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t len = 0;
    if (!f)
        return cli_error("race: cannot read %s: %s", path, strerror(errno)), false;
    char *text = cli_read_all(f, (size_t)256 << 20, &len);
    int line = 0;
    fclose(f);
    if (!text)
        return cli_error("race: cannot read %s: %s", path, strerror(errno)), false;
    char *copy = arena_strndup(&p->arena, text, len);
    free(text);
    const Json *x = json_parse(&p->arena, copy, &line);
    if (!x)
        return cli_error("race: %s:%d: the text is not JSON", path, line), false;
    Reading in = {p, path, false};
    read_tree(&in, x);
    return !in.bad;
}

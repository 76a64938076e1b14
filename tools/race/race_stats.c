/* Comparison of runs: medians, the exact Mann-Whitney test, Holm's correction for the number of
 * pairs.
 *
 * Seeds are shared by all rules, so runs of two rules with one seed are positively correlated. The
 * test treats them as independent, which makes it conservative. */
#include "tools/race/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double race_final(const RaceRun *r)
{
    return r->diverged || !r->npoint ? INFINITY : r->loss[r->npoint - 1];
}

const char *const race_metric_names[RACE_METRICS] = {
    [RACE_STEPS] = "steps to target", [RACE_LOSS] = "final loss", [RACE_TIME] = "time to target",
    [RACE_GRADIENTS] = "gradients to target"};

static int order(double x, double y) { return x < y ? -1 : x > y; }

/* ---- gradients ---- */
void race_set_budgets(RaceReport *p)
{
    for (int i = 0; i < p->ntask * p->nrule; i++)
        for (int k = 0; k < p->entry[i].nrun; k++) {
            const RaceTaskInfo *t = &p->task[i / p->nrule];
            RaceRun *r = &p->entry[i].run[k];
            r->gradients = p->rule[i % p->nrule].gradients;
            r->budget = r->gradients > 1 ? (int)(t->steps / r->gradients) : t->steps;
            r->budget_point = r->budget == t->steps ? race_points(t) - 1 : r->budget / t->every;
        }
}

bool race_counts_gradients(const RaceReport *p)
{
    bool any = false;
    for (int r = 0; r < p->nrule; r++)
        any = any || p->rule[r].gradients != 1;
    return any;
}

static double gradients_to_target(const RaceRun *r)
{
    return r->reached && r->reached <= r->budget ? r->reached * r->gradients : INFINITY;
}

static double budget_loss(const RaceRun *r)
{
    /* INFINITY: it diverged before */
    return r->budget_point < r->npoint ? r->loss[r->budget_point] : INFINITY;
}

static int compare_gradients(const RaceRun *a, const RaceRun *b)
{
    double x = gradients_to_target(a), y = gradients_to_target(b);
    return isinf(x) && isinf(y) ? order(budget_loss(a), budget_loss(b)) : order(x, y);
}

int race_compare(RaceMetric by, const RaceRun *a, const RaceRun *b)
{
    if (by == RACE_GRADIENTS)
        return compare_gradients(a, b);
    if (by == RACE_LOSS || (!a->reached && !b->reached))
        return order(race_final(a), race_final(b));
    if (!a->reached || !b->reached)
        return a->reached ? -1 : 1;
    /* equally fast: a tie, whatever follows */
    return by == RACE_TIME ? order(a->target_seconds, b->target_seconds)
                           : order(a->reached, b->reached);
}

/* The mean of the two middle values of an even number, unless one of them is infinite. */
double race_median(double *v, int n)
{
    double upper = n ? median(v, n) : NAN;                 /* sorts v */
    return !n || n % 2 || !isfinite(upper) ? upper : (v[n / 2 - 1] + upper) / 2;
}

RaceSummary race_summary(const RaceReport *p, int task, int rule)
{
    const RaceEntry *e = race_entry(p, task, rule);
    RaceSummary s = {0};
    double steps[RACE_MOST_SEEDS], seconds[RACE_MOST_SEEDS], loss[RACE_MOST_SEEDS],
        step[RACE_MOST_SEEDS];
    for (int i = 0; i < e->nrun; i++) {
        const RaceRun *r = &e->run[i];
        if (!r->done)
            continue;
        steps[s.done] = r->reached ? r->reached : INFINITY;
        seconds[s.done] = r->reached ? r->target_seconds : INFINITY;
        step[s.done] = r->seconds / p->task[task].steps;
        loss[s.done++] = race_final(r);
        s.reached += r->reached > 0;
        s.diverged += r->diverged;
    }
    s.steps = race_median(steps, s.done);
    s.seconds = race_median(seconds, s.done);
    s.loss = race_median(loss, s.done);
    s.step_seconds = race_median(step, s.done);
    return s;
}

/* rank2: twice the midranks of all na + nb runs. sum2: the observed sum over the first group.
 * Counts the subsets of na ranks by their sum: exact with ties too. The p-value is the share of
 * subsets at least as far from the mean. */
double race_mann_whitney(const int *rank2, int na, int nb, double sum2)
{
    int n = na + nb, most = 0;
    for (int i = 0; i < n; i++)
        most += rank2[i];
    double *ways = calloc((size_t)(na + 1) * (size_t)(most + 1), sizeof *ways), all = 0, far = 0;
    if (!ways || !na || !nb)
        return free(ways), 1;
    ways[0] = 1;
    for (int i = 0; i < n; i++)
        for (int k = (i < na ? i : na - 1); k >= 0; k--)
            for (int s = most - rank2[i]; s >= 0; s--)
                ways[(k + 1) * (most + 1) + s + rank2[i]] += ways[k * (most + 1) + s];
    double mean = (double)most * na / n, off = fabs(sum2 - mean);
    for (int s = 0; s <= most; s++) {
        all += ways[na * (most + 1) + s];
        far += fabs(s - mean) >= off - 1e-9 ? ways[na * (most + 1) + s] : 0;
    }
    free(ways);
    return far / all;
}

typedef struct Ranked { const RaceRun *run; int group; RaceMetric by; } Ranked;
static int by_rank(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    return race_compare(x->by, x->run, y->run);
}

static RaceVerdict compare_rules(const RaceReport *p, int task, RaceMetric by, int a, int b)
{
    Ranked all[2 * RACE_MOST_SEEDS];
    int rank2[2 * RACE_MOST_SEEDS], n[2] = {0, 0}, total = 0;
    double sum2[2] = {0, 0};
    for (int g = 0; g < 2; g++) {
        const RaceEntry *e = race_entry(p, task, g ? b : a);
        for (int i = 0; i < e->nrun; i++)
            if (e->run[i].done) {
                all[total++] = (Ranked){&e->run[i], g, by};
                n[g]++;
            }
    }
    qsort(all, (size_t)total, sizeof *all, by_rank);
    for (int i = 0, j; i < total; i = j) {
        for (j = i; j < total && race_compare(by, all[i].run, all[j].run) == 0; j++)
            ;
        for (int k = i; k < j; k++) {
            rank2[k] = i + 1 + j;                          /* twice the mean of ranks i + 1 … j */
            sum2[all[k].group] += rank2[k];
        }
    }
    bool first = !n[0] || !n[1] || sum2[0] / n[0] <= sum2[1] / n[1];
    return (RaceVerdict){.a = first ? a : b, .b = first ? b : a,
                         .p = race_mann_whitney(rank2, n[0], n[1], sum2[0])};
}

static int by_p(const void *a, const void *b)
{
    const RaceVerdict *x = a, *y = b;
    return x->p < y->p ? -1 : x->p > y->p ? 1 : x->a != y->a ? x->a - y->a : x->b - y->b;
}

int race_verdicts(const RaceReport *p, int task, RaceMetric by, RaceVerdict *v)
{
    int n = 0;
    for (int a = 0; a < p->nrule; a++)
        for (int b = a + 1; b < p->nrule; b++)
            v[n++] = compare_rules(p, task, by, a, b);
    qsort(v, (size_t)n, sizeof *v, by_p);
    for (int i = 0; i < n; i++) {
        double x = v[i].p * (n - i);                       /* Holm 1979 */
        v[i].adjusted = x > 1 ? 1 : x;
        if (i && v[i].adjusted < v[i - 1].adjusted)
            v[i].adjusted = v[i - 1].adjusted;
        v[i].beats = v[i].adjusted < RACE_ALPHA;
    }
    return n;
}

void race_order(const RaceReport *p, int task, int *rule)
{
    for (int i = 0; i < p->nrule; i++) {
        RaceSummary s = race_summary(p, task, i);
        int k = i;
        for (; k > 0; k--) {
            RaceSummary o = race_summary(p, task, rule[k - 1]);
            bool before =
                s.done && (!o.done || s.steps < o.steps || (s.steps == o.steps && s.loss < o.loss));
            if (!before)
                break;
            rule[k] = rule[k - 1];
        }
        rule[k] = i;
    }
}

void race_rate_note(const RaceReport *p, int task, const RaceVerdict *v, Buf *b)
{
    const int rule[] = {v->a, v->b};
    for (int i = 0, n = 0; i < 2; i++) {
        const RaceEntry *e = race_entry(p, task, rule[i]);
        if (e->best >= 0 && isfinite(e->trial[e->best].rate) && !race_bracketed(e))
            buf_printf(b, n++ ? " and of %s" : "; best rate of %s", p->rule[rule[i]].name);
    }
    if (b->len)
        buf_puts(b, " at the end of the range");
}

/* The median over seeds at each point that at least half of the runs reached. Diverged runs count
 * as infinite. */
int race_median_curve(const RaceReport *p, int task, int rule, double *out)
{
    const RaceEntry *e = race_entry(p, task, rule);
    int n = 0, points = race_points(&p->task[task]);
    for (; n < points; n++) {
        double v[RACE_MOST_SEEDS];
        int m = 0;
        for (int i = 0; i < e->nrun; i++)
            if (e->run[i].done)
                v[m++] = n < e->run[i].npoint ? e->run[i].loss[n] : INFINITY;
        if (!m || !isfinite(out[n] = race_median(v, m)))
            break;
    }
    return n;
}

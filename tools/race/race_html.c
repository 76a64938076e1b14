/* The report as one HTML page without scripts or other files. It is readable on a phone, in light
 * and in dark. */
#include "tools/race/race.h"

#include <math.h>
#include <string.h>

static void rule_cell(const RaceReport *p, int rule, Buf *b)
{
    buf_printf(b, "<td><span class=\"key k%d\"></span>", rule);
    html_text(b, p->rule[rule].name);
    buf_puts(b, "</td>");
}

static void verdict_text(const RaceReport *p, int task, const RaceVerdict *v, Buf *b)
{
    Buf note = {0};
    buf_puts(b, "<b>");
    html_text(b, p->rule[v->a].name);
    buf_puts(b, v->beats ? "</b> beats <b>" : "</b> and <b>");
    html_text(b, p->rule[v->b].name);
    buf_printf(b, v->beats ? "</b> (p = %.2g)" : "</b>: not separable (p = %.2g)", v->adjusted);
    race_rate_note(p, task, v, &note);
    html_text(b, note.len ? cli_text(&note) : "");
    buf_free(&note);
}

static void results_table(const RaceReport *p, int task, Buf *b)
{
    int order[RACE_MOST_RULES];
    race_order(p, task, order);
    buf_puts(
        b, "<div class=\"wide\"><table><tr><th>rule</th><th>steps to target</th><th>reached</th>"
           "<th>time to target</th><th>final loss</th><th>diverged</th><th>rate</th><th>decay</th>"
           "<th>time per step</th></tr>\n");
    for (int i = 0; i < p->nrule; i++) {
        const RaceEntry *e = race_entry(p, task, order[i]);
        RaceSummary s = race_summary(p, task, order[i]);
        buf_puts(b, "<tr>");
        rule_cell(p, order[i], b);
        buf_puts(b, "<td>");
        html_number(b, s.steps);
        buf_printf(b, "</td><td>%d of %d</td><td>", s.reached, s.done);
        html_time(b, s.seconds);
        buf_puts(b, "</td><td>");
        html_number(b, s.loss);
        buf_printf(b, "</td><td>%d</td><td>", s.diverged);
        html_number(b, e->best < 0 ? NAN : e->trial[e->best].rate);
        buf_puts(b, "</td><td>");
        html_number(b, e->best < 0 ? NAN : e->trial[e->best].decay);
        buf_puts(b, "</td><td>");
        html_time(b, s.step_seconds);
        buf_puts(b, "</td></tr>\n");
    }
    buf_puts(b, "</table></div>\n");
}

static void trials_table(const RaceReport *p, int task, Buf *b)
{
    buf_printf(
        b, "<details><summary>All trials of the sweep</summary><div "
           "class=\"wide\"><table><tr><th>rule</th>"
           "<th>rate</th><th>decay</th><th>reached</th><th>mean steps</th><th>mean final loss</th>"
           "<th>diverged</th><th></th></tr>\n");
    for (int rule = 0; rule < p->nrule; rule++) {
        const RaceEntry *e = race_entry(p, task, rule);
        for (int i = 0; i < e->ntrial; i++) {
            const RaceTrial *x = &e->trial[i];
            const double v[] = {x->rate, x->decay};
            buf_puts(b, "<tr>");
            rule_cell(p, rule, b);
            for (int k = 0; k < 2; k++) {
                buf_puts(b, "<td>");
                html_number(b, v[k]);
                buf_puts(b, "</td>");
            }
            buf_printf(b, "<td>%d of %d</td><td>", x->reached, x->seeds);
            html_number(b, x->steps);
            buf_puts(b, "</td><td>");
            html_number(b, x->loss);
            buf_printf(b, "</td><td>%d</td><td>%s</td></tr>\n", x->diverged,
                       i == e->best ? "chosen" : "");
        }
    }
    buf_puts(b, "</table></div></details>\n");
}

static bool same_pair(const RaceVerdict *x, const RaceVerdict *y)
{
    return (x->a == y->a && x->b == y->b) || (x->a == y->b && x->b == y->a);
}

/* The same pairs by final loss and by time: which rule beats the other one. */
static void other_verdicts(const RaceReport *p, int task, Buf *b)
{
    static const RaceMetric by[] = {RACE_LOSS, RACE_TIME, RACE_GRADIENTS};
    RaceVerdict v[3][RACE_MOST_RULES * RACE_MOST_RULES];
    int n = 0, metrics = race_counts_gradients(p) ? 3 : 2;
    for (int k = 0; k < metrics; k++)
        n = race_verdicts(p, task, by[k], v[k]);
    if (!n)
        return;
    buf_printf(b,
               "<details><summary>Verdicts by final loss, by time%s to target</summary><div "
               "class=\"wide\"><table>"
               "<tr><th>pair</th>",
               metrics == 3 ? " and by gradients" : "");
    for (int k = 0; k < metrics; k++)
        buf_printf(b, "<th>%s</th>", race_metric_names[by[k]]);
    buf_puts(b, "</tr>\n");
    for (int i = 0; i < n; i++) {
        buf_puts(b, "<tr><td>");
        html_text(b, p->rule[v[0][i].a].name);
        buf_puts(b, ", ");
        html_text(b, p->rule[v[0][i].b].name);
        buf_puts(b, "</td>");
        for (int k = 0; k < metrics; k++) {
            const RaceVerdict *x = v[k];
            while (!same_pair(x, &v[0][i]))
                /* each metric has its own order of pairs */
                x++;
            buf_puts(b, "<td>");
            html_text(b, x->beats ? p->rule[x->a].name : "not separable");
            buf_printf(b, "%s (p = %.2g)</td>", x->beats ? " wins" : "", x->adjusted);
        }
        buf_puts(b, "</tr>\n");
    }
    buf_puts(b, "</table></div></details>\n");
}

static void task_section(const RaceReport *p, int task, Buf *b)
{
    const RaceTaskInfo *t = &p->task[task];
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    int n = race_verdicts(p, task, RACE_STEPS, v);
    buf_puts(b, "<section><h2>");
    html_text(b, t->name);
    buf_puts(b, "</h2><p class=\"dim\">");
    html_text(b, t->about);
    buf_printf(b, "; %d steps, target %.4g</p>\n<ul>", t->steps, t->target);
    for (int i = 0; i < n; i++) {
        buf_puts(b, "<li>");
        verdict_text(p, task, &v[i], b);
        buf_puts(b, "</li>\n");
    }
    buf_puts(b, "</ul>\n");
    other_verdicts(p, task, b);
    results_table(p, task, b);
    buf_puts(b, "<div class=\"plots\"><figure>");
    svg_curves(p, task, false, NULL, b);
    buf_puts(b, "<figcaption>Thick: median over seeds. Thin: single seeds. Dashed: target. ×: "
                "diverged.</figcaption>"
                "</figure><figure>");
    svg_curves(p, task, true, NULL, b);
    buf_puts(b, "<figcaption>The same near the target.</figcaption></figure><figure>");
    svg_sweep(p, task, b);
    buf_puts(b, "<figcaption>The sweep, on other seeds. Filled: every run reached the target. "
                "Large: chosen. ×: every "
                "run diverged.</figcaption></figure></div>\n");
    trials_table(p, task, b);
    buf_puts(b, "</section>\n");
}

static void standing(const RaceReport *p, Buf *b)
{
    int wins[RACE_MOST_RULES] = {0}, losses[RACE_MOST_RULES] = {0},
        pairs = (p->nrule - 1) * p->ntask;
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    for (int t = 0; t < p->ntask; t++)
        for (int i = 0, n = race_verdicts(p, t, RACE_STEPS, v); i < n; i++)
            if (v[i].beats) {
                wins[v[i].a]++;
                losses[v[i].b]++;
            }
    buf_puts(b, "<div class=\"wide\"><table><tr><th>rule</th><th>beats</th><th>is "
                "beaten</th><th>not separable</th>"
                "</tr>\n");
    for (int r = 0; r < p->nrule; r++) {
        buf_puts(b, "<tr>");
        rule_cell(p, r, b);
        buf_printf(b, "<td>%d</td><td>%d</td><td>%d</td></tr>\n", wins[r], losses[r],
                   pairs - wins[r] - losses[r]);
    }
    buf_puts(b, "</table></div>\n");
}

static void seed_list(Buf *b, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%lld", i ? ", " : "", (long long)v[i]);
}

static void method(const RaceReport *p, Buf *b)
{
    buf_puts(b, "<h2>Method</h2>\n<ul><li>Every rule has the same tasks, data, initial weights, "
                "batches, target and "
                "steps.</li>\n<li>");
    buf_puts(b, p->linear ? "Rates fall linearly to 0 over the steps, except those of rules that "
                            "average iterates."
                          : "Rates are constant.");
    buf_puts(b, "</li>\n<li>Rate and decay were tuned for every rule on every task with at most ");
    buf_printf(b, "%d trials, on the seeds ", p->most_trials);
    seed_list(b, p->tune, p->ntune);
    buf_puts(b, ". The reported seeds are ");
    seed_list(b, p->seed, p->nseed);
    buf_puts(b, ".</li>\n<li>Verdicts: exact two-sided Mann-Whitney test over the seeds, with "
                "Holm's correction over "
                "the pairs of a task, at 0.05, for each metric by itself. Runs are ordered by "
                "steps or by time to the "
                "target; those that miss it come later, by final loss; diverged runs are last. "
                "\"Gradients to target\" gives every rule as many gradients as the task has steps. "
                "Rules share seeds, "
                "which makes the test conservative.</li>\n"
                "<li>Numbers in tables are medians over seeds. Times are CPU times of gradients "
                "and steps, without "
                "evaluations.</li></ul>\n<h2>Machine</h2><p>");
    html_text(b, p->machine);
    buf_puts(b, "; optc ");
    html_text(b, p->version);
    buf_puts(b, "; ");
    html_text(b, p->date);
    if (isfinite(p->seconds))
        buf_printf(b, "; %.1f s, %.1f s CPU", p->seconds, p->cpu_seconds);
    buf_puts(b, "</p>\n<pre>");
    html_text(b, p->command);
    buf_puts(b, "</pre>\n<h2>Rules</h2>\n");
    for (int r = 0; r < p->nrule; r++) {
        const RaceRuleInfo *x = &p->rule[r];
        buf_printf(b, "<details><summary><span class=\"key k%d\"></span>", r);
        html_text(b, x->name);
        buf_puts(b, " <span class=\"dim\">");
        html_text(b, x->path);
        buf_puts(b, *x->path && *x->note ? "; " : "");
        html_text(b, x->note);
        buf_puts(b, "</span></summary><pre>");
        html_text(b, x->text);
        buf_puts(b, "</pre></details>\n");
    }
}

void race_html(const RaceReport *p, Buf *b)
{
    LocaleMark was = locale_plain();
    html_begin(b, "optc race", p->nrule, "");
    buf_puts(b, "<h1>");
    for (int r = 0; r < p->nrule; r++) {
        buf_puts(b, r ? ", " : "");
        html_text(b, p->rule[r].name);
    }
    buf_puts(b, "</h1>\n");
    if (p->interrupted)
        buf_puts(
            b, "<p><b>The race was interrupted.</b> This page has the runs that were done.</p>\n");
    buf_printf(
        b,
        "<p class=\"dim\">%d task%s, %d seeds. A rule beats another one on a task if it needs "
        "significantly fewer steps to the target.</p>\n",
        p->ntask, p->ntask == 1 ? "" : "s", p->nseed);
    standing(p, b);
    for (int t = 0; t < p->ntask; t++)
        task_section(p, t, b);
    method(p, b);
    html_end(b);
    locale_back(was);
}

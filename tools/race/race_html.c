/* The report as one HTML page without scripts or other files. It is readable on a phone, in light and in dark. */
#include "tools/race/race.h"

#include <math.h>
#include <string.h>

void html_text(Buf *b, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '<': buf_puts(b, "&lt;"); break;
        case '>': buf_puts(b, "&gt;"); break;
        case '&': buf_puts(b, "&amp;"); break;
        case '"': buf_puts(b, "&quot;"); break;
        default:
            if ((unsigned char)*s >= 0x20 || *s == '\n' || *s == '\t')
                buf_add(b, s, 1);
        }
}

void html_number(Buf *b, double x)
{
    if (isfinite(x))
        buf_printf(b, "%.4g", x);
    else
        buf_puts(b, "–");
}

static void seconds_text(Buf *b, double x)
{
    char s[32];
    buf_puts(b, isfinite(x) ? cli_time(s, x) : "–");
}

/* Colours after Okabe and Ito 2008, which colour-blind readers can tell apart; later rules repeat them dashed. */
const char html_style[] =
    ":root{--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#d8dce2;--card:#f6f7f9;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;"
    "--c3:#b0578d;--c4:#8a6d00;--c5:#3a9bd0;--c6:#444;--c7:#a33}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8eb;--dim:#9aa3ad;--line:#333a42;--card:#1c2127;"
    "--c0:#56b4e9;--c1:#ff8c42;--c2:#2fc79a;--c3:#e08cc0;--c4:#f0e442;--c5:#8cc8ff;--c6:#bbb;--c7:#ff7b7b}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem}h2{margin:2rem 0 .3rem;font-size:1.2rem}p{margin:.4rem 0}.dim,.empty{color:var(--dim)}\n"
    ".plots{display:grid;margin:.8rem 0;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1rem}\n"
    "figure{margin:0;padding:.5rem;background:var(--card);border-radius:.5rem;min-width:0}"
    "figcaption{font-size:.9rem;color:var(--dim)}\n"
    "svg{display:block;width:100%;height:auto}.wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}"
    "th,td{padding:.25rem .7rem .25rem 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}\n"
    "pre{overflow-x:auto;padding:.6rem;background:var(--card);border-radius:.5rem;font-size:.85rem}"
    "summary{cursor:pointer}code{overflow-wrap:anywhere}\n"
    ".tick{font:13px system-ui,sans-serif;fill:var(--dim)}.grid{stroke:var(--line);fill:none}"
    ".target{stroke:var(--fg);stroke-dasharray:4 4;fill:none}\n"
    "polyline{fill:none;stroke-linejoin:round}.median{stroke-width:2.5}.seed{stroke-width:.8;opacity:.35}"
    ".sweep{stroke-width:1;opacity:.6}.cross{font:bold 16px sans-serif;stroke:none}.hollow{fill:var(--card)}"
    ".key{display:inline-block;width:1rem;height:.25rem;margin-right:.4rem;vertical-align:middle}\n";

static void colours(Buf *b, int n)
{
    for (int i = 0; i < n; i++) {
        buf_printf(b, ".r%d{stroke:var(--c%d)%s}.full.r%d,.cross.r%d{fill:var(--c%d)}.k%d{background:var(--c%d)}", i,
                   i % 8, i < 8 ? "" : ";stroke-dasharray:6 3", i, i, i % 8, i, i % 8);
        if (i >= 8)
            buf_printf(b, "circle.r%d{stroke-dasharray:none}", i);
    }
    buf_puts(b, ".cross{stroke:none}\n");
}

static void rule_cell(const RaceReport *p, int rule, Buf *b)
{
    buf_printf(b, "<td><span class=\"key k%d\"></span>", rule);
    html_text(b, p->rule[rule].name);
    buf_puts(b, "</td>");
}

static void verdict_text(const RaceReport *p, const RaceVerdict *v, Buf *b)
{
    buf_puts(b, "<b>");
    html_text(b, p->rule[v->a].name);
    buf_puts(b, v->beats ? "</b> beats <b>" : "</b> and <b>");
    html_text(b, p->rule[v->b].name);
    buf_printf(b, v->beats ? "</b> (p = %.2g)" : "</b>: not separable (p = %.2g)", v->adjusted);
}

static void results_table(const RaceReport *p, int task, Buf *b)
{
    int order[RACE_MOST_RULES];
    race_order(p, task, order);
    buf_puts(b, "<div class=\"wide\"><table><tr><th>rule</th><th>steps to target</th><th>reached</th>"
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
        seconds_text(b, s.seconds);
        buf_puts(b, "</td><td>");
        html_number(b, s.loss);
        buf_printf(b, "</td><td>%d</td><td>", s.diverged);
        html_number(b, e->best < 0 ? NAN : e->trial[e->best].rate);
        buf_puts(b, "</td><td>");
        html_number(b, e->best < 0 ? NAN : e->trial[e->best].decay);
        buf_puts(b, "</td><td>");
        seconds_text(b, s.step_seconds);
        buf_puts(b, "</td></tr>\n");
    }
    buf_puts(b, "</table></div>\n");
}

static void trials_table(const RaceReport *p, int task, Buf *b)
{
    buf_printf(b, "<details><summary>All trials of the sweep</summary><div class=\"wide\"><table><tr><th>rule</th>"
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
            buf_printf(b, "</td><td>%d</td><td>%s</td></tr>\n", x->diverged, i == e->best ? "chosen" : "");
        }
    }
    buf_puts(b, "</table></div></details>\n");
}

static void task_section(const RaceReport *p, int task, Buf *b)
{
    const RaceTaskInfo *t = &p->task[task];
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    int n = race_verdicts(p, task, v);
    buf_puts(b, "<section><h2>");
    html_text(b, t->name);
    buf_puts(b, "</h2><p class=\"dim\">");
    html_text(b, t->about);
    buf_printf(b, "; %d steps, target %.4g</p>\n<ul>", t->steps, t->target);
    for (int i = 0; i < n; i++) {
        buf_puts(b, "<li>");
        verdict_text(p, &v[i], b);
        buf_puts(b, "</li>\n");
    }
    buf_puts(b, "</ul>\n");
    results_table(p, task, b);
    buf_puts(b, "<div class=\"plots\"><figure>");
    svg_curves(p, task, false, b);
    buf_puts(b, "<figcaption>Thick: median over seeds. Thin: single seeds. Dashed: target. ×: diverged.</figcaption>"
                "</figure><figure>");
    svg_curves(p, task, true, b);
    buf_puts(b, "<figcaption>The same near the target.</figcaption></figure><figure>");
    svg_sweep(p, task, b);
    buf_puts(b, "<figcaption>The sweep, on other seeds. Filled: every run reached the target. Large: chosen. ×: every "
                "run diverged.</figcaption></figure></div>\n");
    trials_table(p, task, b);
    buf_puts(b, "</section>\n");
}

static void standing(const RaceReport *p, Buf *b)
{
    int wins[RACE_MOST_RULES] = {0}, losses[RACE_MOST_RULES] = {0}, pairs = (p->nrule - 1) * p->ntask;
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    for (int t = 0; t < p->ntask; t++)
        for (int i = 0, n = race_verdicts(p, t, v); i < n; i++)
            if (v[i].beats) {
                wins[v[i].a]++;
                losses[v[i].b]++;
            }
    buf_puts(b, "<div class=\"wide\"><table><tr><th>rule</th><th>beats</th><th>is beaten</th><th>not separable</th>"
                "</tr>\n");
    for (int r = 0; r < p->nrule; r++) {
        buf_puts(b, "<tr>");
        rule_cell(p, r, b);
        buf_printf(b, "<td>%d</td><td>%d</td><td>%d</td></tr>\n", wins[r], losses[r], pairs - wins[r] - losses[r]);
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
    buf_puts(b, "<h2>Method</h2>\n<ul><li>Every rule has the same tasks, data, initial weights, batches, target and "
                "steps.</li>\n<li>");
    buf_puts(b, p->linear ? "Rates fall linearly to 0 over the steps, except those of rules that average iterates."
                          : "Rates are constant.");
    buf_puts(b, "</li>\n<li>Rate and decay were tuned for every rule on every task with at most ");
    buf_printf(b, "%d trials, on the seeds ", p->most_trials);
    seed_list(b, p->tune, p->ntune);
    buf_puts(b, ". The reported seeds are ");
    seed_list(b, p->seed, p->nseed);
    buf_puts(b, ".</li>\n<li>Verdicts: exact two-sided Mann-Whitney test over the seeds, with Holm's correction over "
                "the pairs of a task, at 0.05. Runs are ordered by steps to the target; those that miss it come later, "
                "by final loss; diverged runs are last. Rules share seeds, which makes the test conservative.</li>\n"
                "<li>Numbers in tables are medians over seeds. Times are CPU times of gradients and steps, without "
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
    buf_puts(b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\n"
                "<title>optc race</title>\n<style>\n");
    buf_puts(b, html_style);
    colours(b, p->nrule);
    buf_puts(b, "</style></head><body>\n<h1>");
    for (int r = 0; r < p->nrule; r++) {
        buf_puts(b, r ? ", " : "");
        html_text(b, p->rule[r].name);
    }
    buf_puts(b, "</h1>\n");
    if (p->interrupted)
        buf_puts(b, "<p><b>The race was interrupted.</b> This page has the runs that were done.</p>\n");
    buf_printf(b, "<p class=\"dim\">%d task%s, %d seeds. A rule beats another one on a task if the difference is "
                  "significant.</p>\n", p->ntask, p->ntask == 1 ? "" : "s", p->nseed);
    standing(p, b);
    for (int t = 0; t < p->ntask; t++)
        task_section(p, t, b);
    method(p, b);
    buf_puts(b, "</body></html>\n");
    locale_back(was);
}

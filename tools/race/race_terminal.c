/* Prints a race: a live plot on a terminal, and the table of results. */
#include "tools/race/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_WIDTH = RACE_COLUMNS - 12, TEXT_HEIGHT = 12 };

static const char *rule_paint(int rule)
{
    static const char *const code[] = {"\033[34m", "\033[33m", "\033[32m",
                                       "\033[35m", "\033[36m", "\033[31m"};
    return code[rule % 6];
}

/* The last task with a finished run. */
static int shown_task(const RaceReport *p)
{
    for (int t = p->ntask; t-- > 0;)
        for (int i = 0; i < p->nrule; i++)
            for (int k = 0; k < race_entry(p, t, i)->nrun; k++)
                if (race_entry(p, t, i)->run[k].done)
                    return t;
    return -1;
}

/* Draws the medians of a task into cells: 0 is empty, otherwise 1 + the rule. */
static bool draw(const RaceReport *p, int task, unsigned char cell[TEXT_HEIGHT][TEXT_WIDTH],
                 double *low, double *high)
{
    const RaceTaskInfo *t = &p->task[task];
    double *m = malloc(sizeof *m * (size_t)race_points(t));
    memset(cell, 0, TEXT_HEIGHT * TEXT_WIDTH);
    *low = *high = t->target;
    for (int pass = 0; m && pass < 2; pass++)
        for (int r = 0; r < p->nrule; r++)
            for (int k = 0, n = race_median_curve(p, task, r, m); k < n; k++) {
                double v = m[k] > 1e-30 ? m[k] : 1e-30;
                if (pass == 0) {
                    *low = v < *low ? v : *low;
                    *high = v > *high ? v : *high;
                    continue;
                }
                int x = (int)((TEXT_WIDTH - 1.0) * race_step(t, k) / t->steps + 0.5);
                int y = (int)((TEXT_HEIGHT - 1) * log(*high / v) / log(*high / *low) + 0.5);
                cell[y][x] = (unsigned char)(1 + r);
            }
    free(m);
    return *high > *low;
}

static void progress_line(const Race *race, bool last)
{
    double remaining, share = race_progress(race, &remaining);
    int full = (int)(share * 40);
    printf("\033[K[");
    for (int i = 0; i < 40; i++)
        putchar(i < full ? '#' : '.');
    printf("] %3.0f %%", 100 * share);
    if (last)
        printf(", %.0f s\n", cli_now() - race->started);
    else if (remaining >= 0)
        printf(", about %.0f s left\n", remaining + 0.5);
    else
        printf("\n");
}

void race_show(const Race *race, bool last)
{
    static bool drawn;                                     /* the cursor is below an earlier plot */
    const RaceReport *p = race->report;
    unsigned char cell[TEXT_HEIGHT][TEXT_WIDTH];
    int task = shown_task(p);
    double low = 1, high = 1;
    if (drawn)
        printf("\033[%dA", TEXT_HEIGHT + 3);
    drawn = !last;
    bool any = task >= 0 && draw(p, task, cell, &low, &high);
    printf("\033[K%s\n", any ? p->task[task].name : "tuning rates");
    for (int y = 0; y < TEXT_HEIGHT; y++) {
        double edge = y == 0 ? high : y == TEXT_HEIGHT - 1 ? low : NAN;
        printf("\033[K");
        if (any && !isnan(edge))
            printf("%9.3g |", edge);
        else
            printf("%9s |", "");
        for (int x = 0; any && x < TEXT_WIDTH; x++)
            if (cell[y][x])
                printf("%s%c\033[0m", rule_paint(cell[y][x] - 1), 'A' + cell[y][x] - 1);
            else
                putchar(' ');
        putchar('\n');
    }
    printf("\033[K%10s", "");
    for (int r = 0, wide = 10; r < p->nrule; r++) {
        wide += 4 + cli_width(p->rule[r].name);
        /* a line that wraps would spoil the next frame */
        if (wide > RACE_COLUMNS - 2) {
            printf(" …");
            break;
        }
        printf(" %s%c\033[0m ", rule_paint(r), 'A' + r);
        cli_print("%s", p->rule[r].name);
    }
    putchar('\n');
    progress_line(race, last);
    fflush(stdout);
}

static void number_cell(double x, int width)
{
    if (isfinite(x))
        printf("  %*.4g", width, x);
    else
        printf("  %*s", width, "-");
}

static void verdict_line(const RaceReport *p, int task, const RaceVerdict *v)
{
    Buf note = {0};
    race_rate_note(p, task, v, &note);
    cli_print(v->beats ? "  %s beats %s (p = %.2g)%s\n"
                       : "  %s and %s: not separable (p = %.2g)%s\n",
              p->rule[v->a].name, p->rule[v->b].name, v->adjusted, note.len ? cli_text(&note) : "");
    buf_free(&note);
}

/* One line: the pairs that differ significantly. */
static void other_verdicts(const RaceReport *p, int task, RaceMetric by)
{
    RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
    int n = race_verdicts(p, task, by, v), none = 0;
    if (!n)
        return;
    printf("  by %s:", race_metric_names[by]);
    for (int i = 0; i < n; i++) {
        if (v[i].beats)
            cli_print("%s %s beats %s (p = %.2g)", i > none ? "," : "", p->rule[v[i].a].name,
                      p->rule[v[i].b].name, v[i].adjusted);
        none += !v[i].beats;
    }
    if (none)
        printf("%s %d of %d pairs not separable", none < n ? ";" : "", none, n);
    putchar('\n');
}

void race_table(const RaceReport *p)
{
    int wide = 4;
    for (int r = 0; r < p->nrule; r++)
        wide = cli_width(p->rule[r].name) > wide ? cli_width(p->rule[r].name) : wide;
    for (int t = 0; t < p->ntask; t++) {
        int order[RACE_MOST_RULES];
        RaceVerdict v[RACE_MOST_RULES * RACE_MOST_RULES];
        char title[256];
        snprintf(title, sizeof title, "%s%s: %s; target %.4g in %d steps", t ? "\n" : "",
                 p->task[t].name, p->task[t].about, p->task[t].target, p->task[t].steps);
        cli_heading(title);
        printf("  %-*s  %8s  %8s  %9s  %10s  %8s  %9s  %7s\n", wide, "rule", "steps", "reached",
               "time", "final loss", "diverged", "rate", "decay");
        race_order(p, t, order);
        for (int i = 0; i < p->nrule; i++) {
            const RaceEntry *e = race_entry(p, t, order[i]);
            RaceSummary s = race_summary(p, t, order[i]);
            char reached[32], time[32];
            snprintf(reached, sizeof reached, "%d of %d", s.reached, s.done);
            printf("  ");
            cli_cell(p->rule[order[i]].name, wide);
            number_cell(s.steps, 8);
            printf("  %8s  %9s", reached, isfinite(s.seconds) ? cli_time(time, s.seconds) : "-");
            number_cell(s.loss, 10);
            printf("  %8d", s.diverged);
            number_cell(e->best < 0 ? NAN : e->trial[e->best].rate, 9);
            number_cell(e->best < 0 ? NAN : e->trial[e->best].decay, 7);
            putchar('\n');
        }
        for (int i = 0, n = race_verdicts(p, t, RACE_STEPS, v); i < n; i++)
            verdict_line(p, t, &v[i]);
        other_verdicts(p, t, RACE_LOSS);
        other_verdicts(p, t, RACE_TIME);
        if (race_counts_gradients(p))
            other_verdicts(p, t, RACE_GRADIENTS);
    }
}

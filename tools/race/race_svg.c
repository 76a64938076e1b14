/* Plots of a report as SVG: losses over steps, the same near the target, the sweep, and the curves
 * of all tasks as one picture. Axes of losses and rates are logarithmic. */
#include "tools/race/race.h"

#include <math.h>
#include <stdlib.h>

static void curve(const Plot *p, const RaceReport *r, int task, int rule, const double *loss, int n,
                  int64_t seed)
{
    buf_printf(p->b, "<polyline class=\"%s r%d\" data-rule=\"", seed < 0 ? "median" : "seed", rule);
    html_text(p->b, r->rule[rule].name);
    if (seed < 0)
        buf_puts(p->b, "\" data-curve=\"median\" points=\"");
    else
        buf_printf(p->b, "\" data-curve=\"%lld\" points=\"", (long long)seed);
    for (int i = 0; i < n; i++)
        buf_printf(p->b, "%s%.2f,%.2f", i ? " " : "", plot_x(p, race_step(&r->task[task], i)),
                   plot_y(p, loss[i]));
    buf_puts(p->b, "\"/>\n");
}

typedef struct Extent { double x0, x1, y0, y1; } Extent;

/* The range of all finite losses; above, at most three times the first loss. */
static bool whole_range(const RaceReport *p, int task, Extent *x)
{
    double first = 0;
    *x = (Extent){0, p->task[task].steps, p->task[task].target, p->task[task].target};
    for (int rule = 0; rule < p->nrule; rule++) {
        const RaceEntry *e = race_entry(p, task, rule);
        for (int i = 0; i < e->nrun; i++)
            for (int k = 0; k < e->run[i].npoint && e->run[i].done; k++) {
                double v = e->run[i].loss[k];
                first = k == 0 && v > first ? v : first;
                x->y0 = v > 0 && v < x->y0 ? v : x->y0;
                x->y1 = v > x->y1 ? v : x->y1;
            }
    }
    x->y1 = first > 0 && x->y1 > 3 * first ? 3 * first : x->y1;
    x->y0 = x->y0 < 1e-30 ? 1e-30 : x->y0 / 1.1;
    x->y1 *= 1.1;
    return first > 0 && x->y0 > 0;
}

/* Where medians are within a factor of two of the target. */
static bool zoom_range(const RaceReport *p, int task, Extent *x)
{
    const RaceTaskInfo *t = &p->task[task];
    double *m = malloc(sizeof *m * (size_t)race_points(t));
    *x = (Extent){INFINITY, -INFINITY, t->target / 2, t->target * 2};
    for (int rule = 0; m && rule < p->nrule; rule++)
        for (int k = 0, n = race_median_curve(p, task, rule, m); k < n; k++)
            if (m[k] >= x->y0 && m[k] <= x->y1) {
                double s = race_step(t, k);
                x->x0 = s < x->x0 ? s : x->x0;
                x->x1 = s > x->x1 ? s : x->x1;
            }
    free(m);
    return t->target > 0 && x->x1 > x->x0;
}

void svg_curves(const RaceReport *p, int task, bool zoom, const Plot *box, Buf *b)
{
    const RaceTaskInfo *t = &p->task[task];
    Extent x;
    if (!(zoom ? zoom_range : whole_range)(p, task, &x)) {
        if (!box)
            buf_puts(b, zoom ? "<p class=\"empty\">No median comes within a factor of two of the "
                               "target.</p>\n"
                             : "<p class=\"empty\">No run is done.</p>\n");
        return;
    }
    char clip[32];
    snprintf(clip, sizeof clip, "clip-%s%d", zoom ? "z" : "c", task);
    Plot plot = {.x0 = x.x0,
                 .x1 = x.x1,
                 .y0 = x.y0,
                 .y1 = x.y1,
                 .b = b,
                 .clip = clip,
                 .inside = box != NULL,
                 .at_x = box ? box->at_x : 0,
                 .at_y = box ? box->at_y : 0};
    double *m = malloc(sizeof *m * (size_t)race_points(t));
    plot_open(&plot, zoom ? "zoom" : "curves", t->name, "steps", "evaluation loss");
    buf_printf(b, "<path class=\"target\" d=\"M%d %.1fH%d\"/>\n<g clip-path=\"url(#%s)\">\n",
               PLOT_LEFT, plot_y(&plot, t->target), plot_end_x(&plot), clip);
    for (int rule = 0; m && rule < p->nrule; rule++) {
        const RaceEntry *e = race_entry(p, task, rule);
        for (int i = 0; i < e->nrun; i++) {
            const RaceRun *r = &e->run[i];
            if (!r->done || !r->npoint)
                continue;
            curve(&plot, p, task, rule, r->loss, r->npoint, r->seed);
            if (r->diverged)
                buf_printf(b,
                           "<text class=\"cross r%d\" x=\"%.1f\" y=\"%.1f\" "
                           "text-anchor=\"middle\">×</text>\n",
                           rule, plot_x(&plot, race_step(t, r->npoint - 1)),
                           plot_y(&plot, r->loss[r->npoint - 1]) + 5);
        }
    }
    for (int rule = 0; m && rule < p->nrule; rule++) {
        int n = race_median_curve(p, task, rule, m);
        if (n)
            curve(&plot, p, task, rule, m, n, -1);
    }
    buf_puts(b, "</g>\n");
    plot_close(&plot);
    free(m);
}

static int by_rate(const void *a, const void *b)
{
    double x = (*(const RaceTrial *const *)a)->rate, y = (*(const RaceTrial *const *)b)->rate;
    return x < y ? -1 : x > y;
}

static bool sweep_range(const RaceReport *p, int task, Extent *x)
{
    double chosen = 0;                                     /* the largest loss of a chosen trial */
    *x = (Extent){INFINITY, 0, INFINITY, 0};
    for (int rule = 0; rule < p->nrule; rule++)
        for (int i = 0; i < race_entry(p, task, rule)->ntrial; i++) {
            const RaceTrial *t = &race_entry(p, task, rule)->trial[i];
            if (i == race_entry(p, task, rule)->best && isfinite(t->loss) && t->loss > chosen)
                chosen = t->loss;
            if (!(t->rate > 0))
                continue;
            x->x0 = t->rate < x->x0 ? t->rate : x->x0;
            x->x1 = t->rate > x->x1 ? t->rate : x->x1;
            x->y0 = t->loss > 0 && t->loss < x->y0 ? t->loss : x->y0;
            x->y1 = isfinite(t->loss) && t->loss > x->y1 ? t->loss : x->y1;
        }
    bool ok = x->x1 > 0 && x->y1 > 0;
    /* losses of useless rates would leave no room for others */
    x->y1 = x->y1 > 30 * chosen ? 30 * chosen : x->y1;
    *x = (Extent){x->x0 / 1.5, x->x1 * 1.5, x->y0 / 1.2, x->y1 * 1.4};
    return ok;
}

static void sweep_rule(const Plot *plot, const RaceReport *p, int task, int rule)
{
    const RaceEntry *e = race_entry(p, task, rule);
    const RaceTrial *sorted[RACE_MOST_TRIALS];
    int n = 0;
    for (int i = 0; i < e->ntrial; i++)
        if (e->trial[i].rate > 0)
            sorted[n++] = &e->trial[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_rate);
    buf_printf(plot->b, "<polyline class=\"sweep r%d\" data-rule=\"", rule);
    html_text(plot->b, p->rule[rule].name);
    buf_puts(plot->b, "\" points=\"");
    for (int i = 0; i < n; i++)
        if (isfinite(sorted[i]->loss) &&
            (isnan(sorted[i]->decay) || sorted[i]->decay == e->trial[0].decay))
            buf_printf(plot->b, "%.2f,%.2f ", plot_x(plot, sorted[i]->rate),
                       plot_y(plot, sorted[i]->loss));
    buf_puts(plot->b, "\"/>\n");
    for (int i = 0; i < n; i++) {
        const RaceTrial *t = sorted[i];
        double y = plot_y(plot, isfinite(t->loss) ? t->loss : plot->y1);
        if (!isfinite(t->loss))
            buf_printf(
                plot->b,
                "<text class=\"cross r%d\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">×</text>\n",
                rule, plot_x(plot, t->rate), y + 9);
        else
            buf_printf(plot->b, "<circle class=\"%s r%d\" cx=\"%.2f\" cy=\"%.2f\" r=\"%d\"/>\n",
                       t->reached == t->seeds ? "full" : "hollow", rule, plot_x(plot, t->rate), y,
                       t == &e->trial[e->best] ? 6 : 3);
    }
}

void svg_sweep(const RaceReport *p, int task, Buf *b)
{
    Extent x;
    char clip[32];
    if (!sweep_range(p, task, &x)) {
        buf_puts(b, "<p class=\"empty\">No trial has a rate.</p>\n");
        return;
    }
    snprintf(clip, sizeof clip, "clip-s%d", task);
    Plot plot = {
        .x0 = x.x0, .x1 = x.x1, .y0 = x.y0, .y1 = x.y1, .log_x = true, .b = b, .clip = clip};
    plot_open(&plot, "sweep", p->task[task].name, "rate", "mean final loss");
    buf_printf(b, "<g clip-path=\"url(#%s)\">\n", clip);
    for (int rule = 0; rule < p->nrule; rule++)
        sweep_rule(&plot, p, task, rule);
    buf_puts(b, "</g>\n");
    plot_close(&plot);
}

/* ---- the picture as a file ---- */
enum { MARGIN = 8, LINE_HEIGHT = 22, NAME_START = 34 };

static int name_width(const char *name) { return NAME_START + 8 * cli_width(name) + 18; }

/* The names of the rules with their colours, in lines. b NULL: only counts the lines. */
static int legend(const RaceReport *p, int width, int y, Buf *b)
{
    int x = MARGIN, lines = 1;
    for (int r = 0; r < p->nrule; r++) {
        int need = name_width(p->rule[r].name);
        if (x > MARGIN && x + need > width) {
            x = MARGIN;
            lines++;
        }
        int at = y + lines * LINE_HEIGHT;
        if (b) {
            buf_printf(b,
                       "<path class=\"median r%d\" d=\"M%d %dh24\"/><text class=\"name\" x=\"%d\" "
                       "y=\"%d\">",
                       r, x + 4, at - 5, x + NAME_START, at);
            html_text(b, p->rule[r].name);
            buf_puts(b, "</text>\n");
        }
        x += need;
    }
    return lines;
}

/* The curves of all tasks in two columns. */
void race_picture(const RaceReport *p, Buf *b)
{
    LocaleMark was = locale_plain();
    int columns = p->ntask > 1 ? 2 : 1, rows = (p->ntask + columns - 1) / columns;
    int width = columns * PLOT_WIDTH + 2 * MARGIN, each = PLOT_HEIGHT + LINE_HEIGHT + MARGIN;
    int top = legend(p, width, 0, NULL) * LINE_HEIGHT + MARGIN,
        height = top + rows * each + 2 * LINE_HEIGHT;
    svg_begin(b, "optc race: loss over steps", width, height, p->nrule);
    legend(p, width, 0, b);
    for (int t = 0; t < p->ntask; t++) {
        Plot box = {.at_x = MARGIN + t % columns * PLOT_WIDTH,
                    .at_y = top + t / columns * each + LINE_HEIGHT};
        buf_printf(b, "<text class=\"head\" x=\"%d\" y=\"%d\">", box.at_x + PLOT_LEFT,
                   box.at_y - 2);
        html_text(b, p->task[t].name);
        buf_puts(b, "</text>\n");
        svg_curves(p, t, false, &box, b);
    }
    const char *const line[] = {"Thick: median over the seeds. Thin: single seeds.",
                                "Dashed: target. Rate and decay are tuned for every rule."};
    for (int i = 0; i < 2; i++)
        buf_printf(b, "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n", MARGIN + PLOT_LEFT,
                   height + (i - 2) * LINE_HEIGHT + 12, line[i]);
    svg_end(b);
    locale_back(was);
}

/* Plots of a report as SVG: losses over steps, the same near the target, and the sweep. Axes of losses and rates are
 * logarithmic. Each plot has its ranges in data attributes, so that a program can read the numbers back. */
#include "tools/race/race.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 480, HEIGHT = 300, LEFT = 56, RIGHT = 16, TOP = 12, BOTTOM = 38,
       INNER_WIDTH = WIDTH - LEFT - RIGHT, INNER_HEIGHT = HEIGHT - TOP - BOTTOM };

typedef struct Plot { double x0, x1, y0, y1; bool log_x; Buf *b; const char *clip; } Plot;

static double scaled(double v, double from, double to, bool logarithm)
{
    return logarithm ? (log(v) - log(from)) / (log(to) - log(from)) : (v - from) / (to - from);
}

static double at_x(const Plot *p, double x) { return LEFT + INNER_WIDTH * scaled(x, p->x0, p->x1, p->log_x); }
static double at_y(const Plot *p, double y)
{
    double v = 1 - scaled(y < 1e-30 ? 1e-30 : y, p->y0, p->y1, true);
    return TOP + INNER_HEIGHT * (v < -5 ? -5 : v > 6 ? 6 : v);     /* far outside: keeps coordinates short */
}

/* 0.01, 5e-3: short enough for the margin. */
static void tick_text(Buf *b, double v)
{
    int e = (int)floor(log10(v) + 1e-9);
    if (v > 0 && (e < -2 || e > 4))
        buf_printf(b, "%.0fe%d", v / pow(10, e), e);
    else
        buf_printf(b, "%.3g", v);
}

static void tick_y(const Plot *p, double v)
{
    buf_printf(p->b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">", LEFT, at_y(p, v), LEFT + INNER_WIDTH, LEFT - 6, at_y(p, v) + 4);
    tick_text(p->b, v);
    buf_puts(p->b, "</text>\n");
}

static void tick_x(const Plot *p, double v)
{
    buf_printf(p->b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
                     "text-anchor=\"middle\">", at_x(p, v), TOP, TOP + INNER_HEIGHT, at_x(p, v),
               TOP + INNER_HEIGHT + 16);
    tick_text(p->b, v);
    buf_puts(p->b, "</text>\n");
}

/* 1, 2 and 5 times powers of ten if few fit, otherwise powers of ten, at most about eight. */
static void log_ticks(const Plot *p, double from, double to, void (*put)(const Plot *, double))
{
    static const double part[] = {1, 2, 5};
    int first = (int)floor(log10(from)) - 1, last = (int)ceil(log10(to)), every = (last - first) / 8 + 1;
    bool fine = to / from < 300;
    for (int e = first; e <= last; e++)
        for (int i = 0; i < (fine ? 3 : 1); i++) {
            double v = part[i] * pow(10, e);
            if (v >= from * 0.999 && v <= to * 1.001 && (fine || e % every == 0))
                put(p, v);
        }
}

static void plain_ticks(const Plot *p, double from, double to, void (*put)(const Plot *, double))
{
    double raw = (to - from) / 5, unit = pow(10, floor(log10(raw)));
    double step = unit * (raw / unit > 5 ? 10 : raw / unit > 2 ? 5 : 2);
    for (double v = ceil(from / step) * step; v <= to + 1e-9; v += step)
        put(p, v);
}

static void open_plot(const Plot *p, const char *kind, const char *task, const char *label_x, const char *label_y)
{
    buf_printf(p->b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" data-plot=\"%s\" data-task=\"", WIDTH, HEIGHT, kind);
    html_text(p->b, task);
    buf_printf(p->b, "\" data-x0=\"%.17g\" data-x1=\"%.17g\" data-y0=\"%.17g\" data-y1=\"%.17g\" data-left=\"%d\" "
                     "data-top=\"%d\" data-width=\"%d\" data-height=\"%d\">\n<title>", p->x0, p->x1, p->y0, p->y1, LEFT,
               TOP, INNER_WIDTH, INNER_HEIGHT);
    html_text(p->b, task);
    buf_printf(p->b, ": %s over %s</title>\n", label_y, label_x);
    log_ticks(p, p->y0, p->y1, tick_y);
    (p->log_x ? log_ticks : plain_ticks)(p, p->x0, p->x1, tick_x);
    buf_printf(p->b, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
                     "<text class=\"tick\" transform=\"translate(12 %d) rotate(-90)\" text-anchor=\"middle\">%s"
                     "</text>\n",
               LEFT + INNER_WIDTH / 2, HEIGHT - 4, label_x, TOP + INNER_HEIGHT / 2, label_y);
    buf_printf(p->b, "<clipPath id=\"%s\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n", p->clip,
               LEFT, TOP, INNER_WIDTH, INNER_HEIGHT);
}

static void curve(const Plot *p, const RaceReport *r, int task, int rule, const double *loss, int n, int64_t seed)
{
    buf_printf(p->b, "<polyline class=\"%s r%d\" data-rule=\"", seed < 0 ? "median" : "seed", rule);
    html_text(p->b, r->rule[rule].name);
    if (seed < 0)
        buf_puts(p->b, "\" data-curve=\"median\" points=\"");
    else
        buf_printf(p->b, "\" data-curve=\"%lld\" points=\"", (long long)seed);
    for (int i = 0; i < n; i++)
        buf_printf(p->b, "%s%.2f,%.2f", i ? " " : "", at_x(p, race_step(&r->task[task], i)), at_y(p, loss[i]));
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

void svg_curves(const RaceReport *p, int task, bool zoom, Buf *b)
{
    const RaceTaskInfo *t = &p->task[task];
    Extent x;
    if (!(zoom ? zoom_range : whole_range)(p, task, &x)) {
        buf_puts(b, zoom ? "<p class=\"empty\">No median comes within a factor of two of the target.</p>\n"
                         : "<p class=\"empty\">No run is done.</p>\n");
        return;
    }
    char clip[32];
    snprintf(clip, sizeof clip, "clip-%s%d", zoom ? "z" : "c", task);
    Plot plot = {.x0 = x.x0, .x1 = x.x1, .y0 = x.y0, .y1 = x.y1, .b = b, .clip = clip};
    double *m = malloc(sizeof *m * (size_t)race_points(t));
    open_plot(&plot, zoom ? "zoom" : "curves", t->name, "steps", "evaluation loss");
    buf_printf(b, "<path class=\"target\" d=\"M%d %.1fH%d\"/>\n<g clip-path=\"url(#%s)\">\n", LEFT,
               at_y(&plot, t->target), LEFT + INNER_WIDTH, clip);
    for (int rule = 0; m && rule < p->nrule; rule++) {
        const RaceEntry *e = race_entry(p, task, rule);
        for (int i = 0; i < e->nrun; i++) {
            const RaceRun *r = &e->run[i];
            if (!r->done || !r->npoint)
                continue;
            curve(&plot, p, task, rule, r->loss, r->npoint, r->seed);
            if (r->diverged)
                buf_printf(b, "<text class=\"cross r%d\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">×</text>\n", rule,
                           at_x(&plot, race_step(t, r->npoint - 1)), at_y(&plot, r->loss[r->npoint - 1]) + 5);
        }
    }
    for (int rule = 0; m && rule < p->nrule; rule++) {
        int n = race_median_curve(p, task, rule, m);
        if (n)
            curve(&plot, p, task, rule, m, n, -1);
    }
    buf_puts(b, "</g>\n</svg>\n");
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
    x->y1 = x->y1 > 30 * chosen ? 30 * chosen : x->y1;     /* losses of useless rates would leave no room for others */
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
        if (isfinite(sorted[i]->loss) && (isnan(sorted[i]->decay) || sorted[i]->decay == e->trial[0].decay))
            buf_printf(plot->b, "%.2f,%.2f ", at_x(plot, sorted[i]->rate), at_y(plot, sorted[i]->loss));
    buf_puts(plot->b, "\"/>\n");
    for (int i = 0; i < n; i++) {
        const RaceTrial *t = sorted[i];
        double y = at_y(plot, isfinite(t->loss) ? t->loss : plot->y1);
        if (!isfinite(t->loss))
            buf_printf(plot->b, "<text class=\"cross r%d\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">×</text>\n",
                       rule, at_x(plot, t->rate), y + 9);
        else
            buf_printf(plot->b, "<circle class=\"%s r%d\" cx=\"%.2f\" cy=\"%.2f\" r=\"%d\"/>\n",
                       t->reached == t->seeds ? "full" : "hollow", rule, at_x(plot, t->rate), y,
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
    Plot plot = {.x0 = x.x0, .x1 = x.x1, .y0 = x.y0, .y1 = x.y1, .log_x = true, .b = b, .clip = clip};
    open_plot(&plot, "sweep", p->task[task].name, "rate", "mean final loss");
    buf_printf(b, "<g clip-path=\"url(#%s)\">\n", clip);
    for (int rule = 0; rule < p->nrule; rule++)
        sweep_rule(&plot, p, task, rule);
    buf_puts(b, "</g>\n</svg>\n");
}

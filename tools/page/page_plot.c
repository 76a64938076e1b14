/* Plots: axes, ticks and coordinates. Each plot has its ranges in data attributes, so that a
 * program can read the numbers back. */
#include "tools/page/page.h"

#include <math.h>

static int plot_width(const Plot *p) { return p->width ? p->width : PLOT_WIDTH; }
static int plot_height(const Plot *p) { return p->height ? p->height : PLOT_HEIGHT; }
int plot_end_x(const Plot *p) { return plot_width(p) - PLOT_RIGHT; }
int plot_end_y(const Plot *p) { return plot_height(p) - PLOT_BOTTOM; }

static double scaled(double v, double from, double to, bool logarithm)
{
    return logarithm ? (log(v) - log(from)) / (log(to) - log(from)) : (v - from) / (to - from);
}

double plot_x(const Plot *p, double x)
{
    return PLOT_LEFT + (plot_end_x(p) - PLOT_LEFT) * scaled(x, p->x0, p->x1, p->log_x);
}

double plot_y(const Plot *p, double y)
{
    double v = 1 - scaled(y < 1e-30 ? 1e-30 : y, p->y0, p->y1, true);
    /* keeps coordinates short */
    return PLOT_TOP + (plot_end_y(p) - PLOT_TOP) * (v < -5 ? -5 : v > 6 ? 6 : v);
}

/* 0.01, 5e-3: short enough for the margin. Ticks of a logarithmic axis have one digit. */
static void tick_text(Buf *b, double v, bool logarithm)
{
    int e = (int)floor(log10(v) + 1e-9);
    if (v > 0 && (e < -2 || e > (logarithm ? 3 : 4)))
        buf_printf(b, "%.0fe%d", v / pow(10, e), e);
    else
        buf_printf(b, "%.5g", v);
}

static void tick_y(const Plot *p, double v)
{
    buf_printf(p->b,
               "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
               "text-anchor=\"end\">",
               PLOT_LEFT, plot_y(p, v), plot_end_x(p), PLOT_LEFT - 6, plot_y(p, v) + 4);
    tick_text(p->b, v, true);
    buf_puts(p->b, "</text>\n");
}

static void tick_x(const Plot *p, double v)
{
    buf_printf(p->b,
               "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
               "text-anchor=\"middle\">",
               plot_x(p, v), PLOT_TOP, plot_end_y(p), plot_x(p, v), plot_end_y(p) + 16);
    tick_text(p->b, v, p->log_x);
    buf_puts(p->b, "</text>\n");
}

/* 1, 2 and 5 times powers of ten if few fit, otherwise powers of ten, at most about eight. */
static void log_ticks(const Plot *p, double from, double to, void (*put)(const Plot *, double))
{
    static const double part[] = {1, 2, 5};
    int first = (int)floor(log10(from)) - 1, last = (int)ceil(log10(to)),
        every = (last - first) / 8 + 1;
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

void plot_open(const Plot *p, const char *kind, const char *subject, const char *label_x,
               const char *label_y)
{
    int width = plot_width(p), height = plot_height(p), inner = plot_end_x(p) - PLOT_LEFT;
    buf_printf(p->b, "<svg viewBox=\"0 0 %d %d\" ", width, height);
    if (p->inside)
        buf_printf(p->b, "x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" ", p->at_x, p->at_y, width,
                   height);
    buf_printf(p->b, "role=\"img\" data-plot=\"%s\" data-subject=\"", kind);
    html_text(p->b, subject);
    buf_printf(p->b,
               "\" data-x0=\"%.17g\" data-x1=\"%.17g\" data-y0=\"%.17g\" data-y1=\"%.17g\" "
               "data-left=\"%d\" "
               "data-top=\"%d\" data-width=\"%d\" data-height=\"%d\">\n<title>",
               p->x0, p->x1, p->y0, p->y1, PLOT_LEFT, PLOT_TOP, inner, plot_end_y(p) - PLOT_TOP);
    html_text(p->b, subject);
    buf_printf(p->b, ": %s over %s</title>\n", label_y, label_x);
    log_ticks(p, p->y0, p->y1, tick_y);
    (p->log_x ? log_ticks : plain_ticks)(p, p->x0, p->x1, tick_x);
    buf_printf(
        p->b,
        "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
        "<text class=\"tick\" transform=\"translate(12 %d) rotate(-90)\" text-anchor=\"middle\">%s"
        "</text>\n",
        PLOT_LEFT + inner / 2, height - 4, label_x, (PLOT_TOP + plot_end_y(p)) / 2, label_y);
    buf_printf(
        p->b,
        "<clipPath id=\"%s\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n",
        p->clip, PLOT_LEFT, PLOT_TOP, inner, plot_end_y(p) - PLOT_TOP);
}

void plot_close(const Plot *p) { buf_puts(p->b, "</svg>\n"); }

/* The roofline as SVG: operations per second over operations per byte, for each stage, whole steps
 * and peers. */
#include "tools/bench/bench.h"
#include "tools/page/page.h"

#include <math.h>
#include <string.h>

enum { MOST_LABELS = 200 };
#define LEAST_SHARE 0.02                       /* of a step: shorter stages are only in the table */

bool bench_drawn(const Case *c, const BenchStage *s)
{
    return s->bytes > 0 && s->flops > 0 && s->seconds > 0 &&
           s->seconds >= LEAST_SHARE * c->profiled;
}

int bench_number(const Bench *b, const Case *c, const BenchStage *s)
{
    int n = 0;
    for (const Case *x = b->cases; x <= c; x++)
        for (int i = 0; i < x->nstage && (x < c || &x->stage[i] <= s); i++)
            n += bench_drawn(x, &x->stage[i]);
    return n;
}

bool bench_graphs(const Bench *b)
{
    for (int i = 0; i < b->ncase; i++)
        if (b->cases[i].peer && b->cases[i].peer_graph)
            return true;
    return false;
}

/* ---- ranges ---- */
static void widen(Plot *p, double intensity, double rate)
{
    p->x0 = fmin(p->x0, intensity);
    p->x1 = fmax(p->x1, intensity);
    p->y0 = fmin(p->y0, rate);
    p->y1 = fmax(p->y1, rate);
}

static bool find_range(const Bench *b, double memory, Plot *p)
{
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = 0;
    for (int i = 0; i < b->ncase; i++) {
        const Case *c = &b->cases[i];
        BenchStage all = bench_whole(c);
        for (int k = 0; k < c->nstage; k++)
            if (bench_drawn(c, &c->stage[k]))
                widen(p, c->stage[k].flops / c->stage[k].bytes,
                      c->stage[k].flops / c->stage[k].seconds * 1e-9);
        Medians m = bench_medians(c);
        const double time[] = {m.seconds, c->peer ? m.peer : 0,
                               c->peer && c->peer_graph ? m.graph : 0};
        for (int k = 0; k < 3; k++)
            if (time[k] > 0 && all.bytes > 0 && all.flops > 0)
                widen(p, all.flops / all.bytes, all.flops / time[k] * 1e-9);
    }
    if (!(p->x1 > 0) || !(memory > 0))
        return false;
    for (int k = 0; k < NPRODUCT; k++)
        if (b->roof[k] > 0)
            widen(p, b->roof[k] / memory, b->roof[k] * 1e-9);
    *p = (Plot){.x0 = p->x0 / 2,
                .x1 = p->x1 * 4,
                .y0 = p->y0 / 2,
                .y1 = fmax(p->y1, memory * p->x0 * 1e-9) * 2.5,
                .log_x = true,
                .width = p->width,
                .height = p->height,
                .at_x = p->at_x,
                .at_y = p->at_y,
                .inside = p->inside,
                .b = p->b,
                .clip = p->clip};
    return true;
}

/* ---- roofs ---- */
static const char *rate_text(char buf[32], double flops)
{
    char x[32];
    snprintf(buf, 32, "%s/s", cli_flops(x, flops));
    return buf;
}

static void put_roofs(const Bench *b, const Plot *p, double memory)
{
    char text[32];
    double top = 0;
    for (int k = 0; k < NPRODUCT; k++)
        top = fmax(top, b->roof[k]);
    double ridge = top > 0 ? top / memory : p->x1, x = plot_x(p, ridge),
           y = plot_y(p, memory * ridge * 1e-9);
    buf_printf(p->b, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f%s\"/>\n", plot_x(p, p->x0),
               plot_y(p, memory * p->x0 * 1e-9), x, y, "");
    for (int k = 0; k < NPRODUCT; k++)
        if (b->roof[k] > 0) {
            double at = plot_y(p, b->roof[k] * 1e-9);
            buf_printf(
                p->b,
                "<path class=\"%s\" d=\"M%.1f %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">products in %s: %s</text>\n",
                b->roof[k] == top ? "roof" : "lower", plot_x(p, b->roof[k] / memory), at,
                plot_end_x(p), plot_end_x(p) - 4, at - 8, product_info[k].name,
                rate_text(text, b->roof[k]));
        }
    /* the name of the slope is written along it */
    double x0 = plot_x(p, p->x0), y0 = plot_y(p, memory * p->x0 * 1e-9),
           angle = atan2(y - y0, x - x0) * 180 / M_PI;
    char size[32];
    buf_printf(
        p->b,
        "<text class=\"tick\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s: %s/s</text>\n",
        x0 + 0.6 * (x - x0) - 4, y0 + 0.6 * (y - y0) - 6, angle,
        b->device.ops->async ? "copy" : "memory", cli_bytes(size, memory));
}

/* ---- marks ---- */
typedef struct Labels { double x[MOST_LABELS], y[MOST_LABELS]; int n; } Labels;

static bool taken(const Labels *l, double x, double y)
{
    for (int i = 0; i < l->n; i++)
        if (fabs(l->x[i] - x) < 16 && fabs(l->y[i] - y) < 11)
            return true;
    return false;
}

static void take(Labels *l, double x, double y)
{
    if (l->n < MOST_LABELS) {
        l->x[l->n] = x;
        l->y[l->n++] = y;
    }
}

/* Beside the mark, at the first place on rings around it that no other label has. */
static void put_label(const Plot *p, Labels *l, double x, double y, double radius, int number)
{
    static const double turns[] = {0.05, 0.45, 0.25, 0.75, 0.9, 0.6,
                                   0.15, 0.35, 0.82, 0.68, 0,   0.5};
    enum { TURNS = sizeof turns / sizeof *turns, RINGS = 5 };
    double at_x = x, at_y = y;
    for (int i = 0; i < TURNS * RINGS; i++) {
        double r = radius + 8 + 11 * (i / TURNS), angle = 2 * M_PI * turns[i % TURNS];
        at_x = x + r * cos(angle);
        at_y = y - r * sin(angle) + 4;
        if (!taken(l, at_x, at_y) && at_x > PLOT_LEFT + 8 && at_y < plot_end_y(p))
            break;
    }
    take(l, at_x, at_y);
    buf_printf(p->b,
               "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n",
               at_x, at_y, number);
}

static void put_stage(const Bench *b, const Plot *p, const Case *c, const BenchStage *s)
{
    double share = s->seconds / c->profiled, radius = 4 + 8 * sqrt(share < 1 ? share : 1);
    buf_printf(p->b,
               "<circle class=\"stage full r%d\" cx=\"%.2f\" cy=\"%.2f\" r=\"%.1f\" data-rule=\"",
               (int)(c - b->cases), plot_x(p, s->flops / s->bytes),
               plot_y(p, s->flops / s->seconds * 1e-9), radius);
    html_text(p->b, c->label);
    buf_puts(p->b, "\" data-stage=\"");
    html_text(p->b, s->name);
    buf_puts(p->b, "\"><title>");
    html_text(p->b, c->label);
    buf_printf(p->b, ": %d ", bench_number(b, c, s));
    html_text(p->b, s->name);
    buf_printf(p->b, ", %.1f %% of the step</title></circle>\n", 100 * share);
}

/* kind: "step", "peer", "graph". Labels avoid the mark. */
static void put_step(const Bench *b, const Plot *p, const Case *c, const char *kind, double seconds,
                     Labels *l)
{
    BenchStage all = bench_whole(c);
    if (!(seconds > 0) || !(all.bytes > 0) || !(all.flops > 0))
        return;
    double x = plot_x(p, all.flops / all.bytes), y = plot_y(p, all.flops / seconds * 1e-9);
    take(l, x, y + 4);
    buf_printf(p->b, "<path class=\"%s r%d\" d=\"", strcmp(kind, "step") ? "hollow" : "full",
               (int)(c - b->cases));
    if (!strcmp(kind, "graph"))
        buf_printf(p->b, "M%.2f %.2fl7 7l-7 7l-7 -7z", x, y - 7);
    else
        buf_printf(p->b, "M%.2f %.2fh10v10h-10z", x - 5, y - 5);
    buf_printf(
        p->b, "\" stroke-width=\"2\" data-mark=\"%s\" data-x=\"%.2f\" data-y=\"%.2f\" data-rule=\"",
        kind, x, y);
    html_text(p->b, c->label);
    buf_puts(p->b, "\"><title>");
    html_text(p->b, c->label);
    char time[32];
    buf_printf(p->b, ": step %s", strcmp(kind, "step") ? "of " : "");
    html_text(p->b, strcmp(kind, "step") ? b->peer_name ? b->peer_name : "" : "");
    buf_printf(p->b, " %s</title></path>\n", cli_time(time, seconds));
}

bool bench_svg_roofline(const Bench *b, const Plot *box, Buf *out)
{
    Plot p = *box;
    Labels labels = {.n = 0};
    double memory = b->nstream ? cli_median(b->best, b->nstream) : 0;
    p.b = out;
    p.clip = "clip-roofline";
    if (!find_range(b, memory, &p))
        return false;
    plot_open(&p, "roofline", optc_device_name(b->engine), "operations per byte", "GFLOP/s");
    put_roofs(b, &p, memory);
    for (const Case *c = b->cases; c < b->cases + b->ncase; c++)
        for (int k = 0; k < c->nstage; k++)
            if (bench_drawn(c, &c->stage[k]))
                put_stage(b, &p, c, &c->stage[k]);
    for (const Case *c = b->cases; c < b->cases + b->ncase; c++) {
        Medians m = bench_medians(c);
        put_step(b, &p, c, "graph", c->peer && c->peer_graph ? m.graph : 0, &labels);
        put_step(b, &p, c, "peer", c->peer ? m.peer : 0, &labels);
        put_step(b, &p, c, "step", m.seconds, &labels);
    }
    for (const Case *c = b->cases; c < b->cases + b->ncase; c++)
        for (int k = 0; k < c->nstage; k++) {
            const BenchStage *s = &c->stage[k];
            if (bench_drawn(c, s))
                put_label(&p, &labels, plot_x(&p, s->flops / s->bytes),
                          plot_y(&p, s->flops / s->seconds * 1e-9),
                          4 + 8 * sqrt(fmin(s->seconds / c->profiled, 1)), bench_number(b, c, s));
        }
    plot_close(&p);
    return true;
}

/* ---- the picture as a file ---- */
enum { PICTURE_WIDTH = 760, PICTURE_PLOT = 440, MARGIN = 8, LINE = 20 };

/* The rules with their times, and the drawn stages. out NULL: only counts the lines. */
static int put_list(const Bench *b, int y, Buf *out)
{
    int lines = 0;
    char time[32];
    for (int i = 0; i < b->ncase; i++) {
        const Case *c = &b->cases[i];
        Medians m = bench_medians(c);
        int at = y + ++lines * LINE;
        if (out) {
            buf_printf(out,
                       "<path class=\"full r%d\" d=\"M%d %dh10v10h-10z\"/>"
                       "<text class=\"name\" x=\"%d\" y=\"%d\">",
                       i, 2 * MARGIN, at - 10, 2 * MARGIN + 18, at);
            html_text(out, c->label);
            if (c->work) {
                buf_puts(out, ", ");
                html_text(out, c->work);
            }
            buf_printf(out, ": %s", cli_time(time, m.seconds));
            if (c->peer) {
                buf_puts(out, "; ");
                html_text(out, b->peer_name ? b->peer_name : "");
                buf_printf(out, " %s", cli_time(time, m.peer));
                if (c->peer_graph)
                    buf_printf(out, " (graph %s)", cli_time(time, m.graph));
            }
            buf_puts(out, "</text>\n");
        }
        for (int k = 0; k < c->nstage; k++) {
            const BenchStage *s = &c->stage[k];
            if (!bench_drawn(c, s))
                continue;
            at = y + ++lines * LINE;
            if (!out)
                continue;
            buf_printf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\">%d  ", 2 * MARGIN + 18, at,
                       bench_number(b, c, s));
            html_text(out, s->name);
            buf_printf(out, ": %.1f %% of the step, %.0f %% of its roof</text>\n",
                       100 * s->seconds / c->profiled, 100 * bench_of_roof(b, c, s));
        }
    }
    return lines;
}

void bench_picture(const Bench *b, Buf *out)
{
    LocaleMark was = locale_plain();
    int lines = put_list(b, 0, NULL), below = LINE + MARGIN + PICTURE_PLOT,
        height = below + (lines + 3) * LINE;
    Plot box = {.width = PICTURE_WIDTH - 2 * MARGIN,
                .height = PICTURE_PLOT,
                .at_x = MARGIN,
                .at_y = LINE + MARGIN,
                .inside = true};
    svg_begin(out, "optc bench: roofline", PICTURE_WIDTH, height, b->ncase);
    buf_printf(out, "<text class=\"head\" x=\"%d\" y=\"%d\">", 2 * MARGIN, LINE);
    html_text(out, optc_device_name(b->engine));
    buf_puts(out, "</text>\n");
    if (!bench_svg_roofline(b, &box, out))
        buf_printf(out, "<text class=\"name\" x=\"%d\" y=\"%d\">No stage was measured.</text>\n",
                   2 * MARGIN, 3 * LINE);
    put_list(b, below, out);
    const char *const line[] = {
        "Circles: stages with 2 % of the step or more, by share. Squares: whole steps.",
        !b->peer_name     ? ""
        : bench_graphs(b) ? "Hollow: the peer; diamond: its CUDA graph."
                          : "Hollow: the peer."};
    for (int i = 0; i < 2; i++)
        buf_printf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n", 2 * MARGIN,
                   below + (lines + 1 + i) * LINE, line[i]);
    svg_end(out);
    locale_back(was);
}

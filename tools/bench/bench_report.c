/* Prints the measurements as tables. */
#include "tools/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *bench_shape(char buf[200], const Case *c)
{
    char one[160];
    bool same = true;
    for (int i = 1; i < c->ntensor; i++)
        same = same && !memcmp(&c->shape[i], &c->shape[0], sizeof *c->shape);
    const Dims *d = &c->shape[0];
    if (!same)
        snprintf(buf, 200, "%d tensors", c->ntensor);
    else if (c->ntensor > 1)
        snprintf(buf, 200, "%d of %s", c->ntensor,
                 d->rank == 1 ? cli_size(one, d->dim[0]) : cli_dims(one, d));
    else
        snprintf(buf, 200, "%s", d->rank == 1 ? cli_size(one, d->dim[0]) : cli_dims(one, d));
    return buf;
}

double bench_busy(const Bench *b)
{
    return b->device.ops->async || b->timed <= 0 ? 0 : b->waited / (b->timed * b->threads);
}

Medians bench_medians(const Case *c)
{
    int n = c->rounds;
    if (!n)
        return (Medians){0};
    Medians m = {.seconds = cli_median(c->seconds, n),
                 .spread = cli_spread(c->seconds, n),
                 .rate = cli_median(c->rate, n),
                 .share = cli_median(c->share, n),
                 .best = cli_median(c->best, n),
                 .mix = cli_median(c->mix, n),
                 .host = cli_median(c->host, n),
                 .slowest = cli_median(c->slowest, n),
                 .host_least = c->host[0]};
    for (int i = 1; i < n; i++)
        m.host_least = c->host[i] < m.host_least ? c->host[i] : m.host_least;
    if (c->peer) {
        m.peer = cli_median(c->peer_seconds, n);
        m.peer_host = cli_median(c->peer_host, n);
        m.ahead = cli_median(c->ahead, n);
    }
    if (c->peer && c->peer_graph) {
        m.graph = cli_median(c->graph_seconds, n);
        m.graph_host = cli_median(c->graph_host, n);
        m.graph_ahead = cli_median(c->graph_ahead, n);
    }
    return m;
}

/* ---- columns ---- */
typedef struct Widths { int label, shape; bool graph; } Widths;

static const char *shape_cell(char buf[200], const Bench *b, const Case *c)
{
    if (!c->work)
        return bench_shape(buf, c);
    snprintf(buf, 200, "%s", c->work);
    if (b->size) {                             /* --size scales the workload */
        char n[32];
        snprintf(buf, 200, "%s at %s", c->work, cli_size(n, c->n));
    }
    return buf;
}

static Widths widths(const Bench *b)
{
    Widths w = {.label = 4, .shape = 6};
    char text[200];
    for (int i = 0; i < b->ncase; i++) {
        int l = cli_width(b->cases[i].label), s = cli_width(shape_cell(text, b, &b->cases[i]));
        w.label = l > w.label ? l : w.label;
        w.shape = s > w.shape ? s : w.shape;
        w.graph = w.graph || b->cases[i].graph;
    }
    w.graph = w.graph && b->peer_name;
    return w;
}

static void names(const Widths *w, const char *shape, const char *label, Paint paint)
{
    printf("  ");
    cli_cell(shape, w->shape + 1);
    fputs(cli_paint(paint), stdout);
    cli_cell(label, w->label + 1);
    fputs(cli_paint(paint ? PAINT_NONE : paint), stdout);
}

/* Digits of the ratio to the peer. A rival differs by little, so it gets one more. */
static int digits(const Bench *b) { return b->rival ? 3 : 2; }

/* For rules with periods: the number of steps in the mean, and the slowest step over it. */
static void period_row(const Bench *b, const Case *c, const Medians *m, const Widths *w)
{
    if (c->period == 1)
        return;
    printf("  %*s", w->shape + 1, "");
    if (c->reps < c->period)
        printf("the mean of %d steps of a period of %d", c->reps, c->period);
    else
        printf("the mean of a period of %d steps", c->period);
    printf("; the slowest step takes %.2f times the mean", m->slowest);
    if (c->first_slowest > 0)
        printf(" (%.2f in the first period)", c->first_slowest);
    if (b->compile.options && *b->compile.options)
        cli_print("; %s", b->compile.options);
    char bytes[32];
    if (b->workspace)
        printf("; a workspace of %s", cli_bytes(bytes, (double)b->workspace));
    putchar('\n');
}

/* ---- the CPU's table ---- */
static void cpu_head(const Bench *b, const Widths *w)
{
    names(w, "work", "rule", PAINT_NONE);
    printf("%10s %6s %7s %9s %9s %10s  ", "step", "spread", "GB/s", "of best", "of mix",
           "elements/s");
    if (b->peer_name)
        printf("%10s %7s  ", b->against, "speedup");
    puts("runs as");
}

static void cpu_row(const Bench *b, const Case *c, const Medians *m, const Widths *w)
{
    char t[32];
    printf("%10s %4.0f %% %7.1f %7.0f %% %7.0f %% %8.1f M  ", cli_time(t, m->seconds),
           m->spread * 100, m->rate * 1e-9, m->share * 100, m->mix * 100,
           (double)c->n / m->seconds * 1e-6);
    if (b->peer_name && c->peer)
        printf("%10s %6.*fx  ", cli_time(t, m->peer), digits(b), m->ahead);
    else if (b->peer_name)
        printf("%10s %7s  ", "-", "");
    puts(c->runs);
    if (b->extra)
        b->extra->row(b, c, m, w->shape + 3, w->label + 1);
    period_row(b, c, m, w);
}

static void cpu_foot(const Bench *b)
{
    printf("\n  copy                %6.1f GB/s\n", cli_median(b->copy, b->nstream) * 1e-9);
    printf("  scale in place      %6.1f GB/s\n", cli_median(b->scale, b->nstream) * 1e-9);
    printf("  read only           %6.1f GB/s\n", cli_median(b->read, b->nstream) * 1e-9);
    printf("  best streaming rate %6.1f GB/s\n"
           "  of best: GB/s over the best streaming rate. of mix: the same, but bytes that are "
           "only read count at the "
           "read rate\n  spread: half of the rounds differ from the median by at most this much\n",
           cli_median(b->best, b->nstream) * 1e-9);
    if (bench_busy(b) > TOO_BUSY)
        printf("%s  the machine was busy: threads waited %.0f %% of the time for a core, so these "
               "figures are too low; "
               "measure again on an idle machine%s\n",
               cli_paint(PAINT_BAD), bench_busy(b) * 100, cli_paint(PAINT_NONE));
}

/* ---- a GPU's table ---- */
static void gpu_head(const Bench *b, const Widths *w)
{
    names(w, "work", "rule", PAINT_NONE);
    printf("%7s %9s %5s %5s %7s %6s %7s %6s", "tensors", "step", "GB/s", "copy", "of copy", "host",
           "cold", "warm");
    if (b->peer_name)
        printf(" %9s %7s", b->against, "speedup");
    if (w->graph)
        printf(" %9s %7s", "its graph", "speedup");
    putchar('\n');
}

static void gpu_row(const Bench *b, const Case *c, const Medians *m, const Widths *w)
{
    printf("%7d %7.3fms %5.0f %5.0f %6.1f%% %4.1fus %5.0fms %4.0fms", c->ntensor, m->seconds * 1e3,
           m->rate * 1e-9, m->best * 1e-9, m->share * 100, m->host * 1e6, c->cold * 1e3,
           c->warm * 1e3);
    if (b->peer_name && c->peer)
        printf(" %7.3fms %6.*fx%s", m->peer * 1e3, digits(b), m->ahead, c->same ? " =" : "");
    else if (b->peer_name)
        printf(" %9s", "-");
    if (w->graph && c->peer && c->peer_graph)
        printf(" %7.3fms %6.2fx", m->graph * 1e3, m->graph_ahead);
    putchar('\n');
    if (b->extra)
        b->extra->row(b, c, m, w->shape + 3, w->label + 1);
    period_row(b, c, m, w);
}

static void gpu_foot(const Bench *b)
{
    printf("\n  copy: device to device, at least 1 GiB, timed in the same rounds\n  %s\n"
           "  host: CPU time of the call optc_step. cold, warm: from optc_compile to the end of "
           "the first step, with "
           "an empty\n  and with a filled compile cache\n",
           b->device.alone ? "timing: each step and copy starts on an idle device with a cold "
                             "cache; steps of rules "
                             "with periods run back to back"
                           : "timing: steps and copies run back to back");
    bool same = false;
    for (int i = 0; i < b->ncase; i++)
        same = same || b->cases[i].same;
    if (same)
        puts("  =: both sides launch the same kernels; the difference is measurement error");
    if (b->extra)
        b->extra->foot(b);
}

/* ---- all ---- */
/* The stages that take a hundredth of the step and more, in its order. */
static void stage_rows(const Case *c)
{
    double inside = 0;
    for (int i = 0; i < c->nstage; i++)
        inside += c->stage[i].seconds;
    printf("\n  a step without graphs takes %.3f ms, %.1f %% of it outside of stages\n"
           "  %6s %10s %8s %8s %8s  stage\n",
           c->profiled * 1e3, inside < c->profiled ? 100 * (1 - inside / c->profiled) : 0, "share",
           "us", "launches", "GB/s", "TFLOP/s");
    for (const BenchStage *s = c->stage; s < c->stage + c->nstage; s++)
        if (s->seconds > 0.01 * c->profiled)
            cli_print("  %5.1f%% %10.1f %8.1f %8.0f %8.2f  %s\n", 100 * s->seconds / c->profiled,
                      s->seconds * 1e6, s->launches, s->bytes / s->seconds * 1e-9,
                      s->flops / s->seconds * 1e-12, s->name);
}

void bench_report_head(const Bench *b)
{
    Widths w = widths(b);
    printf("%s\n", optc_device_name(b->engine));
    if (b->device.state)
        printf("%s\n", b->device.state);
    printf("%s parameters, %d round%s, medians\n\n%s", type_info[b->type].name, b->rounds,
           b->rounds == 1 ? "" : "s", cli_paint(PAINT_DIM));
    (b->device.ops->async ? gpu_head : cpu_head)(b, &w);
    fputs(cli_paint(PAINT_NONE), stdout);
}

void bench_report_cases(const Bench *b, int from, int n)
{
    Widths w = widths(b);
    char text[200];
    for (const Case *c = &b->cases[from]; c < &b->cases[from + n]; c++) {
        names(&w, shape_cell(text, b, c), c->label, PAINT_HEAD);
        if (c->failed) {
            printf("%sfailed%s\n", cli_paint(PAINT_BAD), cli_paint(PAINT_NONE));
            continue;
        }
        Medians m = bench_medians(c);
        if (b->device.ops->async)
            gpu_row(b, c, &m, &w);
        else
            cpu_row(b, c, &m, &w);
        if (c->nstage)
            stage_rows(c);
    }
    fflush(stdout);
}

static void peer_foot(const Bench *b)
{
    printf("\n  %s ran\n", b->peer_name);
    for (const Case *c = b->cases; c < b->cases + b->ncase; c++) {
        if (c->failed)
            continue;
        cli_print("    %s%s%s: ", c->work ? c->work : "", c->work ? " " : "", c->label);
        cli_put_clean(stdout, c->peer ? c->peer : "nothing: ", false);
        cli_put_clean(stdout,
                      c->peer       ? ""
                      : c->peer_why ? c->peer_why
                                    : "its process ended",
                      false);
        Medians m = bench_medians(c);
        char t[32];
        if (c->peer && b->device.ops->async)
            printf("; host %s", cli_time(t, m.peer_host));
        if (c->peer && c->peer_graph)
            printf("; %s; host %s", c->peer_graph, cli_time(t, m.graph_host));
        putchar('\n');
    }
}

void bench_report_foot(const Bench *b)
{
    if (b->nstream)
        (b->device.ops->async ? gpu_foot : cpu_foot)(b);
    if (b->interrupted)
        printf("%s  interrupted after %d of %d measurements%s\n", cli_paint(PAINT_BAD), b->nstream,
               b->rounds * b->ncase, cli_paint(PAINT_NONE));
    char x[32], y[32];
    for (int p = 0; p < NPRODUCT; p++)
        if (b->roof[p] > 0)
            printf("  products in %s, %lld rows: %s/s%s%s\n", product_info[p].name,
                   (long long)b->roof_side[p], cli_flops(x, b->roof[p]),
                   b->sustained[p] > 0 ? "; per second after a second of work: " : "",
                   b->sustained[p] > 0 ? cli_flops(y, b->sustained[p]) : "");
    if (b->peer_name)
        peer_foot(b);
}

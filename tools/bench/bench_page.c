/* The report of `optc bench -o FILE.html`: the roofline, whole steps beside peers, and a table of
 * every stage. */
#include "tools/bench/bench.h"
#include "tools/page/page.h"

#include <math.h>
#include <string.h>

static void cell(Buf *b, double x)
{
    buf_puts(b, "<td>");
    html_number(b, x > 0 ? x : NAN);
    buf_puts(b, "</td>");
}

static void ratio_cell(Buf *b, double x)
{
    buf_printf(b, x > 0 ? "<td>%.2f×</td>" : "<td>–</td>", x);
}

static void share_cell(Buf *b, double share)
{
    buf_printf(b, share > 0 ? "<td>%.1f %%</td>" : "<td>–</td>", 100 * share);
}

static void time_cell(Buf *b, double seconds)
{
    buf_puts(b, "<td>");
    html_time(b, seconds > 0 ? seconds : NAN);
    buf_puts(b, "</td>");
}

static void rule_cell(const Bench *b, const Case *c, Buf *out)
{
    buf_printf(out, "<td><span class=\"key k%d\"></span>", (int)(c - b->cases));
    html_text(out, c->label);
    buf_puts(out, "</td>");
}

static void steps_table(const Bench *b, Buf *out)
{
    bool graph = bench_graphs(b);
    buf_puts(
        out,
        "<div "
        "class=\"wide\"><table><tr><th>rule</th><th>work</th><th>step</th><th>GB/s</th><th>of ");
    buf_puts(out, b->device.ops->async ? "copy</th>" : "memory</th>");
    if (b->peer_name) {
        buf_puts(out, "<th>");
        html_text(out, b->peer_name);
        buf_puts(out, "</th><th>speedup</th>");
    }
    buf_puts(out, graph ? "<th>its graph</th><th>speedup</th></tr>\n" : "</tr>\n");
    for (const Case *c = b->cases; c < b->cases + b->ncase; c++) {
        char shape[200];
        buf_puts(out, "<tr>");
        rule_cell(b, c, out);
        buf_puts(out, "<td>");
        html_text(out, c->work ? c->work : bench_shape(shape, c));
        buf_puts(out, "</td>");
        if (!c->rounds) {
            buf_puts(out, "<td>not measured</td></tr>\n");
            continue;
        }
        Medians m = bench_medians(c);
        time_cell(out, m.seconds);
        cell(out, m.rate * 1e-9);
        share_cell(out, m.share);
        if (b->peer_name) {
            time_cell(out, c->peer ? m.peer : 0);
            ratio_cell(out, c->peer ? m.ahead : 0);
        }
        if (graph) {
            time_cell(out, c->peer && c->peer_graph ? m.graph : 0);
            ratio_cell(out, c->peer && c->peer_graph ? m.graph_ahead : 0);
        }
        buf_puts(out, "</tr>\n");
    }
    buf_puts(out, "</table></div>\n");
}

static void stage_row(const Bench *b, const Case *c, const BenchStage *s, Buf *out)
{
    char number[16] = "", size[32];
    if (bench_drawn(c, s))
        snprintf(number, sizeof number, "%d", bench_number(b, c, s));
    buf_printf(out, "<tr><td>%s</td><td class=\"text\">", number);
    html_text(out, s->name);
    buf_puts(out, "</td>");
    time_cell(out, s->seconds);
    share_cell(out, s->seconds / c->profiled);
    cell(out, s->launches);
    buf_printf(out, "<td>%s</td>", s->bytes > 0 ? cli_bytes(size, s->bytes) : "–");
    buf_printf(out, "<td>%s</td>", s->flops > 0 ? cli_flops(size, s->flops) : "–");
    cell(out, s->flops > 0 && s->bytes > 0 ? s->flops / s->bytes : 0);
    cell(out, s->seconds > 0 ? s->bytes / s->seconds * 1e-9 : 0);
    cell(out, s->seconds > 0 ? s->flops / s->seconds * 1e-9 : 0);
    share_cell(out, bench_of_roof(b, c, s));
    buf_puts(out, "</tr>\n");
}

static void stages_section(const Bench *b, const Case *c, Buf *out)
{
    double inside = 0;
    buf_printf(out, "<section><h2><span class=\"key k%d\"></span>", (int)(c - b->cases));
    html_text(out, c->label);
    buf_puts(out, "</h2><p class=\"dim\">");
    html_text(out, c->runs ? c->runs : "");
    buf_puts(out, "</p>\n");
    if (!c->nstage) {
        buf_puts(out, "<p class=\"empty\">Its stages were not measured.</p></section>\n");
        return;
    }
    buf_puts(out, "<div class=\"wide\"><table><tr><th>no.</th><th "
                  "class=\"text\">stage</th><th>time per step</th>"
                  "<th>share</th><th>launches</th><th>bytes</th><th>operations</th><th>per "
                  "byte</th><th>GB/s</th>"
                  "<th>GFLOP/s</th><th>of its roof</th></tr>\n");
    for (int i = 0; i < c->nstage; i++) {
        stage_row(b, c, &c->stage[i], out);
        inside += c->stage[i].seconds;
    }
    BenchStage rest = {.name = "outside of stages", .seconds = c->profiled - inside};
    if (rest.seconds > 0)
        stage_row(b, c, &rest, out);
    buf_puts(out, "</table></div></section>\n");
}

static void method(const Bench *b, Buf *out)
{
    char rate[32];
    buf_puts(
        out,
        "<h2>Method</h2>\n<ul><li>Times of stages: the median of five profiles of some steps. ");
    buf_puts(out, b->device.ops->async
                      ? "Steps of the profile run kernel by kernel, not as one CUDA graph."
                      : "A stage lasts until the next one begins.");
    buf_printf(out, "</li>\n<li>Times of whole steps: medians of %d round%s, %s</li>\n", b->rounds,
               b->rounds == 1 ? "" : "s",
               b->device.ops->async && b->device.alone
                   ? "each step from an idle device with a cold cache."
                   : "several steps one after another.");
    buf_puts(out, "<li>Bytes: what the plan moves between memory and the device. Operations of "
                  "products and factors: "
                  "by their definitions. Operations of other stages: each arithmetic operation of "
                  "the spec counts as "
                  "one, also a root or a power.</li>\n<li>Peers are drawn with the bytes and "
                  "operations of optc's "
                  "plan, so that height is speed.</li>\n");
    if (b->nstream)
        buf_printf(out,
                   "<li>Roof of memory: %.4g GB/s, %s, measured in the same rounds. Stages whose "
                   "data stay in a "
                   "cache may be above it.</li>\n",
                   cli_median(b->best, b->nstream) * 1e-9,
                   b->device.ops->async ? "copying within the device"
                                        : "the better of copying and scaling in place");
    for (int p = 0; p < NPRODUCT; p++)
        if (b->roof[p] > 0)
            buf_printf(out,
                       "<li>Roof of products in %s: %s/s, measured with products of %d x %d "
                       "matrices.</li>\n",
                       product_info[p].name, cli_flops(rate, b->roof[p]), (int)b->roof_side[p],
                       (int)b->roof_side[p]);
    if (bench_busy(b) > TOO_BUSY)
        buf_printf(out,
                   "<li><b>The machine was busy</b>: threads waited %.0f %% of the time for a "
                   "core. Measure again "
                   "on an idle machine.</li>\n",
                   bench_busy(b) * 100);
    buf_puts(out, "</ul>\n<h2>Machine</h2><p>");
    html_text(out, optc_device_name(b->engine));
    if (b->device.state) {
        buf_puts(out, "; ");
        html_text(out, b->device.state);
    }
    buf_printf(out, "; optc %s</p>\n<pre>", optc_version());
    html_text(out, b->command);
    buf_puts(out, "</pre>\n");
}

void bench_page(const Bench *b, Buf *out)
{
    LocaleMark was = locale_plain();
    Plot box = {.height = 380};
    html_begin(out, "optc bench", b->ncase,
               "body{max-width:74rem}.roofline{max-width:48rem}td.text,th.text{text-align:left}\n");
    buf_puts(out, "<h1>Roofline of ");
    for (int i = 0; i < b->ncase; i++) {
        buf_puts(out, i ? ", " : "");
        html_text(out, b->cases[i].label);
    }
    buf_puts(out, "</h1>\n<p class=\"dim\">");
    html_text(out, optc_device_name(b->engine));
    buf_printf(out, "; %s parameters</p>\n", type_info[b->type].name);
    if (b->interrupted)
        buf_puts(out,
                 "<p><b>The measurement was interrupted.</b> This page has what was done.</p>\n");
    buf_puts(out, "<figure class=\"roofline\">");
    if (!bench_svg_roofline(b, &box, out))
        buf_puts(out, "<p class=\"empty\">No stage was measured.</p>\n");
    buf_puts(out, "<figcaption>Circles: stages with their numbers, larger for a larger share of "
                  "the step. Filled "
                  "squares: whole steps.");
    if (b->peer_name) {
        buf_puts(out, " Hollow squares: ");
        html_text(out, b->peer_name);
        buf_puts(out, bench_graphs(b) ? "; hollow diamonds: its CUDA graph." : ".");
    }
    buf_puts(out, " Stages below 2 % of a step are only in the tables.</figcaption></figure>\n"
                  "<h2>Whole steps</h2>\n");
    steps_table(b, out);
    for (const Case *c = b->cases; c < b->cases + b->ncase; c++)
        stages_section(b, c, out);
    method(b, out);
    html_end(out);
    locale_back(was);
}

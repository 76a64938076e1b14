/* Prints the measurements as one JSON object. */
#include "tools/bench/bench.h"

static void put_gpu(const Case *c, const Medians *m)
{
    printf(",\n     \"copy_gb_per_s\": %.6g, \"share_of_copy\": %.6g, \"host_us\": %.6g, "
           "\"host_us_least\": %.6g, "
           "\"first_ms_cold\": %.6g, \"first_ms_warm\": %.6g",
           m->best * 1e-9, m->share, m->host * 1e6, m->host_least * 1e6, c->cold * 1e3,
           c->warm * 1e3);
}

static void put_peer(const Bench *b, const Case *c, const Medians *m)
{
    printf(",\n     \"%s\": {\"runs\": ", b->against);
    cli_json(c->peer);
    printf(", \"ms\": %.6g, \"ratio\": %.6g", m->peer * 1e3, m->ahead);
    if (bench_rivals(b) && b->device.ops->async)
        printf(", \"same_kernels\": %s", c->same ? "true" : "false");
    if (b->device.ops->async)
        printf(", \"host_us\": %.6g", m->peer_host * 1e6);
    if (c->peer_graph) {
        printf(",\n       \"graph\": {\"runs\": ");
        cli_json(c->peer_graph);
        printf(", \"ms\": %.6g, \"ratio\": %.6g, \"host_us\": %.6g}", m->graph * 1e3,
               m->graph_ahead, m->graph_host * 1e6);
    }
    putchar('}');
}

static void put_bar(const Case *c, const Medians *m)
{
    Buf missed = {0};
    bench_missed(c, m, &missed);
    printf(",\n     \"bar\": {\"ms\": %g, \"slowest_over_mean\": %g, \"share_of_copy\": %g, "
           "\"ratio\": %g, "
           "\"graph_ratio\": %g, \"host_us\": %g, \"first_ms_cold\": %g, \"first_ms_warm\": %g, "
           "\"missed\": ",
           c->bar->ms, c->bar->slowest, c->bar->share, c->bar->eager, c->bar->graph, c->bar->host,
           c->bar->cold, c->bar->warm);
    cli_json(cli_text(&missed));
    putchar('}');
    buf_free(&missed);
}

/* With -o: what the roofline shows. */
static void put_stages(const Case *c)
{
    printf(",\n     \"profiled_ms\": %.6g, \"stages\": [", c->profiled * 1e3);
    for (int i = 0; i < c->nstage; i++) {
        const BenchStage *s = &c->stage[i];
        printf("%s\n       {\"name\": ", i ? "," : "");
        cli_json(s->name);
        printf(
            ", \"us\": %.9g, \"launches\": %.6g, \"bytes\": %.17g, \"flops\": %.17g, \"call\": %s}",
            s->seconds * 1e6, s->launches, s->bytes, s->flops, s->call ? "true" : "false");
    }
    putchar(']');
}

static void put_rates(const char *name, const double rate[NPRODUCT])
{
    const char *between = "";
    printf(", \"%s\": {", name);
    for (int p = 0; p < NPRODUCT; p++)
        if (rate[p] > 0) {
            printf("%s\"%s\": %.6g", between, product_info[p].name, rate[p] * 1e-9);
            between = ", ";
        }
    putchar('}');
}

static void put_roofs(const Bench *b)
{
    printf("  \"interrupted\": %s", b->interrupted ? "true" : "false");
    put_rates("product_gflop_per_s", b->roof);
    if (b->given)
        put_rates("sustained_product_gflop_per_s", b->sustained);
    puts(",");
}

static void put_case(const Bench *b, const Case *c)
{
    char text[200];
    printf("    {\"rule\": ");
    cli_json(c->label);
    if (c->work) {
        printf(", \"work\": ");
        cli_json(c->work);
    }
    printf(", \"kind\": \"%s\", \"elements\": %lld, \"tensors\": %d, \"shape\": ", c->kind,
           (long long)c->n, c->ntensor);
    cli_json(bench_shape(text, c));
    if (c->failed || !c->rounds) {
        printf(", \"failed\": true}");
        return;
    }
    Medians m = bench_medians(c);
    printf(
        ",\n     \"ms\": %.6g, \"spread\": %.6g, \"bytes_read\": %.17g, \"bytes_written\": %.17g, "
        "\"gb_per_s\": %.6g, \"share_of_best\": %.6g, \"share_of_mix\": %.6g, "
        "\"elements_per_s\": %.6g, \"native\": %s, \"runs\": ",
        m.seconds * 1e3, m.spread, c->bytes.read, c->bytes.written, m.rate * 1e-9, m.share, m.mix,
        (double)c->n / m.seconds, c->native ? "true" : "false");
    cli_json(c->runs);
    if (c->period > 1)
        printf(",\n     \"period\": %d, \"steps\": %d, \"slowest_over_mean\": %.6g, "
               "\"slowest_over_mean_first\": %.6g",
               c->period, c->reps, m.slowest, c->first_slowest);
    if (b->device.ops->async)
        put_gpu(c, &m);
    if (c->peer)
        put_peer(b, c, &m);
    if (c->bar)
        put_bar(c, &m);
    if (b->out)
        put_stages(c);
    putchar('}');
}

void bench_json(const Bench *b)
{
    printf("{\n  \"optc\": \"%s\",\n  \"device\": ", optc_version());
    cli_json(optc_device_name(b->engine));
    if (b->device.state) {
        printf(", \"device_state\": ");
        cli_json(b->device.state);
    }
    printf(",\n  \"threads\": %d, \"rounds\": %d, \"type\": \"%s\",\n  \"copy_gb_per_s\": %.6g, "
           "\"best_gb_per_s\": "
           "%.6g,\n",
           b->threads, b->rounds, type_info[b->type].name, cli_median(b->copy, b->nstream) * 1e-9,
           cli_median(b->best, b->nstream) * 1e-9);
    if (!b->device.ops->async)
        printf("  \"scale_gb_per_s\": %.6g, \"read_gb_per_s\": %.6g, \"busy\": %s, \"waited\": "
               "%.3g,\n",
               cli_median(b->scale, b->nstream) * 1e-9, cli_median(b->read, b->nstream) * 1e-9,
               bench_busy(b) > TOO_BUSY ? "true" : "false", bench_busy(b));
    if (b->peer_name) {
        printf("  \"against\": ");
        cli_json(b->peer_name);
        printf(",\n");
    }
    if (b->out || b->given)
        put_roofs(b);
    printf("  \"rules\": [\n");
    for (int i = 0; i < b->ncase; i++) {
        put_case(b, &b->cases[i]);
        puts(i < b->ncase - 1 ? "," : "");
    }
    puts("  ]\n}");
}

/* Prints the measurements as one JSON object. */
#include "tools/bench/bench.h"
#include "tools/page/json.h"

#include <stddef.h>

#define REAL(T, name, member, unit) {name, FIELD_REAL, offsetof(T, member), 0, 0, unit}
#define END {NULL, FIELD_INT, 0, 0, 0, 0}

static const JsonField step_fields[] = {REAL(Medians, "ms", seconds, 1e3),
                                        REAL(Medians, "spread", spread, 1),
                                        REAL(Medians, "gb_per_s", rate, 1e-9),
                                        REAL(Medians, "share_of_best", share, 1),
                                        REAL(Medians, "share_of_mix", mix, 1), END};
static const JsonField byte_fields[] = {REAL(Case, "bytes_read", bytes.read, 1),
                                        REAL(Case, "bytes_written", bytes.written, 1), END};
static const JsonField gpu_fields[] = {REAL(Medians, "copy_gb_per_s", best, 1e-9),
                                       REAL(Medians, "share_of_copy", share, 1),
                                       REAL(Medians, "host_us", host, 1e6),
                                       REAL(Medians, "host_us_least", host_least, 1e6), END};
static const JsonField first_fields[] = {REAL(Case, "first_ms_cold", cold, 1e3),
                                         REAL(Case, "first_ms_warm", warm, 1e3), END};
static const JsonField peer_fields[] = {REAL(Medians, "ms", peer, 1e3),
                                        REAL(Medians, "ratio", ahead, 1), END};
static const JsonField graph_fields[] = {REAL(Medians, "ms", graph, 1e3),
                                         REAL(Medians, "ratio", graph_ahead, 1),
                                         REAL(Medians, "host_us", graph_host, 1e6), END};
static const JsonField stage_fields[] = {REAL(BenchStage, "us", seconds, 1e6),
                                         REAL(BenchStage, "launches", launches, 1),
                                         REAL(BenchStage, "bytes", bytes, 1),
                                         REAL(BenchStage, "flops", flops, 1),
                                         {"call", FIELD_BOOL, offsetof(BenchStage, call), 0, 0, 0},
                                         END};

static void put_peer(JsonText *t, const Bench *b, const Case *c, const Medians *m)
{
    bool gpu = b->device.ops->async;
    json_object(t, b->against, false);
    json_string(t, "runs", c->peer);
    json_fields(t, peer_fields, m);
    if (b->rival && gpu)
        json_bool(t, "same_kernels", c->same);
    if (gpu)
        json_real(t, "host_us", m->peer_host * 1e6);
    if (c->peer_graph) {
        json_object(t, "graph", false);
        json_string(t, "runs", c->peer_graph);
        json_fields(t, graph_fields, m);
        json_end(t);
    }
    json_end(t);
}

/* With -o: what the roofline shows. */
static void put_stages(JsonText *t, const Case *c)
{
    json_real(t, "profiled_ms", c->profiled * 1e3);
    json_list(t, "stages", true);
    for (const BenchStage *s = c->stage; s < c->stage + c->nstage; s++) {
        json_object(t, NULL, false);
        json_string(t, "name", s->name);
        json_fields(t, stage_fields, s);
        json_end(t);
    }
    json_end(t);
}

static void put_rates(JsonText *t, const char *name, const double rate[NPRODUCT])
{
    json_object(t, name, false);
    for (int p = 0; p < NPRODUCT; p++)
        if (rate[p] > 0)
            json_real(t, product_info[p].name, rate[p] * 1e-9);
    json_end(t);
}

static void put_timed(JsonText *t, const Bench *b, const Case *c)
{
    Medians m = bench_medians(c);
    json_fields(t, step_fields, &m);
    json_fields(t, byte_fields, c);
    json_real(t, "elements_per_s", (double)c->n / m.seconds);
    json_bool(t, "native", c->native);
    json_string(t, "runs", c->runs);
    if (c->period > 1) {
        json_int(t, "period", c->period);
        json_int(t, "steps", c->reps);
        json_real(t, "slowest_over_mean", m.slowest);
        json_real(t, "slowest_over_mean_first", c->first_slowest);
    }
    if (b->device.ops->async) {
        json_fields(t, gpu_fields, &m);
        json_fields(t, first_fields, c);
    }
    if (c->peer)
        put_peer(t, b, c, &m);
    if (b->extra)
        b->extra->json(t, b, c, &m);
    if (b->out)
        put_stages(t, c);
}

static void put_case(JsonText *t, const Bench *b, const Case *c)
{
    char shape[200];
    json_object(t, NULL, true);
    json_string(t, "rule", c->label);
    if (c->work)
        json_string(t, "work", c->work);
    json_string(t, "kind", c->kind);
    json_int(t, "elements", c->n);
    json_int(t, "tensors", c->ntensor);
    json_string(t, "shape", bench_shape(shape, c));
    if (c->failed || !c->rounds)
        json_bool(t, "failed", true);
    else
        put_timed(t, b, c);
    json_end(t);
}

void bench_json(const Bench *b)
{
    Buf text = {0};
    JsonText t = {.b = &text};
    json_object(&t, NULL, true);
    json_string(&t, "optc", optc_version());
    json_string(&t, "device", optc_device_name(b->engine));
    if (b->device.state)
        json_string(&t, "device_state", b->device.state);
    json_int(&t, "threads", b->threads);
    json_int(&t, "rounds", b->rounds);
    json_string(&t, "type", type_info[b->type].name);
    json_real(&t, "copy_gb_per_s", cli_median(b->copy, b->nstream) * 1e-9);
    json_real(&t, "best_gb_per_s", cli_median(b->best, b->nstream) * 1e-9);
    if (!b->device.ops->async) {
        json_real(&t, "scale_gb_per_s", cli_median(b->scale, b->nstream) * 1e-9);
        json_real(&t, "read_gb_per_s", cli_median(b->read, b->nstream) * 1e-9);
        json_bool(&t, "busy", bench_busy(b) > TOO_BUSY);
        json_real(&t, "waited", bench_busy(b));
    }
    if (b->peer_name)
        json_string(&t, "against", b->peer_name);
    if (b->out || b->sustain) {
        json_bool(&t, "interrupted", b->interrupted);
        put_rates(&t, "product_gflop_per_s", b->roof);
        if (b->sustain)
            put_rates(&t, "sustained_product_gflop_per_s", b->sustained);
    }
    json_list(&t, "rules", true);
    for (int i = 0; i < b->ncase; i++)
        put_case(&t, b, &b->cases[i]);
    json_end(&t);
    json_end(&t);
    json_print(&t);
}

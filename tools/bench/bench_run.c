/* Buffers, bindings and rounds. A round times everything once, one after another, so that a
 * disturbance of the machine affects all alike. Ratios are computed within a round; the result is
 * their median over rounds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Steps per measurement of the host's time: far fewer launches than a queue holds (about 1024). A
 * step with products has hundreds of launches. */
enum { HOST_STEPS = 20, HOST_STEPS_CALLS = 3 };
static const double LONG_STEP = 0.5;           /* seconds: a longer step needs only one warm-up */

bool bench_lib(optc_status s)
{
    if (s != OPTC_OK)
        cli_error("%s%s", optc_message(),
                  strstr(optc_message(), "optc_engine_options.workspace")
                      ? "\nbench: '--workspace 4G' sets the workspace of products to 4 GB" : "");
    return s == OPTC_OK;
}

static void progress(const Bench *b, const Case *c, const char *what, int i, int n)
{
    if (!b->progress)
        return;
    fputs("\r\033[K", stderr);
    if (c) {
        fprintf(stderr, "%s%s", c->work ? c->work : "", c->work ? " " : "");
        cli_put_clean(stderr, c->label, false);
        fprintf(stderr, ": %s %d/%d", what, i + 1, n);
    }
}

volatile sig_atomic_t bench_stopped;

/* ---- memory ---- */
static bool fits(Bench *b, int from, int n)
{
    double need = (double)b->place * (type_info[b->type].bytes + type_info[b->grad].bytes) +
                  2.0 * (double)b->most * sizeof(float),
           have = b->device.ops->room(&b->device);
    for (int i = from; i < from + n; i++)
        need += b->cases[i].state_bytes * (b->rival ? 2 : 1);
    char x[32], y[32];
    if (need < have)
        return true;
    cli_error("bench: %s needs about %s of memory, and %s are available: use a smaller --size or "
              "fewer rules",
              b->cases[from].label, cli_bytes(x, need), cli_bytes(y, have));
    return false;
}

static bool make_buffers(Bench *b, int from, int n)
{
    BenchDevice *d = &b->device;
    b->most = b->place = 0;
    for (int i = from; i < from + n; i++) {
        b->most = b->cases[i].n > b->most ? b->cases[i].n : b->most;
        b->place = b->cases[i].place > b->place ? b->cases[i].place : b->place;
    }
    if (!fits(b, from, n))
        return false;
    b->p = d->ops->alloc(d, (size_t)b->place * (size_t)type_info[b->type].bytes);
    b->g = b->p ? d->ops->alloc(d, (size_t)b->place * (size_t)type_info[b->grad].bytes) : NULL;
    return b->g && d->ops->fill(d, b->p, b->type, b->place, 1.0f) &&
           d->ops->fill(d, b->g, b->grad, b->place, 0.0625f) && d->ops->yard_open(d, b->most);
}

static bool make_series(Bench *b)
{
    size_t rounds = (size_t)b->rounds, most = rounds * (size_t)b->ncase;
    b->copy = calloc(most * 4, sizeof(double));
    bool ok = b->copy != NULL;
    b->scale = ok ? b->copy + most : NULL;
    b->best = ok ? b->scale + most : NULL;
    b->read = ok ? b->best + most : NULL;
    for (int i = 0; ok && i < b->ncase; i++) {
        Case *c = &b->cases[i];
        double **each[] = {&c->seconds, &c->rate,          &c->share,        &c->best,
                           &c->mix,     &c->host,          &c->peer_seconds, &c->peer_host,
                           &c->ahead,   &c->graph_seconds, &c->graph_host,   &c->graph_ahead,
                           &c->slowest};
        enum { N = sizeof each / sizeof *each };
        double *all = calloc(rounds * N, sizeof(double));
        ok = all != NULL;
        for (int k = 0; ok && k < N; k++)
            *each[k] = all + rounds * (size_t)k;
    }
    return ok ? true : (cli_error("bench: out of memory"), false);
}

/* ---- bindings ---- */
static optc_rule_options case_options(const Bench *b, const Case *c)
{
    optc_rule_options r = spec_rule_options(&b->compile, c->spec, c->with);
    if (c->as && c->as->options)
        c->as->options(b, &r);
    return r;
}

static bool compile_case(Bench *b, Case *c, optc_engine *e)
{
    optc_rule_options r = case_options(b, c);
    if (!bench_lib(optc_compile(e, &r, &c->rule)))
        return false;
    c->runs = strdup(optc_rule_path(c->rule));
    c->native = optc_rule_native(c->rule);
    if (!c->native && c->n > 1 << 20) {
        cli_error("bench: %s would run on the %s: too slow for %lld elements, try --size 64K",
                  c->label, optc_rule_path(c->rule), (long long)c->n);
        return false;
    }
    return true;
}

/* Inputs besides the gradient: any normal numbers will do. */
bool bench_inputs(Bench *b, Case *c)
{
    BenchDevice *d = &b->device;
    int n = optc_rule_inputs(c->rule);
    if (n && !b->input) {
        size_t bytes = (size_t)b->most * sizeof(double);
        b->input = d->ops->alloc(d, bytes);
        /* a normal number between 0.0004 and 2 in every type */
        if (!b->input || !d->ops->set(d, b->input, 0x3f, bytes))
            return false;
    }
    for (int i = 0; i < n; i++) {
        const char *name = optc_rule_input(c->rule, i);
        if (optc_set_scalar(c->binding, -1, name, 0.5) == OPTC_OK)
            continue;
        for (int k = 0; k < c->ntensor; k++)
            if (!bench_lib(optc_set_input(c->binding, k, name, b->input, 0)))
                return false;
    }
    return true;
}

static bool bind_case(Bench *b, Case *c, optc_engine *e, optc_tensor *t)
{
    optc_group group = {.tensors = t, .ntensors = c->ntensor};
    optc_rule_options r = case_options(b, c);
    if (c->as && c->as->bind)
        return c->as->bind(b, c, e, &r, t);
    return bench_lib(optc_bind(c->rule, &group, 1, &c->binding)) && bench_inputs(b, c);
}

bool bench_start(Bench *b, Case *c, optc_engine *e)
{
    if (!compile_case(b, c, e))
        return false;
    optc_tensor *t = calloc((size_t)c->ntensor, sizeof *t);
    int64_t at = 0;
    for (int i = 0; t && i < c->ntensor; i++) {
        int64_t n = 1;
        for (int k = 0; k < c->shape[i].rank; k++)
            n *= c->shape[i].dim[k];
        t[i] = (optc_tensor){.param = (char *)b->p + at * type_info[b->type].bytes,
                             .grad = (char *)b->g + at * type_info[b->grad].bytes,
                             .rank = c->shape[i].rank,
                             .shape = c->shape[i].dim};
        at += (n + 63) / 64 * 64;
    }
    bool ok = t ? bind_case(b, c, e, t) : (cli_error("bench: out of memory"), false);
    free(t);
    c->t = 0;
    return ok;
}

/* If a factor is refused, the rule uses the previous factor or NaN, so the time is not that of the
 * rule. */
static void tell_refused(const Case *c)
{
    optc_factors x;
    if (c->binding && optc_factors_about(c->binding, -1, &x) == OPTC_OK && x.refused)
        cli_warning(
            "bench: %s: %lld of %lld factors of matrices were refused (largest residual %.2g)",
            c->label, (long long)x.refused, (long long)x.computed, x.residual);
}

void bench_stop(Case *c)
{
    tell_refused(c);
    (void)optc_unbind(c->binding);
    if (c->as && c->as->unbind)
        c->as->unbind(c);
    (void)optc_release(c->rule);
    (void)optc_close(c->engine);
    c->binding = NULL;
    c->part = NULL;
    c->rule = NULL;
    c->engine = NULL;
}

/* ---- samples ---- */
bool bench_steps(Case *c, int n)
{
    c->t += n;
    for (int k = 0; k < n; k++)
        if ((c->as && c->as->step ? c->as->step(c) : optc_step(c->binding)) != OPTC_OK)
            return bench_lib(OPTC_ERROR_ARGUMENT);
    return true;
}

/* Seconds per step: the mean of c->reps consecutive steps, or the median of a few if steps are
 * timed alone. Sets c->bytes to the bytes per step that the plan moves. */
bool bench_sample(Bench *b, Case *c, double *seconds, double *slowest)
{
    int kinds = c->period > 1 ? c->reps : 1;
    c->bytes = (optc_bytes){0, 0};
    for (int k = 0; k < kinds; k++) {
        optc_bytes one;
        if (!bench_lib(optc_plan_bytes(c->binding, "step", c->t + k + 1, &one)))
            return false;
        c->bytes.read += one.read / kinds;
        c->bytes.written += one.written / kinds;
    }
    BenchDevice *d = &b->device;
    *slowest = 1;
    if (c->period > 1)
        return period_sample(b, c, c->reps, seconds, slowest);
    if (!d->alone)
        return d->ops->begin(d) && bench_steps(c, c->reps) && d->ops->end(d, seconds) &&
               (*seconds /= c->reps, true);
    double each[ALONE];
    bool cached = d->ops->forget && c->bytes.read + c->bytes.written < CACHE;
    for (int k = 0; k < ALONE; k++)
        if ((cached && !d->ops->forget(d)) || !d->ops->begin(d) || !bench_steps(c, 1) ||
            !d->ops->end(d, &each[k]))
            return false;
    *seconds = cli_median(each, ALONE);
    return true;
}

/* Three untimed samples, until pages, threads, clocks and branch predictors have settled; one if a
 * step is long. The last one gives the duration of a step. For rules with periods a GPU runs a
 * whole period. */
static bool warm_up(Bench *b, Case *c)
{
    double s = 0, slowest;
    c->reps = 1;
    if (c->period > 1 && b->device.ops->async) {
        c->reps = c->period;
        if (!bench_sample(b, c, &s, &c->first_slowest))
            return false;
    }
    for (int i = 0; i < 3 && c->reps == 1 && s < LONG_STEP; i++)
        if (!bench_sample(b, c, &s, &slowest))
            return false;
    c->reps = c->period > 1     ? period_steps(b, c, bench_device_reps(&b->device, s))
              : b->device.alone ? ALONE
                                : bench_device_reps(&b->device, s);
    return true;
}

/* The time that the caller's thread spends in optc_step. The queue is empty at first and never
 * becomes full. */
static bool time_host(Bench *b, Case *c, double *seconds)
{
    BenchDevice *d = &b->device;
    if (c->period > 1)
        return period_host(b, c, seconds);
    if (!d->ops->sync(d))
        return false;
    int n = c->calls ? HOST_STEPS_CALLS : HOST_STEPS;
    double t0 = cli_now();
    bool ok = bench_steps(c, n);
    *seconds = (cli_now() - t0) / n;
    return ok && d->ops->sync(d);
}

/* With a peer on the CPU, both sides rest before they are timed: threads of the other side spin for
 * a moment after their work and must fall asleep first, and the scheduler prefers a process that
 * has rested. */
static void settle(const Bench *b)
{
    if (b->peer && !b->device.ops->async)
        usleep(20000);
}

static void lose_peer(Bench *b, const Case *c)
{
    cli_warning("bench: %s did not answer for %s; continuing without it", b->peer_name, c->label);
    peer_stop(b->peer);
    b->peer = NULL;
    for (int i = 0; i < b->ncase; i++)
        if (!b->cases[i].timed) {
            free(b->cases[i].peer);
            b->cases[i].peer = NULL;
        }
}

static void time_peer(Bench *b, Case *c, int round)
{
    settle(b);
    PeerTimes t;
    int got = peer_step(b->peer, b, c, &t);
    if (got < 0)
        lose_peer(b, c);
    if (got <= 0)
        return;
    c->peer_seconds[round] = t.seconds;
    c->peer_host[round] = t.host;
    c->ahead[round] = t.seconds / c->seconds[round];
    c->graph_seconds[round] = t.graph;
    c->graph_host[round] = t.graph_host;
    c->graph_ahead[round] = t.graph / c->seconds[round];
}

/* Times the rival, then the case once more, so that neither side is always second. */
static bool time_rival(Bench *b, Case *c, int round)
{
    double again, slowest;
    if (!bench_sample(b, c->rival, &c->peer_seconds[round], &slowest) ||
        (b->device.ops->async && !time_host(b, c->rival, &c->peer_host[round])) ||
        !bench_sample(b, c, &again, &slowest))
        return false;
    c->seconds[round] = (c->seconds[round] + again) / 2;
    c->ahead[round] = c->peer_seconds[round] / c->seconds[round];
    return true;
}

static bool time_case(Bench *b, Case *c, int round)
{
    BenchDevice *d = &b->device;
    Rates r;
    settle(b);
    /* right before each rule: rates change within a round */
    if (!d->ops->yard_time(d, &r))
        return false;
    settle(b);
    if ((d->ops->async && !bench_steps(c, 1)) ||
        !bench_sample(b, c, &c->seconds[round], &c->slowest[round]) ||
        (d->ops->async && !time_host(b, c, &c->host[round])) ||
        (c->rival && !time_rival(b, c, round)))
        return false;
    c->rate[round] = (c->bytes.read + c->bytes.written) / c->seconds[round];
    c->share[round] = c->rate[round] / r.best;
    c->best[round] = r.best;
    /* Each written byte is paired with a byte read, as in place; further reads count at the rate of
     * reading. */
    double paired = c->bytes.written < c->bytes.read ? c->bytes.written : c->bytes.read;
    double over = c->bytes.read - paired + (c->bytes.written - paired);
    c->mix[round] =
        r.read > 0 ? (2 * paired / r.best + over / r.read) / c->seconds[round] : c->share[round];
    b->copy[b->nstream] = r.copy;
    b->scale[b->nstream] = r.scale;
    b->read[b->nstream] = r.read;
    b->best[b->nstream++] = r.best;
    if (b->peer && c->peer)
        time_peer(b, c, round);
    return true;
}

/* ---- a batch ---- */
/* How the rival runs, for the report. */
static char *describe_rival(Case *c, const Case *r)
{
    const char *with = strstr(optc_rule_path(c->rule), "launches tuned");
    Buf text = {0};
    if (r->as->describe) {
        buf_printf(&text, "%s; ", r->runs ? r->runs : "");
        r->as->describe(r, &text);
        return buf_take(&text);
    }
    c->same = !with || strstr(with, "as the model has them");
    buf_printf(&text, "%s%s%s", r->runs ? r->runs : "",
               with ? "; compared with: "
                    : "; no tuning result for this device: both sides are the same",
               with ? with : "");
    return buf_take(&text);
}

/* The same case in another engine. Its pointers are shared with the case. */
static bool start_rival(Bench *b, Case *c)
{
    Case *r = c->rival = calloc(1, sizeof *r);
    if (!r)
        return cli_error("bench: out of memory"), false;
    if (b->rival->check && !b->rival->check(b))
        return false;
    *r = (Case){.label = c->label,
                .spec = c->spec,
                .with = c->with,
                .shape = c->shape,
                .ntensor = c->ntensor,
                .n = c->n,
                .place = c->place,
                .period = c->period,
                .lap = c->lap,
                .matrix = c->matrix,
                .calls = c->calls,
                .as = b->rival};
    if (!bench_lib(optc_open(
            &(optc_engine_options){
                .device = b->device_name, .threads = b->threads, .spec_path = b->compile.path,
                .untuned = b->rival->untuned, .workspace = b->workspace},
            &r->engine)))
        return false;
    if (!bench_start(b, r, r->engine) || !warm_up(b, r))
        return false;
    r->reps = c->reps;
    c->peer = describe_rival(c, r);
    return c->peer != NULL;
}

static void stop_rival(Case *c)
{
    if (!c->rival)
        return;
    bench_stop(c->rival);
    free(c->rival->runs);
    free(c->rival);
    c->rival = NULL;
}

static bool prepare(Bench *b, int from, int n)
{
    if (!make_buffers(b, from, n))
        return false;
    for (int i = 0; i < n; i++) {
        Case *c = &b->cases[from + i];
        progress(b, c, "warming up", i, n);
        if (!(b->device.ops->async ? bench_first(b, c) : bench_start(b, c, b->engine)) ||
            !warm_up(b, c) || (b->rival && !start_rival(b, c)))
            return false;
    }
    return true;
}

static void open_peers(Bench *b, int from, int n)
{
    if (b->against && !b->peer_tried && !b->rival) {
        b->peer = peer_start(b->against, b, &b->peer_name);
        b->peer_tried = true;
    }
    for (int i = from; b->peer && i < from + n; i++) {
        progress(b, &b->cases[i], b->against, i - from, n);
        peer_open(b->peer, b, &b->cases[i]);
    }
}

static void put_away(Bench *b, int from, int n)
{
    BenchDevice *d = &b->device;
    void **each[] = {&b->p, &b->g, &b->input};
    for (int i = from; i < from + n; i++) {
        bench_stop(&b->cases[i]);
        stop_rival(&b->cases[i]);
        if (b->peer && b->cases[i].peer)
            peer_close(b->peer, b, &b->cases[i]);
    }
    if (!d->ops)
        return;
    /* the driver's pool frees memory only at a synchronisation */
    (void)d->ops->sync(d);
    d->ops->yard_close(d);
    for (int i = 0; i < 3; i++) {
        d->ops->free(d, *each[i]);
        *each[i] = NULL;
    }
}

bool bench_batch(Bench *b, int from, int n)
{
    bool ok = (b->copy || make_series(b)) && prepare(b, from, n);
    if (ok)
        open_peers(b, from, n);
    if (ok && b->device.ops->record)
        b->device.ops->record(&b->device, true);
    double began = cli_now(), waited = waited_ms();
    for (int round = 0; ok && round < b->rounds; round++)
        for (int i = 0; ok && i < n && !bench_stopped; i++) {
            /* rotates, so that no case always follows the peer */
            Case *c = &b->cases[from + (i + round) % n];
            progress(b, c, "round", round, b->rounds);
            ok = time_case(b, c, round);
            c->rounds += ok;
        }
    b->timed += cli_now() - began;
    b->waited += (waited_ms() - waited) * 1e-3;
    if (ok && b->device.ops->record)
        b->device.ops->record(&b->device, false);
    for (int i = from; ok && b->out && !bench_stopped && i < from + n; i++) {
        progress(b, &b->cases[i], "stages", i - from, n);
        ok = bench_stages(b, &b->cases[i]);
    }
    put_away(b, from, n);
    for (int i = from; i < from + n; i++) {
        b->cases[i].timed = ok;
        b->cases[i].failed = !ok;
    }
    progress(b, NULL, "", 0, 0);
    return ok;
}

bool bench_open(Bench *b)
{
    optc_engine_options o = {.device = b->device_name,
                             .threads = b->threads,
                             .spec_path = b->compile.path,
                             .workspace = b->workspace};
    optc_status s = optc_open(&o, &b->engine);
    if (s != OPTC_OK) {
        cli_error("%s%s", optc_message(),
                  s == OPTC_ERROR_UNAVAILABLE
                      ? "\nbench: '--device cpu' runs on the CPU, '--device best' on a GPU "
                        "where there is one; 'optc doctor' shows the devices"
                      : "");
        return false;
    }
    b->threads = optc_threads(b->engine);
    if (!bench_device_open(&b->device, b->engine))
        return false;
    b->device.alone = b->device.ops->async && !b->queued;
    b->peer_name = b->rival ? strdup(b->rival->about) : NULL;
    return true;
}

void bench_drop_case(Bench *b)
{
    Case *c = &b->cases[--b->ncase];
    void *each[] = {c->label,      c->spec,     c->with, c->shape, c->seconds, c->runs, c->peer,
                    c->peer_graph, c->peer_why, c->lap,  c->ops,   c->stage};
    for (size_t k = 0; k < sizeof each / sizeof *each; k++)
        free(each[k]);
    *c = (Case){0};
}

void bench_free(Bench *b)
{
    peer_stop(b->peer);
    free(b->peer_name);
    while (b->ncase)
        bench_drop_case(b);
    bench_device_close(&b->device);
    (void)optc_close(b->engine);
    free(b->cases);
    free(b->copy);
}

/* Buffers, bindings and rounds. In a round everything is timed once, one after another, so that what disturbs the machine disturbs
 * all alike; ratios are taken within a round, then their median over rounds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double least_sample = 4e-3;       /* seconds: far above the clock's grain and a thread's waking */

/* ---- numbers to step ---- */
/* Normal numbers of both signs and several sizes, never zero; the low 16 bits of the result for the 16-bit types. */
static uint64_t bits_of(Type t, int64_t i, float scale)
{
    uint32_t h = (uint32_t)i * 2654435761u;
    float x = scale * (0.25f + (float)(h >> 9) * 0x1p-23f) * (h & 1 ? 1.0f : -1.0f);
    uint32_t f;
    memcpy(&f, &x, sizeof f);
    switch (t) {
    case T_BF16: return f >> 16;
    case T_F16: return (f >> 16 & 0x8000) | (((f >> 23 & 0xff) - 112) << 10) | (f >> 13 & 0x3ff);     /* 2^-14 … 2^15 only */
    case T_F64: {
        double d = x;
        uint64_t w;
        memcpy(&w, &d, sizeof w);
        return w;
    }
    default: return f;
    }
}

static void fill(void *p, Type t, int64_t n, float scale, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        uint64_t w = bits_of(t, i, scale);
        switch (type_info[t].bytes) {
        case 2: ((uint16_t *)p)[i] = (uint16_t)w; break;
        case 4: ((uint32_t *)p)[i] = (uint32_t)w; break;
        default: ((uint64_t *)p)[i] = w;
        }
    }
}

static void *new_filled(Type t, int64_t n, float scale, int threads)
{
    void *p = stream_alloc((size_t)n * (size_t)type_info[t].bytes);
    if (p)
        fill(p, t, n, scale, threads);
    return p;
}

/* Asking for more than there is would end in the kernel killing something, not in a message. */
static bool fits(const Bench *b, int64_t n, Type grad)
{
    double need = (double)n * (type_info[b->type].bytes + type_info[grad].bytes) + 2.0 * (double)b->stream_n * sizeof(float);
    for (int i = 0; i < b->ncase; i++)
        need += b->cases[i].state_bytes;
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char x[32], y[32];
    if (need < 0.9 * have)
        return true;
    cli_error("bench: this needs about %s of memory and the machine has %s: take a smaller --size or fewer rules", cli_bytes(x, need), cli_bytes(y, have));
    return false;
}

static bool make_buffers(Bench *b)
{
    int64_t n = 0, place = 0;
    Type grad = b->compile.g < 0 ? b->type : (Type)b->compile.g;
    for (int i = 0; i < b->ncase; i++) {
        n = b->cases[i].n > n ? b->cases[i].n : n;
        place = b->cases[i].place > place ? b->cases[i].place : place;
    }
    b->stream_n = n;
    if (!fits(b, place, grad))
        return false;
    b->p = new_filled(b->type, place, 1.0f, b->threads);
    b->g = new_filled(grad, place, 0.0625f, b->threads);
    b->a = stream_alloc((size_t)n * sizeof *b->a);
    b->b = stream_alloc((size_t)n * sizeof *b->b);
    size_t most = (size_t)b->rounds * (size_t)b->ncase;
    b->copy = calloc(most * 4, sizeof(double));
    if (!b->p || !b->g || !b->a || !b->b || !b->copy)
        return cli_error("bench: out of memory"), false;
    b->scale = b->copy + most;
    b->best = b->scale + most;
    b->read = b->best + most;
    stream_touch(b->a, n, b->threads);
    stream_touch(b->b, n, b->threads);
    return true;
}

/* ---- bindings ---- */
static bool lib(optc_status s)
{
    if (s != OPTC_OK)
        cli_error("%s", optc_message());
    return s == OPTC_OK;
}

static optc_type public_of(int t)
{
    static const optc_type of[NTYPES] = {[T_F32] = OPTC_F32, [T_F64] = OPTC_F64, [T_BF16] = OPTC_BF16, [T_F16] = OPTC_F16};
    return t < 0 ? OPTC_DEFAULT : of[t];
}

static bool compile_case(Bench *b, Case *c)
{
    const CompileOpts *o = &b->compile;
    optc_rule_options r = {.spec = c->spec, .with = c->with, .options = o->options, .param = public_of(o->p), .grad = public_of(o->g), .state = public_of(o->state)};
    if (!lib(optc_compile(b->engine, &r, &c->rule)))
        return false;
    if (!optc_rule_native(c->rule) && c->n > 1 << 20) {
        cli_error("bench: %s would run on the %s: too slow for %lld elements, try --size 64K", c->label, optc_rule_path(c->rule), (long long)c->n);
        return false;
    }
    return true;
}

/* Inputs beside the gradient: any numbers will do. */
static bool set_inputs(Bench *b, Case *c)
{
    int n = optc_rule_inputs(c->rule);
    if (n && !b->input) {
        b->input = stream_alloc((size_t)b->stream_n * sizeof(double));
        if (!b->input)
            return cli_error("bench: out of memory"), false;
        memset(b->input, 0x3f, (size_t)b->stream_n * sizeof(double));     /* a normal number between 0.0004 and 2 in every type */
    }
    for (int i = 0; i < n; i++) {
        const char *name = optc_rule_input(c->rule, i);
        if (optc_set_scalar(c->binding, -1, name, 0.5) == OPTC_OK)
            continue;
        for (int k = 0; k < c->ntensor; k++)
            if (!lib(optc_set_input(c->binding, k, name, b->input, 0)))
                return false;
    }
    return true;
}

static bool bind_case(Bench *b, Case *c)
{
    Type grad = b->compile.g < 0 ? b->type : (Type)b->compile.g;
    optc_tensor *t = calloc((size_t)c->ntensor, sizeof *t);
    int64_t at = 0;
    for (int i = 0; t && i < c->ntensor; i++) {
        int64_t n = 1;
        for (int k = 0; k < c->shape[i].rank; k++)
            n *= c->shape[i].dim[k];
        t[i] = (optc_tensor){.param = (char *)b->p + at * type_info[b->type].bytes, .grad = (char *)b->g + at * type_info[grad].bytes,
                             .rank = c->shape[i].rank, .shape = c->shape[i].dim};
        at += (n + 15) / 16 * 16;
    }
    optc_group group = {.tensors = t, .ntensors = c->ntensor};
    bool ok = t ? lib(optc_bind(c->rule, &group, 1, &c->binding)) : (cli_error("bench: out of memory"), false);
    free(t);
    size_t rounds = (size_t)b->rounds;
    c->seconds = ok ? calloc(rounds * 6, sizeof(double)) : NULL;
    if (!c->seconds)
        return ok ? cli_error("bench: out of memory"), false : false;
    c->rate = c->seconds + rounds;
    c->share = c->rate + rounds;
    c->peer_seconds = c->share + rounds;
    c->ahead = c->peer_seconds + rounds;
    c->mix = c->ahead + rounds;
    return set_inputs(b, c);
}

/* ---- samples ---- */
/* Seconds per step over c->reps steps; c->bytes is set to the bytes per step the plan moves in them. */
static bool sample(Case *c, double *seconds)
{
    int kinds = c->periodic ? c->reps : 1;
    c->bytes = (optc_bytes){0, 0};
    for (int k = 0; k < kinds; k++) {
        optc_bytes one;
        if (!lib(optc_plan_bytes(c->binding, "step", c->t + k + 1, &one)))
            return false;
        c->bytes.read += one.read / kinds;
        c->bytes.written += one.written / kinds;
    }
    double t0 = cli_now();
    for (int k = 0; k < c->reps; k++)
        if (optc_step(c->binding) != OPTC_OK)
            return lib(OPTC_ERROR_ARGUMENT);
    *seconds = (cli_now() - t0) / c->reps;
    c->t += c->reps;
    return true;
}

static int reps_for(double seconds)
{
    double r = ceil(least_sample / (seconds > 1e-8 ? seconds : 1e-8));
    return r < 1 ? 1 : r > 100000 ? 100000 : (int)r;
}

/* Three times without counting: pages, threads and branch predictors settle. The last one says how long a step is. */
static bool warm_up(Case *c)
{
    double s = 0;
    c->reps = 1;
    for (int i = 0; i < 3; i++)
        if (!sample(c, &s))
            return false;
    c->reps = reps_for(s);
    return true;
}

static void progress(const Bench *b, const char *what, int i, int n)
{
    if (b->progress)
        fprintf(stderr, i < n ? "\r\033[K%s %d/%d" : "\r\033[K", what, i + 1, n);
}

bool bench_prepare(Bench *b)
{
    if (!lib(optc_open(&(optc_engine_options){.device = "cpu", .threads = b->threads, .spec_path = b->compile.path}, &b->engine)))
        return false;
    b->threads = optc_threads(b->engine);
    for (int i = 0; i < b->ncase; i++) {
        progress(b, "compiling", i, b->ncase);
        if (!compile_case(b, &b->cases[i]))
            return false;
    }
    if (!make_buffers(b))
        return false;
    for (int i = 0; i < b->ncase; i++) {
        progress(b, "warming up", i, b->ncase);
        if (!bind_case(b, &b->cases[i]) || !warm_up(&b->cases[i]))
            return false;
    }
    stream_copy(b->b, b->a, b->stream_n, b->threads);
    double t0 = cli_now();
    stream_scale(b->a, b->stream_n, b->threads);
    b->stream_reps = reps_for(cli_now() - t0);
    return true;
}

/* As many threads as the library would put on that many elements (run_native). */
static int stream_team(const Bench *b)
{
    int64_t useful = b->stream_n / (1 << 15) + 1;
    return useful < b->threads ? (int)useful : b->threads;
}

/* Both walk both arrays, so that neither has less to keep in the caches. */
static double time_streams(Bench *b)
{
    int threads = stream_team(b);
    double bytes = 2.0 * (double)b->stream_n * sizeof(float) * b->stream_reps;
    double t0 = cli_now();
    for (int k = 0; k < b->stream_reps; k++)
        stream_copy(b->b, b->a, b->stream_n, threads);
    double t1 = cli_now();
    for (int k = 0; k < b->stream_reps; k++) {
        stream_scale(b->a, b->stream_n, threads);
        stream_scale(b->b, b->stream_n, threads);
    }
    double t2 = cli_now();
    float sum = 0;
    for (int k = 0; k < b->stream_reps; k++)
        sum += stream_read(b->a, b->stream_n, threads) + stream_read(b->b, b->stream_n, threads);
    double t3 = cli_now();
    double copy = bytes / (t1 - t0), scale = 2 * bytes / (t2 - t1), best = copy > scale ? copy : scale;
    b->read[b->nstream] = sum == 12345.0f ? 0 : bytes / (t3 - t2);         /* the sum is looked at, so it is made */
    b->copy[b->nstream] = copy;
    b->scale[b->nstream] = scale;
    b->best[b->nstream++] = best;
    return best;
}

/* Beside a peer: threads of either side spin for a moment after their work and must fall asleep before the other side is timed. And a
 * process that has rested is preferred by the scheduler, so either side rests before it is timed. */
static void settle(const Bench *b)
{
    if (b->peer)
        usleep(20000);
}

static void time_peer(Bench *b, Case *c, int round)
{
    settle(b);
    double s = peer_step(b->peer, c, c->reps);
    if (s < 0) {
        cli_warning("bench: %s stopped answering at %s; going on without it", b->peer_name, c->label);
        peer_stop(b->peer);
        b->peer = NULL;
        for (int i = 0; i < b->ncase; i++) {
            free(b->cases[i].peer);
            b->cases[i].peer = NULL;
        }
        return;
    }
    c->peer_seconds[round] = s;
    c->ahead[round] = s / c->seconds[round];
}

bool bench_rounds(Bench *b)
{
    for (int round = 0; round < b->rounds; round++) {
        progress(b, "round", round, b->rounds);
        for (int i = 0; i < b->ncase; i++) {
            Case *c = &b->cases[(i + round) % b->ncase];       /* nobody is always the one after the peer */
            settle(b);
            double best = time_streams(b);     /* right before each rule: the machine's mood changes within a round */
            settle(b);
            if (!sample(c, &c->seconds[round]))
                return false;
            c->rate[round] = (c->bytes.read + c->bytes.written) / c->seconds[round];
            c->share[round] = c->rate[round] / best;
            /* Each byte written pairs with one read, as in place; what is read beyond that goes at the rate of reading. */
            double paired = c->bytes.written < c->bytes.read ? c->bytes.written : c->bytes.read;
            double over = c->bytes.read - paired + (c->bytes.written - paired);
            c->mix[round] = (2 * paired / best + over / b->read[b->nstream - 1]) / c->seconds[round];
            if (b->peer && c->peer)
                time_peer(b, c, round);
        }
    }
    progress(b, "", 1, 0);
    b->progress = false;
    return true;
}

void bench_free(Bench *b)
{
    progress(b, "", 1, 0);
    peer_stop(b->peer);
    free(b->peer_name);
    for (int i = 0; i < b->ncase; i++) {
        Case *c = &b->cases[i];
        (void)optc_unbind(c->binding);
        (void)optc_release(c->rule);
        free(c->label);
        free(c->spec);
        free(c->with);
        free(c->shape);
        free(c->seconds);
        free(c->peer);
    }
    (void)optc_close(b->engine);
    free(b->cases);
    free(b->p);
    free(b->g);
    free(b->input);
    free(b->a);
    free(b->b);
    free(b->copy);
}

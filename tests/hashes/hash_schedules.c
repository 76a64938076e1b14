/* Hashes of what hash_results.c does not reach: many steps, several batches, ranks, captures,
 * guards, several bindings as one optimizer. The results that a change of schedules could
 * damage. */
#include "tests/hashes/hash_schedules.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 25, TENSORS = 6, MOST_RANKS = 3, SETS = 3 };
typedef struct Dims { int rank; int64_t dim[3]; } Dims;
/* 60x40 is cut unevenly by blocks and ranks; 4500 has more than one segment of 4096 elements */
static const Dims shapes[TENSORS] = {{2, {24, 16}}, {2, {24, 16}}, {2, {24, 16}},
                                     {2, {17, 30}}, {1, {4500}},   {3, {6, 5, 4}}};

/* A rule on the tensors, or on the pieces of a rank. */
typedef struct Bound {
    optc_rule *rule;
    optc_binding *binding;
    optc_type type;
    int rank, ranks;
    int64_t count[TENSORS], dim[TENSORS][3], offset[TENSORS][3];
    void *p[TENSORS], *g[TENSORS];
} Bound;

/* Pieces as torch.chunk makes them; values are those of the whole tensor. */
static void cut(Bound *x, int k)
{
    x->count[k] = 1;
    for (int d = 0; d < shapes[k].rank; d++) {
        const int64_t n = shapes[k].dim[d], each = d ? n : (n + x->ranks - 1) / x->ranks,
                      at = d ? 0 : each * x->rank;
        x->offset[k][d] = at < n ? at : n;
        x->dim[k][d] = n - x->offset[k][d] < each ? n - x->offset[k][d] : each;
        x->count[k] *= x->dim[k][d];
    }
}

static void fill(const Bound *x, void *at, int k, uint64_t seed)
{
    const size_t bytes = (size_t)x->count[k] * width(x->type);
    char *host = malloc(bytes + 8);
    int64_t first = x->offset[k][0];
    if (!host)
        die("memory", "none left");
    for (int d = 1; d < shapes[k].rank; d++)
        first *= shapes[k].dim[d];
    /* store_value takes the value's number from its place */
    for (int64_t i = 0; i < x->count[k]; i++) {
        uint64_t one[1] = {0};
        store_value(one, 0, x->type, seed + (uint64_t)k + 1000 * (uint64_t)(first + i));
        memcpy(host + (size_t)i * width(x->type), one, width(x->type));
    }
    if (bytes)
        memory_put(at, host, bytes);
    free(host);
}

static void make_tensors(Bound *x)
{
    for (int k = 0; k < TENSORS; k++) {
        cut(x, k);
        const size_t bytes = (size_t)(x->count[k] + 4) * width(x->type);
        x->p[k] = memory_alloc(bytes);
        x->g[k] = memory_alloc(bytes);
        fill(x, x->p[k], k, 7);
    }
}

static void free_tensors(Bound *x)
{
    for (int k = 0; k < TENSORS; k++) {
        memory_free(x->p[k]);
        memory_free(x->g[k]);
    }
}

static optc_status bind(Bound *x, const optc_comm *comm)
{
    optc_tensor t[TENSORS] = {{0}};
    for (int k = 0; k < TENSORS; k++) {
        t[k] = (optc_tensor){.param = x->p[k], .grad = x->g[k], .rank = shapes[k].rank,
                             .shape = x->dim[k],
                             .flags = shapes[k].rank > 2 ? OPTC_USE_STEP : 0};
        if (comm) {
            t[k].global_shape = shapes[k].dim;
            t[k].offset = x->offset[k];
        }
    }
    optc_group g = {.tensors = t, .ntensors = TENSORS};
    return comm ? optc_bind_sharded(x->rule, &g, 1, comm, &x->binding)
                : optc_bind(x->rule, &g, 1, &x->binding);
}

static void gradients(const Bound *x, int step)
{
    for (int k = 0; k < TENSORS; k++)
        fill(x, x->g[k], k, 100 * (uint64_t)step);
}

/* All entries of a training step. */
static optc_status run_entries(const Bound *x, optc_binding *const *b, int n, int step)
{
    optc_status s = OPTC_OK;
    const char *entry;
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(x->rule, step, i)); i++)
        s = n > 1 ? optc_run_all(b, n, entry) : optc_run(*b, entry);
    return s;
}

static void run_step(const Bound *x, int step)
{
    gradients(x, step);
    must(run_entries(x, &x->binding, 1, step), optc_rule_name(x->rule));
}

static uint64_t hash_bound(const Bound *x, uint64_t h)
{
    must(optc_sync(x->binding), "sync");
    for (int k = 0; k < TENSORS; k++) {
        const size_t bytes = (size_t)x->count[k] * width(x->type);
        unsigned char *copy = malloc(bytes + 1);
        if (bytes)
            memory_get(copy, x->p[k], bytes);
        h = hash_bytes(h, copy, bytes, x->type);
        free(copy);
    }
    for (int i = 0; i < optc_rule_states(x->rule); i++)
        for (int k = 0; k < TENSORS; k++) {
            optc_state_info s;
            must(optc_rule_state(x->rule, i, &s), "state");
            if (k == 0 || strcmp(s.domain, "group"))
                h = hash_state(x->binding, h, k, &s);
        }
    return h;
}

/* Returns h. */
static uint64_t close_bound(Bound *x, uint64_t h)
{
    must(optc_unbind(x->binding), "unbind");
    free_tensors(x);
    must(optc_release(x->rule), "release");
    return h;
}

/* false: the rule cannot be bound so */
static bool open_bound(Bound *x, optc_engine *e, const char *rule, optc_type type, int bindings)
{
    *x = (Bound){.type = type, .ranks = 1};
    if (optc_compile(e, &(optc_rule_options){.spec = rule, .param = type, .bindings = bindings},
                     &x->rule) != OPTC_OK)
        return false;
    make_tensors(x);
    if (bind(x, NULL) == OPTC_OK)
        return true;
    close_bound(x, 0);
    return false;
}

/* ---- the ways to run 25 steps: each returns a hash of the results, or 0: refused ---- */
static uint64_t run_plain(optc_engine *e, const char *rule)
{
    Bound x;
    if (!open_bound(&x, e, rule, OPTC_F32, 0))
        return 0;
    for (int step = 1; step <= STEPS; step++)
        run_step(&x, step);
    return close_bound(&x, hash_bound(&x, 1));
}

/* The largest workspace with which the tensors are stepped in three batches. */
static uint64_t run_batches(const optc_engine_options *options, const char *rule)
{
    uint64_t h = 0;
    for (int64_t workspace = 1 << 24; !h && workspace > 1 << 9; workspace -= workspace / 8) {
        optc_engine_options o = *options;
        optc_engine *e;
        optc_held held = {0};
        Bound x;
        o.workspace = workspace;
        must(optc_open(&o, &e), "open");
        if (open_bound(&x, e, rule, OPTC_F32, 0)) {
            must(optc_binding_held(x.binding, &held), "held");
            for (int step = 1; held.batches >= 3 && step <= STEPS; step++)
                run_step(&x, step);
            h = close_bound(&x, held.batches >= 3 ? hash_bound(&x, 1) : 0);
        }
        must(optc_close(e), "close");
    }
    return h;
}

/* The guard skips steps 3, 4 and 11. */
static uint64_t run_guarded(optc_engine *e, const char *rule)
{
    Bound x;
    if (!open_bound(&x, e, rule, OPTC_F32, 0))
        return 0;
    float *guard = memory_alloc(4);
    must(optc_set_guard(x.binding, guard, OPTC_F32), "guard");
    for (int step = 1; step <= STEPS; step++) {
        const float skip = step == 3 || step == 4 || step == 11;
        memory_put(guard, &skip, 4);
        run_step(&x, step);
        must(optc_sync(x.binding), "sync");
    }
    const uint64_t h = close_bound(&x, hash_bound(&x, 1));
    memory_free(guard);
    return h;
}

static uint64_t run_captured(optc_engine *e, const char *rule)
{
    Bound x;
    int (*create)(void **, unsigned), (*begin)(void *, int), (*end)(void *, void **);
    int (*make)(void **, void *, unsigned long long), (*launch)(void *, void *), (*wait)(void *);
    void *stream, *graph, *exec;
    *(void **)&create = gpu_function("cuStreamCreate");
    *(void **)&begin = gpu_function("cuStreamBeginCapture_v2");
    *(void **)&end = gpu_function("cuStreamEndCapture");
    *(void **)&make = gpu_function("cuGraphInstantiateWithFlags");
    *(void **)&launch = gpu_function("cuGraphLaunch");
    *(void **)&wait = gpu_function("cuStreamSynchronize");
    if (!open_bound(&x, e, rule, OPTC_F32, 0))
        return 0;
    if (create(&stream, 1))
        die(rule, "cuStreamCreate failed");
    must(optc_set_stream(x.binding, stream), "stream");
    for (int step = 1; step <= 2; step++) {
        run_step(&x, step);
        /* the next gradients are written in another stream, which does not wait for this one */
        must(optc_sync(x.binding), "sync");
    }
    if (begin(stream, 1))
        die(rule, "cuStreamBeginCapture failed");
    const optc_status s = run_entries(&x, &x.binding, 1, 3);
    const bool ended = !end(stream, &graph);
    uint64_t h = 0;
    if (s == OPTC_OK && (!ended || make(&exec, graph, 0)))
        die(rule, "a step cannot be captured");
    for (int step = 3; s == OPTC_OK && step <= STEPS; step++) {
        gradients(&x, step);
        if (launch(exec, stream) || wait(stream))
            die(rule, "cuGraphLaunch failed");
    }
    if (s == OPTC_OK)
        h = hash_bound(&x, 1);
    return close_bound(&x, h);
}

/* Three bindings of other types, as one optimizer. */
static uint64_t run_joint(optc_engine *e, const char *rule)
{
    static const optc_type types[SETS] = {OPTC_F32, OPTC_BF16, OPTC_F64};
    Bound x[SETS];
    optc_binding *b[SETS];
    uint64_t h = 1;
    int n = 0;
    while (n < SETS && open_bound(&x[n], e, rule, types[n], SETS)) {
        b[n] = x[n].binding;
        n++;
    }
    h = n == SETS && optc_connect(b, SETS) == OPTC_OK;
    for (int step = 1; h && step <= STEPS; step++) {
        for (int i = 0; i < SETS; i++)
            gradients(&x[i], step);
        must(run_entries(x, b, SETS, step), rule);
    }
    for (int i = 0; h && i < SETS; i++)
        h = hash_bound(&x[i], h);
    for (int i = 0; i < n; i++)
        close_bound(&x[i], 0);
    return h;
}

typedef struct Rank { Bound x; optc_loopback *loop; pthread_t thread; uint64_t hash; } Rank;

static void *rank_main(void *at)
{
    Rank *r = at;
    optc_comm comm;
    if (gpu)
        use_gpu();                             /* this thread's context */
    must(optc_loopback_comm(r->loop, r->x.rank, &comm), "comm");
    if (bind(&r->x, &comm) != OPTC_OK)         /* on all ranks */
        return NULL;
    for (int step = 1; step <= STEPS; step++)
        run_step(&r->x, step);
    r->hash = hash_bound(&r->x, 1);
    must(optc_unbind(r->x.binding), "unbind");
    return NULL;
}

static uint64_t run_ranks(optc_engine *e, const char *rule)
{
    Rank r[MOST_RANKS];
    optc_rule *of;
    optc_loopback *loop;
    uint64_t h = 1;
    bool all = true;
    must(optc_compile(e, &(optc_rule_options){.spec = rule, .param = OPTC_F32}, &of), rule);
    must(optc_loopback_open(MOST_RANKS, gpu ? e : NULL, &loop), "loopback");
    for (int i = 0; i < MOST_RANKS; i++) {
        r[i] = (Rank){.loop = loop, .x = {.rule = of, .type = OPTC_F32, .rank = i,
                                          .ranks = MOST_RANKS}};
        make_tensors(&r[i].x);
    }
    for (int i = 0; i < MOST_RANKS; i++)
        if (pthread_create(&r[i].thread, NULL, rank_main, &r[i]))
            die("pthread_create", "failed");
    for (int i = 0; i < MOST_RANKS; i++) {
        pthread_join(r[i].thread, NULL);
        all = all && r[i].hash;
        h = h * 0x100000001b3u ^ r[i].hash;
        free_tensors(&r[i].x);
    }
    optc_loopback_close(loop);
    must(optc_release(of), "release");
    return all ? h : 0;
}

/* ---- one line for each way ---- */
static void print_way(const char *rule, const char *way, const char *device, uint64_t h)
{
    if (h)
        printf("%s f32/f32 %s %s %016llx\n", rule, way, device, (unsigned long long)h);
    else
        printf("%s f32/f32 %s %s refused\n", rule, way, device);
    fflush(stdout);
}

void print_schedules(optc_engine *e, const optc_engine_options *o, const char *rule)
{
    optc_held held = {0};
    Bound x;
    if (open_bound(&x, e, rule, OPTC_F32, 0)) {
        must(optc_binding_held(x.binding, &held), rule);
        close_bound(&x, 0);
    }
    const char *device = !held.batches ? "any" : gpu ? "cuda" : "cpu";
    print_way(rule, "steps_25", device, run_plain(e, rule));
    print_way(rule, "guarded_25", device, run_guarded(e, rule));
    print_way(rule, "joint_25", device, run_joint(e, rule));
    print_way(rule, "ranks_3_25", device, run_ranks(e, rule));
    if (held.batches)
        print_way(rule, "batches_25", device, run_batches(o, rule));
    if (gpu)
        print_way(rule, "captured_25", device, run_captured(e, rule));
}

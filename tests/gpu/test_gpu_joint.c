/* Joint graphs (gpu_joint_graph.c): optc_run_all launches one graph, and its results are those of
 * single launches, also after everything that changes the work of a step. */
#include "tests/gpu/device_side.h"

#include "runtime/library/profile/profile.h"
#include "runtime/core/api/api.h"

#include <stdlib.h>
#include <string.h>

enum { SETS = 3, TENSORS = 2, N = 600, RUNS = 9 };
static const Type sets[SETS] = {T_BF16, T_F32, T_F16};
/* the first set has the most elements */
static const int64_t shape[SETS][TENSORS] = {{N, 70}, {9, 130}, {7, 12}};

typedef struct Pair {
    optc_engine *e;
    optc_rule *r[SETS];
    optc_binding *b[SETS];
    void *p[SETS][TENSORS], *g[SETS][TENSORS];
    Driver counting;
} Pair;

/* ---- what the driver is asked for ---- */
static struct { int graphs, kernels, waits, made; bool refuses, no_uploads; } count;
static int live;                               /* graphs that were instantiated and not destroyed */
static int count_graph(CUgraphExec x, CUstream s)
{
    count.graphs++;
    return count.refuses ? CUDA_ERROR_OUT_OF_MEMORY : d->cuGraphLaunch(x, s);
}
static int count_upload(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return count.no_uploads ? CUDA_ERROR_OUT_OF_MEMORY : d->cuMemcpyHtoDAsync_v2(to, from, n, s);
}
static int count_wait(CUstream s, CUevent e, unsigned flags)
{
    return count.waits++, d->cuStreamWaitEvent(s, e, flags);
}
static int count_made(CUgraphExec *x, CUgraph g, unsigned long long flags)
{
    count.made++;
    int rc = count.refuses ? CUDA_ERROR_OUT_OF_MEMORY : d->cuGraphInstantiateWithFlags(x, g, flags);
    live += !rc;
    return rc;
}
static int count_gone(CUgraphExec x) { return live--, d->cuGraphExecDestroy(x); }
static int count_kernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream s, void **args, void **more)
{
    return count.kernels++, d->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}

static bool columns;                           /* the tensors are matrices of one column */

static void bind_set(Pair *x, int s)
{
    optc_tensor t[TENSORS];
    int64_t dims[TENSORS][2];
    for (int k = 0; k < TENSORS; k++) {
        dims[k][0] = shape[s][k];
        dims[k][1] = 1;
        t[k] = (optc_tensor){
            .param = x->p[s][k], .grad = x->g[s][k], .rank = columns ? 2 : 1, .shape = dims[k]};
    }
    OK(optc_bind(x->r[s], &(optc_group){.tensors = t, .ntensors = TENSORS}, 1, &x->b[s]));
}

/* counted: this pair runs joint graphs and its calls are counted. The other one launches each
 * kernel by itself. */
static void open_pair(Pair *x, optc_rule_options rule, bool counted)
{
    static char host[N * 4];
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &x->e));
    x->e->gpu->no_graphs = !counted;
    for (int s = 0; s < SETS; s++) {
        for (int k = 0; k < 2 * TENSORS; k++) {
            size_t bytes = (size_t)shape[s][k / 2] * (size_t)type_info[sets[s]].bytes;
            void **at = k % 2 ? &x->g[s][k / 2] : &x->p[s][k / 2];
            for (int i = 0; i < shape[s][k / 2]; i++)
                type_store(sets[s], host, i, ref_value(s + SETS * k, 0, i));
            *at = device_take(bytes);
            device_put(*at, host, bytes);
        }
        rule.param = (optc_type)(sets[s] + 1);
        OK(optc_compile(x->e, &rule, &x->r[s]));
        bind_set(x, s);
    }
    OK(optc_connect(x->b, SETS));
    x->counting = *d;
    x->counting.cuGraphLaunch = count_graph;
    x->counting.cuLaunchKernel = count_kernel;
    x->counting.cuStreamWaitEvent = count_wait;
    x->counting.cuMemcpyHtoDAsync_v2 = count_upload;
    x->counting.cuGraphInstantiateWithFlags = count_made;
    x->counting.cuGraphExecDestroy = count_gone;
    if (counted)
        x->e->gpu->d = &x->counting;
}

static void close_pair(Pair *x)
{
    for (int s = 0; s < SETS; s++) {
        OK(optc_unbind(x->b[s]));
        OK(optc_release(x->r[s]));
        for (int k = 0; k < TENSORS; k++)
            device_give(x->p[s][k]), device_give(x->g[s][k]);
    }
    ck_assert_ptr_null(x->e->gpu->joint);
    OK(optc_close(x->e));
}

static void same_pairs(const Pair *a, const Pair *b, int run)
{
    static char x[2][N * 4];
    for (int s = 0; s < SETS; s++)
        for (int k = 0; k < TENSORS; k++) {
            size_t bytes = (size_t)shape[s][k] * (size_t)type_info[sets[s]].bytes;
            OK(optc_sync(a->b[s]));
            OK(optc_sync(b->b[s]));
            device_get(x[0], a->p[s][k], bytes);
            device_get(x[1], b->p[s][k], bytes);
            ck_assert_msg(!memcmp(x[0], x[1], bytes),
                          "run %d, set %d, tensor %d: other bits than single launches", run, s, k);
        }
}

/* Other gradients for each run: otherwise the norm of the last run would serve as well. */
static void fill_grads(const Pair *x, int run)
{
    static char host[N * 4];
    for (int s = 0; s < SETS; s++)
        for (int k = 0; k < TENSORS; k++) {
            for (int i = 0; i < shape[s][k]; i++)
                type_store(sets[s], host, i, run * ref_value(s, run, i));
            device_put(x->g[s][k], host, (size_t)shape[s][k] * (size_t)type_info[sets[s]].bytes);
        }
}

static const optc_rule_options clipped = {.spec = "adamw+clip(1)+skip", .bindings = SETS};

/* ---- what happens before run 4 and later ---- */
static CUstream other;
static float *guard_at;
static LaunchList *same_list(optc_binding *b, LaunchList *p) { return (void)b, p; }
static void end_nothing(optc_binding *b) { (void)b; }

static void all_stream(Pair *x, CUstream st)
{
    for (int s = 0; s < SETS; s++)
        OK(optc_set_stream(x->b[s], st));
}
static void no_gradient(Pair *x, int run)
{
    if (run == 4 || run == 6)
        OK(optc_set_grad(x->b[0], 0, run == 6 ? x->g[0][0] : NULL, shape[0][0]));
}
static void set_stream(Pair *x, int run)
{
    OK(optc_sync(x->b[0]));
    all_stream(x, run == 4 || run == 5 ? other : NULL);
}
static void set_lr(Pair *x, int run)
{
    for (int s = 0; s < SETS; s++)
        OK(optc_set_hyper(x->b[s], -1, "lr", 0.01 / run));
}
/* the two gradients of the first set, at each run other ones */
static void swap_grads(Pair *x, int run)
{
    OK(optc_set_grad(x->b[0], 1, run % 2 ? x->g[0][1] : x->g[0][0], shape[0][1]));
}
static void set_guard(Pair *x, int run)
{
    float skips = run == 6;
    device_put(guard_at, &skips, sizeof skips);
    for (int s = 0; s < SETS && run == 4; s++)
        OK(optc_set_guard(x->b[s], guard_at, OPTC_F32));
}
static void new_guard(Pair *x, int run)        /* at another address for each run */
{
    float zero = 0;
    device_put(guard_at + run, &zero, sizeof zero);
    for (int s = 0; s < SETS; s++)
        OK(optc_set_guard(x->b[s], guard_at + run, OPTC_F32));
}
static void bind_again(Pair *x, int run)
{
    if (run != 4)
        return;
    OK(optc_unbind(x->b[2]));
    ck_assert_msg(!x->e->gpu->joint, "a graph outlives one of its bindings");
    bind_set(x, 2);
    OK(optc_connect(x->b, SETS));
}
/* The step of one binding needs the values of all. */
static void step_alone(Pair *x)
{
    char entry[32];
    FAILS(optc_step(x->b[1]), OPTC_ERROR_ARGUMENT, "needs values of all tensors of this step");
    for (int level = 0;
         snprintf(entry, sizeof entry, "share_step_%d", level), find_entry(x->b[0], entry) >= 0;
         level++)
        for (int s = 0; s < SETS; s++)
            OK(optc_run(x->b[s], entry));
    OK(optc_step(x->b[1]));
}
static void run_one(Pair *x, int run)
{
    if (run == 4)
        step_alone(x);
}
static void set_t(Pair *x, int run)
{
    for (int s = 0; s < SETS && run == 4; s++)
        OK(optc_set_t(x->b[s], -1, 100));
}
static void tune_live(Pair *x, int run)
{
    x->b[1]->gpu->begin = run == 4 || run == 5 ? same_list : NULL;
    x->b[1]->gpu->end = end_nothing;
}
/* a step in the caller's graph, between runs 3 and 4 */
static void capture(Pair *x, int run)
{
    CUgraph graph;
    CUgraphExec exec;
    if (run != 4)
        return;
    OK(optc_sync(x->b[0]));
    all_stream(x, other);
    ck_assert(!d->cuStreamBeginCapture_v2(other, 0));
    OK(optc_run_all(x->b, SETS, "step"));
    ck_assert(!d->cuStreamEndCapture(other, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    ck_assert(!d->cuGraphLaunch(exec, other) && !d->cuStreamSynchronize(other));
    ck_assert(!d->cuGraphExecDestroy(exec) && !d->cuGraphDestroy(graph));
}
static void refuse(Pair *x, int run) { (void)x, (void)run; }
static void nothing(Pair *x, int run) { (void)x, (void)run; }

/* one: bits of the runs that are one launch. The others are launched binding by binding. */
#define FROM(n) (~0u << (n))
static const struct {
    const char *what;
    void (*before)(Pair *x, int run);
    unsigned one;
    bool refuses;
} event[] = {
    {"nothing", nothing, FROM(3), false},
    /* then it is two steps behind */
    {"a tensor without a gradient", no_gradient, 1u << 3 | 1u << 5, false},
    {"another stream", set_stream, FROM(3), false},
    {"another lr", set_lr, FROM(3), false},
    {"other gradients", swap_grads, FROM(3), false},
    {"a guard", set_guard, 1u << 3 | FROM(6), false},
    {"another guard for each run", new_guard, 0, false},
    {"a binding is freed", bind_again, 1u << 3 | FROM(6), false},
    {"a binding runs alone", run_one, FROM(3), false},
    {"another t", set_t, 1u << 3 | FROM(5), false},
    {"tuning during steps", tune_live, 1u << 3 | FROM(6), false},
    {"a capture", capture, FROM(3), false},
    {"graphs cannot be made", refuse, 0, true},
};

START_TEST(events)
{
    Pair a, b;
    live = 0;
    open_pair(&a, clipped, true);
    open_pair(&b, clipped, false);
    ck_assert(!d->cuStreamCreate(&other, 1));
    guard_at = device_take(sizeof *guard_at * (RUNS + 1));
    for (int run = 1, made = 0; run <= RUNS; run++) {
        void (*before)(Pair *, int) =
            run > 3 || event[_i].before == new_guard ? event[_i].before : nothing;
        fill_grads(&a, run);
        fill_grads(&b, run);
        before(&b, run);
        OK(optc_run_all(b.b, SETS, "step"));
        OK(optc_sync(b.b[0]));
        before(&a, run);
        memset(&count, 0, sizeof count);
        count.refuses = event[_i].refuses;
        OK(optc_run_all(a.b, SETS, "step"));
        bool one = count.graphs == 1 && !count.kernels && !count.waits;
        ck_assert_msg(one == (event[_i].one >> run & 1),
                      "%s: run %d has %d graph launches, %d launches and %d waits", event[_i].what,
                      run, count.graphs, count.kernels, count.waits);
        made += run > 3 ? count.made : 0;
        ck_assert_msg(made <= 3, "%s: %d graphs are made after the third run", event[_i].what,
                      made);
        same_pairs(&a, &b, run);
    }
    all_stream(&a, NULL);
    all_stream(&b, NULL);
    close_pair(&a);
    close_pair(&b);
    ck_assert_msg(!live, "%d graphs are left behind", live);
    device_give(guard_at);
    d->cuStreamDestroy_v2(other);
}
END_TEST

/* A launch that fails has done nothing: the run can be repeated. */
START_TEST(failed_launch)
{
    Pair a, b;
    open_pair(&a, clipped, true);
    open_pair(&b, clipped, false);
    for (int run = 1; run <= 5; run++) {
        fill_grads(&a, run);
        fill_grads(&b, run);
        memset(&count, 0, sizeof count);
        count.refuses = run == 4;
        if (run == 4)
            FAILS(optc_run_all(a.b, SETS, "step"), OPTC_ERROR_MEMORY, "cuGraphLaunch");
        count.refuses = false;
        OK(optc_run_all(a.b, SETS, "step"));
        OK(optc_run_all(b.b, SETS, "step"));
        for (int s = 0; s < SETS; s++) {
            int64_t t = 0;
            OK(optc_get_t(a.b[s], -1, &t));
            ck_assert_int_eq(t, run);
        }
        same_pairs(&a, &b, run);
    }
    close_pair(&a);
    close_pair(&b);
}
END_TEST

/* If a launch fails in the middle of a binding's step, later runs of all bindings are refused
 * before one of them is stepped, until t is set. */
START_TEST(half_step)
{
    Pair a, b;
    open_pair(&a, (optc_rule_options){.spec = "adamw"}, true);
    open_pair(&b, (optc_rule_options){.spec = "adamw"}, false);
    for (int run = 1; run <= 5; run++) {
        fill_grads(&a, run);
        fill_grads(&b, run);
        a.b[1]->gpu->half_done = true;
        for (int k = 0; k < 2; k++)
            FAILS(optc_run_all(a.b, SETS, "step"), OPTC_ERROR_DEVICE,
                  "a launch failed in the middle of a step");
        OK(optc_set_t(a.b[1], -1, run - 1));
        OK(optc_run_all(a.b, SETS, "step"));
        OK(optc_run_all(b.b, SETS, "step"));
        same_pairs(&a, &b, run);
    }
    close_pair(&a);
    close_pair(&b);
}
END_TEST

/* Each phase of a rule with periods has its graph. Bindings in different phases have one too. The
 * rule has two levels of values of all tensors. */
START_TEST(periods)
{
    static const char text[] =
        "return optimizer { name = 'often', hyper = { lr = 0.1 }, state = { s = zeros },\n"
        "  step = function() local most = global.max(abs(g))\n"
        "    p = p - lr * g / (1 + global.sum(abs(g) / most))\n"
        "    every(2, function() s = s + p  p = p - lr * s end) end }";
    Pair a, b;
    open_pair(&a, (optc_rule_options){.text = text, .bindings = SETS}, true);
    open_pair(&b, (optc_rule_options){.text = text, .bindings = SETS}, false);
    ck_assert(find_entry(a.b[0], "share_step_1") >= 0);
    for (int run = 1; run <= RUNS; run++) {
        if (run == 6) {
            step_alone(&a);
            step_alone(&b);
        }
        fill_grads(&a, run);
        fill_grads(&b, run);
        memset(&count, 0, sizeof count);
        OK(optc_run_all(a.b, SETS, "step"));
        OK(optc_run_all(b.b, SETS, "step"));
        bool one = count.graphs == 1 && !count.kernels && !count.waits;
        ck_assert_msg(one == (run == 4 || run == 5 || run > 7),
                      "run %d has %d graph launches and %d launches", run, count.graphs,
                      count.kernels);
        same_pairs(&a, &b, run);
    }
    close_pair(&a);
    close_pair(&b);
}
END_TEST

/* Sending changed views may drop the graph that would run: graphs of products have the number of
 * matrices. */
START_TEST(dropped_before_launch)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { L = zeros 'cols' },\n"
        "  step = function() p = p - lr * g end,\n"
        "  matrix = function() every(2, function() L = gram(g.T) end) p = p - lr * g end }";
    Pair a, b;
    columns = true;
    open_pair(&a, (optc_rule_options){.text = text, .products = "f32"}, true);
    open_pair(&b, (optc_rule_options){.text = text, .products = "f32"}, false);
    for (int run = 1; run <= RUNS; run++) {
        fill_grads(&a, run);
        fill_grads(&b, run);
        memset(&count, 0, sizeof count);
        if (run == 7) {                                    /* the views stay unsent */
            OK(optc_set_grad(a.b[0], 0, NULL, 0));
            OK(optc_set_grad(b.b[0], 0, NULL, 0));
            count.no_uploads = true;
            FAILS(optc_run_all(a.b, SETS, "step"), OPTC_ERROR_MEMORY, "cuMemcpyHtoDAsync");
            memset(&count, 0, sizeof count);
        }
        OK(optc_run_all(a.b, SETS, "step"));
        OK(optc_run_all(b.b, SETS, "step"));
        bool one = count.graphs == 1 && !count.kernels && !count.waits;
        ck_assert_msg(one == (run == 5 || run == 9), "run %d has %d graph launches and %d launches",
                      run, count.graphs, count.kernels);
        same_pairs(&a, &b, run);
    }
    close_pair(&a);
    close_pair(&b);
    columns = false;
}
END_TEST

/* A replay is one range of the profile, with the bytes of all bindings. */
START_TEST(profiled)
{
    Pair a;
    double bytes = 0;
    open_pair(&a, clipped, true);
    for (int run = 0; run < 3; run++)
        OK(optc_run_all(a.b, SETS, "step"));
    OK(optc_profile_start());
    for (int run = 0; run < 4; run++)
        OK(optc_run_all(a.b, SETS, "step"));
    OK(optc_profile_stop());
    const Recording *r = profile_lock();
    profile_unlock();
    for (int s = 0; s < 2 * SETS; s++) {
        optc_bytes x;
        OK(optc_plan_bytes(a.b[s / 2], s % 2 ? "step" : "share_step_0", 1, &x));
        bytes += x.read + x.written;
    }
    int entries = 0, ranges = 0;
    for (int i = 0; i < r->nrow; i++) {
        const ProfileRow *x = &r->row[i];
        entries += x->kind == ROW_ENTRY && x->count == 4 && x->timed == 4 && x->bytes == 4 * bytes;
        ranges += x->kind == ROW_STAGE && x->count == 4 && x->timed == 4 &&
                  !strncmp(x->name, "graph of ", 9);
        ck_assert_msg(x->kind == ROW_HOST ? x->count == 4 : x->count == 4 || x->count == 0,
                      "%s: %lld", x->name, (long long)x->count);
    }
    ck_assert_msg(entries == 1 && ranges == 1, "%d entries and %d graphs, of %.0f bytes", entries,
                  ranges, bytes);
    close_pair(&a);
}
END_TEST

void add_joint(TCase *t)
{
    tcase_add_loop_test(t, events, 0, (int)(sizeof event / sizeof *event));
    tcase_add_test(t, failed_launch);
    tcase_add_test(t, half_step);
    tcase_add_test(t, periods);
    tcase_add_test(t, dropped_before_launch);
    tcase_add_test(t, profiled);
}

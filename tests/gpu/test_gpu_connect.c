/* Bindings of several types that share a norm (optc_connect): the CPU's bits, also in a captured
 * and replayed step. */
#include "tests/gpu/device_side.h"
#include "tests/harness/pipeline_world.h"

#include <stdlib.h>
#include <string.h>

enum { N = 7000, NSETS = 3, RUNS = 5 };
static const Type sets[NSETS] = {T_F32, T_BF16, T_F16};

typedef struct Trio {
    optc_engine *e;
    optc_rule *r[NSETS];
    optc_binding *b[NSETS];
    CUdeviceptr p[NSETS], g[NSETS];
} Trio;
static char hp[2][NSETS][N * 4], hg[NSETS][N * 4];

static void open_trio(Trio *x, bool gpu)
{
    int64_t n[] = {N / 10, 10};
    OK(optc_open(&(optc_engine_options){.device = gpu ? "cuda" : NULL,
                                        .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &x->e));
    for (int s = 0; s < NSETS; s++) {
        size_t bytes = (size_t)N * (size_t)type_info[sets[s]].bytes;
        for (int i = 0; i < N; i++) {
            type_store(sets[s], hp[gpu][s], i, ref_value(s, 0, i));
            type_store(sets[s], hg[s], i, ref_value(s, 1, i));
        }
        ck_assert(!gpu ||
                  (!d->cuMemAlloc_v2(&x->p[s], bytes) && !d->cuMemAlloc_v2(&x->g[s], bytes) &&
                   !d->cuMemcpyHtoDAsync_v2(x->p[s], hp[1][s], bytes, NULL) &&
                   !d->cuMemcpyHtoDAsync_v2(x->g[s], hg[s], bytes, NULL) &&
                   !d->cuStreamSynchronize(NULL)));
        optc_tensor t = {.param = gpu ? (void *)(uintptr_t)x->p[s] : hp[0][s],
                         .grad = gpu ? (void *)(uintptr_t)x->g[s] : hg[s], .rank = 2, .shape = n};
        OK(optc_compile(x->e,
                        &(optc_rule_options){.spec = "adamw+clip(1)+skip",
                                             .param = (optc_type)(sets[s] + 1),
                                             .bindings = NSETS},
                        &x->r[s]));
        OK(optc_bind(x->r[s], &(optc_group){.tensors = &t, .ntensors = 1}, 1, &x->b[s]));
    }
    OK(optc_connect(x->b, NSETS));
}

static void close_trio(Trio *x, bool gpu)
{
    for (int s = 0; s < NSETS; s++) {
        OK(optc_unbind(x->b[s]));
        OK(optc_release(x->r[s]));
        ck_assert(!gpu || (!d->cuMemFree_v2(x->p[s]) && !d->cuMemFree_v2(x->g[s])));
    }
    OK(optc_close(x->e));
}

START_TEST(one_norm)
{
    Trio c, g;
    CUstream st;
    void *graph, *exec;
    double norm[2];
    ck_assert(!d->cuStreamCreate(&st, 1));
    open_trio(&c, false);
    open_trio(&g, true);
    for (int s = 0; s < NSETS; s++)
        OK(optc_set_stream(g.b[s], st));
    for (int t = 0; t < RUNS; t++)
        OK(optc_run_all(c.b, NSETS, "step"));
    OK(optc_run_all(g.b, NSETS, "step"));
    if (_i) {
        ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
        OK(optc_run_all(g.b, NSETS, "step"));
        ck_assert(!d->cuStreamEndCapture(st, &graph) &&
                  !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    for (int t = 1; t < RUNS; t++)
        if (_i)
            ck_assert(!d->cuGraphLaunch(exec, st));
        else
            OK(optc_run_all(g.b, NSETS, "step"));
    for (int s = 0; s < NSETS; s++) {
        size_t bytes = (size_t)N * (size_t)type_info[sets[s]].bytes;
        OK(optc_sync(g.b[s]));
        OK(optc_read_value(c.b[s], 0, "clip.grad_norm", &norm[0], 1));
        OK(optc_read_value(g.b[s], 0, "clip.grad_norm", &norm[1], 1));
        ck_assert_msg(norm[0] == norm[1] && norm[0] > 10, "set %d: norms %.17g and %.17g", s,
                      norm[0], norm[1]);
        ck_assert(!d->cuMemcpyDtoHAsync_v2(hp[1][s], g.p[s], bytes, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        ck_assert_msg(!memcmp(hp[0][s], hp[1][s], bytes), "set %d differs between CPU and GPU", s);
        OK(optc_set_stream(g.b[s], NULL));
    }
    if (_i)
        d->cuGraphExecDestroy(exec), d->cuGraphDestroy(graph);
    close_trio(&c, false);
    close_trio(&g, true);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* ---- launches ---- */
static int launched;
static const Driver *real;
static int count_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream s, void **args, void **more)
{
    launched++;
    return real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}

/* The first stage increments t too. */
static int stages_of(const optc_binding *b, const char *entry)
{
    const Program *p = b->program;
    int e = 0, n = 0;
    while (strcmp(p->entry[e].name, entry))
        e++;
    for (int i = 0; i < p->entry[e].phase[0].naction; i++)
        n += p->entry[e].phase[0].action[i].kind == ACT_LAUNCH;
    return n;
}

/* A stage is launched once for each set of types, and nothing else is. */
START_TEST(launches)
{
    static const char *const entry[] = {"share_step_0", "step"};
    Trio g;
    open_trio(&g, true);
    Driver counting = *(real = g.e->gpu->d);
    counting.cuLaunchKernel = count_launch;
    g.e->gpu->d = &counting;
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < NSETS; s++) {
            launched = 0;
            OK(optc_run(g.b[s], entry[k]));
            ck_assert_msg(launched == stages_of(g.b[s], entry[k]),
                          "%s of set %d: %d launches, not %d", entry[k], s, launched,
                          stages_of(g.b[s], entry[k]));
        }
    g.e->gpu->d = real;
    close_trio(&g, true);
}
END_TEST

/* ---- captures ---- */
static void share_all(const Trio *x)
{
    for (int s = 0; s < NSETS; s++)
        OK(optc_run(x->b[s], "share_step_0"));
}

/* A captured step without the entries that share would use one norm in all replays. One of the two
 * is not enough: entries of a capture have not run, and entries that ran are not in the capture. */
START_TEST(captured_apart)
{
    Trio g;
    CUstream st;
    void *graph;
    open_trio(&g, true);
    ck_assert(!d->cuStreamCreate(&st, 1));
    for (int s = 0; s < NSETS; s++)
        OK(optc_set_stream(g.b[s], st));
    OK(optc_run_all(g.b, NSETS, "step"));
    share_all(&g);
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    FAILS(optc_step(g.b[0]), OPTC_ERROR_ARGUMENT, "has not computed its part in this capture");
    share_all(&g);
    OK(optc_step(g.b[1]));
    share_all(&g);
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    FAILS(optc_step(g.b[0]), OPTC_ERROR_ARGUMENT, "needs values of all tensors of this step");
    share_all(&g);
    OK(optc_step(g.b[0]));
    d->cuGraphDestroy(graph);
    for (int s = 0; s < NSETS; s++)
        OK(optc_set_stream(g.b[s], NULL));
    close_trio(&g, true);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* ---- beside each other ---- */
static CUstream used[NSETS + 1];
static int nused;
static int note_stream(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream s, void **args, void **more)
{
    int i = 0;
    while (i < nused && used[i] != s)
        i++;
    if (i == nused && nused <= NSETS)
        used[nused++] = s;
    return real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}

/* All bindings but one run in one other stream, and get the caller's stream back, also if one of
 * them fails. */
START_TEST(beside)
{
    Trio g;
    CUstream st;
    open_trio(&g, true);
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_set_stream(g.b[1], st));
    FAILS(optc_run_all(g.b, NSETS, "step"), OPTC_ERROR_ARGUMENT, "have different streams");
    for (int s = 0; s < NSETS; s++)
        OK(optc_set_stream(g.b[s], st));
    Driver counting = *g.e->gpu->d;
    counting.cuLaunchKernel = note_stream;
    real = g.e->gpu->d;
    g.e->gpu->d = &counting;
    nused = 0;
    OK(optc_run_all(g.b, NSETS, "step"));
    ck_assert_int_eq(nused, 2);
    ck_assert_ptr_eq(used[0], st);
    FAILS(optc_run_all(g.b, NSETS, "no entry"), OPTC_ERROR_ARGUMENT, "has no entry 'no entry'");
    for (int s = 0; s < NSETS; s++)
        ck_assert_ptr_eq(g.b[s]->gpu->stream, st);
    g.e->gpu->d = real;
    for (int s = 0; s < NSETS; s++)
        OK(optc_sync(g.b[s]));
    for (int s = 0; s < NSETS; s++)
        OK(optc_set_stream(g.b[s], NULL));
    close_trio(&g, true);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* Stages of a pipeline (optc_connect_ranks): the ranks are threads that share the GPU. */
START_TEST(stages)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    char *wrong = pipeline_run(e, "adamw", "clip(0.3)");
    ck_assert_msg(!wrong, "%s", wrong);
    OK(optc_close(e));
}
END_TEST

void add_connect(TCase *t)
{
    tcase_add_test(t, stages);
    tcase_add_loop_test(t, one_norm, 0, 2);
    tcase_add_test(t, launches);
    tcase_add_test(t, captured_apart);
    tcase_add_test(t, beside);
}

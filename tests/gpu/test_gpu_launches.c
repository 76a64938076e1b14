/* Launches change the speed and never a bit: random launches, tuning results, and live tuning. */
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Random launches give the same bits. */
START_TEST(launches)
{
    SHARED();
    if (thinned(_i))
        return;
    static const struct { const char *spec, *with; } r[] = {
        {"adamw", "clip(1)"}, {"adafactor", ""}, {"came", ""},
            {"adamp", ""}, {"lamb", ""}, {"sgd", "centralize,lookahead(2,0.5)"}, {"novograd", ""}};
    Side c, g;
    char label[100];
    open_side(&c, "cpu", (optc_rule_options){.spec = r[_i].spec, .with = r[_i].with}, 0);
    open_side(&g, "cuda", (optc_rule_options){.spec = r[_i].spec, .with = r[_i].with}, _i % 4);
    uint64_t dice = (uint64_t)_i;
    /* the emulated GPU's compiler takes a second for each */
    int steps = getenv("OPTC_TEST_SMALL") ? 5 : 8;
    for (int s = 1; s <= steps; s++) {
        use_random_launches(&g, &dice, s % 2);
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        snprintf(label, sizeof label, "%s with '%s', launches %d", r[_i].spec, r[_i].with, s);
        compare(label, &c, &g);
    }
    close_side(&g, _i % 4);
    close_side(&c, 0);
}
END_TEST

/* Every fold gets a block per unit, where that is possible. Returns the number of such folds. */
static int fold_by_blocks(Side *g)
{
    int n = 0;
    const Plan *p = g->r->library->plan;
    const GpuCode *code;
    Launch *l = calloc((size_t)p->nfn + 1, sizeof *l), by_block = {{256, 8, 1, 0, 0, 0, 0}};
    for (int f = 0; f < p->nfn; f++) {
        const Stage *s = plan_at(p, f).stage;
        bool may = s && stage_form(s) == FORM_FOLD && launch_valid(p, s, &by_block);
        if (s)
            l[f] = may ? by_block : launch_model(p, s, 0);
        n += may;
    }
    OK(gpu_code_with(g->r, l, &code));
    gpu_enter(g->e->gpu);
    g->b->gpu->code = code;
    OK(gpu_leave(g->e->gpu, gpu_build_lists(g->b)));
    free(l);
    return n;
}

/* Columns of more than 128 tiles, which eight threads fold 16 loads at a time; columns of 32 tiles
 * and fewer; complete and incomplete segments, of rows of 128 values and more. */
START_TEST(long_columns)
{
    SHARED();
    static const TestShape tall[NSHAPES] = {{2, {8300, 3}}, {2, {8192, 4}}, {2, {2048, 33}},
                                            {2, {2049, 5}}, {2, {40, 256}}, {2, {33, 132}},
                                            {2, {9, 1030}}, {1, {8192}},    {1, {9001}},
                                            {1, {4096}},    {1, {5}},       {3, {2, 20, 128}}};
    static const char *const rule[] = {"tam", "came", "dadapt_lion"};
    Side c, g;
    if (thinned(_i))
        return;
    use_shapes(tall);
    open_side(&c, "cpu", (optc_rule_options){.spec = rule[_i]}, 0);
    open_side(&g, "cuda", (optc_rule_options){.spec = rule[_i]}, _i == 1);
    int by_block = fold_by_blocks(&g);
    ck_assert_msg(by_block > 0 || strcmp(rule[_i], "dadapt_lion"), "no fold of %s is by a block",
                  rule[_i]);
    for (int s = 1; s <= 2; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        compare(rule[_i], &c, &g);
    }
    close_side(&g, _i == 1);
    close_side(&c, 0);
}
END_TEST

/* removes a file of results and its lock */
static void remove_results(const char *path)
{
    char *lock = format("%s.lock", path);
    unlink(path);
    unlink(lock);
    free(lock);
}

/* Live tuning during real steps gives the same bits, and the winner is in the user's file. */
START_TEST(live)
{
    SHARED();
    Side a, b;
    char dir[] = "/tmp/optc-live-XXXXXX", path[64], text[200] = "";
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/tune", dir);
    setenv("OPTC_TUNE", path, 1);
    open_side(&a, "cuda", (optc_rule_options){.spec = "adamw", .with = "clip(1)"}, 0);
    setenv("OPTC_TUNE_LIVE", "0.5", 1);
    open_side(&b, "cuda", (optc_rule_options){.spec = "adamw", .with = "clip(1)"}, 0);
    unsetenv("OPTC_TUNE_LIVE");
    ck_assert(a.b->gpu->live == NULL && b.b->gpu->live != NULL);
    set_grads(&a, 1);
    set_grads(&b, 1);
    int steps = 0, tried = 0;
    /* until some candidates were tried, however long they take to compile; if none ever is, the
     * timeout ends the test */
    for (; steps < 200 || tried <= 5; steps++, live_launches(b.b, &tried)) {
        OK(optc_step(a.b));
        OK(optc_step(b.b));
        OK(optc_sync(b.b));
    }
    OK(optc_sync(a.b));
    fetch_params(&a);
    compare("live", &a, &b);
    const Launch *now = live_launches(b.b, &tried);
    bool won =
        memcmp(now, b.b->gpu->code->launch, sizeof(Launch) * (size_t)b.r->library->plan->nfn) != 0;
    close_side(&a, 0);
    close_side(&b, 0);
    FILE *f = fopen(path, "r");
    if (f) {
        while (fgets(text, sizeof text, f) && !strstr(text, "live"))
            ;
        fclose(f);
    }
    printf("live: %d steps, %d launches tried, %s\n", steps, tried, won ? "some won" : "none won");
    ck_assert_msg(!won || strstr(text, "adamw live"), "a launch won, and %s does not say so", path);
    setenv("OPTC_TUNE", "", 1);
    remove_results(path);
    rmdir(dir);
}
END_TEST

static bool some_won(const Side *x)
{
    int tried;
    return memcmp(live_launches(x->b, &tried), x->b->gpu->code->launch,
                  sizeof(Launch) * (size_t)x->r->library->plan->nfn) != 0;
}

/* A rule with products and with eigenvectors. A launch that wins is in the graph, and stays in use
 * when other tensors have a gradient. Times of the emulated GPU let one win. */
START_TEST(live_with_products)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'both', state = { m = zeros }, step = function() m = m + g  "
        "p = p - 0.25 * m end, matrix = function() m = m + g  local w, U = eigh(gram(m), { last "
        "= eye(1, 'rows') })  p = p - 0.25 * mm(U, g) end }";
    static const TestShape shapes[NSHAPES] = {{2, {6, 5}}, {1, {3}}, {2, {6, 5}}, {1, {1}},
                                              {1, {1}},    {1, {1}}, {1, {1}},    {1, {1}},
                                              {1, {1}},    {1, {1}}, {1, {1}},    {1, {1}}};
    Side x[2];
    use_shapes(shapes);
    setenv("OPTC_TUNE", "", 1);
    for (int i = 0; i < 2; i++) {
        if (i)
            setenv("OPTC_TUNE_LIVE", "0.5", 1);
        open_side(&x[i], "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
        unsetenv("OPTC_TUNE_LIVE");
        set_grads(&x[i], 1);
    }
    const LaunchList *p = x[1].b->gpu->launch_list;
    CUgraphExec exec = NULL;
    int steps = 0, after = 0;
    ck_assert(x[1].b->gpu->live != NULL);
    for (; after < 3 || (steps < 60 && !some_won(&x[1])); steps++) {
        bool won = some_won(&x[1]);
        for (int i = 0; i < 2; i++) {
            OK(optc_step(x[i].b));
            OK(optc_sync(x[i].b));
        }
        ck_assert(steps < 2 || list_whole(p));
        exec = steps == 2 ? list_whole(p) : exec;
        after += won || steps > 400;
    }
    if (some_won(&x[1]))
        ck_assert_msg(list_whole(p) && list_whole(p) != exec,
                      "the graph has the kernels of before");
    for (int i = 0; i < 2; i++) {
        OK(optc_set_grad(x[i].b, 2, NULL, 0));
        for (int k = 0; k < 4; k++)
            OK(optc_step(x[i].b));
        OK(optc_sync(x[i].b));
    }
    ck_assert(x[1].b->gpu->live != NULL);
    same_params(&x[0], &x[1], "live tuning of a rule with products");
    printf("live, with products: %d steps, %s\n", steps, some_won(&x[1]) ? "some won" : "none won");
    close_side(&x[0], 0);
    close_side(&x[1], 0);
}
END_TEST

/* A candidate with more blocks than a launch may have is rejected. The unit count is faked: so many
 * units do not fit into a test. */
START_TEST(live_too_large)
{
    SHARED();
    Side a, b;
    int tried = 0;
    open_side(&a, "cuda", (optc_rule_options){.spec = "sgd"}, 0);
    setenv("OPTC_TUNE_LIVE", "0.5", 1);
    open_side(&b, "cuda", (optc_rule_options){.spec = "sgd"}, 0);
    unsetenv("OPTC_TUNE_LIVE");
    const Units *u = &b.b->units[0];
    int64_t was = u->prefix[S_FLAT][u->n];
    /* one block per unit: with a grid-stride loop the test would never end */
    Launch *now = (Launch *)live_launches(b.b, &tried);
    for (int i = 0; i < b.b->program->nstage; i++)
        now[i].v[KNOB_GRID] = 0;
    set_grads(&a, 1);
    set_grads(&b, 1);
    u->prefix[S_FLAT][u->n] = (int64_t)1 << 42;
    /* one step at a time: otherwise the GPU queue would fill without end */
    for (int steps = 0; !tried; live_launches(b.b, &tried)) {
        ck_assert_msg(steps++ < 1000000, "nothing was tried in %d steps", steps);
        OK(optc_step(a.b));
        OK(optc_step(b.b));
        OK(optc_sync(b.b));
    }
    u->prefix[S_FLAT][u->n] = was;
    OK(optc_sync(a.b));
    fetch_params(&a);
    compare("live, too large", &a, &b);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* A fake clock for live tuning on any GPU: the first kernel takes 1 ms, the second and third a
 * fifth less than their predecessor, all later ones far longer. The rule has one launch, so a
 * kernel is a step. */
enum { MOST_KERNELS = 64, MOST_EVENTS = 32 };
static const double slow = 1e6, usual = 0.8 * 0.8;
static struct {
    CUfunction kernel[MOST_KERNELS]; int n;
    struct { CUevent e; double at; } event[MOST_EVENTS];
    double now, lost;
} timer;

static int timed_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream s, void **args, void **extra)
{
    int i = 0;
    while (i < timer.n && timer.kernel[i] != f)
        i++;
    ck_assert_int_lt(i, MOST_KERNELS);
    timer.kernel[i] = f;
    timer.n = i == timer.n ? i + 1 : timer.n;
    timer.now += i == 0 ? 1 : i == 1 ? 0.8 : i == 2 ? usual : slow;
    timer.lost += i > 2 ? slow - usual : 0;
    return d->cuLaunchKernel(f, x, y, z, bx, by, bz, shared, s, args, extra);
}

static double *event_time(CUevent e)
{
    int i = 0;
    while (i < MOST_EVENTS - 1 && timer.event[i].e && timer.event[i].e != e)
        i++;
    timer.event[i].e = e;
    return &timer.event[i].at;
}

static int timed_record(CUevent e, CUstream s)
{
    *event_time(e) = timer.now;
    return d->cuEventRecord(e, s);
}

static int timed_elapsed(float *ms, CUevent a, CUevent b)
{
    return *ms = (float)(*event_time(b) - *event_time(a)), 0;
}

/* The stored gain of a stage that won twice is relative to its first launch, here a result of the
 * neighbouring size that had a gain of 2 over the model. Once candidates have cost more than the
 * bound, no more are tried: a slow one is detected after three steps. */
START_TEST(live_gain)
{
    SHARED();
    static const optc_rule_options rule = {
        .spec = "sgd", .with = "", .options = "momentum_buffer=false"};
    Side a, b;
    char path[] = "/tmp/optc-live-XXXXXX", why[400];
    Tuned t = {.ms = 1, .model_ms = 2, .samples = 9};
    TunedList l = {0};
    ck_assert(close(mkstemp(path)) == 0);
    setenv("OPTC_TUNE", path, 1);
    open_side(&a, "cuda", rule, 0);
    const Stage *s =
        plan_at(a.r->library->plan,
                a.b->gpu->launch_list[a.b->gpu->step * a.b->gpu->nphase].item[0].stage->fn)
            .stage;
    t.launch = launch_model(a.r->library->plan, s, a.b->elems);
    t.launch.v[KNOB_THREADS] = t.launch.v[KNOB_THREADS] == 256 ? 128 : 256;
    gpu_tuned_key(a.r, s->fn, a.b->elems, &t.key);
    t.key.bucket += TUNED_REACH;
    ck_assert(tuned_put(&l, &t));
    ck_assert_msg(tuned_write(&l, path, why, sizeof why), "%s", why);
    setenv("OPTC_TUNE_LIVE", "0.05", 1);
    open_side(&b, "cuda", rule, 0);
    unsetenv("OPTC_TUNE_LIVE");
    ck_assert(b.b->gpu->live && b.b->gpu->launch_list[b.b->gpu->step * b.b->gpu->nphase].n == 1 &&
              !memcmp(&b.b->gpu->code->launch[s->fn], &t.launch, sizeof t.launch));
    Driver timed = *d;
    timed.cuLaunchKernel = timed_launch;
    timed.cuEventRecord = timed_record;
    timed.cuEventElapsedTime = timed_elapsed;
    b.e->gpu->d = &timed;
    set_grads(&a, 1);
    set_grads(&b, 1);
    int steps = 0;
    /* if none is ever tried, the timeout ends the test */
    for (int end = INT_MAX; steps < end; steps++) {
        OK(optc_step(a.b));
        OK(optc_step(b.b));
        OK(optc_sync(b.b));
        if (timer.n == 4 && end == INT_MAX)
            /* as many steps again: other candidates would have been compiled by then */
            end = 2 * steps + 2;
    }
    ck_assert_msg(timer.n >= 4, "after %d steps only %d launches were tried", steps, timer.n);
    ck_assert_msg(timer.lost <= 0.05 * timer.now + 3 * slow, "trying cost %g of %g ms", timer.lost,
                  timer.now);
    OK(optc_sync(a.b));
    fetch_params(&a);
    compare("live, one launch", &a, &b);
    gpu_tuned_key(b.r, s->fn, b.b->elems, &t.key);
    b.e->gpu->d = d;
    close_side(&a, 0);
    close_side(&b, 0);
    ck_assert_msg(tuned_read(&l, path, why, sizeof why), "%s", why);
    const Tuned *won = tuned_find(&l, &t.key);
    ck_assert(won && won->key.bucket == t.key.bucket);
    ck_assert_double_eq_tol(won->model_ms / won->ms, 2 / usual, 1e-4);
    tuned_free(&l);
    remove_results(path);
    setenv("OPTC_TUNE", "", 1);
}
END_TEST

/* A file of results decides the launches at its size and, with a notice, in the neighbouring
 * bucket, but no further. An engine without results uses the model's launches; results that equal
 * the model's are reported as such. The rule has no built-in results. The bits are always the
 * same. */
START_TEST(results_are_used)
{
    SHARED();
    static const struct { int apart, untuned, model; const char *says; } cases[] = {
        {0, 0, 0, "; launches tuned (user)"}, {-2, 0, 0, "; launches tuned (user, nearest size 2^"},
        {2, 0, 0, "; launches tuned (user, nearest size 2^"}, {-4, 0, 0, NULL}, {20, 0, 0, NULL},
        {0, 1, 0, NULL}, {0, 0, 1, "; launches tuned (user), all as the model has them"}};
    char path[] = "/tmp/optc-tuned-XXXXXX", why[400];
    ck_assert(close(mkstemp(path)) == 0);
    setenv("OPTC_TUNE", path, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Side model, other;
        untuned = 1;
        open_side(&model, "cuda", (optc_rule_options){.spec = "sgd", .with = "ema(0.9)"}, 0);
        untuned = 0;
        TunedList l = {0};
        Tuned t = {.launch = {{256, 4, 4, 0, 0, 0, 4}}, .ms = 1, .model_ms = 2, .samples = 9};
        int fn = 0;
        while (stage_form(plan_at(model.r->library->plan, fn).stage) != FORM_MAP)
            fn++;
        gpu_tuned_key(model.r, fn, model.b->elems, &t.key);
        t.key.bucket += cases[i].apart;
        if (cases[i].model)
            t.launch = launch_model(model.r->library->plan,
                                    plan_at(model.r->library->plan, fn).stage, model.b->elems);
        ck_assert(tuned_put(&l, &t));
        ck_assert_msg(tuned_write(&l, path, why, sizeof why), "%s", why);
        tuned_free(&l);
        untuned = cases[i].untuned;
        open_side(&other, "cuda", (optc_rule_options){.spec = "sgd", .with = "ema(0.9)"}, 0);
        untuned = 0;
        Launch want = !cases[i].says
                          ? launch_model(other.r->library->plan,
                                         plan_at(other.r->library->plan, fn).stage, other.b->elems)
                          : t.launch;
        ck_assert(!memcmp(&other.b->gpu->code->launch[fn], &want, sizeof want));
        const char *said = optc_rule_path(other.r);
        ck_assert_msg(cases[i].says ? strstr(said, cases[i].says) != NULL : !strstr(said, "tuned"),
                      "%s", said);
        ck_assert_msg(!strstr(said, "as the model") == !cases[i].model, "%s", said);
        for (int step = 1; step <= 2; step++) {
            set_grads(&model, step);
            set_grads(&other, step);
            OK(optc_step(model.b));
            OK(optc_step(other.b));
        }
        OK(optc_sync(model.b));
        fetch_params(&model);
        compare("with results", &model, &other);
        close_side(&model, 0);
        close_side(&other, 0);
    }
    remove_results(path);
    setenv("OPTC_TUNE", "", 1);
}
END_TEST

void add_launches(TCase *t)
{
    tcase_add_loop_test(t, launches, 0, 7);
    tcase_add_loop_test(t, long_columns, 0, 3);
}

void add_live(TCase *t)
{
    tcase_add_test(t, results_are_used);
    tcase_add_test(t, live);
    tcase_add_test(t, live_with_products);
    tcase_add_test(t, live_too_large);
    tcase_add_test(t, live_gain);
}

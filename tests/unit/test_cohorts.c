/* Participation: tensors without a gradient are excluded, and each tensor counts its own steps. The
 * reference is the same tensor bound alone and stepped only when it takes part. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6, ROOM = 2400, STEPS = 14 };
static const TestShape shape[N] = {{1, {700}},    {2, {33, 65}}, {1, {0}},
                                   {2, {40, 60}}, {0, {0}},      {3, {2, 5, 7}}};
static const int group_of[N] = {0, 0, 0, 1, 1, 1};

typedef struct Side { optc_binding *b; float p[ROOM]; } Side;      /* one tensor alone */
static float together[N][ROOM], grad[N][ROOM];
static Side alone[N];

static int64_t elements(int i)
{
    int64_t n = 1;
    for (int k = 0; k < shape[i].rank; k++)
        n *= shape[i].dim[k];
    return n;
}

static optc_tensor tensor_of(int i, float *p)
{
    return (optc_tensor){.param = p, .grad = grad[i], .rank = shape[i].rank, .shape = shape[i].dim};
}

static bool takes_part(int i, int step)
{
    if (step == 5)                                /* none */
        return false;
    return step % 7 == 6 || splitmix((uint64_t)(i * 1000 + step)) % 3 != 0;
}

static void fill_all(int step)
{
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < elements(i); k++) {
            grad[i][k] = (float)ref_value(i, step + 1, k);
            if (step < 0)
                together[i][k] = alone[i].p[k] = (float)ref_value(i, 0, k);
        }
}

static optc_binding *bind_all(optc_rule *r)
{
    static const optc_setting slow = {"lr", 0.004};
    optc_tensor t[N];
    optc_binding *b, *one;
    fill_all(-1);
    for (int i = 0; i < N; i++) {
        t[i] = tensor_of(i, together[i]);
        optc_tensor own = tensor_of(i, alone[i].p);
        OK(optc_bind(
            r, &(optc_group){.tensors = &own, .ntensors = 1, .hyper = &slow, .nhyper = group_of[i]},
            1, &one));
        alone[i].b = one;
    }
    OK(optc_bind(r,
                 (optc_group[]){{.tensors = t, .ntensors = 3},
                                {.tensors = t + 3, .ntensors = 3, .hyper = &slow, .nhyper = 1}},
                 2, &b));
    return b;
}

static void unbind_all(optc_binding *b)
{
    for (int i = 0; i < N; i++)
        OK(optc_unbind(alone[i].b));
    OK(optc_unbind(b));
}

static void same_states(optc_rule *r, optc_binding *b, int i, const char *what)
{
    optc_state_info info;
    for (int k = 0; k < optc_rule_states(r); k++) {
        optc_state_view x, y;
        int has;
        OK(optc_rule_state(r, k, &info));
        if (!strcmp(info.domain, "group"))
            continue;
        OK(optc_has_state(b, i, info.name, &has));
        if (!has)
            continue;
        OK(optc_state(b, i, info.name, &x));
        OK(optc_state(alone[i].b, 0, info.name, &y));
        size_t bytes = (size_t)x.count * (info.type == OPTC_F64 ? 8 : 4);
        ck_assert_msg(!bytes || !memcmp(x.data, y.data, bytes),
                      "%s: state '%s' of tensor %d is not what it is alone", what, info.name, i);
    }
}

static void same_all(optc_rule *r, optc_binding *b, int step)
{
    char what[100];
    snprintf(what, sizeof what, "%s, step %d", optc_rule_name(r), step);
    for (int i = 0; i < N; i++) {
        int64_t x, y;
        ck_assert_msg(!memcmp(together[i], alone[i].p, sizeof(float) * (size_t)elements(i)),
                      "%s: tensor %d is not what it is alone", what, i);
        same_states(r, b, i, what);
        OK(optc_get_t(b, i, &x));
        OK(optc_get_t(alone[i].b, -1, &y));
        ck_assert_msg(x == y, "%s: tensor %d has done %d steps, not %d", what, i, (int)x, (int)y);
    }
}

static void run_apart(optc_rule *r)
{
    optc_binding *b = bind_all(r);
    for (int step = 0; step < STEPS; step++) {
        const void *g[N];
        fill_all(step);
        for (int i = 0; i < N; i++)
            g[i] = takes_part(i, step) || !elements(i) ? grad[i] : NULL;
        OK(optc_set_grads(b, g, N));
        if (step == 8) {                          /* also affects tensors that are behind */
            OK(optc_set_hyper(b, 1, "lr", 0.01));
            for (int i = 3; i < N; i++)
                OK(optc_set_hyper(alone[i].b, 0, "lr", 0.01));
        }
        OK(optc_step(b));
        for (int i = 0; i < N; i++)
            if (g[i])
                OK(optc_step(alone[i].b));
        same_all(r, b, step);
    }
    int64_t t;
    OK(optc_get_t(b, -1, &t));
    ck_assert_int_eq(t, STEPS);
    unbind_all(b);
}

static const optc_rule_options rules[] = {{.spec = "adamw"},
                                          {.spec = "adafactor"},
                                          {.spec = "laprop"},
                                          {.spec = "came"},
                                          {.spec = "radam"},
                                          {.spec = "nadam"},
                                          {.spec = "novograd"},
                                          {.spec = "lion", .with = "ema(0.9)"},
                                          {.spec = "adamw", .with = "clip_norm(1),cautious"},
                                          {.spec = "adamw", .with = "centralize"},
                                          {.spec = "adamw", .with = "skip"}};

START_TEST(each_counts_its_own)
{
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.threads = 2}, &e));
    OK(optc_compile(e, &rules[_i], &r));
    run_apart(r);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* The same on the reference evaluator. */
START_TEST(each_counts_its_own_evaluated)
{
    if (thinned(_i))
        return;
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.cache_dir = "", .compiler = "", .no_builtin = 1}, &e));
    OK(optc_compile(e, &rules[_i], &r));
    ck_assert(!optc_rule_native(r));
    run_apart(r);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- one spec, tensors of one element ---- */
typedef struct Small { optc_engine *e; optc_rule *r; optc_binding *b; float p[4], g[4]; } Small;

static void small_open(Small *s, const char *text, int native, int n)
{
    optc_tensor t[4];
    for (int i = 0; i < n; i++) {
        s->p[i] = 0;
        s->g[i] = 1;
        t[i] = (optc_tensor){.param = &s->p[i], .grad = &s->g[i]};
    }
    OK(optc_open(
        &(optc_engine_options){.compiler = native ? NULL : "", .cache_dir = native ? NULL : ""},
        &s->e));
    OK(optc_compile(s->e, &(optc_rule_options){.spec = "small.lua", .text = text}, &s->r));
    OK(optc_bind(s->r, &(optc_group){.tensors = t, .ntensors = n}, 1, &s->b));
}

static void small_close(Small *s)
{
    OK(optc_unbind(s->b));
    OK(optc_release(s->r));
    OK(optc_close(s->e));
}

/* Reductions over all tensors ignore excluded ones: sums, extremes and means. */
START_TEST(folds_do_not_see_it)
{
    Small s;
    double x;
    small_open(&s,
               "return optimizer { name = \"folds\", hyper = { lr = 1 }, values = { total = "
               "\"group\", most = "
               "\"group\", least = \"group\", middle = \"group\" },\n"
               "  step = function() local s = sum(g); total = global.sum(s); most = global.max(s); "
               "least = "
               "global.min(s); middle = global.mean(g); p = p - lr * total * g end }",
               _i, 3);
    s.g[0] = -3, s.g[1] = -8, s.g[2] = -4;
    for (int step = 0; step < 3; step++) {
        if (step)
            OK(optc_set_grad(s.b, 1, step == 1 ? NULL : &s.g[1], 0));
        OK(optc_step(s.b));
        OK(optc_read_value(s.b, 0, "total", &x, 1));
        ck_assert(x == (step == 1 ? -7 : -15));
        OK(optc_read_value(s.b, 0, "most", &x, 1));
        ck_assert(x == -3);
        OK(optc_read_value(s.b, 0, "least", &x, 1));
        ck_assert(x == (step == 1 ? -4 : -8));
        OK(optc_read_value(s.b, 0, "middle", &x, 1));
        ck_assert(x == (step == 1 ? -3.5 : -5));
        if (step == 1)
            ck_assert(s.p[1] == -120 && s.p[0] == -45 - 21);
    }
    OK(optc_set_grads(s.b, (const void *const[]){NULL, NULL, NULL}, 3));
    float was = s.p[0];
    OK(optc_step(s.b));
    OK(optc_read_value(s.b, 0, "most", &x, 1));
    /* no tensor took part: the value of the step before */
    ck_assert(x == -3 && s.p[0] == was);
    small_close(&s);
}
END_TEST

/* No tensor takes part: only the binding's count changes. A mean over nothing does not enter a
 * group's states. */
START_TEST(no_tensor_takes_part)
{
    Small s;
    double x;
    int64_t t;
    small_open(&s,
               "return optimizer { name = \"nobody\", hyper = { lr = 1 }, state = { m = zeros "
               "\"group\", most = "
               "fill(-9, \"group\") },\n"
               "  step = function() m = lerp(m, global.mean(g), 0.5); most = lerp(most, "
               "global.max(max(g)), 0.5); "
               "p = p - lr * m * g + 0 * t end,\n"
               "  other = function() p = p + m end }",
               _i, 2);
    for (int step = 1; step <= 4; step++) {
        OK(optc_set_grads(s.b,
                          (const void *const[]){step > 1 && step < 4 ? NULL : &s.g[0],
                                                step == 2 ? NULL : &s.g[1]},
                          2));
        if (step == 3)
            OK(optc_set_grad(s.b, 1, NULL, 0));
        OK(optc_step(s.b));
        OK(optc_get_t(s.b, -1, &t));
        ck_assert_int_eq(t, step);
        OK(optc_state_read(s.b, 0, "m", &x, 1));
        ck_assert(x == (step < 4 ? 0.5 : 0.75));
        OK(optc_state_read(s.b, 0, "most", &x, 1));
        ck_assert(x == (step < 4 ? -4 : -1.5));
        if (step == 3)
            OK(optc_run(s.b, "other"));           /* reads no gradient: all tensors take part */
    }
    OK(optc_get_t(s.b, 1, &t));
    ck_assert(t == 2 && s.p[1] == -0.5f + 0.5f - 0.75f);
    small_close(&s);
}
END_TEST

/* A group's state belongs to the group and follows the binding's count; tensors that are behind see
 * it with their own t. */
START_TEST(states_of_groups)
{
    Small s;
    double d;
    small_open(&s,
               "return optimizer { name = \"grouped\", hyper = { lr = 1 }, state = { d = fill(1, "
               "\"group\"), seen = "
               "zeros \"tensor\" },\n"
               "  step = function() d = d + t; seen = t; p = p - lr * d * g end }",
               _i, 2);
    for (int step = 1; step <= 4; step++) {
        OK(optc_set_grad(s.b, 1, step == 2 ? NULL : &s.g[1], 0));
        OK(optc_step(s.b));
    }
    OK(optc_state_read(s.b, 0, "d", &d, 1));
    ck_assert(d == 11 && s.p[0] == -(2 + 4 + 7 + 11));
    OK(optc_state_read(s.b, 1, "seen", &d, 1));
    ck_assert(d == 3 && s.p[1] == -(2 + (4 + 2) + (7 + 3)));
    small_close(&s);
}
END_TEST

/* Periods follow the binding's count. */
START_TEST(periods)
{
    Small s;
    small_open(
        &s,
        "return optimizer { name = \"periods\", hyper = { lr = 1 }, state = { n = zeros, k = zeros "
        "},\n"
        "  step = function() n = t; every(2, function() k = k + t end); p = p - lr * g end }",
        _i, 2);
    double k;
    for (int step = 1; step <= 5; step++) {
        OK(optc_set_grad(s.b, 1, step == 1 ? NULL : &s.g[1], 0));
        OK(optc_step(s.b));
    }
    OK(optc_state_read(s.b, 0, "k", &k, 1));
    ck_assert(k == 2 + 4);
    OK(optc_state_read(s.b, 1, "k", &k, 1));
    ck_assert(k == 1 + 3);
    OK(optc_state_read(s.b, 1, "n", &k, 1));
    ck_assert(k == 4);
    small_close(&s);
}
END_TEST

/* Entries that read no gradient include all tensors; inputs are needed only for tensors that take
 * part. */
START_TEST(entries_and_inputs)
{
    Small s;
    float in = 2;
    small_open(
        &s,
        "return optimizer { name = \"entries\", hyper = { lr = 1 }, inputs = { h = \"elem\" },\n"
        "  step = function() p = p - lr * h * g end, double = function() p = 2 * p + t end }",
        _i, 2);
    OK(optc_set_input(s.b, 0, "h", &in, 1));
    FAILS(optc_step(s.b), OPTC_ERROR_ARGUMENT,
          "reads input 'h' of tensor number 1, which is not set");
    OK(optc_set_grad(s.b, 1, NULL, 0));
    OK(optc_step(s.b));
    OK(optc_step(s.b));
    ck_assert(s.p[0] == -4 && s.p[1] == 0);
    OK(optc_run(s.b, "double"));                  /* t: each tensor's next step */
    ck_assert(s.p[0] == -8 + 3 && s.p[1] == 1);
    OK(optc_step(s.b));
    ck_assert(s.p[0] == -7 && s.p[1] == 1);
    small_close(&s);
}
END_TEST

/* ---- counts that are set ---- */
/* 300 tensors, each at another step: each equals the tensor alone; then all at the same step
 * again. */
START_TEST(as_many_counts_as_tensors)
{
    enum { MANY = 300 };
    static float p[MANY], g[MANY];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b, *one;
    optc_tensor t[MANY];
    int64_t steps;
    OK(optc_open(&(optc_engine_options){.threads = 2}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int i = 0; i < MANY; i++) {
        p[i] = 1;
        g[i] = (float)(i % 7 - 3.5);
        t[i] = (optc_tensor){.param = &p[i], .grad = &g[i]};
    }
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = MANY}, 1, &b));
    for (int i = 0; i < MANY; i++)
        OK(optc_set_t(b, i, 2 * i));
    for (int k = 0; k < 3; k++)
        OK(optc_step(b));
    for (int i = 0; i < MANY; i += 13) {
        float q = 1;
        optc_tensor own = {.param = &q, .grad = &g[i]};
        OK(optc_bind(r, &(optc_group){.tensors = &own, .ntensors = 1}, 1, &one));
        OK(optc_set_t(one, -1, 2 * i));
        for (int k = 0; k < 3; k++)
            OK(optc_step(one));
        OK(optc_unbind(one));
        ck_assert_msg(p[i] == q, "tensor %d: %.9g, alone %.9g", i, (double)p[i], (double)q);
        OK(optc_get_t(b, i, &steps));
        ck_assert_int_eq(steps, 2 * i + 3);
    }
    OK(optc_get_t(b, -1, &steps));
    ck_assert_int_eq(steps, 3);
    OK(optc_set_t(b, -1, 100));
    OK(optc_get_t(b, 7, &steps));
    ck_assert_int_eq(steps, 100);
    OK(optc_step(b));
    OK(optc_get_t(b, 299, &steps));
    ck_assert_int_eq(steps, 101);
    FAILS(optc_set_t(b, MANY, 1), OPTC_ERROR_ARGUMENT, "no tensor 300");
    FAILS(optc_set_t(b, 0, -1), OPTC_ERROR_ARGUMENT, "steps is -1");
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* No memory for another cohort: the step is refused, nothing changes, and it works when there is
 * memory again. */
static optc_status no_more(optc_binding *b, size_t bytes, void **out)
{
    (void)b, (void)bytes;
    *out = NULL;
    return no_memory("optc_run");
}

START_TEST(no_memory_for_a_count)
{
    Small s;
    int64_t t;
    small_open(&s,
               "return optimizer { name = \"late\", hyper = { lr = 1 }, step = function() p = p - "
               "lr * t * g end }",
               _i, 2);
    const Device *was = s.r->device;
    Device poor = *was;
    poor.alloc_cohorts = no_more;
    OK(optc_step(s.b));
    OK(optc_set_t(s.b, 1, 9));
    s.r->device = &poor;
    FAILS(optc_step(s.b), OPTC_ERROR_MEMORY, "out of memory");
    ck_assert(s.p[0] == -1 && s.p[1] == -1);
    s.r->device = was;
    OK(optc_step(s.b));
    ck_assert(s.p[0] == -3 && s.p[1] == -11);
    OK(optc_get_t(s.b, 1, &t));
    ck_assert_int_eq(t, 10);
    small_close(&s);
}
END_TEST

/* States and counts, saved per tensor, from which a run continues. */
typedef struct Saved { float p[N][ROOM]; double m[N][2][ROOM]; int64_t t[N], all; } Saved;

/* Runs steps `from` to 9 from the saved values, and saves at step 5. */
static void run_from(optc_rule *r, int from, Saved *s)
{
    static const char *const name[] = {"m", "v"};
    optc_binding *b = bind_all(r);
    for (int step = from; step < 10; step++) {
        for (int i = 0; i < N && step == 5; i++) {
            memcpy(from ? together[i] : s->p[i], from ? s->p[i] : together[i], sizeof s->p[i]);
            if (!i)
                OK(from ? optc_set_t(b, -1, s->all) : optc_get_t(b, -1, &s->all));
            OK(from ? optc_set_t(b, i, s->t[i]) : optc_get_t(b, i, &s->t[i]));
            for (int k = 0; k < 2; k++)
                OK(from ? optc_state_write(b, i, name[k], s->m[i][k], elements(i))
                   : optc_state_read(b, i, name[k], s->m[i][k], elements(i)));
        }
        fill_all(step);
        for (int i = 0; i < N; i++)
            OK(optc_set_grad(b, i, (step + i) % 3 ? grad[i] : NULL, 0));
        OK(optc_step(b));
    }
    unbind_all(b);
}

START_TEST(saved_and_loaded)
{
    static Saved s;
    static float whole[N][ROOM];
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.threads = 2}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    run_from(r, 0, &s);
    memcpy(whole, together, sizeof whole);
    run_from(r, 5, &s);
    ck_assert_mem_eq(whole, together, sizeof whole);
    ck_assert(s.all == 5 && s.t[0] == 3 && s.t[1] == 4);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *cohorts_suite(void)
{
    Suite *s = suite_create("cohorts");
    TCase *t = tcase_create("cohorts");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, each_counts_its_own, 0, sizeof rules / sizeof *rules);
    tcase_add_loop_test(t, each_counts_its_own_evaluated, 0, sizeof rules / sizeof *rules);
    tcase_add_loop_test(t, folds_do_not_see_it, 0, 2);
    tcase_add_loop_test(t, no_tensor_takes_part, 0, 2);
    tcase_add_loop_test(t, states_of_groups, 0, 2);
    tcase_add_loop_test(t, periods, 0, 2);
    tcase_add_loop_test(t, entries_and_inputs, 0, 2);
    tcase_add_test(t, as_many_counts_as_tensors);
    tcase_add_loop_test(t, no_memory_for_a_count, 0, 2);
    tcase_add_test(t, saved_and_loaded);
    suite_add_tcase(s, t);
    return s;
}

/* Device scalars and the guard: scalars that are read before every run have the effect of values
 * that are set, and a guarded run that of no run. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 60, GROUPS = 3, STEPS = 12 };
static const char scaled[] = "return optimizer { name = 'scaled', hyper = { lr = 0.1 }, inputs = { "
                             "scale = 'group' }, state = { m = zeros, k = "
                             "zeros 'group' },\n"
                             "  step = function() k = k + 1  m = m + scale * g  every(3, "
                             "function() p = 0.5 * p end)  p = p - lr * m / (t + k) "
                             "end }";
/* copies: arrays copied over others, without a stage */
static const char *const specs[] = {"adamw",     "lamb+clip(1)", "sgd+lookahead(3,0.5)",
                                    "adafactor", "muon",         scaled};
enum { NSPECS = sizeof specs / sizeof *specs };

typedef struct Part { optc_binding *b; float p[GROUPS][N], g[GROUPS][N]; } Part;

static void bind_part(optc_rule *r, Part *x)
{
    static const int64_t shape[2] = {6, 10};
    optc_tensor t[GROUPS];
    optc_group g[GROUPS];
    for (int k = 0; k < GROUPS; k++) {
        for (int i = 0; i < N; i++)
            x->p[k][i] = (float)ref_value(k, 0, i);
        t[k] = (optc_tensor){.param = x->p[k], .grad = x->g[k], .rank = 2, .shape = shape};
        g[k] = (optc_group){.tensors = &t[k], .ntensors = 1};
    }
    OK(optc_bind(r, g, GROUPS, &x->b));
}

static void gradients(Part *x, int step)
{
    for (int k = 0; k < GROUPS; k++)
        for (int i = 0; i < N; i++)
            x->g[k][i] = (float)ref_value(k, step, i);
}

static void same(optc_rule *r, const Part *x, const Part *y, int step)
{
    optc_state_info info;
    int64_t a, b;
    ck_assert_msg(!memcmp(x->p, y->p, sizeof x->p), "%s: parameters differ at step %d",
                  optc_rule_name(r), step);
    for (int k = 0; k < optc_rule_states(r); k++)
        for (int i = 0; i < GROUPS; i++) {
            optc_state_view u, v;
            OK(optc_rule_state(r, k, &info));
            if (optc_state(x->b, i, info.name, &u) != OPTC_OK)
                continue;
            OK(optc_state(y->b, i, info.name, &v));
            size_t bytes = (size_t)u.count * (u.type == OPTC_F64 ? 8 : 4);
            ck_assert_msg(u.count == v.count && !memcmp(u.data, v.data, bytes),
                          "%s: state '%s' differs at step %d", optc_rule_name(r), info.name, step);
        }
    for (int i = -1; i < GROUPS; i++) {
        OK(optc_get_t(x->b, i, &a));
        OK(optc_get_t(y->b, i, &b));
        ck_assert_msg(a == b, "%s: %d has done %d steps, not %d", optc_rule_name(r), i, (int)a,
                      (int)b);
    }
}

/* One binding reads its scalars, of two types, and skips steps by the guard; a tensor has no
 * gradient for a while. The other binding gets the values by calls. */
static void run_pair(optc_rule *r)
{
    static Part x, y;
    float rate = 0, found = 0;
    double wide = 0, scale = 0;
    bool input = optc_rule_inputs(r) > 0;
    bind_part(r, &x);
    bind_part(r, &y);
    OK(optc_set_hyper_from(x.b, -1, "lr", &rate, OPTC_DEFAULT));
    OK(optc_set_hyper_from(x.b, 1, "lr", &wide, OPTC_F64));
    if (input)
        OK(optc_set_scalar_from(x.b, -1, "scale", &scale, OPTC_F64));
    OK(optc_set_guard(x.b, &found, OPTC_F32));
    for (int step = 1; step <= STEPS; step++) {
        double now;
        rate = (float)(0.01 / step), wide = 0.013 / step, scale = step % 4;
        found = step % 5 == 2 ? 1 : step % 5 == 4 ? NAN : 0;
        gradients(&x, step);
        gradients(&y, step);
        OK(optc_set_grad(x.b, 2, step > 3 && step < 8 ? NULL : x.g[2], 0));
        OK(optc_step(x.b));
        OK(optc_get_hyper(x.b, 1, "lr", &now));
        ck_assert(now == wide);
        OK(optc_set_hyper(y.b, -1, "lr", rate));
        OK(optc_set_hyper(y.b, 1, "lr", wide));
        if (input && found == 0)                   /* otherwise it is not read */
            OK(optc_set_scalar(y.b, -1, "scale", scale));
        OK(optc_set_grad(y.b, 2, step > 3 && step < 8 ? NULL : y.g[2], 0));
        if (found == 0)
            OK(optc_step(y.b));
        same(r, &x, &y, step);
    }
    /* after reading stops, the value that was set last is used again */
    double was = 0;
    found = 1;
    OK(optc_set_guard(x.b, NULL, OPTC_F32));
    OK(optc_set_hyper(x.b, 0, "lr", 0.003));
    OK(optc_set_hyper_from(x.b, 1, "lr", NULL, OPTC_DEFAULT));
    OK(optc_set_hyper_from(x.b, 2, "lr", NULL, OPTC_DEFAULT));
    OK(optc_get_hyper(x.b, 1, "lr", &was));
    OK(optc_set_hyper(y.b, -1, "lr", was));
    OK(optc_set_hyper(y.b, 0, "lr", 0.003));
    if (input)
        OK(optc_set_scalar_from(x.b, -1, "scale", NULL, OPTC_F64));
    OK(optc_step(x.b));
    OK(optc_step(y.b));
    ck_assert(!memcmp(x.p[0], y.p[0], sizeof x.p[0]));
    OK(optc_unbind(x.b));
    OK(optc_unbind(y.b));
}

START_TEST(as_if_they_were_set)
{
    optc_engine *e;
    optc_rule *r;
    bool text = specs[_i / 2] == scaled;
    if (thinned(_i) && _i != 2 * NSPECS - 2)
        return;
    OK(optc_open(&(optc_engine_options){.threads = 2,
                                        .cache_dir = _i % 2 ? "" : getenv("OPTC_TEST_CACHE"),
                                        .compiler = _i % 2 ? "" : NULL,
                                        .no_builtin = _i % 2},
                 &e));
    OK(optc_compile(
        e, &(optc_rule_options){.spec = text ? NULL : specs[_i / 2], .text = text ? scaled : NULL},
        &r));
    ck_assert_int_eq(optc_rule_native(r), !(_i % 2));
    run_pair(r);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

static optc_engine *open_engine(bool native)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = 1,
                                        .cache_dir = native ? getenv("OPTC_TEST_CACHE") : "",
                                        .compiler = native ? NULL : "",
                                        .no_builtin = !native},
                 &e));
    return e;
}

/* A binding that no longer reads its rates, even if they were NaN, steps like one that never did.
 * Tensor 2 has another
 * t: its own cohort. */
START_TEST(set_values_return)
{
    static Part x, y;
    optc_engine *e = open_engine(_i);
    optc_rule *r;
    double lr;
    float nan = NAN, rate = 0.5f;
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    bind_part(r, &x);
    bind_part(r, &y);
    OK(optc_set_hyper(x.b, 1, "lr", 0.25));
    OK(optc_set_hyper(y.b, 1, "lr", 0.25));
    OK(optc_set_t(x.b, 2, 7));
    OK(optc_set_t(y.b, 2, 7));
    gradients(&x, 1);
    gradients(&y, 1);
    OK(optc_set_hyper_from(x.b, -1, "lr", &rate, OPTC_F32));
    OK(optc_step(x.b));
    OK(optc_get_hyper(x.b, 1, "lr", &lr));
    ck_assert(lr == 0.5);
    /* while it is read from memory, the value that was set is kept */
    OK(optc_set_hyper_from(x.b, 1, "lr", &nan, OPTC_F32));
    OK(optc_step(x.b));
    ck_assert(isnan(x.p[1][0]));
    OK(optc_set_hyper_from(x.b, -1, "lr", NULL, OPTC_DEFAULT));
    for (int k = 0; k < GROUPS; k++) {
        OK(optc_get_hyper(x.b, k, "lr", &lr));
        ck_assert_msg(lr == (k == 1 ? 0.25 : 1e-3), "group %d has %g", k, lr);
    }
    OK(optc_step(y.b));
    OK(optc_step(y.b));
    memcpy(x.p, y.p, sizeof x.p);
    OK(optc_step(x.b));
    OK(optc_step(y.b));
    same(r, &x, &y, 3);
    OK(optc_unbind(x.b));
    OK(optc_unbind(y.b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* A group input has no default: the step names the missing input and changes nothing. */
START_TEST(scalars_not_set)
{
    static Part x;
    optc_engine *e = open_engine(_i);
    optc_rule *r;
    float scale = 1, before[GROUPS][N];
    double k;
    int64_t t;
    OK(optc_compile(e, &(optc_rule_options){.text = scaled}, &r));
    bind_part(r, &x);
    gradients(&x, 1);
    memcpy(before, x.p, sizeof before);
    FAILS(optc_step(x.b), OPTC_ERROR_ARGUMENT,
          "entry 'step' of rule 'scaled' reads the scalar input 'scale', which is not set for "
          "group 0: call "
          "optc_set_scalar");
    OK(optc_set_scalar(x.b, 0, "scale", 2));
    OK(optc_set_scalar_from(x.b, 1, "scale", &scale, OPTC_F32));
    FAILS(optc_step(x.b), OPTC_ERROR_ARGUMENT, "'scale', which is not set for group 2");
    OK(optc_set_scalar_from(x.b, 1, "scale", NULL, OPTC_F32));     /* nothing was read yet */
    FAILS(optc_step(x.b), OPTC_ERROR_ARGUMENT, "'scale', which is not set for group 1");
    OK(optc_get_t(x.b, -1, &t));
    OK(optc_state_read(x.b, 0, "k", &k, 1));
    ck_assert(!memcmp(before, x.p, sizeof before) && t == 0 && k == 0);
    OK(optc_set_scalar_from(x.b, 1, "scale", &scale, OPTC_F32));
    /* no tensor of group 2 takes part */
    OK(optc_set_grad(x.b, 2, NULL, 0));
    OK(optc_step(x.b));
    /* the value that was read last stays */
    OK(optc_set_scalar_from(x.b, 1, "scale", NULL, OPTC_F32));
    OK(optc_step(x.b));
    OK(optc_set_grad(x.b, 2, x.g[2], 0));
    FAILS(optc_step(x.b), OPTC_ERROR_ARGUMENT, "'scale', which is not set for group 2");
    OK(optc_set_scalar(x.b, 2, "scale", 0));                       /* 0 is a valid value */
    OK(optc_step(x.b));
    ck_assert(memcmp(before[0], x.p[0], sizeof *before) != 0);
    OK(optc_unbind(x.b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

START_TEST(setting_a_scalar_ends_reading)
{
    static Part x, y;
    optc_engine *e = open_engine(true);
    optc_rule *r;
    float scale = 3;
    OK(optc_compile(e, &(optc_rule_options){.text = scaled}, &r));
    bind_part(r, &x);
    bind_part(r, &y);
    gradients(&x, 1);
    gradients(&y, 1);
    OK(optc_set_scalar_from(x.b, -1, "scale", &scale, OPTC_F32));
    OK(optc_set_scalar(x.b, -1, "scale", 5));
    OK(optc_set_scalar(y.b, -1, "scale", 5));
    OK(optc_step(x.b));
    OK(optc_step(y.b));
    same(r, &x, &y, 1);
    OK(optc_unbind(x.b));
    OK(optc_unbind(y.b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

START_TEST(what_is_refused)
{
    static Part x;
    optc_engine *e;
    optc_rule *r;
    float at[2] = {0.5f, 0};
    double lr;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    bind_part(r, &x);
    FAILS(optc_set_hyper_from(NULL, 0, "lr", at, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "optc_set_hyper_from: the binding is NULL");
    FAILS(optc_set_scalar_from(NULL, 0, "lr", at, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "optc_set_scalar_from: the binding is NULL");
    FAILS(optc_set_guard(NULL, at, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "optc_set_guard: the binding is NULL");
    FAILS(optc_set_hyper_from(x.b, GROUPS, "lr", at, OPTC_F32), OPTC_ERROR_ARGUMENT, "no group 3");
    FAILS(optc_set_hyper_from(x.b, -2, "lr", at, OPTC_F32), OPTC_ERROR_ARGUMENT, "no group -2");
    FAILS(optc_set_hyper_from(x.b, 0, "beta", at, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "has no hyperparameter 'beta'");
    FAILS(optc_set_hyper_from(x.b, 0, NULL, at, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "has no hyperparameter '(null)'");
    FAILS(optc_set_hyper_from(x.b, 0, "lr", at, OPTC_BF16), OPTC_ERROR_ARGUMENT,
          "must be OPTC_F32 or OPTC_F64");
    FAILS(optc_set_hyper_from(x.b, 0, "lr", (char *)at + 1, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "not aligned to a number of 4 bytes");
    FAILS(optc_set_scalar_from(x.b, 0, "scale", at, OPTC_F32), OPTC_ERROR_ARGUMENT,
          "has no input 'scale'");
    FAILS(optc_set_guard(x.b, at, OPTC_F16), OPTC_ERROR_ARGUMENT, "must be OPTC_F32 or OPTC_F64");
    OK(optc_get_hyper(x.b, 0, "lr", &lr));
    ck_assert(lr == 1e-3);                         /* none of these calls had an effect */
    for (int k = 0; k < 100; k++)                  /* repeating it takes no more memory than once */
        OK(optc_set_hyper_from(x.b, -1, "lr", &at[k % 2], OPTC_F32));
    ck_assert_int_eq(x.b->nsource, GROUPS);
    OK(optc_unbind(x.b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *device_scalars_suite(void)
{
    Suite *s = suite_create("device_scalars");
    TCase *t = tcase_create("device_scalars");
    tcase_add_loop_test(t, as_if_they_were_set, 0, 2 * NSPECS);
    tcase_add_loop_test(t, set_values_return, 0, 2);
    tcase_add_loop_test(t, scalars_not_set, 0, 2);
    tcase_add_test(t, setting_a_scalar_ends_reading);
    tcase_add_test(t, what_is_refused);
    suite_add_tcase(s, t);
    return s;
}

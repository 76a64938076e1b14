/* States in block codes around the steps: steps that change nothing keep every byte, and states are
 * read, written, copied and owned by the caller. */
#include "tests/harness/code_blocks.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const TestShape shape[] = {{1, {4097}}, {2, {64, 65}}, {1, {300}}};
enum { N = sizeof shape / sizeof *shape };

#define STATES \
    "state = { m = zeros('elem', 'q8'), v = zeros('elem', 'q8u'), a = zeros('elem', 'f8'), " \
    "b = zeros('elem', 'f8u') }"
#define BODY \
    "m = lerp(m, g, 0.1)  v = lerp(v, g * g, 0.1)  a = lerp(a, g, 0.1)  b = lerp(b, g * g, 0.1) "
static const char *const names[] = {"m", "v", "a", "b"};
enum { NNAMES = sizeof names / sizeof *names };

static void set_grads(Fixture *f, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            ((float *)f->g[k])[i] = (float)ldexp(ref_value(k, step, i), -(int)(i % 40));
}

/* The bytes of all states, one after the other; the caller frees them. */
static unsigned char *all_bytes(Fixture *f, size_t *size)
{
    *size = 0;
    for (int k = 0; k < f->n; k++)
        *size += NNAMES * state_size(f->count[k]);
    unsigned char *to = malloc(*size), *at = to;
    for (int k = 0; k < f->n; k++)
        for (int s = 0; s < NNAMES; s++, at += state_size(f->count[k]))
            OK(optc_state_get(f->binding, k, names[s], at, state_size(f->count[k])));
    return to;
}

/* Takes a step that must keep the bytes of all states, or change them. */
static void step_keeps(Fixture *f, int step, bool keeps, const char *what)
{
    size_t n;
    unsigned char *was = all_bytes(f, &n);
    set_grads(f, step);
    OK(optc_step(f->binding));
    unsigned char *now = all_bytes(f, &n);
    ck_assert_msg(!memcmp(was, now, n) == keeps, "%s: step %d %s", what, step,
                  keeps ? "changed a byte of a state" : "changed no state");
    free(was);
    free(now);
}

/* Steps 1 and 2 change the states. A hyperparameter turns the condition off for 3 and 4. */
static const struct { const char *what, *text; int keeps;
} unchanged[] = {
    {"where",
     "return optimizer { name = 'x', hyper = { lr = 0.1, on = 1 }, " STATES ",\n"
     "  step = function() local c = gt(on, 0)  m = where(c, lerp(m, g, 0.1), m)  v = where(c, "
     "lerp(v, g * g, 0.1), v)\n"
     "    a = where(c, lerp(a, g, 0.1), a)  b = where(c, lerp(b, g * g, 0.1), b)  p = p - lr * m "
     "end }",
     0},
    {"when",
     "return optimizer { name = 'x', hyper = { lr = 0.1, on = 1 }, " STATES ",\n"
     "  step = function() when(gt(on, 0), function() " BODY " end)  p = p - lr * m end }",
     0},
    {"when, of a matrix",
     "return optimizer { name = 'x', hyper = { lr = 0.1, on = 1 }, " STATES ",\n"
     "  matrix = function() when(gt(on, 0), function() " BODY
     " end)  p = p - lr * m / (1 + rownorm(m)) end,\n"
     "  step = function() when(gt(on, 0), function() " BODY " end)  p = p - lr * m end }",
     0},
    {"every",
     "return optimizer { name = 'x', hyper = { lr = 0.1, on = 1 }, " STATES ",\n"
     "  step = function() every(5, { offset = 1 }, function() " BODY " end)  p = p - lr * m end }",
     1},
};
enum { NUNCHANGED = sizeof unchanged / sizeof *unchanged };

START_TEST(bytes_stay)
{
    const char *what = unchanged[_i].what;
    optc_engine_options eval = {.compiler = "", .cache_dir = ""};
    for (int e = 0; e < 2; e++) {
        Fixture f;
        fix_open(&f, e ? &eval : NULL, &(optc_rule_options){.text = unchanged[_i].text}, shape, N,
                 NULL, 0);
        ck_assert(optc_rule_native(f.rule) == !e);
        step_keeps(&f, 1, false, what);
        step_keeps(&f, 2, unchanged[_i].keeps, what);
        OK(optc_set_hyper(f.binding, -1, "on", 0));
        step_keeps(&f, 3, true, what);
        step_keeps(&f, 4, true, what);
        fix_close(&f);
    }
}
END_TEST

static const char plain[] = "return optimizer { name = 'x', hyper = { lr = 0.1 }, " STATES ",\n"
                            "  step = function() " BODY " p = p - lr * m end }";

START_TEST(skipped)
{
    Fixture f;
    float guard = 0;
    fix_open(&f, NULL, &(optc_rule_options){.text = plain, .with = _i ? "skip" : ""}, shape, N,
             NULL, 0);
    step_keeps(&f, 1, false, "skip");
    size_t n;
    unsigned char *was = all_bytes(&f, &n);
    set_grads(&f, 2);
    if (_i)
        ((float *)f.g[1])[7] = NAN;
    else
        OK(optc_set_guard(f.binding, &guard, OPTC_F32));
    guard = 1;
    OK(optc_step(f.binding));
    unsigned char *now = all_bytes(&f, &n);
    ck_assert(!memcmp(was, now, n));
    guard = 0;
    step_keeps(&f, 3, false, "after a skipped step");
    free(was);
    free(now);
    fix_close(&f);
}
END_TEST

/* A NaN in a gradient: its block of each state is NaN, the other blocks are not. */
START_TEST(not_a_number)
{
    Fixture f;
    double x[4097];
    optc_engine_options eval = {.compiler = "", .cache_dir = ""};
    fix_open(&f, _i ? &eval : NULL, &(optc_rule_options){.text = plain}, shape, N, NULL, 0);
    for (int step = 1; step <= 3; step++) {
        set_grads(&f, step);
        if (step == 2)
            ((float *)f.g[0])[130] = NAN;
        OK(optc_step(f.binding));
    }
    for (int s = 0; s < NNAMES; s++) {
        OK(optc_state_read(f.binding, 0, names[s], x, 4097));
        for (int i = 0; i < 4097; i++)
            EACH(!isnan(x[i]) == (i / OPTC_CODED != 1), "%s, element %d: %g", names[s], i, x[i]);
    }
    fix_close(&f);
}
END_TEST

START_TEST(read_and_write)
{
    Fixture f;
    double x[4097], y[4097];
    unsigned char was[33 * 132], now[33 * 132];
    fix_open(&f, NULL, &(optc_rule_options){.text = plain}, shape, N, NULL, 0);
    for (int s = 0; s < NNAMES; s++) {
        const CodeType *c = &code_types[s];
        optc_state_view v;
        OK(optc_state(f.binding, 0, names[s], &v));
        ck_assert(v.type == c->type && v.count == 4097);
        OK(optc_state(f.binding, 2, names[s], &v));
        ck_assert(v.type == OPTC_F32 && v.count == 300);
        for (int i = 0; i < 4097; i++)
            x[i] = c->sign ? ref_value(s, 1, i) : fabs(ref_value(s, 1, i));
        OK(optc_state_write(f.binding, 0, names[s], x, 4097));
        OK(optc_state_read(f.binding, 0, names[s], y, 4097));
        for (int i = 0; i < 4097; i++) {
            double most = 0;                           /* rounded to nearest: half a step */
            for (int j = i / 128 * 128; j < 4097 && j < i / 128 * 128 + 128; j++)
                most = fmax(most, fabs(x[j]));
            double bound = 0.501 * code_bound(c, (float)x[i], (float)most * c->per_top);
            EACH(fabs(x[i] - y[i]) <= bound, "%s: %g is read as %g", c->name, x[i], y[i]);
        }
        OK(optc_state_get(f.binding, 0, names[s], was, sizeof was));
        OK(optc_state_write(f.binding, 0, names[s], y, 4097));
        OK(optc_state_get(f.binding, 0, names[s], now, sizeof now));
        ck_assert(!memcmp(was, now, sizeof was));
        y[5] = -1;
        if (c->sign)
            OK(optc_state_write(f.binding, 0, names[s], y, 4097));
        else
            FAILS(optc_state_write(f.binding, 0, names[s], y, 4097), OPTC_ERROR_ARGUMENT,
                  "for values that are never negative: value 5 is -1");
        memset(now, 0, sizeof now);
        OK(optc_state_put(f.binding, 0, names[s], now, sizeof now));
        OK(optc_state_read(f.binding, 0, names[s], y, 4097));
        ck_assert(y[0] == 0 && y[4096] == 0);
        OK(optc_state_put(f.binding, 0, names[s], was, sizeof was));
        FAILS(optc_state_get(f.binding, 0, names[s], was, 4097), OPTC_ERROR_ARGUMENT,
              "has 4356 bytes (4097 of ");
        FAILS(optc_state_read(f.binding, 0, names[s], x, 4356), OPTC_ERROR_ARGUMENT,
              "has 4097 values");
    }
    fix_close(&f);
}
END_TEST

/* States in the caller's memory: their bytes are the states, and a step writes exactly their
 * bytes. */
START_TEST(caller_owned)
{
    Fixture f;
    optc_binding *b;
    fix_open(&f, NULL, &(optc_rule_options){.text = plain}, shape, N, NULL, 0);
    float *p[N];
    void *states[N][NNAMES];
    int place[NNAMES] = {0};
    for (int i = 0; i < NNAMES; i++)
        for (int s = 0; s < NNAMES; s++) {
            optc_state_info info;
            OK(optc_rule_state(f.rule, i, &info));
            place[s] = strcmp(info.name, names[s]) ? place[s] : i;
        }
    optc_tensor t[N];
    memset(t, 0, sizeof t);
    set_grads(&f, 1);
    for (int k = 0; k < N; k++) {
        size_t bytes = state_size(f.count[k]);
        p[k] = malloc(4 * (size_t)f.count[k]);
        memcpy(p[k], f.p[k], 4 * (size_t)f.count[k]);
        t[k] = (optc_tensor){.param = p[k],
                             .grad = f.g[k],
                             .rank = shape[k].rank,
                             .shape = shape[k].dim,
                             .states = states[k]};
        for (int s = 0; s < NNAMES; s++) {
            void *at = states[k][place[s]] = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
            memset(at, 0xa5, bytes + 64);
            OK(optc_state_get(f.binding, k, names[s], at, bytes));
        }
    }
    OK(optc_bind(f.rule, &(optc_group){.tensors = t, .ntensors = N}, 1, &b));
    for (int step = 1; step <= 3; step++) {
        set_grads(&f, step);
        OK(optc_step(f.binding));
        OK(optc_step(b));
    }
    for (int k = 0; k < N; k++) {
        size_t bytes = state_size(f.count[k]);
        unsigned char *want = malloc(bytes);
        ck_assert(!memcmp(p[k], f.p[k], 4 * (size_t)f.count[k]));
        for (int s = 0; s < NNAMES; s++) {
            void *at = states[k][place[s]];
            OK(optc_state_get(f.binding, k, names[s], want, bytes));
            ck_assert(!memcmp(want, at, bytes));
            for (int i = 0; i < 64; i++)
                EACH(((unsigned char *)at)[bytes + (size_t)i] == 0xa5,
                     "bytes behind state %s changed", names[s]);
        }
        free(want);
    }
    OK(optc_unbind(b));
    for (int k = 0; k < N; k++) {
        free(p[k]);
        for (int s = 0; s < NNAMES; s++)
            free(states[k][s]);
    }
    fix_close(&f);
}
END_TEST

/* Parameters and gradients at any address of a float. */
START_TEST(unaligned)
{
    Fixture f;
    fix_open(&f, NULL, &(optc_rule_options){.text = plain}, shape, 1, NULL, 0);
    const size_t bytes = state_size(4097);
    for (int off = 1; off < 16; off += 3) {
        float *room = calloc(2 * 4200, 4), *p = room + off, *g = room + 4200 + off * 5 % 16;
        unsigned char a[33 * 132], w[33 * 132];
        optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = shape[0].dim};
        optc_binding *b, *want;
        set_grads(&f, 1);
        memcpy(p, f.p[0], 4 * 4097);
        memcpy(g, f.g[0], 4 * 4097);
        float *copy = malloc(4 * 4097);
        memcpy(copy, f.p[0], 4 * 4097);
        OK(optc_bind(f.rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        optc_tensor u = {.param = copy, .grad = f.g[0], .rank = 1, .shape = shape[0].dim};
        OK(optc_bind(f.rule, &(optc_group){.tensors = &u, .ntensors = 1}, 1, &want));
        for (int step = 0; step < 3; step++) {
            OK(optc_step(b));
            OK(optc_step(want));
        }
        ck_assert(!memcmp(p, copy, 4 * 4097));
        for (int s = 0; s < NNAMES; s++) {
            OK(optc_state_get(b, 0, names[s], a, bytes));
            OK(optc_state_get(want, 0, names[s], w, bytes));
            ck_assert(!memcmp(a, w, bytes));
        }
        OK(optc_unbind(b));
        OK(optc_unbind(want));
        free(room);
        free(copy);
    }
    fix_close(&f);
}
END_TEST

/* A state that starts at a hyperparameter, as Adagrad's sum. Tensors of fewer than 4096 values
 * store f32. */
START_TEST(starts_at_a_number)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1, begin = { 0, min = 0 } },\n"
        "  state = { v = fill(begin) }, step = function() v = v + g * g  p = p - lr * v end }";
    static const double begins[] = {0, 0.1, 3};
    static double v[4160];
    for (int i = 0; i < 3; i++) {
        Fixture f;
        const optc_setting begin = {"begin", begins[i]};
        fix_open(&f, &(optc_engine_options){.device = "cpu"},
                 &(optc_rule_options){.text = text, .types = "state=q8"}, shape, N, &begin, 1);
        for (int k = 0; k < f.n; k++) {
            OK(optc_state_read(f.binding, k, "v", v, f.count[k]));
            for (int64_t j = 0; j < f.count[k]; j++)
                ck_assert_msg(fabs(v[j] - begins[i]) <= 1e-6 * begins[i],
                              "begin %g, tensor %d: value %d is %.9g", begins[i], k, (int)j, v[j]);
        }
        set_grads(&f, 1);
        OK(optc_step(f.binding));
        fix_close(&f);
    }
}
END_TEST

Suite *code_states_suite(void)
{
    Suite *s = suite_create("code_states");
    TCase *t = tcase_create("code_states");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, starts_at_a_number);
    suite_add_tcase(s, t);
    tcase_add_loop_test(t, bytes_stay, 0, NUNCHANGED);
    tcase_add_loop_test(t, skipped, 0, 2);
    tcase_add_loop_test(t, not_a_number, 0, 2);
    tcase_add_test(t, read_and_write);
    tcase_add_test(t, caller_owned);
    tcase_add_test(t, unaligned);
    return s;
}

/* Several bindings as one optimizer: values of all tensors span all of them (optc_connect,
 * optc_run_all). */
#include "tests/harness/help.h"
#include "tests/harness/pipeline_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { N = 500 };

/* The tensors of one set of types. */
typedef struct Part { Type type; optc_rule *rule; optc_binding *b; void *p[2], *g[2]; } Part;
static const Type sets[] = {T_F32, T_BF16, T_F16};
enum { NSETS = COUNT(sets) };
static optc_engine *engine;

static void start(bool evaluator)
{
    OK(optc_open(&(optc_engine_options){.threads = 2,
                                        .compiler = evaluator ? "" : NULL,
                                        .cache_dir = evaluator ? "" : getenv("OPTC_TEST_CACHE")},
                 &engine));
}

static void open_part(Part *x, int set, const char *spec, const char *text, int bindings)
{
    static const int64_t shape[] = {N / 5, 5};
    optc_tensor t[2];
    *x = (Part){.type = sets[set]};
    for (int k = 0; k < 2; k++) {
        x->p[k] = calloc(N, 4), x->g[k] = calloc(N, 4);
        for (int i = 0; i < N; i++) {
            type_store(x->type, x->p[k], i, ref_value(2 * set + k, 0, i));
            type_store(x->type, x->g[k], i, ref_value(2 * set + k, 1, i));
        }
        t[k] = (optc_tensor){.param = x->p[k], .grad = x->g[k], .rank = 2, .shape = shape};
    }
    OK(optc_compile(
        engine,
        &(optc_rule_options){
            .spec = spec, .text = text, .param = (optc_type)(x->type + 1), .bindings = bindings},
        &x->rule));
    OK(optc_bind(x->rule, &(optc_group){.tensors = t, .ntensors = 2}, 1, &x->b));
}

static void close_part(Part *x)
{
    OK(optc_unbind(x->b));
    OK(optc_release(x->rule));
    for (int k = 0; k < 2; k++)
        free(x->p[k]), free(x->g[k]);
}

/* Clipped SGD by its definition. on: bits, the sets whose gradients take part. Returns the norm. */
static double check_sgd(Part *x, unsigned on, double *was)
{
    double sum = 0;
    for (int s = 0; s < NSETS; s++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < N; i++)
                sum += on >> s & 1 ? pow(type_load(x[s].type, x[s].g[k], i), 2) : 0;
    double norm = sqrt(sum), scale = fmin(1, 1 / (norm + 1e-6));
    for (int s = 0; s < NSETS; s++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < N; i++) {
                double g = on >> s & 1 ? type_load(x[s].type, x[s].g[k], i) : 0;
                double want = was[(2 * s + k) * N + i] - 0.5 * scale * g,
                       got = type_load(x[s].type, x[s].p[k], i);
                double bound = ldexp(fabs(want) + fabs(g), 1 - type_info[x[s].type].digits);
                ck_assert_msg(fabs(got - want) <= bound, "set %d: p is %g, not %g", s, got, want);
            }
    return norm;
}

START_TEST(one_norm)
{
    /* the second and third step: some have no gradient */
    static const unsigned on[] = {7, 5, 2, 7};
    Part x[NSETS];
    optc_binding *b[NSETS];
    double was[2 * NSETS * N], found;
    start(_i);
    for (int s = 0; s < NSETS; s++) {
        open_part(&x[s], s, "sgd+clip(1)", NULL, NSETS);
        OK(optc_set_hyper(x[s].b, -1, "lr", 0.5));
        OK(optc_set_hyper(x[s].b, -1, "momentum", 0));
        b[s] = x[s].b;
    }
    OK(optc_connect(b, NSETS));
    for (int t = 0; t < COUNT(on); t++) {
        for (int s = 0; s < NSETS; s++) {
            void *none[2] = {NULL, NULL};
            OK(optc_set_grads(
                b[s], (on[t] >> s & 1 ? (const void *const *)x[s].g : (const void *const *)none),
                2));
            for (int k = 0; k < 2 * N; k++)
                was[2 * N * s + k] = type_load(x[s].type, x[s].p[k / N], k % N);
        }
        OK(optc_run_all(b, NSETS, "step"));
        double norm = check_sgd(x, on[t], was);
        for (int s = 0; s < NSETS; s++) {
            OK(optc_read_value(b[s], 0, "clip.grad_norm", &found, 1));
            ck_assert_msg(fabs(found - norm) < 1e-6 * norm,
                          "set %d, step %d: the norm is %g, not %g", s, t, found, norm);
        }
    }
    for (int s = 0; s < NSETS; s++)
        close_part(&x[s]);
    OK(optc_close(engine));
}
END_TEST

/* A value of all tensors that another one needs, extremes, counts of tensors and elements, an entry
 * beside `step`. */
START_TEST(levels)
{
    static const char text[] = "return optimizer { name = 'levels', state = { d = zeros 'group', n "
                               "= zeros 'group', e = zeros 'group' },\n"
                               "step = function() local most = global.max(g)  d = global.sum(g / "
                               "most) + 1000 * global.min(g)  "
                               "n = global.mean(0 * norm(g) + 2)  p = p - 0 * g end,\n"
                               "other = function() e = global.mean(2 * p) end }";
    Part x[NSETS];
    optc_binding *b[NSETS];
    double d, n, e, most = -INFINITY, least = INFINITY, sum = 0, mean = 0;
    start(false);
    for (int s = 0; s < NSETS; s++) {
        open_part(&x[s], s, "made.lua", text, NSETS);
        b[s] = x[s].b;
        for (int k = 0; k < 2 * N; k++) {
            double g = type_load(x[s].type, x[s].g[k / N], k % N);
            most = fmax(most, g), least = fmin(least, g), sum += g;
            mean += 2 * type_load(x[s].type, x[s].p[k / N], k % N) / (2 * N * NSETS);
        }
    }
    /* share_step_0, share_step_1, share_other_0 */
    ck_assert_int_eq(optc_rule_entries(x[0].rule), 5);
    FAILS(optc_run_all(b, NSETS, "step"), OPTC_ERROR_ARGUMENT, "reads the scalar input 'shared.");
    OK(optc_connect(b, NSETS));
    OK(optc_run_all(b, NSETS, "step"));
    OK(optc_run_all(b, NSETS, "other"));
    for (int s = 0; s < NSETS; s++) {
        OK(optc_state_read(b[s], 0, "d", &d, 1));
        OK(optc_state_read(b[s], 0, "n", &n, 1));
        OK(optc_state_read(b[s], 0, "e", &e, 1));
        ck_assert_msg(fabs(d - (sum / most + 1000 * least)) < 1e-3 && n == 2 &&
                          fabs(e - mean) < 1e-5,
                      "%g %g %g", d, n, e);
    }
    for (int s = 0; s < NSETS; s++)
        close_part(&x[s]);
    OK(optc_close(engine));
}
END_TEST

/* Bindings in other processes. The matrices of the second rule are at their owners. */
START_TEST(stages)
{
    static const char *const rules[] = {"adamw", "muon"};
    start(false);
    char *wrong = pipeline_run(engine, rules[_i], "clip(0.3)");
    ck_assert_msg(!wrong, "%s: %s", rules[_i], wrong);
    OK(optc_close(engine));
}
END_TEST

START_TEST(refused)
{
    Part x[3];
    start(true);
    open_part(&x[0], 0, "sgd+clip(1)", NULL, 2);
    open_part(&x[1], 1, "sgd+clip(1)", NULL, 2);
    open_part(&x[2], 2, "sgd", NULL, 2);                     /* no value of all tensors */
    optc_binding *b[] = {x[0].b, x[1].b, x[2].b}, *again[] = {b[0], b[0]}, *null[] = {b[0], NULL},
                 *other[] = {b[0], b[2]}, *alone[] = {b[2]};
    FAILS(optc_connect(NULL, 2), OPTC_ERROR_ARGUMENT, "there are no bindings");
    FAILS(optc_connect(null, 2), OPTC_ERROR_ARGUMENT, "binding 1 is NULL");
    FAILS(optc_connect(again, 2), OPTC_ERROR_ARGUMENT, "bindings 0 and 1 are the same");
    FAILS(optc_connect(other, 2), OPTC_ERROR_ARGUMENT,
          "the rule of binding 1 is not compiled for 2 bindings");
    FAILS(optc_connect(b, 3), OPTC_ERROR_ARGUMENT, "set optc_rule_options.bindings to 3");
    FAILS(optc_run_all(b, 0, "step"), OPTC_ERROR_ARGUMENT, "there are no bindings");
    OK(optc_connect(b, 2));
    FAILS(optc_run_all(b, 2, "stop"), OPTC_ERROR_ARGUMENT, "has no entry 'stop'");
    FAILS(optc_run_all(b, 2, NULL), OPTC_ERROR_ARGUMENT, "the entry's name is NULL");
    OK(optc_run_all(b, 2, "step"));
    OK(optc_connect(alone, 1));
    OK(optc_run_all(alone, 1, "step"));
    optc_rule *r;
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .bindings = 65}, &r),
          OPTC_ERROR_SPEC, "shared by at most 64 bindings");
    static const char taken[] =
        "return optimizer { name = 'x', step = function() p = p - g / global.norm(g) end, "
        "share_step_0 = function() p = 0 end }";
    FAILS(optc_compile(engine, &(optc_rule_options){.text = taken, .bindings = 2}, &r),
          OPTC_ERROR_SPEC, "the entry 'share_step_0' has the name of one");
    for (int s = 0; s < 3; s++)
        close_part(&x[s]);
    OK(optc_close(engine));
}
END_TEST

/* Two bindings with a norm of all gradients, and an entry without one. */
static const char two_entries[] = "return optimizer { name = 'two', hyper = { lr = 0.1 }, state = "
                                  "{ m = zeros, n = zeros 'group' },\n"
                                  "step = function() n = global.norm(g)  p = p - lr * g / n end,\n"
                                  "look = function() m = global.max(g / global.norm(g)) * g end,\n"
                                  "rest = function() p = 0.5 * p end }";

static void open_two(Part *x, optc_binding **b, const char *spec, const char *text, int bindings)
{
    for (int s = 0; s < 2; s++) {
        open_part(&x[s], s, spec, text, bindings);
        b[s] = x[s].b;
    }
}

static void close_two(Part *x)
{
    close_part(&x[0]);
    close_part(&x[1]);
    OK(optc_close(engine));
}

#define STALE "needs values of all tensors of this step"
/* Calls before a step of the first binding alone. The digit is the binding; 2: both. s: the share
 * entry of `step`;
 * l, k: those of `look`, level 0 and 1; S, L, R: the entries; A: optc_run_all; g: another gradient;
 * c: another t;
 * o: connects again. ok: then the first binding may step */
static const struct { const char *calls; bool ok;
} orders[] = {
    {"", false},       {"A2", false},      {"s0", false},     {"s1", false},      {"s2", true},
    {"A2s0", false},   {"A2s1", false},    {"A2s2", true},    {"s2S1", true},     {"s2S0", false},
    {"s2S0s0", false}, {"s2S0s0s1", true}, {"s2S1s0", false}, {"s2R1", false},    {"s2S1R1", true},
    {"s2R0", false},   {"l2", false},      {"l2k2", false},   {"l2k2L2s2", true}, {"s2l2", false},
    {"s2g1", false},   {"s2g0", false},    {"s2S1g1", true},  {"s2c1", false},    {"s2S1c1", true},
    {"R2", false},     {"R2s2", true},     {"s2s2", true},    {"s2o2", false},    {"s2o2s2", true},
};

static void call(Part *x, optc_binding **b, char what, int i)
{
    int64_t now = 0;
    void *turned[2] = {x[i].g[1], x[i].g[0]};
    OK(optc_get_t(b[i], -1, &now));
    switch (what) {
    case 's': OK(optc_run(b[i], "share_step_0")); break;
    case 'l': OK(optc_run(b[i], "share_look_0")); break;
    case 'k': OK(optc_run(b[i], "share_look_1")); break;
    case 'S': OK(optc_step(b[i])); break;
    case 'L': OK(optc_run(b[i], "look")); break;
    case 'R': OK(optc_run(b[i], "rest")); break;
    case 'g': OK(optc_set_grads(b[i], (const void *const *)turned, 2)); break;
    case 'c': OK(optc_set_t(b[i], -1, now + 7)); break;
    case 'o': OK(optc_connect(b, 2)); break;
    default: ck_abort();
    }
}

START_TEST(alone)
{
    Part x[2];
    optc_binding *b[2];
    start(true);
    for (int k = 0; k < COUNT(orders); k++) {
        float was, now;
        open_two(x, b, "two.lua", two_entries, 2);
        OK(optc_connect(b, 2));
        for (const char *s = orders[k].calls; *s; s += 2) {
            if (*s == 'A')
                OK(optc_run_all(b, 2, "step"));
            for (int i = 0; i < 2 && *s != 'A'; i++)
                if (s[1] == '2' || s[1] == '0' + i)
                    call(x, b, *s, i);
        }
        memcpy(&was, x[0].p[0], sizeof was);
        optc_status s = optc_step(b[0]);
        memcpy(&now, x[0].p[0], sizeof now);
        ck_assert_msg(s == (orders[k].ok ? OPTC_OK : OPTC_ERROR_ARGUMENT) &&
                          (was != now) == orders[k].ok,
                      "after '%s': status %d, p was %g and is %g: %s", orders[k].calls, (int)s, was,
                      now, optc_message());
        ck_assert_msg(orders[k].ok || strstr(optc_message(), STALE), "%s", optc_message());
        for (int i = 0; i < 2; i++)
            close_part(&x[i]);
    }
    OK(optc_close(engine));
}
END_TEST

/* What fails leaves parameters, states and t as they were. Entries without values of all tensors
 * run alone. */
START_TEST(parts_of_lists)
{
    Part x[2];
    optc_binding *b[2];
    double n[2];
    int64_t t;
    start(false);
    open_two(x, b, "two.lua", two_entries, 2);
    OK(optc_connect(b, 2));
    OK(optc_run_all(b, 2, "step"));
    OK(optc_state_read(b[0], 0, "n", &n[0], 1));
    FAILS(optc_run_all(b, 1, "step"), OPTC_ERROR_ARGUMENT,
          "over the 2 bindings that binding 0 is connected with");
    FAILS(optc_run_all(b + 1, 1, "look"), OPTC_ERROR_ARGUMENT, "pass all of them");
    OK(optc_run_all(b, 1, "rest"));
    OK(optc_run(b[1], "share_look_0"));
    FAILS(optc_run(b[1], "share_look_1"), OPTC_ERROR_ARGUMENT, STALE);
    OK(optc_get_t(b[0], -1, &t));
    ck_assert_int_eq(t, 1);
    void *back[] = {b[1], b[0]};
    OK(optc_run_all((optc_binding *const *)back, 2, "look"));
    FAILS(optc_run(b[1], "share_look_1"), OPTC_ERROR_ARGUMENT, STALE);
    FAILS(optc_run(b[1], "look"), OPTC_ERROR_ARGUMENT, STALE);
    OK(optc_run_all(b, 2, "step"));
    OK(optc_state_read(b[0], 0, "n", &n[1], 1));
    ck_assert(n[0] > 0 && n[0] == n[1]);
    FAILS(optc_set_scalar(b[0], -1, "shared.0.1", 1), OPTC_ERROR_ARGUMENT,
          "optc_connect connected the input");
    FAILS(optc_set_scalar_from(b[0], -1, "shared.0.1", n, OPTC_F64), OPTC_ERROR_ARGUMENT,
          "optc_connect connected");
    close_two(x);
}
END_TEST

/* The host reads the guard of one binding and skips it, and the device reads that of the other one:
 * so it is on GPUs, where sizes decide. Nothing is refused, unless only one guard is set. */
START_TEST(guards)
{
    Part x[2];
    optc_binding *b[2];
    float guard[2] = {1, 1};
    start(false);
    open_two(x, b, "two.lua", two_entries, 2);
    const Device *own = x[1].rule->device;
    Device apart = *own;
    apart.reaches = false;
    OK(optc_connect(b, 2));
    OK(optc_run_all(b, 2, "step"));
    for (int i = 0; i < 2; i++)
        OK(optc_set_guard(b[i], &guard[i], OPTC_F32));
    OK(optc_run_all(b, 2, "step"));
    FAILS(optc_run_all(b, 1, "step"), OPTC_ERROR_ARGUMENT, "pass all of them");
    x[1].rule->device = &apart;
    OK(optc_run_all(b, 2, "look"));
    OK(optc_run_all(b, 2, "step"));
    x[1].rule->device = own;
    guard[1] = 0;
    FAILS(optc_run_all(b, 2, "step"), OPTC_ERROR_ARGUMENT, "another one was skipped by its guard");
    guard[0] = 0;
    OK(optc_run_all(b, 2, "step"));
    close_two(x);
}
END_TEST

/* The others do not read the memory of a binding that is gone, and cannot be connected without it.
 * _i 0, 1: which one is unbound; 2: it is connected with another one */
START_TEST(unbound)
{
    Part x[2], third;
    optc_binding *b[2];
    int gone = _i == 1;
    double n[2];
    start(true);
    open_two(x, b, "two.lua", two_entries, 2);
    open_part(&third, 2, "two.lua", two_entries, 2);
    optc_binding *left = b[!gone], *pair[] = {third.b, left};
    OK(optc_connect(b, 2));
    OK(optc_run_all(b, 2, "step"));
    if (_i == 2) {
        left = b[0];
        pair[1] = b[1];
        OK(optc_connect(pair, 2));
    } else {
        OK(optc_unbind(x[gone].b));
    }
    FAILS(optc_step(left), OPTC_ERROR_ARGUMENT, "optc_connect (again, after an optc_unbind");
    FAILS(optc_run_all(&left, 1, "step"), OPTC_ERROR_ARGUMENT, "reads the scalar input 'shared.");
    FAILS(optc_connect(&left, 1), OPTC_ERROR_ARGUMENT, "not compiled for 1 bindings");
    OK(optc_set_scalar(left, -1, "shared.0.0", 0));         /* in its own memory */
    OK(optc_set_scalar(left, -1, "shared.0.1", 9));
    OK(optc_run_all(&left, 1, "step"));                     /* the caller passes numbers by hand */
    OK(optc_state_read(left, 0, "n", &n[0], 1));
    ck_assert_msg(fabs(n[0] - 3) < 1e-12, "%g", n[0]);
    if (_i < 2)
        OK(optc_connect(pair, 2));
    OK(optc_run_all(pair, 2, "step"));
    OK(optc_state_read(pair[0], 0, "n", &n[0], 1));
    OK(optc_state_read(pair[1], 0, "n", &n[1], 1));
    ck_assert(n[0] == n[1] && n[0] > 3);
    x[gone].b = _i < 2 ? NULL : x[gone].b;
    close_part(&third);
    close_two(x);
}
END_TEST

/* Rules that were compiled without optc_rule_options.bindings, or with another number, and rules
 * that differ. */
START_TEST(not_compiled_for_it)
{
    static const struct { const char *text; bool global; } rules[] = {
        {"p = p - g / global.norm(g)", true},      {"p = p - g * global.max(g)", true},
        {"p = p - global.mean(0 * p)", true},      {"p = p - g * global.sum(norm(g))", true},
        {"n = global.mean(p)  p = p - g", true},   {"p = p - g / norm(g)", false},
        {"p = p - g", false},                      {"n = n + 1  p = p - n * rowmean(g)", false},
    };
    Part x[2];
    optc_binding *b[2];
    for (int k = 0; k < COUNT(rules); k++)
        for (int n = 0; n <= 3; n++) {
            char text[200];
            snprintf(text, sizeof text,
                     "return optimizer { name = 'x', %s step = function() %s end }",
                     *rules[k].text == 'n' ? "state = { n = zeros 'group' }," : "", rules[k].text);
            start(true);
            open_two(x, b, "x.lua", text, n);
            OK(n < 2 ? optc_connect(b, 1) : OPTC_OK);
            if (rules[k].global && n != 2)
                FAILS(optc_connect(b, 2), OPTC_ERROR_ARGUMENT,
                      "set optc_rule_options.bindings to 2");
            else
                OK(optc_connect(b, 2));
            close_two(x);
        }
    static const char *const other[] = {
        "return optimizer { name = 'y', step = function() p = p - g / global.norm(g) end,\n"
        "rest = function() p = p end }",
        "return optimizer { name = 'y', step = function() p = p - g end,\n"
        "rest = function() p = p / global.norm(g) end }"};
    start(true);
    for (int k = 0; k < 2; k++) {
        open_part(&x[k], k, "y.lua", other[k], 2);
        b[k] = x[k].b;
    }
    FAILS(optc_connect(b, 2), OPTC_ERROR_ARGUMENT, "only one of them has the entry 'share_");
    close_two(x);
}
END_TEST

/* Two ranks with the same gradients. */
static int gather_twice(void *calls, const void *send, void *recv, size_t bytes, void *stream)
{
    (void)stream;
    ++*(int *)calls;
    memcpy(recv, send, bytes);
    memcpy((char *)recv + bytes, send, bytes);
    return 0;
}

/* The connected list gathers; any other list is refused, and nothing of it runs. optc_connect and
 * one rank end the connection. */
START_TEST(lists_of_ranks)
{
    Part x[4];
    int calls = 0;
    optc_comm comm = {.ranks = 2, .context = &calls, .all_gather = gather_twice}, one = comm;
    one.ranks = 1;
    start(true);
    for (int i = 0; i < 4; i++)
        open_part(&x[i], i % 2, "sgd+clip(1)", NULL, 4);
    optc_binding *b[] = {x[0].b, x[1].b, x[2].b, x[3].b}, *back[] = {b[1], b[0]},
                 *mixed[] = {b[2], b[1]};
    float before;
    OK(optc_connect_ranks(b, 2, &comm));
    OK(optc_run_all(b, 2, "step"));
    ck_assert_int_eq(calls, 1);
    memcpy(&before, x[0].p[0], sizeof before);
    FAILS(optc_run_all(back, 2, "step"), OPTC_ERROR_ARGUMENT,
          "connected with other ranks in another list, of 2");
    FAILS(optc_run_all(b, 1, "step"), OPTC_ERROR_ARGUMENT, "binding 0 was connected");
    FAILS(optc_run_all(b + 1, 1, "step"), OPTC_ERROR_ARGUMENT, "binding 0 was connected");
    FAILS(optc_run_all(b, 3, "step"), OPTC_ERROR_ARGUMENT, "binding 0 was connected");
    FAILS(optc_run_all(mixed, 2, "step"), OPTC_ERROR_ARGUMENT, "binding 1 was connected");
    ck_assert(calls == 1 && !memcmp(&before, x[0].p[0], sizeof before));
    OK(optc_connect_ranks(back, 2, &comm));
    OK(optc_run_all(back, 2, "step"));
    ck_assert_int_eq(calls, 2);
    FAILS(optc_connect(b, 1), OPTC_ERROR_ARGUMENT, "not compiled for 1 bindings");
    for (int i = 0; i < 2; i++)
        /* the ranks have not exchanged these values */
        OK(optc_run(b[i], "share_step_0"));
    FAILS(optc_step(b[0]), OPTC_ERROR_ARGUMENT, STALE);
    for (int i = 0; i < 2; i++) {
        OK(i ? optc_connect_ranks(b, 4, &one) : optc_connect(b, 4));
        OK(optc_run_all(b, 4, "step"));
        ck_assert_int_eq(calls, 2 + i);
        OK(optc_connect_ranks(b, 2, &comm));
        OK(optc_run_all(b, 2, "step"));
        ck_assert_int_eq(calls, 3 + i);
    }
    for (int i = 0; i < 4; i++)
        close_part(&x[i]);
    OK(optc_close(engine));
}
END_TEST

Suite *connect_suite(void)
{
    Suite *s = suite_create("connect");
    TCase *c = tcase_create("connect");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, one_norm, 0, 2);
    tcase_add_test(c, levels);
    tcase_add_loop_test(c, stages, 0, 2);
    tcase_add_test(c, refused);
    tcase_add_test(c, alone);
    tcase_add_test(c, parts_of_lists);
    tcase_add_test(c, guards);
    tcase_add_loop_test(c, unbound, 0, 3);
    tcase_add_test(c, not_compiled_for_it);
    tcase_add_test(c, lists_of_ranks);
    suite_add_tcase(s, c);
    return s;
}

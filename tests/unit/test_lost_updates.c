/* types lost=count: the value lost_updates counts the elements that a step leaves as they are
 * although their update is not 0. The expected count comes from the arrays before and after the
 * step. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { N = 5000, BYTES = 8 * N };

/* kept: the state that belongs to p. The evaluator computes in double precision, so it is right
 * only about types of 16 bits. */
static const struct { Type p; const char *types, *kept; bool evaluator; } cases[] = {
    {T_F32, "lost=count", NULL, false},
    {T_F64, "lost=count", NULL, false},
    {T_BF16, "lost=count", NULL, false},
    {T_BF16, "lost=count", NULL, true},
    {T_F16, "lost=count", NULL, false},
    {T_BF16, "lost=count,master=f32", "master", false},      /* as many as in f32 */
    {T_BF16, "lost=count,master=low16", "low", false},
    {T_BF16, "lost=count,master=low8", "low", false},
    {T_BF16, "lost=count,master=kahan", "compensation", false},
    {T_F16, "lost=count,master=kahan,copy=bf16", "compensation", false},
};

typedef struct Arrays { char p[BYTES]; double kept[N]; } Arrays;

static void read_arrays(optc_binding *b, const void *p, size_t bytes, const char *kept, Arrays *out)
{
    memcpy(out->p, p, bytes);
    memset(out->kept, 0, sizeof out->kept);
    if (kept)
        OK(optc_state_read(b, 0, kept, out->kept, N));
}

/* 0 and -0 are the same number */
static bool unchanged(const Arrays *a, const Arrays *b, Type type, int i)
{
    return type_load(type, a->p, i) == type_load(type, b->p, i) && a->kept[i] == b->kept[i];
}

static optc_binding *opened(const char *spec, int set, void *p, void *g, optc_engine **e,
                            optc_rule **r)
{
    static const int64_t shape[] = {N / 10, 10};
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = shape};
    optc_binding *b;
    bool evaluator = cases[set].evaluator;
    OK(optc_open(&(optc_engine_options){.threads = 2,
                                        .compiler = evaluator ? "" : NULL,
                                        .cache_dir = evaluator ? "" : getenv("OPTC_TEST_CACHE")},
                 e));
    OK(optc_compile(*e, &(optc_rule_options){.spec = spec, .param = (optc_type)(cases[set].p + 1),
                                             .types = cases[set].types}, r));
    OK(optc_bind(*r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    return b;
}

static void closed(optc_engine *e, optc_rule *r, optc_binding *b)
{
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}

/* Gradients of all sizes; every seventh is 0. */
static double gradient(int t, int i)
{
    return i % 7 ? ref_value(t, 1, i) * pow(10, -2 * (i % 11)) : 0;
}

START_TEST(counts)
{
    static double p[N], g[N];                  /* of any type */
    static Arrays was, is;
    Type type = cases[_i].p;
    size_t size = (size_t)type_info[type].bytes;
    double total = 0, found;
    optc_engine *e;
    optc_rule *r;
    for (int i = 0; i < N; i++)
        type_store(type, p, i, i % 13 ? ref_value(0, 0, i) : 0);
    optc_binding *b = opened("sgd", _i, p, g, &e, &r);
    /* a power of two: lr * g rounds nothing, and is 0 only if g is */
    OK(optc_set_hyper(b, -1, "lr", 0x1p-6));
    OK(optc_set_hyper(b, -1, "momentum", 0));
    for (int t = 0; t < 4; t++) {
        int expected = 0;
        for (int i = 0; i < N; i++)
            type_store(type, g, i, gradient(t, i));
        read_arrays(b, p, size * N, cases[_i].kept, &was);
        OK(optc_step(b));
        read_arrays(b, p, size * N, cases[_i].kept, &is);
        for (int i = 0; i < N; i++)
            expected += unchanged(&was, &is, type, i) && type_load(type, g, i) != 0;
        OK(optc_read_value(b, 0, "lost_updates", &found, 1));
        ck_assert_msg(found == expected, "%s, step %d: %g updates lost, not %d", cases[_i].types, t,
                      found, expected);
        total += found;
    }
    ck_assert_msg(total > 0, "%s: no update was lost", cases[_i].types);
    closed(e, r, b);
}
END_TEST

/* Other rules: decay of weights, averages, two variants; a skipped step loses nothing. Gradients
 * are not 0, so every element that stays had an update. */
START_TEST(rules)
{
    static const struct { const char *spec; bool infinite; } all[] = {
        {"adamw", false}, {"lion+ema(0.9)", false}, {"muon", false}, {"adamw+clip(1)+skip", false},
        {"adamw+clip(1)+skip", true}};
    static double p[N], g[N];
    static Arrays was, is;
    double found;
    int expected = 0;
    optc_engine *e;
    optc_rule *r;
    for (int i = 0; i < N; i++) {
        type_store(T_BF16, p, i, 1 + fabs(ref_value(0, 0, i)));
        type_store(T_BF16, g, i, ref_value(0, 1, i) + (ref_value(0, 1, i) == 0));
    }
    optc_binding *b = opened(all[_i].spec, 2, p, g, &e, &r);
    OK(optc_set_hyper(b, -1, "lr", 0.003));
    for (int t = 0; t < 2; t++) {
        if (t && all[_i].infinite)
            type_store(T_BF16, g, 17, INFINITY);
        read_arrays(b, p, 2 * N, NULL, &was);
        OK(optc_step(b));
        read_arrays(b, p, 2 * N, NULL, &is);
        expected = 0;
        for (int i = 0; i < N; i++)
            expected += unchanged(&was, &is, T_BF16, i);
        OK(optc_read_value(b, 0, "lost_updates", &found, 1));
        ck_assert_msg(found == (t && all[_i].infinite ? 0 : expected),
                      "%s: %g updates lost, not %d", all[_i].spec, found, expected);
    }
    ck_assert_msg(expected > 50, "%s: only %d elements stay", all[_i].spec, expected);
    closed(e, r, b);
}
END_TEST

START_TEST(refused)
{
    static const struct { const char *types, *text, *part;
    } all[] = {
        {"lost=yes", NULL, "'lost=yes': there is no such choice for lost updates (none, count)"},
        {"param=bf16sr,lost=count", NULL, "no update is lost on average"},
        {"lost=count",
         "return optimizer { name = 'x', state = { lost_updates = zeros }, step = function() "
         "lost_updates = lost_updates + g  p = p - lost_updates end }",
         "has a state of that name"},
        {"lots=bf16", NULL, "did you mean 'lost'"}};
    optc_engine *e;
    optc_rule *r;
    optc_state_info info;
    OK(optc_open(&(optc_engine_options){.compiler = "", .cache_dir = ""}, &e));
    for (int i = 0; i < COUNT(all); i++)
        FAILS(optc_compile(e,
                           &(optc_rule_options){.spec = all[i].text ? "x.lua" : "sgd",
                                                .text = all[i].text,
                                                .types = all[i].types},
                           &r),
              i ? OPTC_ERROR_SPEC : OPTC_ERROR_ARGUMENT, all[i].part);
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd", .types = "lost=none"}, &r));
    /* off: the rule has nothing of it */
    ck_assert_int_eq(optc_rule_values(r), 0);
    ck_assert(!strstr(optc_rule_plan(r), "lost"));
    OK(optc_release(r));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd", .types = "lost=count"}, &r));
    OK(optc_rule_value(r, 0, &info));
    ck_assert_str_eq(info.name, "lost_updates");
    ck_assert_str_eq(info.domain, "tensor");
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *lost_updates_suite(void)
{
    Suite *s = suite_create("lost_updates");
    TCase *c = tcase_create("lost_updates");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, counts, 0, COUNT(cases));
    tcase_add_loop_test(c, rules, 0, 5);
    tcase_add_test(c, refused);
    suite_add_tcase(s, c);
    return s;
}

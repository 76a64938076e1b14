/* States of the language against plain C: initial values, stored values in 16 bits, one value per
 * group. */
#include "tests/harness/help.h"

enum { N = 37 };

static optc_engine *engine;
static void open_engine(void) { OK(optc_open(&(optc_engine_options){.threads = 1}, &engine)); }
static void close_engine(void) { OK(optc_close(engine)); }

static optc_rule *compile(const char *text)
{
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "made.lua", .text = text}, &r));
    return r;
}

/* ---- what states start as ---- */
/* A state starts with its group's value of the hyperparameter at binding; later changes have no
 * effect on it. */
START_TEST(starts_as_a_hyperparameter)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { d0 = 0.25 }, options = { k = 3 },\n"
        "state = { d = fill(d0, 'group'), m = fill(d0), r = fill(d0, 'row'), o = fill(k, "
        "'tensor') },\n"
        "step = function() d = d + 0 * t m = m + 0 * g r = r + 0 * t o = o + 0 * t p = p - m * "
        "d end }";
    static const int64_t shape[] = {2, 3};
    optc_rule *r = compile(text);
    optc_binding *b;
    float p[2][6] = {{0}}, g[2][6] = {{0}};
    optc_tensor t[2];
    for (int i = 0; i < 2; i++)
        t[i] = (optc_tensor){.name = "w", .param = p[i], .grad = g[i], .rank = 2, .shape = shape};
    optc_group groups[] = {
        {.tensors = &t[0], .ntensors = 1},
        {.tensors = &t[1], .ntensors = 1, .hyper = (optc_setting[]){{"d0", -4}}, .nhyper = 1}};
    OK(optc_bind(r, groups, 2, &b));
    OK(optc_set_hyper(b, -1, "d0", 99));
    OK(optc_step(b));
    for (int i = 0; i < 2; i++) {
        double want = i ? -4 : 0.25, d, m[6], row[2], o;
        OK(optc_state_read(b, i, "d", &d, 1));
        OK(optc_state_read(b, i, "m", m, 6));
        OK(optc_state_read(b, i, "r", row, 2));
        OK(optc_state_read(b, i, "o", &o, 1));
        ck_assert_msg(d == want && m[0] == want && m[5] == want && row[1] == want && o == 3,
                      "group %d: %g %g %g %g %g", i, d, m[0], m[5], row[1], o);
        ck_assert(p[i][3] == (float)(-want * want));
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* ---- 16 bits ---- */
/* An assigned value reads as it was computed; `stored` reads it as memory will hold it. */
START_TEST(stored_values)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { a = zeros('elem', 'f32'), "
        "b = zeros('elem', "
        "'f32'), m = zeros('elem', 'bf16'), c = zeros('elem', 'f32'),\n"
        "  r = zeros('row', 'f16'), d = zeros('row', 'f32') },\n"
        "step = function() c = stored 'm' p = p - lr * g a = p b = stored 'p' m = m + g r = "
        "rowsum(0 * g) + 1.000244140625 d = stored 'r' - r end }";
    static const struct { optc_type param; int evaluator;
    } as[] = {{OPTC_BF16, 0}, {OPTC_F16, 0},  {OPTC_F32, 0},
              {OPTC_F64, 0},  {OPTC_BF16, 1}, {OPTC_F16, 1}};
    Fixture f;
    double a[N], b[N], c[N], m[N], d;
    int other = 0;
    TestShape shape = {1, {N}};
    fix_open(&f,
             &(optc_engine_options){.threads = 1,
                                    .compiler = as[_i].evaluator ? "" : NULL,
                                    .cache_dir = as[_i].evaluator ? "" : NULL},
             &(optc_rule_options){.spec = "made.lua",
                                  .text = text,
                                  .param = as[_i].param,
                                  .state = as[_i].param == OPTC_F64 ? OPTC_F32 : OPTC_DEFAULT},
             &shape, 1, NULL, 0);
    for (int64_t i = 0; i < N; i++)
        type_store(f.type, f.g[0], i, ref_value(0, 1, i) * (i % 5 ? 1 : 1e-6));
    for (int t = 1; t <= 3; t++) {
        OK(optc_state_read(f.binding, 0, "m", m, N));
        char *bad = step_in_bounds(&f, "step");
        ck_assert_msg(!bad, "%s", bad);
        OK(optc_state_read(f.binding, 0, "a", a, N));
        OK(optc_state_read(f.binding, 0, "b", b, N));
        OK(optc_state_read(f.binding, 0, "c", c, N));
        OK(optc_state_read(f.binding, 0, "d", &d, 1));
        for (int i = 0; i < N; i++) {
            double p = type_load(f.type, f.p[0], i);
            if (as[_i].param != OPTC_F64)             /* f32 states cannot hold f64 */
                ck_assert_msg(b[i] == p, "element %d: stored is %.9g, p is %.9g", i, b[i], p);
            ck_assert_msg(c[i] == m[i], "what is not assigned yet is what memory holds");
            other += a[i] != p;
        }
        ck_assert_msg(d == -0x1p-12, "1 + 2^-12 in f16 is off by %g", d);
    }
    ck_assert_msg((other > 0) == (as[_i].param != OPTC_F32),
                  "%d values as computed differ from those stored", other);
    fix_close(&f);
}
END_TEST

/* ---- one value per group, over all groups ---- */
START_TEST(group_values_reduced)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 1 }, state = { most = zeros 'group', least "
        "= zeros 'group', all "
        "= zeros 'group', twice = fill(1, 'group') },\n"
        "step = function() twice = 2 * twice * lr most = global.max(lr) least = global.min(lr) "
        "all = global.sum(twice) p = p - lr * g end }";
    static const int64_t shape[] = {5};
    optc_rule *r = compile(text);
    optc_binding *b;
    float p[3][5] = {{0}}, g[3][5] = {{0}};
    optc_tensor t[3];
    for (int i = 0; i < 3; i++)
        t[i] = (optc_tensor){.name = "w", .param = p[i], .grad = g[i], .rank = 1, .shape = shape};
    optc_group groups[] = {
        {.tensors = t, .ntensors = 2},
        {.tensors = &t[2], .ntensors = 1, .hyper = (optc_setting[]){{"lr", 5}}, .nhyper = 1}};
    OK(optc_bind(r, groups, 2, &b));
    OK(optc_step(b));
    for (int i = 0; i < 2; i++) {
        double most, least, all;
        OK(optc_state_read(b, i, "most", &most, 1));
        OK(optc_state_read(b, i, "least", &least, 1));
        OK(optc_state_read(b, i, "all", &all, 1));
        /* once per tensor */
        ck_assert_msg(most == 5 && least == 1 && all == 2 + 2 + 10, "group %d: %g %g %g", i, most,
                      least, all);
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

Suite *lang_states_suite(void)
{
    Suite *s = suite_create("lang_states");
    TCase *t = tcase_create("lang_states");
    tcase_add_checked_fixture(t, open_engine, close_engine);
    tcase_add_test(t, starts_as_a_hyperparameter);
    tcase_add_loop_test(t, stored_values, 0, 6);
    tcase_add_test(t, group_values_reduced);
    suite_add_tcase(s, t);
    return s;
}

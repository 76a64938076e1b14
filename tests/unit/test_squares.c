/* Values over rows x rows, cols x cols and the like on the CPU: inside the evaluator's bounds, and
 * the same bits for any number of threads. */
#include "tests/harness/random_spec.h"
#include "tests/harness/square_rules.h"

#include <stdlib.h>

static void set_grads(Fixture *f, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            type_store(f->rule->library->plan->g, f->g[k], i, ref_value(k, step, i));
}

START_TEST(in_bounds)
{
    uint64_t hash[2];
    const optc_rule_options ro = {
        .text = square_rules[_i], .param = _i == 1 ? OPTC_F64 : OPTC_F32, .grad = OPTC_F32};
    for (int k = 0; k < 2; k++) {
        Fixture f;
        fix_open(
            &f,
            &(optc_engine_options){.threads = k ? 3 : 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
            &ro, square_shapes, NSQUARES, NULL, 0);
        ck_assert_msg(optc_rule_native(f.rule), "%s", optc_rule_path(f.rule));
        for (int step = 1; step <= 3; step++) {
            set_grads(&f, step);
            char *m = k ? NULL : step_in_bounds(&f, "step");
            ck_assert_msg(!m, "rule %d, step %d: %s", _i, step, m);
            if (k)
                OK(optc_step(f.binding));
        }
        hash[k] = fix_hash(&f);
        fix_close(&f);
    }
    ck_assert_msg(hash[0] == hash[1], "other threads, other bits");
}
END_TEST

START_TEST(random_rules)
{
    static const TestShape few[] = {{2, {33, 18}}, {1, {7}},     {3, {3, 5, 7}},
                                    {2, {1, 13}},  {2, {12, 1}}, {2, {20, 40}}};
    setenv("OPTC_CFLAGS", "-O1", 0);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        Fixture f;
        char *text = random_squares(seed, seed % 2, 0);
        const optc_rule_options ro = {.text = text, .param = seed % 4 == 3 ? OPTC_F64 : OPTC_F32};
        fix_open(&f, &(optc_engine_options){.threads = 2, .cache_dir = ""}, &ro, few, 6, NULL, 0);
        ck_assert_msg(optc_rule_native(f.rule), "%s\n%s", optc_rule_path(f.rule), text);
        for (int step = 1; step <= 3; step++) {
            set_grads(&f, step);
            char *m = step_in_bounds(&f, "step");
            ck_assert_msg(!m, "step %d: %s\n%s", step, m, text);
        }
        fix_close(&f);
        free(text);
    }
}
END_TEST

Suite *squares_suite(void)
{
    Suite *s = suite_create("squares");
    TCase *t = tcase_create("squares");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, in_bounds, 0, NSQUARE_RULES);
    tcase_add_test(t, random_rules);
    suite_add_tcase(s, t);
    return s;
}

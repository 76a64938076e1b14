/* Launches that the model chooses for the stages of plans, and launches that are refused. */
#include "tests/harness/help.h"

#include "runtime/library/rule/spec_find.h"
#include "runtime/library/tune/launch_search.h"

#include <string.h>

/* For every rule, type and size the model's launch is valid. */
START_TEST(model_is_valid)
{
    if (thinned(_i))
        return;
    static const Type types[][3] = {
        {T_F32, T_F32, T_F32},    {T_F64, T_F64, T_F64},    {T_BF16, T_BF16, T_F32},
        {T_F16, T_F32, T_F64},    {T_BF16, T_BF16, T_BF16}, {T_F32, T_F32, T_Q8},
        {T_BF16SR, T_BF16, T_F8}, {T_F64, T_F64, T_BF16SR}, {T_F16SR, T_F32, T_F32}};
    int stages = 0, small = 0;
    for (int r = 0; r < optc_library_size(); r++) {
        Gen g = {0};
        Source s;
        if (strchr(optc_library_name(r), '/'))
            continue;
        GenOptions o = {.types = {.p = types[_i][0], .g = types[_i][1], .state = types[_i][2]},
                        .find = find_wrapper};
        ck_assert(find_spec(NULL, optc_library_name(r), &g.arena, &s, &g.diag) &&
                  gen_compile(&g, s, &o));
        for (int f = 0; f < g.plan->nfn; f++)
            for (int e = -1; e < 40; e++) {
                const Stage *st = plan_at(g.plan, f).stage;
                if (!st)
                    continue;
                int64_t elements = e < 0 ? 0 : (int64_t)1 << e;
                Launch l = launch_model(g.plan, st, elements), many = launch_model(g.plan, st, 0),
                    rival = launch_rival(g.plan, st, elements);
                ck_assert_msg(launch_valid(g.plan, st, &l) && launch_valid(g.plan, st, &rival),
                              "%s, stage %d, 2^%d", optc_library_name(r), f, e);
                ck_assert_msg((e >= 0 && e < 27) || !memcmp(&l, &many, sizeof l),
                              "%s, stage %d, 2^%d", optc_library_name(r), f, e);
                int lo, hi, at = tuned_bucket(elements);
                launch_range(g.plan, st, elements, &lo, &hi);
                ck_assert_msg(e < 0 || (lo <= at && at <= hi),
                              "%s, stage %d: results for 2^%d serve sizes %d to %d, not their own",
                              optc_library_name(r), f, e, lo, hi);
                small += memcmp(&l, &many, sizeof l) != 0;
                stages++;
            }
        gen_free(&g);
    }
    ck_assert(stages > 25 * 41 && small > 25 * 20);
}
END_TEST

/* Stages that hold more values than the table was measured with get launches that do not spill
 * registers. */
START_TEST(registers_fit)
{
    static const struct { const char *rule; LaunchForm form; int vector, items, blocks;
    } each[] = {{"tam", FORM_MAP, 4, 1, 8},
                {"apollo_mini", FORM_TILE, 4, 4, 2},
                {"came", FORM_TILE, 4, 8, 0}};
    Gen g = {0};
    Source s;
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}, .find = find_wrapper};
    ck_assert(find_spec(NULL, each[_i].rule, &g.arena, &s, &g.diag) && gen_compile(&g, s, &o));
    const Stage *last = NULL;
    for (int f = 0; f < g.plan->nfn; f++) {
        const Stage *st = plan_at(g.plan, f).stage;
        if (st && st->variant && stage_form(st) == each[_i].form)
            last = st;
    }
    ck_assert(last != NULL);
    Launch l = launch_model(g.plan, last, 0);
    ck_assert_int_eq(l.v[KNOB_VECTOR], each[_i].vector);
    ck_assert_int_eq(l.v[KNOB_ITEMS], each[_i].items);
    ck_assert_int_eq(l.v[KNOB_BLOCKS], each[_i].blocks);
    gen_free(&g);
}
END_TEST

/* Folds that write arrays take a block per unit, unless they look up rows or hold block codes. A
 * launch that needs more shared memory than a block may have is refused. */
START_TEST(folds_by_block)
{
    static const struct { const char *rule; Type state; bool valid, most; int vector;
    } each[] = {{"lamb", T_F32, true, true, 8},
                {"dadapt_adagrad", T_F32, true, false, 8},
                {"dadapt_lion", T_BF16, true, true, 4},
                {"lamb", T_Q8, false, false, 4},
                {"adafactor", T_F32, false, false, 4}};
    Gen g = {0};
    Source s;
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = each[_i].state},
                    .find = find_wrapper};
    ck_assert(find_spec(NULL, each[_i].rule, &g.arena, &s, &g.diag) && gen_compile(&g, s, &o));
    const Stage *fold = NULL;
    for (int f = 0; f < g.plan->nfn; f++) {
        const Stage *st = plan_at(g.plan, f).stage;
        if (st && stage_form(st) == FORM_FOLD)
            fold = st;
    }
    ck_assert(fold != NULL);
    ck_assert_int_eq(launch_valid(g.plan, fold, &(Launch){{128, 8, 1, 0, 0, 0, 0}}),
                     each[_i].valid);
    ck_assert_int_eq(launch_valid(g.plan, fold, &(Launch){{512, 8, 1, 0, 0, 0, 0}}), each[_i].most);
    ck_assert_int_eq(launch_model(g.plan, fold, 0).v[KNOB_VECTOR], each[_i].vector);
    Launch several = {{128, 8, 1, 0, 0, 0, 0}};
    /* a block with several units would share their lanes */
    several.v[KNOB_GRID] = 8;
    ck_assert(!launch_valid(g.plan, fold, &several));
    gen_free(&g);
}
END_TEST

Suite *launch_model_suite(void)
{
    Suite *s = suite_create("launch_model");
    TCase *t = tcase_create("launch_model");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, model_is_valid, 0, 9);
    tcase_add_loop_test(t, registers_fit, 0, 3);
    tcase_add_loop_test(t, folds_by_block, 0, 5);
    suite_add_tcase(s, t);
    return s;
}

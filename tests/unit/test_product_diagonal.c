/* Symmetric products that add a multiple of the unit matrix: in IR text, plans, formulas, programs
 * and packages, on the CPU and in the evaluator's bounds. test_matrix.c has what becomes such a
 * product, test_calls.c and gpu/test_gpu_products.c have their values. */
#include "gen/emit/emit.h"
#include "gen/gen.h"
#include "gen/plan/formula.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* Z = 3 I - 2 R + R R / 2 of R = g g.T, and a diagonal without an addend. */
static const char squares[] =
    "return optimizer { name = 'squares', step = function() p = p - g end, matrix = function()\n"
    "local R = gram(g) local Z = 0.5 * mm(R, R) - 2 * R + eye(3, 'rows')\n"
    "p = p - mm(Z, g) - mm(g, 4 * gram(g.T) - eye(8, 'cols')) end }";

/* ---- text ---- */
START_TEST(text_has_it)
{
    static const Damage bad[] = {{"optc-ir 3", "optc-ir 2", "no diagonal of a product"},
                                 {"diagonal 3", "diagonal inf", "the diagonal is not finite"},
                                 {"diagonal 3", "diagonal", "expected a number"},
                                 {" symmetric alpha 0.5", " alpha 0.5",
                                  "the diagonal is not finite, or the product is not symmetric"}};
    reads_back(squares, bad, COUNT(bad));
}
END_TEST

static void compile_squares(Gen *g, const Target *target)
{
    GenOptions o = {.target = target, .types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert_msg(gen_compile(g, (Source){"x.lua", squares, strlen(squares)}, &o), "%s",
                  g->diag.text);
}

/* Plans for both targets, formulas of `explain`, and the tables of packages. No pass over rows x
 * rows is left. */
START_TEST(plans_have_it)
{
    for (int gpu = 0; gpu < 2; gpu++) {
        Gen g = {0};
        Buf plan = {0}, program = {0};
        compile_squares(&g, gpu ? &target_cuda : &target_c);
        plan_print(&plan, g.plan, false);
        ck_assert_msg(
            strstr(plan.s, " + -2 * ") &&
                strstr(plan.s, " + 3 * I, rows x rows x rows in f32, symmetric\n") &&
                strstr(plan.s, " 4 * mm(g.T, g) + -8 * I, cols x rows x cols in f32, symmetric\n"),
            "%s", plan.s);
        const Phase *ph = &g.plan->entry[0].phase[0];
        int sums = 0;
        for (int i = 0; i < ph->nstage; i++) {
            const Stage *s = &ph->stage[i];
            ck_assert_msg(is_called(s->kind) || !dom_square(stage_info[s->kind].dom) ||
                          stage_info[s->kind].dom == ELEM, "%s", plan.s);
            const char *text =
                is_called(s->kind) ? formula_of(&g.arena, g.rule, ph, s->body[0], 100) : "";
            sums += !strcmp(text, "0.5 * mm(R, R) + -2 * R + 3 * I");
        }
        ck_assert_int_eq(sums, 1);
        program_print(&program, program_make(&g.arena, g.plan, "x_"), "x");
        ck_assert_msg(strstr(program.s, ", 0.5, -2, 3};") && strstr(program.s, ", 4, 0, -8};"),
                      "%s", program.s);
        buf_free(&plan), buf_free(&program);
        gen_free(&g);
    }
}
END_TEST

/* ---- on a CPU ---- */
START_TEST(cpu_in_bounds)
{
    static const TestShape shapes[] = {{2, {7, 5}}, {3, {2, 3, 4}}, {2, {1, 1}}, {2, {261, 3}}};
    Fixture f;
    optc_type t = _i & 2 ? OPTC_F64 : OPTC_F32;
    if (_i & 1)
        setenv("OPTC_BLAS", "none", 1);
    fix_open(
        &f, &(optc_engine_options){.device = "cpu"},
        &(optc_rule_options){.spec = "x.lua", .text = squares, .param = t, .grad = t, .state = t},
        shapes, COUNT(shapes), NULL, 0);
    for (int k = 0; k < f.n; k++)
        for (int64_t x = 0; x < f.count[k]; x++)
            if (_i & 2)
                ((double *)f.g[k])[x] = ref_value(k, 1, x);
            else
                ((float *)f.g[k])[x] = (float)ref_value(k, 1, x);
    char *off = step_in_bounds(&f, "step");
    ck_assert_msg(!off, "%s", off);
    fix_close(&f);
    unsetenv("OPTC_BLAS");
}
END_TEST

Suite *product_diagonal_suite(void)
{
    Suite *s = suite_create("product_diagonal");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, text_has_it);
    tcase_add_test(t, plans_have_it);
    tcase_add_loop_test(t, cpu_in_bounds, 0, 4);
    suite_add_tcase(s, t);
    return s;
}

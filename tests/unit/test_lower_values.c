/* Operands of products that are lower triangles (gen/ir/lower_values.c), as flags of the plan's calls.
 * gpu/test_gpu_products.c has the products. */
#include "gen/gen.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { A = LOWER_A, B = LOWER_B, AB = LOWER_A | LOWER_B };

/* The states and the body of a rule, and the flags of its products in the plan's order; -1: no more. */
static const struct { const char *states, *body; int want[5]; } cases[] = {
    {"C = eye(1, 'rows')", "C = C - 0.1 * mm(C, tril(gram(g))) p = p - mm(C.T, g)", {0, AB, A, -1}},
    {"C = zeros 'cols'", "C = 0.9 * C + tril(gram(g.T)) p = p - mm(g, C) + mm(g, C.T)", {0, B, B, -1}},
    {"C = eye(1, 'rows')", "C = C - 0.1 * mm(C, gram(g)) p = p - mm(C.T, g)", {0, 0, 0, -1}},
    {"C = eye(1, 'rows')", "C = C - 0.1 * mm(C.T, tril(gram(g))) p = p - mm(C.T, g)", {0, B, 0, -1}},
    {"C = fill(1, 'rows')", "C = C + tril(gram(g)) p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = C + triu(gram(g)) p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = C + 1 p = p - mm(C, g)", {0, -1}},
    {"C = eye(1, 'rows')", "C = where(gt(slice.max(g), 0), C, 2 * C) / 3 p = p - mm(C, g)", {A, -1}},
    {"C = eye(1, 'rows')", "C = -chol(gram(g) + eye(1, 'rows')) p = p - mm(C, g)", {0, 0, A, -1}},
    /* 0 times infinity above the diagonal is NaN, unless the factor is one value, or a triangle too */
    {"C = eye(1, 'rows')", "C = C * (1 / tril(gram(g))) p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = rsqrt(tril(gram(g))) * C p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = tril(gram(g)) * C / slice.max(g) p = p - mm(C, g)", {0, A, -1}},
    {"C = eye(1, 'rows')", "C = C * slice.max(g) * rowsum(g) p = p - mm(C, g)", {A, -1}},
    /* each is a triangle as long as the other is */
    {"C = eye(1, 'rows'), E = zeros 'rows'", "C, E = C + E, 0.5 * C p = p - mm(C, g) - mm(E.T, g)", {A, A, -1}},
    {"C = eye(1, 'rows'), E = zeros 'rows'", "C, E = C + E, gram(g) p = p - mm(C, g) - mm(E.T, g)", {0, 0, 0, -1}},
};

START_TEST(operands)
{
    char *text = format("return optimizer { name = 'x', state = { %s }, step = function() p = p - g end,\n"
                        "matrix = function() %s end }", cases[_i].states, cases[_i].body);
    Gen g = {0};
    GenOptions o = {.find = find_wrapper};
    int n = 0;
    ck_assert_msg(gen_compile(&g, (Source){"x.lua", text, strlen(text)}, &o), "%s", g.diag.text);
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int i = 0; i < ph->nstage; i++)
        if (is_called(ph->stage[i].kind)) {
            unsigned flags = plan_call_flags(g.plan, ph->g, &ph->stage[i]) & AB;
            ck_assert_msg(n < 5 && (int)flags == cases[_i].want[n], "%s\nproduct %d has %u", text, n, flags);
            n++;
        }
    ck_assert_int_eq(cases[_i].want[n], -1);
    gen_free(&g);
    free(text);
}
END_TEST

/* All products with a factor of PSGD-Kron, except Gram matrices. */
START_TEST(factors_of_psgd_kron)
{
    Gen g = {0};
    GenOptions o = {.find = find_wrapper};
    Arena a = {0};
    Diag d = {0};
    Source of;
    int n[3] = {0, 0, 0};
    ck_assert(find_spec("", "psgd_kron", &a, &of, &d));
    ck_assert_msg(gen_compile(&g, of, &o), "%s", g.diag.text);
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int i = 0; i < ph->nstage; i++)
        if (is_called(ph->stage[i].kind)) {
            unsigned flags = plan_call_flags(g.plan, ph->g, &ph->stage[i]) & AB;
            n[flags == AB ? 2 : flags != 0]++;
        }
    ck_assert_msg(n[1] == 4 && n[2] == 4, "%d products with one triangle, %d of two", n[1], n[2]);
    gen_free(&g);
    arena_free(&a);
}
END_TEST

Suite *lower_values_suite(void)
{
    Suite *s = suite_create("lower_values");
    TCase *t = tcase_create("lower_values");
    tcase_add_loop_test(t, operands, 0, COUNT(cases));
    tcase_add_test(t, factors_of_psgd_kron);
    suite_add_tcase(s, t);
    return s;
}

/* topk, take and put against loops in C: which rows and columns are chosen, ties, NaN, how many of
 * them, and that the chosen ones alone change. Also equal bits for any number of threads, and the
 * evaluator's bounds. */
#include "gen/abi/program.h"
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* u: chosen rows become 3 g. p: g is subtracted from chosen rows; the draws keep put from using g
 * itself. */
static const struct { const char *text; bool cols; double share; int number;
} rules[] = {
    {"return optimizer { name = 'x', hyper = { lr = 1 }, view = 'last', rank = { share = 0.25, of "
     "= 'rows' },\n"
     "  state = { u = zeros, chosen = zeros 'row' }, step = function() p = p - g end,\n"
     "  matrix = function() local i = topk(rowsum(abs(g)))\n"
     "    u = put(p, i, 3 * take(g, i))  chosen = put(0, i, 1)\n"
     "    p = p - put(0, i, take(g, i) + 0 * normal 'rank cols') end }",
     false, 0.25, 0},
    {"return optimizer { name = 'x', hyper = { lr = 1 }, view = 'last', rank = { share = 0.6, of = "
     "'cols' },\n"
     "  state = { u = zeros, chosen = zeros 'col' }, step = function() p = p - g end,\n"
     "  matrix = function() local i = topk(colsum(abs(g)))\n"
     "    u = put(p, i, 3 * take(g, i, 'cols'), 'cols')  chosen = put(0, i, take(colsum(g), i) * 0 "
     "+ 1)\n"
     "    p = p - put(0, i, take(g, i, 'cols') + 0 * normal 'rows rank', 'cols') end }",
     true, 0.6, 0},
    {"return optimizer { name = 'x', hyper = { lr = 1 }, view = 'last', rank = 2,\n"
     "  state = { u = zeros, chosen = zeros 'row' }, step = function() p = p - g end,\n"
     "  matrix = function() local i = topk(rowsum(abs(g)))\n"
     "    u = put(p, i, 3 * take(g, i))  chosen = put(0, i, take(normal 'row', i) * 0 + 1)\n"
     "    p = p - put(0, i, take(g, i) + 0 * normal 'rank cols') end }",
     false, 0, 2},
};
enum { NRULES = sizeof rules / sizeof *rules };
static const TestShape shapes[] = {{2, {7, 5}}, {2, {5, 9}}, {2, {1, 4}}, {2, {4, 1}},
                                   {3, {3, 6, 7}}, {2, {8, 3}}, {1, {4}}};
enum { NSHAPE = sizeof shapes / sizeof *shapes };

static double at(const Fixture *f, void *const *x, int k, int64_t i)
{
    return f->type == T_F64 ? ((double *)x[k])[i] : (double)((float *)x[k])[i];
}

static void put_at(Fixture *f, void **x, int k, int64_t i, double v)
{
    if (f->type == T_F64)
        ((double *)x[k])[i] = v;
    else
        ((float *)x[k])[i] = (float)v;
}

/* Small multiples of 1/8: sums of magnitudes are exact in any order, and several rows tie. */
static void fill(Fixture *f)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++) {
            put_at(f, f->g, k, i, floor(8 * ref_value(k, 1, i)) / 8 * (double)(i % 3 != 0));
            put_at(f, f->p, k, i, floor(8 * ref_value(k, 0, i)) / 8);
        }
}

static int64_t length(int rule, int64_t rows, int64_t cols)
{
    int64_t of = rules[rule].cols ? cols : rows, side = rows < cols ? rows : cols;
    return rules[rule].share > 0 ? (int64_t)ceil(rules[rule].share * (double)of)
                                 : rules[rule].number < side ? rules[rule].number : side;
}

/* Whether line i of a matrix is among the k lines of the largest sums; ties go to the lower
 * index. */
static bool is_chosen(const double *sum, int64_t n, int64_t i, int64_t k)
{
    int64_t ahead = 0;
    for (int64_t j = 0; j < n; j++)
        ahead += sum[j] > sum[i] || (sum[j] == sum[i] && j < i);
    return ahead < k;
}

static void check_matrix(const Fixture *f, int rule, int k, int64_t slice, int64_t rows,
                         int64_t cols, const double *p)
{
    bool of_cols = rules[rule].cols;
    int64_t lines = of_cols ? cols : rows, first = slice * rows * cols;
    double sum[64] = {0}, mark[256];
    OK(optc_state_read(f->binding, k, "chosen", mark, (f->count[k] / rows / cols) * lines));
    double *u = malloc(sizeof *u * (size_t)f->count[k]);
    OK(optc_state_read(f->binding, k, "u", u, f->count[k]));
    for (int64_t i = 0; i < rows * cols; i++)
        sum[of_cols ? i % cols : i / cols] += fabs(at(f, f->g, k, first + i));
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t line = of_cols ? i % cols : i / cols;
        bool chosen = is_chosen(sum, lines, line, length(rule, rows, cols));
        double g = at(f, f->g, k, first + i), was = p[first + i];
        ck_assert_msg(mark[slice * lines + line] == chosen, "rule %d, tensor %d, line %d", rule, k,
                      (int)line);
        ck_assert_msg(u[first + i] == (chosen ? 3 * g : was), "rule %d, tensor %d, u[%d]", rule, k,
                      (int)i);
        ck_assert_msg(at(f, f->p, k, first + i) == was - (chosen ? g : 0),
                      "rule %d, tensor %d, p[%d]", rule, k, (int)i);
    }
    free(u);
}

static uint64_t step_once(int rule, optc_type type, int threads, bool compiled, bool check)
{
    Fixture f;
    optc_engine_options eo = {.threads = threads,
                              .cache_dir = compiled ? getenv("OPTC_TEST_CACHE") : "",
                              .compiler = compiled ? NULL : "",
                              .no_builtin = !compiled};
    fix_open(&f, &eo, &(optc_rule_options){.spec = "x", .text = rules[rule].text, .param = type},
             shapes, NSHAPE, NULL, 0);
    ck_assert(!compiled || optc_rule_native(f.rule));
    fill(&f);
    double *was[16] = {0};
    for (int k = 0; k < f.n; k++) {
        was[k] = malloc(sizeof **was * (size_t)f.count[k]);
        for (int64_t i = 0; i < f.count[k]; i++)
            was[k][i] = at(&f, f.p, k, i);
    }
    char *m =
        compiled && type == OPTC_F32 ? step_in_bounds(&f, "step") : (optc_step(f.binding), NULL);
    ck_assert_msg(!m, "%s", m);
    for (int k = 0; check && k < f.n; k++) {
        int r = shapes[k].rank;
        int64_t rows = r > 1 ? shapes[k].dim[r - 2] : 0, cols = shapes[k].dim[r - 1];
        for (int64_t s = 0; r > 1 && s < f.count[k] / rows / cols; s++)
            check_matrix(&f, rule, k, s, rows, cols, was[k]);
    }
    uint64_t hash = fix_hash(&f);
    for (int k = 0; k < f.n; k++)
        free(was[k]);
    fix_close(&f);
    return hash;
}

START_TEST(by_definition)
{
    step_once(_i, OPTC_F64, 1, false, true);               /* the evaluator */
    step_once(_i, OPTC_F64, 3, true, true);
    uint64_t one = step_once(_i, OPTC_F32, 1, true, true);
    ck_assert(one == step_once(_i, OPTC_F32, 3, true, true));
}
END_TEST

/* NaN comes last, so it is chosen only where all rows are. */
START_TEST(not_a_number)
{
    Fixture f;
    fix_open(&f, &(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
             &(optc_rule_options){.spec = "x", .text = rules[0].text}, &(TestShape){2, {5, 2}}, 1,
             NULL, 0);
    for (int i = 0; i < 10; i++)
        put_at(&f, f.g, 0, i, i < 2 ? (double)NAN : 0), put_at(&f, f.p, 0, i, 1);
    OK(optc_step(f.binding));
    double mark[5];
    OK(optc_state_read(f.binding, 0, "chosen", mark, 5));
    for (int i = 0; i < 5; i++)
        /* two of five; ties go to the lower index */
        ck_assert(mark[i] == (i == 1 || i == 2));
    ck_assert(at(&f, f.p, 0, 0) == 1);
    fix_close(&f);
}
END_TEST

/* A share is rounded up after the product was rounded to f64, as by Dion2's math.ceil: 0.07 * 100
 * is above 7. */
START_TEST(share_rounded)
{
    static const struct { double share; int64_t rows, want; } x[] = {
        {0.07, 100, 8}, {0.25, 100, 25}, {0.29, 100, 29},
                                                                     {0.001, 5, 1}, {1, 7, 7}};
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(rank_length(0, (RankShare){.share = x[i].share, .of = AXIS_ROWS},
                                     (Shape){.rows = x[i].rows}),
                         x[i].want);
}
END_TEST

Suite *row_select_suite(void)
{
    Suite *s = suite_create("row_select");
    TCase *t = tcase_create("rows");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, by_definition, 0, NRULES);
    tcase_add_test(t, not_a_number);
    tcase_add_test(t, share_rounded);
    suite_add_tcase(s, t);
    return s;
}

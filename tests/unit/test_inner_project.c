/* inner { g = x }: a rule that steps fewer values than elements, against the same rule written
 * out. */
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>

/* everything that is allowed there: states by element, tensor and group, guarded blocks, sizes,
 * reductions, no decay of zeros */
#define BODY(m, k) \
    m " = lerp(" m ", x, 0.5)\n" \
    "every(2, function() " k " = " k " + x * x end)\n" \
    "when(gt(t, 2), function() c = c + sum(x) / many end)\n"

static const char *const inner =
    "return optimizer { name = 'inner', hyper = { lr = 0.1 }, state = { m = zeros, k = fill(0.5), "
    "c = zeros 'tensor' "
    "},\n"
    "  step = function() local x, many = g, numel\n" BODY(
        "m",
        "k") "    p = p - 0.25 * p - (lr / ncols) * (m + c + rowmean(m)) / (1 + sqrt(k)) end }";

static const char *const around =
    "return wrapper { name = 'around', rank = 2, state = { n = zeros 'tensor' }, step = function() "
    "inner() end,\n"
    "  matrix = function()\n"
    "    local flat = nrows < ncols\n"
    "    n = n + 1\n"
    "    when(lt(n, 4), function()\n"
    "      if flat then local P = normal 'rows rank'  p = p + mm(P, inner { g = mm(P.T, g), t = n "
    "})\n"
    "      else local Q = normal 'cols rank'  p = p + mm(inner { g = mm(g, Q), t = n }, Q.T) end\n"
    "    end)\n"
    "  end }";

static const char *const written =
    "return optimizer { name = 'written', rank = 2, hyper = { lr = 0.1 },\n"
    "  state = { m = zeros, k = fill(0.5), c = zeros 'tensor', n = zeros 'tensor', mr = zeros "
    "'rank cols', kr = "
    "fill(0.5, 'rank cols'),\n"
    "    mc = zeros 'rows rank', kc = fill(0.5, 'rows rank') },\n"
    "  step = function() local x, many = g, numel\n" BODY(
        "m",
        "k") "    p = p - 0.25 * p - (lr / ncols) * (m + c + rowmean(m)) / (1 + sqrt(k)) end,\n"
             "  matrix = function()\n"
             "    local flat = nrows < ncols\n"
             "    local t = n + 1\n"
             "    n = n + 1\n"
             "    when(lt(n, 4), function()\n"
             "      if flat then local P = normal 'rows rank'  local x = mm(P.T, g)  local many = "
             "sum(0 * x + 1)\n" BODY(
                 "mr", "kr") "        p = p + mm(P, 0 - 0.25 * 0 - (lr / ncols) * (mr + c + "
                             "rowmean(mr)) / (1 + sqrt(kr)))\n"
                             "      else local Q = normal 'cols rank'  local x = mm(g, Q)  local "
                             "many = sum(0 * x + 1)\n" BODY(
                                 "mc",
                                 "kc") "        p = p + mm(0 - 0.25 * 0 - (lr / min(2, min(nrows, "
                                       "ncols))) * (mc + c + rowmean(mc)) / (1 + sqrt(kc)), "
                                       "Q.T) end\n"
                                       "    end)\n"
                                       "  end }";

static const TestShape tensor[] = {{2, {6, 5}}, {1, {7}},       {2, {3, 12}}, {2, {1, 4}},
                                   {2, {4, 1}}, {3, {2, 4, 6}}, {2, {0, 3}},  {0, {0}}};

static void grads(Fixture *f, int step)
{
    for (int i = 0; i < f->n; i++)
        for (int64_t x = 0; x < f->count[i]; x++)
            type_store(f->type, f->g[i], x, ref_value(i, step, x));
}

START_TEST(as_written_out)
{
    Fixture a, b;
    optc_engine_options eo = {.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")};
    optc_text text = {"around", around};
    fix_open(
        &a, &eo,
        &(optc_rule_options){.text = inner, .with = "around", .wrappers = &text, .nwrappers = 1},
        tensor, 8, NULL, 0);
    fix_open(&b, &eo, &(optc_rule_options){.text = written}, tensor, 8, NULL, 0);
    for (int step = 1; step <= 5; step++) {
        grads(&a, step);
        grads(&b, step);
        OK(optc_step(a.binding));
        OK(optc_step(b.binding));
        for (int i = 0; i < a.n; i++)
            ck_assert_msg(!memcmp(a.p[i], b.p[i], (size_t)a.count[i] * 4), "step %d, tensor %d",
                          step, i);
    }
    double x[24], y[24];
    OK(optc_state_read(a.binding, 2, "m_rank_cols", x, 24));
    OK(optc_state_read(b.binding, 2, "mr", y, 24));
    ck_assert(!memcmp(x, y, sizeof x));
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* A matrix's states have rank x its longer side values, and none per element. */
START_TEST(takes_no_more)
{
    Fixture f;
    double x[36];
    optc_text text = {"around", around};
    fix_open(
        &f, &(optc_engine_options){.threads = 1},
        &(optc_rule_options){.text = inner, .with = "around", .wrappers = &text, .nwrappers = 1},
        tensor, 8, NULL, 0);
    ck_assert(optc_state_read(f.binding, 2, "m", x, 36) != OPTC_OK);
    OK(optc_state_read(f.binding, 0, "k_rows_rank", x, 12));
    OK(optc_state_read(f.binding, 1, "m", x, 7));
    fix_close(&f);
}
END_TEST

Suite *inner_project_suite(void)
{
    Suite *s = suite_create("inner_project");
    TCase *t = tcase_create("inner_project");
    tcase_add_test(t, as_written_out);
    tcase_add_test(t, takes_no_more);
    suite_add_tcase(s, t);
    return s;
}

/* Every rule of the library in many sets of storage types: against the evaluator. Also sets that
 * are refused, and sets that run without a compiler. */
#include "tests/harness/help.h"
#include "tests/harness/type_grid.h"
#include "runtime/library/rule/spec_find.h"

#include <stdlib.h>
#include <string.h>

/* Two tensors have blocks: a vector and a matrix. */
static const TestShape shapes[] = {{0, {0}}, {1, {7}}, {2, {33, 5}}, {1, {4103}}, {2, {65, 66}}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static void set_grads(Fixture *f, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            type_store(f->rule->library->plan->g, f->g[k], i, ref_value(k, step, i));
}

/* Stored values lie in the evaluator's bounds, rounded to their types. */
static void check_steps(const char *rule, const char *types)
{
    Fixture f;
    optc_engine_options eo = {.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")};
    fix_open(&f, &eo, &(optc_rule_options){.spec = rule, .types = types}, shapes, NSHAPES, NULL, 0);
    ck_assert_msg(optc_rule_native(f.rule), "%s, %s: %s", rule, types, optc_rule_path(f.rule));
    for (int step = 1; step <= 2; step++) {
        set_grads(&f, step);
        char *m = step_in_bounds(&f, "step");
        ck_assert_msg(!m, "%s, %s, step %d: %s", rule, types, step, m);
    }
    fix_close(&f);
}

START_TEST(grid)
{
    if (!thinned(_i / NGRID) && grid_runs(_i, 1) && sampled_rule(grid_rule(_i / NGRID), 3))
        check_steps(grid_rule(_i / NGRID), grid_types[_i % NGRID]);
}
END_TEST

/* A sum that is stored in fewer bits than it is computed in is rounded as a whole, not only its
 * first term. */
START_TEST(sums_are_rounded) { check_steps("adadelta", "param=f64,grad=f32,state=q8"); }
END_TEST

/* ---- refusals ---- */
static bool compiles(Gen *g, const char *rule, const char *types)
{
    Source s;
    GenOptions o = {.find = find_wrapper};
    *g = (Gen){0};
    return find_spec(NULL, rule, &g->arena, &s, &g->diag) &&
           types_choose(&g->arena, types, -1, -1, -1, &o.types, &g->diag) && gen_compile(g, s, &o);
}

/* Every rule takes every set of the grid, and refuses the sets of the other table by name. */
START_TEST(refusals)
{
    const char *rule = grid_rule(_i);
    Gen g;
    if (thinned(_i))
        return;
    for (int k = 0; k < NGRID; k++) {
        ck_assert_msg(compiles(&g, rule, grid_types[k]), "%s, %s: %s", rule, grid_types[k],
                      g.diag.text);
        gen_free(&g);
    }
    for (const RefusedTypes *r = grid_refused; r->types; r++) {
        ck_assert_msg(!compiles(&g, rule, r->types), "%s takes %s", rule, r->types);
        ck_assert_msg(strstr(g.diag.text, r->part), "%s, %s: %s", rule, r->types, g.diag.text);
        gen_free(&g);
    }
}
END_TEST

/* Unsigned codes are for rules without a state in codes that may be negative: these. States that
 * start at other values than 0 are never in codes. */
static const char *const unsigned_only[] = {"adadelta",
                                            "adafactor",
                                            "adagrad",
                                            "adalomo",
                                            "amos",
                                            "asgd",
                                            "dog",
                                            "dowg",
                                            "fromage",
                                            "lomo",
                                            "nero",
                                            "rmsprop",
                                            "rmsprop_tf",
                                            "schedulefree_adamw",
                                            "schedulefree_radam",
                                            "schedulefree_sgd",
                                            "sm3",
                                            NULL};

START_TEST(unsigned_codes)
{
    const char *rule = grid_rule(_i);
    static const char *const types[] = {"state=q8u", "state=f8u"};
    bool fits = false;
    for (const char *const *u = unsigned_only; *u; u++)
        fits = fits || !strcmp(rule, *u);
    for (int k = 0; k < 2; k++) {
        Gen g;
        bool ok = compiles(&g, rule, types[k]);
        ck_assert_msg(ok == fits, "%s, %s: %s", rule, types[k], ok ? "accepted" : g.diag.text);
        ck_assert_msg(ok || strstr(g.diag.text, "is for states that are never negative"), "%s",
                      g.diag.text);
        gen_free(&g);
    }
}
END_TEST

/* ---- without a compiler ---- */
static uint64_t hash_of(const optc_engine_options *eo, const optc_rule_options *ro, int steps,
                        char path[256])
{
    Fixture f;
    fix_open(&f, eo, ro, shapes, NSHAPES, NULL, 0);
    snprintf(path, 256, "%s", optc_rule_path(f.rule));
    for (int s = 1; s <= steps; s++) {
        set_grads(&f, s);
        OK(optc_step(f.binding));
    }
    uint64_t h = fix_hash(&f);
    fix_close(&f);
    return h;
}

static int typed_count(void)
{
    int n = 0;
    while (library_types[n].rule)
        n++;
    return n;
}

/* Common sets of storage types run without a compiler, at every vector level. The evaluator would
 * run them too, so the test reads which code a rule runs. Its bits are those of code that is
 * compiled now. */
START_TEST(built_in)
{
    const TypedRule *r = &library_types[_i];
    if (thinned(_i))
        return;
    char path[256], *was = format("%s", getenv("PATH"));
    optc_rule_options ro = {.spec = r->rule, .with = r->with, .types = r->types};
    uint64_t want = 0;
    setenv("PATH", "/nothing", 1);
    unsetenv("CC");
    for (int isa = 0; isa < optc_isas(); isa++) {
        optc_engine_options eo = {.threads = 2, .cache_dir = "", .isa = optc_isa_name(isa)};
        if (!optc_isa_usable(isa))
            continue;
        uint64_t got = hash_of(&eo, &ro, 3, path);
        ck_assert_msg(!strncmp(path, "built in", 8), "%s runs as: %s", r->id, path);
        ck_assert_msg(!want || got == want, "%s: %s gives other bits", r->id, optc_isa_name(isa));
        want = got;
    }
    hash_of(&(optc_engine_options){.threads = 2, .cache_dir = "", .no_builtin = 1}, &ro, 0, path);
    ck_assert_msg(strstr(path, "no C compiler was found"), "%s runs as: %s", r->id, path);
    setenv("PATH", was, 1);
    free(was);
    if (!getenv("OPTC_ALL") && _i % 4 != _i / 4 % 4)       /* one set of types for each rule */
        return;
    optc_engine_options now = {
        .threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE"), .no_builtin = 1};
    ck_assert_msg(hash_of(&now, &ro, 3, path) == want, "%s: compiled now it gives other bits",
                  r->id);
    ck_assert_msg(strstr(path, "compiled") || strstr(path, "cache"), "%s runs as: %s", r->id, path);
}
END_TEST

Suite *type_grid_suite(void)
{
    Suite *s = suite_create("type_grid");
    TCase *t = tcase_create("type_grid");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, grid, 0, grid_rules() * NGRID);
    tcase_add_test(t, sums_are_rounded);
    tcase_add_loop_test(t, refusals, 0, grid_rules());
    tcase_add_loop_test(t, unsigned_codes, 0, grid_rules());
    tcase_add_loop_test(t, built_in, 0, typed_count());
    suite_add_tcase(s, t);
    return s;
}

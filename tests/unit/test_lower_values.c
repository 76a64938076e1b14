/* Operands of products that are lower triangles (gen/ir/lower_values.c), as flags of the plan's
 * calls; values that are refused for such states. gpu/test_gpu_triangles.c has the products. */
#include "gen/gen.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/checkpoint_run.h"
#include "tests/harness/help.h"
#include "tests/harness/rank_threads.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { A = LOWER_A, B = LOWER_B, AB = LOWER_A | LOWER_B };

/* The states and the body of a rule, and the flags of its products in the plan's order; -1: no
 * more. */
static const struct { const char *states, *body; int want[5];
} cases[] = {
    {"C = eye(1, 'rows')", "C = C - 0.1 * mm(C, tril(gram(g))) p = p - mm(C.T, g)", {0, AB, A, -1}},
    {"C = zeros 'cols'",
     "C = 0.9 * C + tril(gram(g.T)) p = p - mm(g, C) + mm(g, C.T)",
     {0, B, B, -1}},
    {"C = eye(1, 'rows')", "C = C - 0.1 * mm(C, gram(g)) p = p - mm(C.T, g)", {0, 0, 0, -1}},
    {"C = eye(1, 'rows')",
     "C = C - 0.1 * mm(C.T, tril(gram(g))) p = p - mm(C.T, g)",
     {0, B, 0, -1}},
    {"C = fill(1, 'rows')", "C = C + tril(gram(g)) p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = C + triu(gram(g)) p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = C + 1 p = p - mm(C, g)", {0, -1}},
    {"C = eye(1, 'rows')",
     "C = where(gt(slice.max(g), 0), C, 2 * C) / 3 p = p - mm(C, g)",
     {A, -1}},
    {"C = eye(1, 'rows')", "C = -chol(gram(g) + eye(1, 'rows')) p = p - mm(C, g)", {0, 0, A, -1}},
    /* 0 times infinity above the diagonal is NaN, unless the factor is one value, or a triangle
     * too */
    {"C = eye(1, 'rows')", "C = C * (1 / tril(gram(g))) p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = rsqrt(tril(gram(g))) * C p = p - mm(C, g)", {0, 0, -1}},
    {"C = eye(1, 'rows')", "C = tril(gram(g)) * C / slice.max(g) p = p - mm(C, g)", {0, A, -1}},
    {"C = eye(1, 'rows')", "C = C * slice.max(g) * rowsum(g) p = p - mm(C, g)", {A, -1}},
    /* each is a triangle as long as the other is */
    {"C = eye(1, 'rows'), E = zeros 'rows'",
     "C, E = C + E, 0.5 * C p = p - mm(C, g) - mm(E.T, g)",
     {A, A, -1}},
    {"C = eye(1, 'rows'), E = zeros 'rows'",
     "C, E = C + E, gram(g) p = p - mm(C, g) - mm(E.T, g)",
     {0, 0, 0, -1}},
};

START_TEST(operands)
{
    char *text =
        format("return optimizer { name = 'x', state = { %s }, step = function() p = p - g end,\n"
               "matrix = function() %s end }",
               cases[_i].states, cases[_i].body);
    Gen g = {0};
    GenOptions o = {.find = find_wrapper};
    int n = 0;
    ck_assert_msg(gen_compile(&g, (Source){"x.lua", text, strlen(text)}, &o), "%s", g.diag.text);
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int i = 0; i < ph->nstage; i++)
        if (is_called(ph->stage[i].kind)) {
            unsigned flags = plan_call_flags(g.plan, ph->g, &ph->stage[i]) & AB;
            ck_assert_msg(n < 5 && (int)flags == cases[_i].want[n], "%s\nproduct %d has %u", text,
                          n, flags);
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

/* ---- values that are written to such a state ---- */
/* sides: of the state's matrices, in memory order. */
static const struct { const char *head, *types; TestShape w; int sides[8]; } kept[] = {
    {"", NULL, {2, {5, 4}}, {5}},
    {"", "C=bf16", {2, {5, 4}}, {5}},
    {"", "C=f16", {2, {5, 4}}, {5}},
    {"", "param=f64,grad=f64,state=f64", {2, {5, 4}}, {5}},
    {"view = 'last',", NULL, {3, {3, 4, 2}}, {4, 4, 4}},
    {"block = 3,", "C=bf16", {2, {5, 7}}, {3, 3, 3, 2, 2, 2}},
};
enum { MOST_C = 64 };
static const char kept_spec[] =
    "return optimizer { name = 'tri', %s hyper = { lr = 0.1 }, state = { C = eye(1, 'rows'), S = "
    "eye(1, 'rows') },\n"
    "step = function() p = p - lr * g end, matrix = function() C = C - 0.1 * mm(C, tril(gram(g)))\n"
    "S = lerp(S, gram(g), 0.1) p = p - lr * mm(S, mm(C.T, g)) end }";

static void open_kept(Fixture *f, int i, const char *types)
{
    char *text = format(kept_spec, kept[i].head);
    fix_open(f, &(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
             &(optc_rule_options){.spec = "tri", .text = text, .types = types}, &kept[i].w, 1, NULL,
             0);
    free(text);
}

/* Tells whether value k of the state is right of a diagonal; *n: all values. */
static bool above(int i, int64_t k, int64_t *n)
{
    bool is = false;
    *n = 0;
    for (int m = 0; kept[i].sides[m]; m++) {
        int64_t side = kept[i].sides[m], at = k - *n;
        is = is || (at >= 0 && at < side * side && at % side > at / side);
        *n += side * side;
    }
    return is;
}

/* Each call that writes a state refuses this value at index k, or accepts it. */
static void writes(Fixture *f, int i, int64_t k, double value)
{
    double x[MOST_C] = {0}, was[MOST_C], now[MOST_C];
    char raw[MOST_C * 8];
    int64_t n;
    optc_state_view v;
    bool bad = above(i, k, &n) && value != 0 && !isnan(value);
    optc_tensor t = {.name = "w", .rank = kept[i].w.rank, .shape = kept[i].w.dim};
    OK(optc_state(f->binding, 0, "C", &v));
    ck_assert_int_eq(v.count, n);
    for (int64_t j = 0; j < n; j++)
        x[j] = j == k ? value : above(i, j, &n) ? j % 2 ? 0 : -0.0 : 1 + (double)j;
    for (int64_t j = 0; j < n; j++)
        type_store((int)v.type - 1, raw, j, x[j]);
    OK(optc_state_write(f->binding, 0, "S", x, n));                /* not a triangle */
    for (int call = 0; call < 4; call++) {
        size_t bytes = (size_t)n * (size_t)f->rule->program->type[v.type - 1].bytes;
        OK(optc_state_read(f->binding, 0, "C", was, n));
        optc_status s = call == 0   ? optc_state_write(f->binding, 0, "C", x, n)
                        : call == 1 ? optc_state_put(f->binding, 0, "C", raw, bytes)
                        : call == 2
                            ? optc_rule_check_state(f->rule, "C", &t, v.type, raw, 0, n)
                            : optc_rule_check_state(f->rule, "C", &t, OPTC_F64, x + k, k, 1);
        ck_assert_msg(s == (bad ? OPTC_ERROR_ARGUMENT : OPTC_OK),
                      "case %d, call %d, value %lld is %g: %s", i, call, (long long)k, value,
                      optc_message());
        if (bad)
            ck_assert_msg(strstr(optc_message(), "state 'C' of ") &&
                              strstr(optc_message(), " is a lower triangle: "),
                          "%s", optc_message());
        OK(optc_state_read(f->binding, 0, "C", now, n));
        for (int64_t j = 0; j < n; j++) {
            double want = bad || call > 1 ? was[j] : type_load((int)v.type - 1, raw, j);
            ck_assert_msg(want == now[j] || (isnan(want) && isnan(now[j])),
                          "case %d, call %d, value %lld is %g, not %g", i, call, (long long)j,
                          now[j], want);
        }
    }
}

START_TEST(written)
{
    Fixture f;
    int64_t n;
    open_kept(&f, _i, kept[_i].types);
    above(_i, 0, &n);
    ck_assert(optc_rule_lower_triangle(f.rule, "C") && !optc_rule_lower_triangle(f.rule, "S"));
    ck_assert(!optc_rule_lower_triangle(f.rule, "none") && !optc_rule_lower_triangle(NULL, "C"));
    for (int64_t k = 0; k < n; k++) {
        writes(&f, _i, k, 0.5);
        writes(&f, _i, k, -0.0);
        writes(&f, _i, k, NAN);
    }
    OK(optc_step(f.binding));
    fix_close(&f);
}
END_TEST

START_TEST(messages)
{
    Fixture f;
    double x[48] = {0};
    optc_tensor t = {.name = "w", .rank = 2, .shape = kept[0].w.dim};
    open_kept(&f, 0, NULL);
    x[2 * 5 + 4] = 0.25;
    FAILS(optc_state_write(f.binding, 0, "C", x, 25), OPTC_ERROR_ARGUMENT,
          "optc_state_write: state 'C' of tensor number 0 is a lower triangle: row 2, column 4 is "
          "0.25; set values "
          "right of the diagonal to 0, or transpose the matrix");
    FAILS(optc_rule_check_state(f.rule, "C", &t, OPTC_F64, x + 10, 10, 5), OPTC_ERROR_ARGUMENT,
          "optc_rule_check_state: state 'C' of tensor 'w' is a lower triangle: row 2, column 4 is "
          "0.25");
    OK(optc_rule_check_state(f.rule, "S", &t, OPTC_F64, x, 0, 25));
    t.flags = OPTC_AS_VECTOR;                              /* has no such state */
    OK(optc_rule_check_state(f.rule, "C", &t, OPTC_F64, x, 0, 25));
    FAILS(optc_rule_check_state(f.rule, NULL, &t, OPTC_F64, x, 0, 25), OPTC_ERROR_ARGUMENT,
          "the name is NULL");
    FAILS(optc_rule_check_state(f.rule, "C", &t, OPTC_F64, x, -1, 25), OPTC_ERROR_ARGUMENT,
          "at is -1 and count 25");
    FAILS(optc_rule_check_state(f.rule, "C", &t, OPTC_Q8, x, 0, 25), OPTC_ERROR_ARGUMENT,
          "is not a type of single values");
    t.shape = NULL;
    FAILS(optc_rule_check_state(f.rule, "C", &t, OPTC_F64, x, 0, 25), OPTC_ERROR_ARGUMENT,
          "negative, missing or too large");
    fix_close(&f);
    open_kept(&f, 4, NULL);
    x[2 * 5 + 4] = 0;
    x[16 + 7] = 3;
    FAILS(optc_state_write(f.binding, 0, "C", x, 48), OPTC_ERROR_ARGUMENT,
          "matrix 1, row 1, column 3 is 3;");
    fix_close(&f);
}
END_TEST

/* A file with one value above the diagonal is refused, converted or not, and changes nothing. */
START_TEST(loaded)
{
    static const char *const types[] = {NULL, "C=bf16"};
    Fixture a, b;
    optc_state_view v;
    char warnings[400];
    open_kept(&a, 0, NULL);
    open_kept(&b, 0, types[_i]);
    OK(optc_step(a.binding));
    OK(optc_step(b.binding));
    OK(optc_step(b.binding));
    OK(optc_state(a.binding, 0, "C", &v));
    ((float *)v.data)[14] = 0.25f;                      /* memory is not checked */
    optc_checkpoint c = run_saved(&a.binding, 1, NULL);
    c.warnings = warnings, c.warnings_size = sizeof warnings;
    uint64_t was = fix_hash(&b);
    FAILS(optc_load(&b.binding, 1, &c), OPTC_ERROR_ARGUMENT,
          "optc_load: the checkpoint: state 'C' of tensor number 0 is a lower triangle: row 2, "
          "column 4 is ");
    ck_assert(fix_hash(&b) == was);
    free(c.memory);
    /* NaN: a run that is not finite any more */
    ((float *)v.data)[14] = _i ? NAN : -0.0f;
    c = run_saved(&a.binding, 1, NULL);
    OK(optc_load(&b.binding, 1, &c));
    free(c.memory);
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* A checkpoint of PSGD-Kron's own, after some steps. The matrix has more values than are read at a
 * time. */
START_TEST(own_checkpoint)
{
    const TestShape w = {2, {300, 4}};
    Fixture f[2];
    optc_state_view v;
    for (int i = 0; i < 2; i++)
        fix_open(&f[i],
                 &(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &(optc_rule_options){.spec = "psgd_kron"}, &w, 1, NULL, 0);
    ck_assert(optc_rule_lower_triangle(f[0].rule, "C") && optc_rule_lower_triangle(f[0].rule, "D"));
    for (int64_t i = 0; i < f[0].count[0]; i++)
        type_store(f[0].type, f[0].g[0], i, ref_value(0, 1, i));
    for (int step = 0; step < 3; step++)
        OK(optc_step(f[0].binding));
    optc_checkpoint c = run_saved(&f[0].binding, 1, NULL);
    OK(optc_load(&f[1].binding, 1, &c));
    memcpy(f[1].p[0], f[0].p[0], (size_t)f[0].count[0] * 4);
    ck_assert(fix_hash(&f[0]) == fix_hash(&f[1]));
    free(c.memory);
    OK(optc_state(f[0].binding, 0, "C", &v));
    ck_assert_int_eq(v.count, 90000);
    ((float *)v.data)[298 * 300 + 299] = 1;
    c = run_saved(&f[0].binding, 1, NULL);
    FAILS(optc_load(&f[1].binding, 1, &c), OPTC_ERROR_ARGUMENT, "row 298, column 299 is 1;");
    free(c.memory);
    for (int i = 0; i < 2; i++)
        fix_close(&f[i]);
}
END_TEST

/* One of two ranks holds the whole state of a matrix that is cut. */
typedef struct Ranks {
    optc_rule *rule; optc_comm comm[2]; float p[2][24], g[2][24]; char wrong[2][400];
} Ranks;

static void load_on_rank(int rank, void *arg)
{
    Ranks *x = arg;
    optc_binding *b = NULL;
    optc_checkpoint c = {0};
    optc_state_view v;
    double in[64] = {[8] = 1, [63] = 2, [1] = -0.0}, out[64];
    const int64_t shape[2] = {4, 6}, whole[2] = {8, 6}, offset[2] = {4 * rank, 0};
    optc_tensor t = {.name = "w",
                     .param = x->p[rank],
                     .grad = x->g[rank],
                     .rank = 2,
                     .shape = shape,
                     .global_shape = whole,
                     .offset = offset};
    int64_t held = 0;
    optc_status s = optc_bind_sharded(x->rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1,
                                      &x->comm[rank], &b);
    if (s == OPTC_OK && (s = optc_state(b, 0, "C", &v)) == OPTC_OK)
        held = v.data ? v.count : 0;
    const char *says = s == OPTC_OK && (held == 0 || held == 64) ? "" : optc_message();
    if (held) {
        if (optc_state_write(b, 0, "C", in, 64) != OPTC_OK)
            says = "a triangle is refused";
        in[7] = 1;
        if (optc_state_write(b, 0, "C", in, 64) == OPTC_OK ||
            !strstr(optc_message(), "row 0, column 7 is 1;"))
            says = "it is written";
        ((float *)v.data)[7] = 1;
    }
    s = optc_save_bytes(&b, 1, &c, &c.size);
    c.memory = malloc((size_t)c.size);
    s = s == OPTC_OK ? optc_save(&b, 1, &c) : s;
    if (held)
        ((float *)v.data)[7] = 0;
    if (s == OPTC_OK && (optc_load(&b, 1, &c) == OPTC_OK) != !held)
        says = held ? "it is loaded" : optc_message();
    if (held && (optc_state_read(b, 0, "C", out, 64) != OPTC_OK || out[7] != 0 || out[8] != 1))
        says = "a refused call changed the state";
    snprintf(x->wrong[rank], sizeof x->wrong[rank], "%.390s", s == OPTC_OK ? says : optc_message());
    x->g[rank][0] = (float)held;
    free(c.memory);
    (void)optc_unbind(b);
}

START_TEST(sharded)
{
    static Ranks x;
    optc_engine *e;
    optc_loopback *l;
    char *text = format(kept_spec, "");
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "tri", .text = text}, &x.rule));
    OK(optc_loopback_open(2, e, &l));
    for (int i = 0; i < 2; i++)
        OK(optc_loopback_comm(l, i, &x.comm[i]));
    run_ranks(2, load_on_rank, &x);
    ck_assert_msg(!*x.wrong[0] && !*x.wrong[1], "%s %s", x.wrong[0], x.wrong[1]);
    ck_assert(x.g[0][0] + x.g[1][0] == 64);
    optc_loopback_close(l);
    OK(optc_release(x.rule));
    OK(optc_close(e));
    free(text);
}
END_TEST

Suite *lower_values_suite(void)
{
    Suite *s = suite_create("lower_values");
    TCase *t = tcase_create("lower_values");
    tcase_add_loop_test(t, operands, 0, COUNT(cases));
    tcase_add_test(t, factors_of_psgd_kron);
    tcase_add_loop_test(t, written, 0, COUNT(kept));
    tcase_add_test(t, messages);
    tcase_add_loop_test(t, loaded, 0, 2);
    tcase_add_test(t, own_checkpoint);
    tcase_add_test(t, sharded);
    suite_add_tcase(s, t);
    return s;
}

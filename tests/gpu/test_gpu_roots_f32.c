/* Roots by products in f32: accurate enough; a matrix that f32 refuses gets f64 at its next
 * refresh; runs are repeatable. */
#include "tests/harness/basis.h"
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POWER "X = power(A, -1/2, { last = X })"
enum { N = 24, HARD = 1, LOST = 2, LAST = 7 };
static const TestShape few[NSHAPES] = {{2, {N, 3}}, {2, {N, 3}}, {2, {N, 3}},
                                       {2, {N, 3}}, {2, {5, 3}}, {1, {4}}};
static const struct { const char *text; int every;
} rules[] = {{"return optimizer { name = 'short', hyper = { lr = 0.125 }, state = { A = zeros "
              "'rows', X = eye(3, 'rows') }, "
              "step = function() p = p + 0 * g end,\n"
              " matrix = function() " POWER
              "  A = A + 0 * sum(abs(p))  p = p - lr * mm(X, g) end }",
              1},
             {"return optimizer { name = 'short', hyper = { lr = 0.125 }, state = { A = zeros "
              "'rows', X = eye(3, 'rows') }, "
              "step = function() p = p + 0 * g end,\n"
              " matrix = function() every(2, { first = true }, function() " POWER
              " end)  A = A + 0 * sum(abs(p))  p = p - lr * "
              "mm(X, g) end }",
              2},
             {"return optimizer { name = 'short', hyper = { lr = 0.125 }, state = { A = zeros "
              "'rows', X = eye(3, 'rows') }, "
              "step = function() p = p + 0 * g end,\n"
              " matrix = function() every(3, { stagger = true, first = true }, function() " POWER
              " end)  A = A + 0 * "
              "sum(abs(p))  p = p - lr * "
              "mm(X, g) end }",
              3}};
enum { NRULES = sizeof rules / sizeof *rules };

/* Diagonal blocks of 2 x 2: 97, 107, … times three Fibonacci numbers whose determinant is 1. Exact
 * in f32; divided by the norm in f32, it has negative eigenvalues. */
static const double fib[] = {10946, 6765, 4181};

static double hard(int i, bool root)
{
    int row = i / N, col = i % N, k = row % 2 + col % 2;
    double m = 97 + 10 * (row / 2), to = sqrt(fib[0] + fib[2] + 2) * sqrt(m);
    if (row / 2 != col / 2)
        return 0;
    /* (B^-1 + 1) / sqrt(trace + 2) */
    return !root ? m * fib[k] : (k == 1 ? -fib[1] : 1 + fib[2 - k]) / to;
}

static void open_short(Side *g, int rule)
{
    side_method = EIGEN_F32;
    use_shapes(few);
    open_side(g, "cuda", (optc_rule_options){.text = rules[rule].text, .param = OPTC_F32,
                                             .products = rule == 1 ? "tf32" : "f32"}, 0);
    for (int k = 0; k < 5; k++) {
        double a[N * N] = {0};
        int n = k == 4 ? 5 : N;
        for (int i = 0; i < n * n; i++)
            a[i] = k == HARD ? hard(i, false) : k == LOST && i == 0 ? NAN : i % (n + 1) ? 0 : 4 + k;
        OK(optc_state_write(g->b, k, "A", a, n * n));
    }
}

static void close_short(Side *g)
{
    close_side(g, 0);
    side_method = EIGEN_BY_SIZE;
}

/* Checks X after `turns` refreshes of the tensor. */
static void check(Side *g, int k, int turns, bool captured_first)
{
    double x[N * N], n = k == 4 ? 5 : N;
    optc_factors said;
    OK(optc_state_read(g->b, k, "X", x, (int64_t)(n * n)));
    OK(optc_factors_about(g->b, k, &said));
    bool stays = k == LOST || (k == HARD && (turns < 2 || captured_first));
    int refused = k == LOST || (k == HARD && captured_first) ? turns : k == HARD;
    ck_assert_msg(said.computed == turns && said.refused == refused,
                  "tensor %d: of %d roots %d refused, not %d of %d", k, (int)said.computed,
                  (int)said.refused, refused, turns);
    for (int i = 0; i < (int)(n * n); i++) {
        bool diagonal = i % ((int)n + 1) == 0;
        double want = stays       ? (diagonal ? 3 : 0)
                      : k == HARD ? hard(i, true)
                      : diagonal  ? 1 / sqrt(4.0 + k)
                                  : 0;
        ck_assert_msg(fabs(x[i] - want) <= 1e-6 * (k == HARD ? 10 : 1),
                      "tensor %d, %d after %d turns: %.9g, not %.9g", k, i, turns, x[i], want);
    }
}

static int stagger_text_of(const Side *g, int rule, int k, int steps)
{
    int n = 0, slot = 0;
    if (rule == 2)
        OK(optc_get_slot(g->b, k, -1, 3, &slot));
    for (int t = 1; t <= steps; t++)
        n += t == 1 || t % rules[rule].every == slot;
    return n;
}

static int64_t wide(const Side *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < factor_stats_count(g->b); i++)
        n += g->b->gpu->calls->wide[i];
    return n;
}

static uint64_t side_bits(Side *g)
{
    uint64_t h = 0;
    fetch_params(g);
    for (int k = 0; k < 5; k++)
        for (int64_t i = 0; i < g->n[k]; i++)
            h = splitmix(h ^ (uint64_t)((const uint32_t *)g->hp[k])[i]);
    return h;
}

/* f32 at first. Refused matrices get f64 from their next refresh on, and the others are unaffected.
 * Two runs give the same bits. */
START_TEST(refused_then_f64)
{
    SHARED();
    if (thinned(_i))
        return;
    uint64_t bits[2] = {0};
    /* the emulated GPU takes a second for each */
    int small = getenv("OPTC_TEST_SMALL") != NULL;
    for (int twice = small && _i < 2; twice < 2; twice++) {
        Side g;
        use_cublas(_i != 1);
        open_short(&g, _i);
        for (int step = 1; step <= (small && _i == 0 ? 3 : LAST); step++) {
            set_grads(&g, 1);
            OK(optc_step(g.b));
            for (int k = 0; k < 5; k++)
                check(&g, k, stagger_text_of(&g, _i, k, step), false);
        }
        ck_assert_msg(wide(&g) == 2, "%d have f64", (int)wide(&g));
        bits[twice] = side_bits(&g);
        close_short(&g);
        use_cublas(true);
    }
    ck_assert(bits[0] == bits[1] || (small && _i < 2));
}
END_TEST

/* A step captured after the second refresh uses f64 in every replay. One captured before uses f32:
 * it is refused at each replay, and its last root stays, also in steps after the replays. */
START_TEST(captured)
{
    SHARED();
    Side g;
    CUstream st;
    CUgraph graph;
    CUgraphExec exec;
    bool early = _i == 1;
    int first = early ? 2 : 3;
    open_short(&g, 0);
    ck_assert(!d->cuStreamCreate(&st, 1));
    for (int step = 1; step <= first + 3; step++) {
        set_grads(&g, 1);
        if (step == first) {
            OK(optc_set_stream(g.b, st));
            ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
            OK(optc_step(g.b));
            ck_assert(!d->cuStreamEndCapture(st, &graph) &&
                      !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
        }
        if (step < first || step == first + 3)
            OK(optc_step(g.b));
        else
            ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
        OK(optc_sync(g.b));
        for (int k = 0; k < 5; k++)
            check(&g, k, step, early);
    }
    OK(optc_set_stream(g.b, NULL));
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    close_short(&g);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* The choice of the method: by architecture, the rule's bound on eigenvalues, exponent and rows. */
START_TEST(choice_of_method)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'ways', state = { A = eye(1, 'rows') }, step = function() p = p "
        "- g end, matrix = "
        "function() A = A + 0 * sum(g)\n"
        "  p = p - mm(power(A, -1/4, { relative = 0.05 }), g) - mm(power(A, -1/2, { relative = "
        "0.05 }), g) - mm(power(A, -1, { relative = 0.05 }), g) - mm(power(A, -1/8, { relative "
        "= 0.001 }), g) end }";
    static const struct { int p, arch; int64_t rows; bool in_f32;
    } c[] = {{4, 89, 128, true},  {4, 75, 128, true},  {4, 120, 128, true}, {4, 103, 128, true},
             {4, 86, 128, true},  {4, 90, 128, false}, {4, 80, 128, false}, {4, 100, 128, false},
             {4, 89, 129, false}, {2, 89, 128, true},  {2, 89, 129, false}, {1, 89, 64, true},
             {1, 89, 65, false},  {8, 89, 16, false}};
    Side g;
    use_shapes(few);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = OPTC_F32, .products = "f32"},
              0);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        int found = 0;
        g.e->gpu->f64_fast = f64_fast(c[i].arch);
        for (int k = 0; k < g.r->program->nstage; k++) {
            const ProgStage *s = &g.r->program->stage[k];
            if (!stage_takes(s, FOR_ROOT) || call_root(s->call) != c[i].p)
                continue;
            found++;
            ck_assert_msg(root_in_f32(g.b, s, c[i].rows) == c[i].in_f32, "sm_%d, -1/%d of %d rows",
                          c[i].arch, c[i].p, (int)c[i].rows);
        }
        ck_assert_int_eq(found, 1);
    }
    g.e->gpu->f64_fast = f64_fast(g.e->gpu->arch);
    close_side(&g, 0);
}
END_TEST

/* Where f32 is chosen, its error is at most 1e-6 of the root's norm. The ridge raises all
 * eigenvalues by a share of the largest row sum. */
START_TEST(f32_accuracy)
{
    SHARED();
    static const struct { int root, small, rows; } c[] = {{4, 40, 128}, {2, 40, 128}, {1, 40, 64}};
    int n = getenv("OPTC_TEST_SMALL") ? c[_i].small : c[_i].rows;
    char *text =
        format("return optimizer { name = 'good', state = { A = zeros 'rows', X = zeros 'rows' }, "
               "matrix = function() "
               "X = power(A, -1/%d, { relative = 0.05 })  A = A + 0 * sum(g)  p = p + 0 * g end,"
               " step = function() p = p + 0 * g end }",
               c[_i].root);
    TestShape one[NSHAPES] = {{2, {n, 1}}};
    size_t all = (size_t)n * (size_t)n;
    double *a = malloc(8 * all), *x = malloc(8 * all), off = 0, size = 0, norm = 0;
    Basis m = make_basis(n, 1e-4, 7);
    Side g;
    side_method = EIGEN_F32;
    use_shapes(one);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = OPTC_F32, .products = "f32"},
              0);
    of_values(&m, 1, a);
    OK(optc_state_write(g.b, 0, "A", a, (int64_t)all));
    set_grads(&g, 1);
    OK(optc_step(g.b));
    OK(optc_state_read(g.b, 0, "X", x, (int64_t)all));
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++)
            sum += fabs(a[i * n + k]);
        norm = fmax(norm, sum);
    }
    for (int i = 0; i < n; i++)
        m.value[i] += 0.05 * norm;
    of_values(&m, -1.0 / c[_i].root, a);
    for (size_t i = 0; i < all; i++) {
        off += (x[i] - a[i]) * (x[i] - a[i]);
        size += a[i] * a[i];
    }
    ck_assert_msg(sqrt(off / size) <= 1e-6, "a root (%d) of %d x %d in f32: off by %.2g",
                  c[_i].root, n, n, sqrt(off / size));
    close_short(&g);
    free(a), free(x), free(m.q), free(m.value), free(text);
}
END_TEST

void add_roots_f32(TCase *t)
{
    tcase_add_loop_test(t, refused_then_f64, 0, NRULES);
    tcase_add_loop_test(t, captured, 0, 2);
    tcase_add_test(t, choice_of_method);
    tcase_add_loop_test(t, f32_accuracy, 0, 3);
}

/* Orthonormal columns (qr) on the GPU, against their definition. */
#include "tests/harness/basis.h"
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns that are linearly dependent, zero, or nearly dependent; huge and tiny ones. The result is
 * orthonormal even so, and the triangular factor has no negative diagonal entry. A NaN has no
 * result, and the last columns stay. */
enum { NCOLUMNS = 11, GRADED = NCOLUMNS };

/* GRADED: Q (1 - c U), U the strict upper triangle of ones, condition about 1e8. One round of
 * Cholesky QR leaves an error above 0.1, and loses no pivot. */
static void make_columns(int k, int m, int n, double *a)
{
    Basis x = make_basis(m, 1, 11), y = make_basis(n, 1, 5);
    double low = k == 1 ? 1e-6 : k == 2 ? 1e-12 : 0.1, above = exp(18.7 / n) - 1;
    memset(a, 0, 8 * (size_t)m * (size_t)n);
    for (int r = 0; r < (k == 3 ? 1 : k == 4 ? n / 2 : n); r++) {
        double size = pow(low, n > 1 ? (double)r / (n - 1) : 0);
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++)
                a[i * n + j] += k == GRADED ? (r < j ? -above : r == j) * x.q[i * m + r]
                                            : size * x.q[i * m + r] * y.q[j * n + r];
    }
    for (int i = 0; i < m * n; i++) {
        a[i] = (k == 5 && i % n == n / 2) || (k == 6 && i % n % 3 == 0) || k == 7 ? 0 : a[i];
        a[i] *= k == 8 ? 1e-300 : k == 9 ? 1e300 : 1;
    }
    a[0] = k == 10 ? NAN : a[0];
    free(x.q), free(x.value), free(y.q), free(y.value);
}

static void check_columns(int k, int m, int n, const double *a, const double *q)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double one = 0, r = 0, most = 0;
            for (int l = 0; l < m; l++) {
                one += q[l * n + i] * q[l * n + j];
                r += q[l * n + i] * a[l * n + j];
                most = fmax(most, fabs(a[l * n + j]));
            }
            ck_assert_msg(fabs(one - (i == j)) <= 1e-9, "%d: Q.T Q (%d, %d) is %g", k, i, j, one);
            ck_assert_msg(i < j || (i == j ? r >= -1e-12 * most : fabs(r) <= 1e-9 * most),
                          "%d: R (%d, %d) is %g", k, i, j, r);
            ck_assert_msg(k != 7 || q[i * n + j] == (i == j), "of zeros (%d, %d) is %g", i, j,
                          q[i * n + j]);
        }
}

START_TEST(orthonormal_columns)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'qr', view = 'last', rank = 7, state = { A = zeros 'rows', Q = "
        "eye(3, 'rows'), B = "
        "zeros 'cols rank', P = zeros 'cols rank' },\n"
        "  matrix = function() Q = qr(A, { last = Q })  P = qr(B, { last = P })  A = A + 0 * "
        "sum(g)  B = B + 0 * sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    int m = getenv("OPTC_TEST_SMALL") ? 20 : 200, c = getenv("OPTC_TEST_SMALL") ? 33 : 300;
    /* if everything else fails, one block computes reflections */
    bool alone = _i < 2;
    double *a = malloc(8 * (size_t)(m * m + c * 7)), *q = malloc(8 * (size_t)(m * m + c * 7));
    TestShape some[NSHAPES] = {{0, {0}}};
    Side g;
    for (int k = 0; k < NCOLUMNS; k++)
        some[k] = (TestShape){2, {m, c}};
    if (getenv("OPTC_TEST_SMALL") && _i == 0)
        return;
    use_shapes(some);
    use_cublas(_i);
    side_method = alone ? EIGEN_BY_SIZE : EIGEN_DIVIDED;
    open_side(&g, "cuda", (optc_rule_options){.text = text, .param = OPTC_F64, .products = "f64"},
              0);
    side_method = EIGEN_BY_SIZE;
    for (int k = 0; k < NCOLUMNS; k++) {
        make_columns(k, m, m, a);
        OK(optc_state_write(g.b, k, "A", a, m * m));
        make_columns(k, c, 7, a);
        OK(optc_state_write(g.b, k, "B", a, c * 7));
    }
    set_grads(&g, 1);
    OK(optc_step(g.b));
    for (int k = 0; k < NCOLUMNS; k++) {
        optc_factors said;
        OK(optc_factors_about(g.b, k, &said));
        bool lost = k == 10 || (!alone && k >= 7);
        ck_assert_msg(said.computed == 2 && said.refused == (lost ? 2 : 0), "%d: %d refused", k,
                      (int)said.refused);
        OK(optc_state_read(g.b, k, "Q", q, m * m));
        ck_assert(!lost || (q[0] == 3 && q[1] == 0));
        make_columns(k, m, m, a);
        if (!lost)
            check_columns(k, m, m, a, q);
        OK(optc_state_read(g.b, k, "P", q, c * 7));
        make_columns(k, c, 7, a);
        if (!lost)
            check_columns(k, c, 7, a, q);
    }
    close_side(&g, 0);
    use_cublas(true);
    free(a), free(q);
}
END_TEST

/* The part of a record that holds a QR's odd rounds (area 1), or the even ones: of matrix i, n x
 * n. */
static void read_round(const Side *g, int area, int i, int n, double *to)
{
    const GpuCalls *x = g->b->gpu->calls;
    CUdeviceptr at = area_at(x, &x->area[area]) + (CUdeviceptr)(i * x->area[area].apart);
    OK(optc_sync(g->b));
    device_get(to, (const void *)(uintptr_t)at, 8 * (size_t)(n * n));
}

static double gram_error(int n, const double *q)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += q[k * n + i] * q[k * n + j];
            most = fmax(most, fabs(sum - (i == j)));
        }
    return most;
}

/* Two rounds settle matrices of condition 1e6, whose first round is not orthonormal. The graph of
 * later steps then leaves the third round out, and runs it if one matrix has a column of zeros.
 * Results do not depend on whether it ran: the first step has no graph, and a binding without that
 * column has the same bits. _i: 1 with random vectors, 2 with a guard, 3 with both. A guarded step
 * is a conditional body, so that the third round is a body inside of it. */
START_TEST(two_rounds)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'qr', view = 'last', state = { A = zeros 'rows', Q = eye(3, "
        "'rows') },\n"
        "  matrix = function() Q = qr(A, { last = Q })  A = A + 0 * sum(g)  p = p + 0 * g end, "
        "step = function() p = p + 0 * g end }";
    enum { M = 96 };
    static double a[M * M], first[2][2][M * M], q[M * M];
    static const int columns[2][2] = {{1, 0}, {1, 5}};
    bool guarded = _i / 2;
    float *guard = device_take(sizeof *guard);
    device_put(guard, &(float){0}, sizeof *guard);
    for (int dependent = 0; dependent < 2; dependent++) {
        TestShape some[NSHAPES] = {{2, {M, 3}}, {2, {M, 3}}};
        Side g;
        use_shapes(some);
        side_probed = _i % 2 ? M : 1000;
        open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
        side_probed = 0;
        if (guarded)
            OK(optc_set_guard(g.b, guard, OPTC_F32));
        for (int k = 0; k < 2; k++) {
            make_columns(columns[dependent][k], M, M, a);
            OK(optc_state_write(g.b, k, "A", a, M * M));
        }
        for (int step = 1; step <= 3; step++) {
            set_grads(&g, step);
            OK(optc_step(g.b));
            for (int k = 0; k < 2; k++) {
                OK(optc_state_read(g.b, k, "Q", q, M * M));
                ck_assert_msg(gram_error(M, q) < 1e-6, "matrix %d, step %d: off by %g", k, step,
                              gram_error(M, q));
                if (step == 1)
                    memcpy(first[dependent][k], q, sizeof q);
                ck_assert_msg(!memcmp(first[dependent][k], q, sizeof q),
                              "matrix %d: other bits in step %d", k, step);
            }
            read_round(&g, 1, 0, M, q);
            bool ran = (step == 1 && !guarded) || dependent || !g.b->gpu->code->call[KERNEL_PHASE];
            ck_assert_msg((gram_error(M, q) < 1e-9) == ran, "step %d, %s: %g", step,
                          ran ? "has no third round" : "has a third round", gram_error(M, q));
        }
        ck_assert(calls_body_nodes(g.b) > 0 || !g.b->gpu->code->call[KERNEL_PHASE]);
        close_side(&g, 0);
    }
    device_give(guard);
    ck_assert(!memcmp(first[0][0], first[1][0], sizeof q));
}
END_TEST

/* The triangle Q.T A of a result in f32. */
static void check_triangle(int n, const double *a, const double *q)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double r = 0;
            for (int l = 0; l < n; l++)
                r += q[l * n + i] * a[l * n + j];
            ck_assert_msg(i == j ? r >= -1e-6 : fabs(r) <= 1e-6, "R (%d, %d) is %g", i, j, r);
        }
}

/* A rule with a period tries one round, then two, then three from the matrix again. Matrices of
 * condition 10, of condition 1e6, with a column of zeros, and GRADED, which only three rounds
 * settle. The bits of a matrix do not depend on the other matrix of the call, nor on a graph: step
 * 1 has none. Bits of _i: 1 random vectors, 2 blocks of 256 columns (two of them on a real GPU), 4
 * a guard */
START_TEST(short_rounds)
{
    SHARED();
    static const char text[] = "return optimizer { name = 'qr', view = 'last', state = { A = zeros "
                               "'rows', Q = eye(3, 'rows') },\n"
                               "  matrix = function() every(2, { offset = 1 }, function() Q = "
                               "qr(A, { last = Q }) end)  A = A + 0 * sum(g)  "
                               "p = p + 0 * g end, step = function() p = p + 0 * g end }";
    enum { LARGE = 330, SETS = 7, STEPS = 5 };
    bool few = getenv("OPTC_TEST_SMALL") && !getenv("OPTC_ALL"), guarded = _i & 4;
    const int M = !(_i & 2) ? 96 : few ? 200 : LARGE;
    const size_t bytes = sizeof(double) * (size_t)(M * M);
    static const int columns[SETS][2] = {{0, 0},      {0, 1},      {0, 5},     {1, 5},
                                         {GRADED, 0}, {GRADED, 1}, {GRADED, 5}};
    static double a[LARGE * LARGE], first[SETS][2][LARGE * LARGE], q[LARGE * LARGE];
    if (few && (_i == 3 || _i > 4))
        return;
    float *guard = device_take(sizeof *guard);
    device_put(guard, &(float){0}, sizeof *guard);
    const int from = few && guarded ? 4 : 0, end = few && _i & 3 ? 4 : SETS;
    for (int set = from; set < end; set++) {
        TestShape some[NSHAPES] = {{2, {M, 3}}, {2, {M, 3}}};
        Side g;
        use_shapes(some);
        side_probed = _i & 1 ? M : 1000;
        open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
        side_probed = 0;
        if (guarded)
            OK(optc_set_guard(g.b, guard, OPTC_F32));
        for (int k = 0; k < 2; k++) {
            make_columns(columns[set][k], M, M, a);
            OK(optc_state_write(g.b, k, "A", a, M * M));
        }
        for (int step = 1; step <= STEPS; step++) {
            set_grads(&g, step);
            OK(optc_step(g.b));
            for (int k = 0; k < 2; k++) {
                OK(optc_state_read(g.b, k, "Q", q, M * M));
                if (step == 1) {
                    ck_assert_msg(gram_error(M, q) < 1e-6, "set %d, matrix %d: off by %g", set, k,
                                  gram_error(M, q));
                    make_columns(columns[set][k], M, M, a);
                    check_triangle(M, a, q);
                    memcpy(first[set][k], q, bytes);
                }
                ck_assert_msg(!memcmp(first[set][k], q, bytes),
                              "set %d, matrix %d: other bits in step %d", set, k, step);
            }
        }
        for (int k = 0; k < 2; k++) {
            optc_factors about;
            OK(optc_factors_about(g.b, k, &about));
            ck_assert_msg(about.computed == (STEPS + 1) / 2 && !about.refused, "%d computed",
                          (int)about.computed);
        }
        /* the matrix itself, unless a second round ran */
        read_round(&g, 0, 0, M, q);
        if (driver_conditions(g.b))
            ck_assert_msg((gram_error(M, q) < 1e-6) == (set > 0), "set %d: %g", set,
                          gram_error(M, q));
        close_side(&g, 0);
    }
    device_give(guard);
    for (int at = 2 * from; at < 2 * end; at++)
        for (int other = 2 * from; other < at; other++)
            ck_assert_msg(columns[at / 2][at % 2] != columns[other / 2][other % 2] ||
                              !memcmp(first[at / 2][at % 2], first[other / 2][other % 2], bytes),
                          "columns %d: sets %d and %d differ", columns[at / 2][at % 2], at / 2,
                          other / 2);
}
END_TEST

/* Ways in which steps run: graphs of the binding, no graphs, and replays of a caller's graph. Bits
 * are the same in all ways with one driver; other drivers use other libraries. Those before CUDA
 * 12.8 have an IF node for each body, and those before 12.4 have no conditional nodes: they cannot
 * capture a rule with periods. */
typedef struct Way { int driver; bool graphs, captured; } Way;
static const Way ways[] = {{0, true, false},
                           {0, false, false},
                           {0, true, true},
                           {SWITCH_NEEDED - 10, true, false},
                           {SWITCH_NEEDED - 10, true, true},
                           {CONDITIONS_NEEDED - 10, true, false},
                           {CONDITIONS_NEEDED - 10, false, false},
                           {CONDITIONS_NEEDED - 10, true, true}};
enum {
    WAYS = sizeof ways / sizeof *ways, SIDES = 70, MATRICES = 6, WAY_STEPS = 5, ALL = -1,
    NO_NUMBERS = 10
};
static const int way_columns[MATRICES] = {0, 1, 5, GRADED, NO_NUMBERS, 7};
#define BASES(how) \
    "return optimizer { name = 'qr', view = 'last', state = { A = zeros 'rows', Q = eye(3, " \
    "'rows') },\n" \
    "  matrix = function() A = A + 0 * sum(g)  every(2, { " how \
    " }, function() Q = qr(A, { last = Q }) end)  " \
    "p = p + 0 * g end, step = function() p = p + 0 * g end }"

/* alone: the only matrix that needs more than one round, or ALL */
static void run_way(const char *text, Way w, int alone, double q[][SIDES * SIDES])
{
    static double a[SIDES * SIDES];
    TestShape some[NSHAPES] = {{0, {0}}};
    CUstream st;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    Side g;
    for (int k = 0; k < MATRICES; k++)
        some[k] = (TestShape){2, {SIDES, 3}};
    use_shapes(some);
    side_driver = w.driver;
    side_workspace = alone == ALL ? 0 : 1 << 20;           /* two matrices at a time */
    open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
    side_driver = side_workspace = 0;
    ck_assert((g.b->gpu->calls->area[0].count < MATRICES) == (alone != ALL));
    g.e->gpu->no_graphs = !w.graphs;
    ck_assert(!d->cuStreamCreate(&st, 1));
    for (int k = 0; k < MATRICES; k++) {
        make_columns(alone == ALL || k == alone ? way_columns[k] : 0, SIDES, SIDES, a);
        OK(optc_state_write(g.b, k, "A", a, SIDES * SIDES));
    }
    for (int step = 1; step <= WAY_STEPS; step++) {
        set_grads(&g, step);
        if (step == 2 && w.captured) {
            OK(optc_sync(g.b));
            OK(optc_set_stream(g.b, st));
            ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
            OK(optc_step(g.b));
            ck_assert(!d->cuStreamEndCapture(st, &graph) &&
                      !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
        }
        if (exec)
            ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
        else
            OK(optc_step(g.b));
    }
    for (int k = 0; k < MATRICES; k++) {
        OK(optc_state_read(g.b, k, "Q", q[k], SIDES * SIDES));
        bool kept = way_columns[k] == NO_NUMBERS && (alone == ALL || k == alone);
        ck_assert_msg(kept ? q[k][0] == 3 && q[k][1] == 0 : gram_error(SIDES, q[k]) < 1e-6,
                      "matrix %d: off by %g", k, gram_error(SIDES, q[k]));
    }
    if (exec)
        d->cuGraphExecDestroy(exec), d->cuGraphDestroy(graph);
    OK(optc_set_stream(g.b, NULL));
    close_side(&g, 0);
    d->cuStreamDestroy_v2(st);
}

START_TEST(same_in_all_ways)
{
    SHARED();
    static double first[MATRICES][SIDES * SIDES], q[MATRICES][SIDES * SIDES];
    const char *text = _i ? BASES("stagger = true") : BASES("offset = 1");
    for (int i = 0; i < WAYS; i++) {
        const bool starts = !i || ways[i].driver != ways[i - 1].driver;
        if (ways[i].driver == CONDITIONS_NEEDED - 10 && ways[i].captured && !_i)
            continue;
        run_way(text, ways[i], ALL, starts ? first : q);
        for (int k = 0; k < MATRICES && !starts; k++)
            ck_assert_msg(!memcmp(first[k], q[k], sizeof *q), "way %d: other bits of matrix %d", i,
                          k);
        for (int k = 0; k < MATRICES && !i; k++) {
            run_way(text, ways[i], k, q);
            ck_assert_msg(!memcmp(first[k], q[k], sizeof *q),
                          "other bits of matrix %d without the others", k);
        }
    }
}
END_TEST

/* ---- graphs that cannot be made ---- */
static const Driver *real;
static int calls_left;                     /* this many calls about bodies succeed; below 0: the
                                            * call failed */
static bool call_fails(void) { return calls_left >= 0 && calls_left-- == 0; }
static int fail_info(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *g,
                     const CUgraphNode **after, const CUgraphEdgeData **edge, size_t *n)
{
    return call_fails() ? 1 : real->cuStreamGetCaptureInfo_v3(s, status, id, g, after, edge, n);
}
static int fail_handle(CUgraphConditionalHandle *h, CUgraph g, CUcontext c, unsigned value,
                       unsigned flags)
{
    return call_fails() ? 1 : real->cuGraphConditionalHandleCreate(h, g, c, value, flags);
}
static int fail_node(CUgraphNode *out, CUgraph g, const CUgraphNode *after,
                     const CUgraphEdgeData *edge, size_t n, CUgraphNodeParams *p)
{
    return call_fails() ? 1 : real->cuGraphAddNode_v2(out, g, after, edge, n, p);
}
static int fail_body(CUstream s, CUgraph g, const CUgraphNode *after, const CUgraphEdgeData *edge,
                     size_t n, CUstreamCaptureMode m)
{
    return call_fails() ? 1 : real->cuStreamBeginCaptureToGraph(s, g, after, edge, n, m);
}
static int fail_end(CUstream s, CUgraph *g)
{
    int rc = real->cuStreamEndCapture(s, g);
    return call_fails() ? 1 : rc;
}

static optc_status failing_step(Side *g)
{
    Driver failing = *(real = g->e->gpu->d);
    failing.cuStreamGetCaptureInfo_v3 = fail_info;
    failing.cuGraphConditionalHandleCreate = fail_handle;
    failing.cuGraphAddNode_v2 = fail_node;
    failing.cuStreamBeginCaptureToGraph = fail_body;
    failing.cuStreamEndCapture = fail_end;
    g->e->gpu->d = &failing;
    optc_status s = optc_step(g->b);
    g->e->gpu->d = real;
    return s;
}

enum { FEW = 20 };
static void open_few(Side *g, const char *text)
{
    static double a[FEW * FEW];
    TestShape some[NSHAPES] = {{2, {FEW, 3}}, {2, {FEW, 3}}};
    use_shapes(some);
    open_side(g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
    for (int k = 0; k < 2; k++) {
        make_columns(k ? 5 : 1, FEW, FEW, a);
        OK(optc_state_write(g->b, k, "A", a, FEW * FEW));
    }
    set_grads(g, 1);
}

static void same_basis(Side *a, Side *b, const char *what, int calls)
{
    static double x[FEW * FEW], y[FEW * FEW];
    for (int k = 0; k < 2; k++) {
        OK(optc_state_read(a->b, k, "Q", x, FEW * FEW));
        OK(optc_state_read(b->b, k, "Q", y, FEW * FEW));
        ck_assert_msg(!memcmp(x, y, sizeof x), "%s, %d calls: other bits of matrix %d", what, calls,
                      k);
    }
}

/* Each call that makes a body fails once: in the graph of a guarded step, where the step fails and
 * changes nothing, and in the binding's own graph, whose launches then run one by one. */
START_TEST(bodies_fail)
{
    SHARED();
    const char *text = _i ? BASES("stagger = true") : BASES("offset = 1");
    Side a, b;
    int64_t t;
    int calls = 0;
    float *guard = device_take(sizeof *guard);
    device_put(guard, &(float){0}, sizeof *guard);
    open_few(&a, text);
    open_few(&b, text);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    for (;; calls++) {
        calls_left = calls;
        optc_status s = failing_step(&a);
        ck_assert_msg(s == OPTC_OK || calls_left < 0, "%d calls: %s", calls, optc_message());
        if (calls_left >= 0)
            break;
        /* it only counted nodes, for the limit of slot lists */
        if (s == OPTC_OK) {
            close_side(&a, 0);
            open_few(&a, text);
            OK(optc_set_guard(a.b, guard, OPTC_F32));
            continue;
        }
        same_basis(&a, &b, "guard", calls);
        OK(optc_get_t(a.b, -1, &t));
        ck_assert_msg(!t, "%d calls: t is %d", calls, (int)t);
    }
    ck_assert_msg(calls > 10, "%d calls", calls);
    OK(optc_step(b.b));
    for (int step = 2; step <= 4; step++) {
        OK(optc_step(a.b));
        OK(optc_step(b.b));
        same_basis(&a, &b, "later", step);
    }
    close_side(&a, 0);
    calls_left = -1;
    for (calls = 0; calls_left < 0; calls++) {
        open_few(&a, text);
        calls_left = calls;
        for (int step = 1; step <= 6; step++)
            ck_assert_msg(failing_step(&a) == OPTC_OK, "step %d, %d calls: %s", step, calls,
                          optc_message());
        same_basis(&a, &b, "own", calls);
        close_side(&a, 0);
    }
    ck_assert_msg(calls > 6, "%d calls", calls);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* Gradients, step counts, matrices and files change between steps, with graphs and without. In
 * later steps other matrices need more rounds. Bits of _i: 1 stagger, 2 a guard */
START_TEST(changes_between_steps)
{
    SHARED();
    const char *text = _i & 1 ? BASES("stagger = true") : BASES("offset = 1");
    static double matrix[FEW * FEW];
    Side s[2];
    float *guard = device_take(sizeof *guard);
    optc_checkpoint file[2] = {{.params = 1}, {.params = 1}};
    device_put(guard, &(float){0}, sizeof *guard);
    open_few(&s[0], text);
    open_few(&s[1], text);
    s[1].e->gpu->no_graphs = true;
    if (_i & 2)
        OK(optc_set_guard(s[0].b, guard, OPTC_F32));
    for (int step = 1; step <= 16; step++) {
        for (int k = 0; k < 2; k++) {
            Side *x = &s[k];
            if (step == 3 || step == 6)
                OK(optc_set_grad(x->b, 1, step == 6 ? (void *)(uintptr_t)x->g[1] : NULL,
                                 step == 6 ? x->n[1] : 0));
            if (step == 8)
                OK(optc_set_t(x->b, -1, 2));
            if (step == 5) {
                OK(optc_save_bytes(&x->b, 1, &file[k], &file[k].size));
                ck_assert((file[k].memory = malloc((size_t)file[k].size)) != NULL);
                OK(optc_save(&x->b, 1, &file[k]));
            }
            if (step == 11)
                OK(optc_load(&x->b, 1, &file[k]));
            for (int i = 0; i < 2 && (step == 7 || step == 13); i++) {
                make_columns(step == 7 ? 0 : i ? GRADED : 10, FEW, FEW, matrix);
                OK(optc_state_write(x->b, i, "A", matrix, FEW * FEW));
            }
            OK(optc_step(x->b));
        }
        same_basis(&s[0], &s[1], "step", step);
        for (int i = 0; i < 2; i++) {
            optc_factors a, b;
            OK(optc_factors_about(s[0].b, i, &a));
            OK(optc_factors_about(s[1].b, i, &b));
            ck_assert_msg(a.computed == b.computed && a.refused == b.refused &&
                              (i || step < 13 ? !a.refused : a.refused || step < 15),
                          "step %d, matrix %d: %d and %d factors, %d and %d refused", step, i,
                          (int)a.computed, (int)b.computed, (int)a.refused, (int)b.refused);
        }
    }
    for (int k = 0; k < 2; k++) {
        free(file[k].memory);
        close_side(&s[k], 0);
    }
    device_give(guard);
}
END_TEST

void add_columns(TCase *t)
{
    tcase_add_loop_test(t, changes_between_steps, 0, 4);
    tcase_add_loop_test(t, bodies_fail, 0, 2);
    tcase_add_loop_test(t, same_in_all_ways, 0, 2);
    tcase_add_loop_test(t, orthonormal_columns, 0, 3);
    tcase_add_loop_test(t, two_rounds, 0, 4);
    tcase_add_loop_test(t, short_rounds, 0, 8);
}

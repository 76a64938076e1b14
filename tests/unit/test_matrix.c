/* Matrix values: mm, .T, gram, outer, diag, trace, eye, triu, tril and folds along an axis against
 * plain loops over each matrix; and the fusion of transposes, factors and sums with products.
 * test_polar.c has orthogonal factors and fallback rules. */
#include "gen/eval/eval.h"
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { MOST = 9, DIRS = 3 };

/* ---- the table of words ---- */
/* The operands: g, its row sums u and column sums v, A = g (g*g)^T, B = g g^T, C = g^T g, D of cols
 * x rank, E = g D. */
typedef struct {
    int n, k, r;
    double g[MOST][MOST], u[MOST], v[MOST], A[MOST][MOST], B[MOST][MOST], C[MOST][MOST],
        AB[MOST][MOST], D[MOST][DIRS], E[MOST][DIRS];
    double bsum[MOST], one[MOST], most;    /* row sums of B; ones; the maximum of A */
} X;

static double sum_row(const X *x, double (*f)(const X *, int, int), int i)
{
    double s = 0;
    for (int j = 0; j < x->n; j++)
        s += f(x, i, j);
    return s;
}
static double a_at(const X *x, int i, int j) { return x->A[i][j]; }
static double a_turned(const X *x, int i, int j) { return x->A[j][i]; }
static double a_square(const X *x, int i, int j) { return x->A[i][j] * x->A[i][j]; }
static double most_of(const X *x, double (*f)(const X *, int, int), int i)
{
    double m = -INFINITY;
    for (int j = 0; j < x->n; j++)
        m = fmax(m, f(x, i, j));
    return m;
}
static double trace_of_c(const X *x)
{
    double s = 0;
    for (int j = 0; j < x->k; j++)
        s += x->C[j][j];
    return s;
}
/* sum over the rows or columns of a product of two of the above */
static double over(int n, const double *a, int da, const double *b, int db)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += a[i * da] * b[i * db];
    return s;
}
#define ROW_OF(m) &x->m[i][0], 1
#define COL_OF(m, stride) &x->m[0][j], stride

/* V(state, domain, expression in the spec, value at row i and column j) */
#define WORDS(V) \
    V(mm1, "rows", "mm(g, g.T)", x->B[i][j]) \
    V(mm2, "cols", "mm(g.T, g)", x->C[i][j]) \
    V(mm3, "rows", "mm(g, (g * g).T)", x->A[i][j]) \
    V(mm4, "elem", "mm(A, g)", over(x->n, ROW_OF(A), COL_OF(g, MOST))) \
    V(mm5, "elem", "mm(A.T, g)", over(x->n, &x->A[0][i], MOST, COL_OF(g, MOST))) \
    V(mm6, "elem", "mm(g, C)", over(x->k, ROW_OF(g), COL_OF(C, MOST))) \
    V(mm7, "elem", "mm(g.T, A).T", over(x->n, &x->A[0][i], MOST, COL_OF(g, MOST))) \
    V(mm8, "elem", "mm(2 * g.T - g.T * 0.5, A.T).T", 1.5 * over(x->n, ROW_OF(A), COL_OF(g, MOST))) \
    V(mm9, "rows", "mm(g, mm(g.T, A))", over(x->n, ROW_OF(B), COL_OF(A, MOST))) \
    V(mv1, "row", "mm(g, v)", over(x->k, ROW_OF(g), x->v, 1)) \
    V(mv2, "col", "mm(g.T, u)", over(x->n, x->u, 1, COL_OF(g, MOST))) \
    V(mv3, "col", "mm(u.T, g)", over(x->n, x->u, 1, COL_OF(g, MOST))) \
    V(mv4, "row", "mm(A, u)", over(x->n, ROW_OF(A), x->u, 1)) \
    V(mv5, "row", "mm(A, colsum(B).T)", over(x->n, ROW_OF(A), x->bsum, 1)) \
    V(in1, "slice", "mm(u.T, u)", over(x->n, x->u, 1, x->u, 1)) \
    V(in2, "slice", "mm(colsum(B), u)", over(x->n, x->bsum, 1, x->u, 1)) \
    V(gr1, "rows", "gram(g)", x->B[i][j]) \
    V(gr2, "cols", "gram(g.T)", x->C[i][j]) \
    V(gr3, "rows", "gram(u)", x->u[i] * x->u[j]) \
    V(ou1, "elem", "outer(u, v)", x->u[i] * x->v[j]) \
    V(ou2, "rows", "outer(u, 2 * u)", 2 * x->u[i] * x->u[j]) \
    V(ou3, "cols", "outer(v, v)", x->v[i] * x->v[j]) \
    V(ou4, "elem", "outer(v, u).T", x->u[i] * x->v[j]) \
    V(ou5, "elem", "mm(u, v.T)", x->u[i] * x->v[j]) \
    V(di1, "rows", "diag(u)", i == j ? x->u[i] : 0) \
    V(di2, "cols", "diag(v)", i == j ? x->v[i] : 0) \
    V(di3, "row", "diag(A)", x->A[i][i]) \
    V(di4, "col", "diag(C)", x->C[j][j]) \
    V(tr1, "slice", "trace(C)", trace_of_c(x)) \
    V(ey1, "cols", "eye(3, 'cols') + C", x->C[i][j] + 3 * (i == j)) \
    V(ey2, "rows", "eye 'rows' + eye(u, 'rows')", i == j ? 1 + x->u[i] : 0) \
    V(up1, "rows", "triu(A)", i <= j ? x->A[i][j] : 0) \
    V(lo1, "rows", "tril(A)", i >= j ? x->A[i][j] : 0) \
    V(su1, "row", "rowsum(A)", sum_row(x, a_at, i)) \
    V(su2, "row", "colsum(A).T", sum_row(x, a_turned, i)) \
    V(su3, "row", "rowsum(A.T)", sum_row(x, a_turned, i)) \
    V(su4, "row", "rowmean(A) + rowmax(A)", sum_row(x, a_at, i) / x->n + most_of(x, a_at, i)) \
    V(su5, "row", "colmax(A).T", most_of(x, a_turned, i)) \
    V(su6, "row", "rownorm(A)", sqrt(sum_row(x, a_square, i))) \
    V(su7, "col", "rowsum(g.T).T", x->v[j]) \
    V(su8, "slice", "slice.sum(g.T) + slice.max(A)", over(x->n, x->u, 1, x->one, 1) + x->most) \
    V(el1, "rows", "A + A.T", x->A[i][j] + x->A[j][i]) \
    V(el2, "rows", "A.T * 2 - A / rowsum(B)", x->A[j][i] * 2 - x->A[i][j] / x->bsum[i]) \
    V(el3, "rows", "A * u - u.T", x->A[i][j] * x->u[i] - x->u[j]) \
    V(el4, "rows", "where(lt(A, A.T), A, B.T)", x->A[i][j] < x->A[j][i] ? x->A[i][j] : x->B[i][j]) \
    V(fu1, "rows", "2 * mm(B, B) - 3 * B", \
      2 * over(x->n, ROW_OF(B), COL_OF(B, MOST)) - 3 * x->B[i][j]) \
    V(fu2, "rows", "B - mm(A, A)", x->B[i][j] - over(x->n, ROW_OF(A), COL_OF(A, MOST))) \
    V(fu3, "elem", "-(0.5 * mm(A, g) + mm(B, g))", \
      -0.5 * over(x->n, ROW_OF(A), COL_OF(g, MOST)) - over(x->n, ROW_OF(B), COL_OF(g, MOST))) \
    V(fu4, "elem", "mm(4 * mm(A, B), g)", 4 * over(x->n, ROW_OF(AB), COL_OF(g, MOST))) \
    V(rk1, "rows rank", "mm(g, D)", x->E[i][j]) \
    V(rk2, "rank", "gram(mm(g, D).T)", over(x->n, &x->E[0][i], DIRS, &x->E[0][j], DIRS)) \
    V(rk3, "rank rows", "mm(g, D).T", x->E[j][i]) \
    V(rk4, "rank1", "diag(gram(mm(g, D).T))", over(x->n, &x->E[0][i], DIRS, &x->E[0][i], DIRS)) \
    V(rk5, "elem", "mm(mm(g, D), D.T)", over(x->r, ROW_OF(E), &x->D[j][0], 1))

#define AT_FN(name, dom, lua, c) \
    static double at_##name(const X *x, int i, int j) \
    { \
        (void)i, (void)j; \
        return c; \
    }
WORDS(AT_FN)
static const struct { const char *name, *dom, *lua; double (*at)(const X *, int, int); } words[] = {
#define WORD_ROW(name, dom, lua, c) {#name, dom, lua, at_##name},
    WORDS(WORD_ROW)
};

static const char locals[] =
    "  local A, B, C = mm(g, (g * g).T), gram(g), gram(g.T)\n  local u, v = rowsum(g), colsum(g)\n";

/* One spec with all expressions, each assigned to a state of its name. */
static char *spec_of_words(void)
{
    Buf b = {0};
    buf_puts(&b, "return optimizer {\n name = 'words', view = 'last', rank = 3,\n state = { D = "
                 "fill(0.5, 'cols rank'),");
    for (int i = 0; i < COUNT(words); i++)
        buf_printf(&b, " %s = zeros '%s',", words[i].name, words[i].dom);
    buf_printf(&b, " },\n step = function() p = p - g end,\n matrix = function()\n%s", locals);
    for (int i = 0; i < COUNT(words); i++)
        buf_printf(&b, "  %s = %s\n", words[i].name, words[i].lua);
    buf_puts(&b, "  D = D + 0\n  p = p - g\n end }\n");
    ck_assert(!b.oom);
    return buf_take(&b);
}

static double grad_at(int tensor, int64_t i)
{
    return ref_value(tensor, 1, i) + 0.125 * (double)(i % 3);
}
static double d_at(int i, int j, int r) { return 0.25 * (i * r + j) - 1; }

static void products(X *x)
{
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) {
            double *a = &x->A[i][j], *b = &x->B[i][j], *c = &x->C[i][j];
            for (int k = 0; k < MOST; k++) {
                *a += x->g[i][k] * x->g[j][k] * x->g[j][k];
                *b += x->g[i][k] * x->g[j][k];
                *c += x->g[k][i] * x->g[k][j];
            }
            x->bsum[i] += *b;
            x->u[i] += x->g[i][j];
            x->v[j] += x->g[i][j];
            x->one[j] = 1;
        }
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) {
            for (int k = 0; k < MOST; k++)
                x->AB[i][j] += x->A[i][k] * x->B[k][j];
            for (int k = 0; k < x->k && j < x->r; k++)
                x->E[i][j] += x->g[i][k] * x->D[k][j];
        }
}

static X facts(int tensor, int slice, int n, int k)
{
    X x = {.n = n, .k = k, .r = n < k ? n : k, .most = -INFINITY};
    x.r = x.r < DIRS ? x.r : DIRS;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++)
            x.g[i][j] = grad_at(tensor, ((int64_t)slice * n + i) * k + j);
    for (int i = 0; i < k; i++)
        for (int j = 0; j < x.r; j++)
            x.D[i][j] = d_at(i, j, x.r);
    products(&x);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            x.most = fmax(x.most, x.A[i][j]);
    return x;
}

static const TestShape shapes[] =
    {{2, {5, 7}}, {2, {7, 5}}, {3, {2, 3, 4}}, {2, {1, 9}}, {2, {9, 1}}, {2, {4, 4}}, {2, {2, 2}}};
enum { NSHAPE = 7 };
static int slices_of(const TestShape *s) { return s->rank == 3 ? (int)s->dim[0] : 1; }
static int rows_of(const TestShape *s) { return (int)s->dim[s->rank - 2]; }
static int cols_of(const TestShape *s) { return (int)s->dim[s->rank - 1]; }

static int side(const char *word, const X *x)
{
    return !strcmp(word, "rows")   ? x->n
           : !strcmp(word, "cols") ? x->k
           : !strcmp(word, "rank") ? x->r
                                   : 1;
}

/* The number of rows and columns of a domain. */
static void sides(const char *dom, const X *x, int *down, int *across)
{
    char two[2][16] = {"", ""};
    int words = sscanf(dom, "%15s %15s", two[0], two[1]);
    *down = !strcmp(dom, "elem") || !strcmp(dom, "row") ? x->n
            : !strcmp(dom, "rank1")                     ? x->r
            : !strcmp(dom, "col")                       ? 1
                                                        : side(two[0], x);
    *across = !strcmp(dom, "elem") || !strcmp(dom, "col") ? x->k : !strcmp(dom, "row") ||
        !strcmp(dom, "rank1") ? 1 : side(two[words - 1], x);
}

static void open_words(Fixture *f, const char *text, const char *compiler, optc_type type)
{
    optc_engine_options eo = {
        .compiler = compiler, .cache_dir = compiler ? "" : NULL, .threads = 1};
    optc_rule_options ro = {
        .spec = "words.lua", .text = text, .param = type, .grad = type, .state = type};
    fix_open(f, &eo, &ro, shapes, NSHAPE, NULL, 0);
    for (int t = 0; t < NSHAPE; t++) {
        double d[MOST * DIRS];
        int k = cols_of(&shapes[t]), n = rows_of(&shapes[t]), r = n < k ? n : k;
        r = r < DIRS ? r : DIRS;
        for (int i = 0; i < f->count[t]; i++)
            type_store(f->type, f->g[t], i, grad_at(t, i));
        for (int s = 0; s < slices_of(&shapes[t]) * k * r; s++)
            d[s] = d_at(s % (k * r) / r, s % r, r);
        OK(optc_state_write(f->binding, t, "D", d, slices_of(&shapes[t]) * k * r));
    }
}

static void hold_words(Fixture *f)
{
    for (int t = 0; t < NSHAPE; t++)
        for (int w = 0; w < COUNT(words); w++) {
            double got[2 * MOST * MOST];
            int down, across, n = rows_of(&shapes[t]), k = cols_of(&shapes[t]), at = 0;
            X x = facts(t, 0, n, k);
            sides(words[w].dom, &x, &down, &across);
            OK(optc_state_read(f->binding, t, words[w].name, got,
                               slices_of(&shapes[t]) * down * across));
            for (int s = 0; s < slices_of(&shapes[t]); s++) {
                x = facts(t, s, n, k);
                for (int i = 0; i < down; i++)
                    for (int j = 0; j < across; j++, at++) {
                        double want = words[w].at(&x, i, j);
                        ck_assert_msg(fabs(got[at] - want) <= 1e-12 * (1 + fabs(want)),
                                      "%s = %s of %d x %d, matrix %d: (%d, %d) is %.17g, not %.17g",
                                      words[w].name, words[w].lua, n, k, s, i, j, got[at], want);
                    }
            }
        }
}

enum { NWORDS = COUNT(words) };

/* Every expression on the evaluator. */
START_TEST(words_evaluated)
{
    char *text = spec_of_words();
    Fixture f;
    open_words(&f, text, "", OPTC_F64);
    ck_assert_msg(!optc_rule_native(f.rule), "%s", optc_rule_path(f.rule));
    OK(optc_step(f.binding));
    hold_words(&f);
    fix_close(&f);
    free(text);
}
END_TEST

/* … and compiled: in f64 against the loops, in f32 inside the evaluator's bounds. */
START_TEST(words_compiled)
{
    char *text = spec_of_words(), *why;
    Fixture f;
    open_words(&f, text, NULL, _i ? OPTC_F32 : OPTC_F64);
    ck_assert_msg(optc_rule_native(f.rule), "%s", optc_rule_path(f.rule));
    why = step_in_bounds(&f, "step");
    ck_assert_msg(!why, "%s", why);
    if (!_i)
        hold_words(&f);
    fix_close(&f);
    free(text);
}
END_TEST

/* ---- bounds of products ---- */
static double as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, 4);
    return (double)x;
}

typedef struct {
    Gen gen; Vals g, p, state[1]; EvalTensor tensor; EvalGroup group; EvalJob job;
} Bounded;

static Vals room(int64_t n)
{
    return (Vals){calloc((size_t)n, 8), calloc((size_t)n, 8), calloc((size_t)n, 8), n};
}

/* L = g (g * g)^T of one matrix, with bounds. */
static void eval_bounded(Bounded *b, int n, int k, Product product, bool gpu)
{
    static const char text[] = "return optimizer { name = 'x', state = { L = zeros 'rows' }, step "
                               "= function() L = mm(g, (g * g).T) p = p - g "
                               "end }";
    static const double hyper[1] = {0};
    *b = (Bounded){.g = room(n * k), .p = room(n * k), .state = {room(n * n)}};
    ck_assert_msg(gen_compile(&b->gen, (Source){"x.lua", text, strlen(text)},
                              &(GenOptions){.rule_only = true}),
                  "%s", b->gen.diag.text);
    for (int i = 0; i < n * k; i++)
        b->g.v[i] = b->g.lo[i] = b->g.hi[i] = (double)(float)grad_at(0, i);
    b->tensor = (EvalTensor){.shape = {n * k, 1, n, k, 0, 0},
                             .whole = {n * k, 1, n, k, 0, 0},
                             .p = b->p,
                             .g = b->g,
                             .state = b->state};
    b->group = (EvalGroup){.hyper = hyper};
    b->job = (EvalJob){.rule = b->gen.rule,
                       .t = 1,
                       .tensor = &b->tensor,
                       .ntensor = 1,
                       .group = &b->group,
                       .ngroup = 1,
                       .bounds = true,
                       .real = T_F32,
                       .product = product,
                       .target = gpu ? &target_cuda : &target_c};
    ck_assert(eval_entry(&b->job));
}

/* Operands rounded to their type, sums in f32 in both directions, the result rounded: all inside
 * the bounds, which are no wider than that needs. */
START_TEST(products_in_bounds)
{
    static const struct { Product product; bool gpu; double wide;
    } kinds[] = {
        {PRODUCT_F32, true, 0x1p-16}, {PRODUCT_BF16, true, 0x1p-5}, {PRODUCT_BF16, false, 0x1p-16}};
    enum { N = 6, K = 33 };
    Bounded b;
    bool low = kinds[_i].product == PRODUCT_BF16 && kinds[_i].gpu;
    eval_bounded(&b, N, K, kinds[_i].product, kinds[_i].gpu);
    for (int i = 0; i < N * N; i++)
        for (int back = 0; back < 2; back++) {
            float sum = 0;
            double mag = 0;
            for (int k = 0; k < K; k++) {
                int at = back ? K - 1 - k : k;
                float x = (float)b.g.v[i / N * K + at], y = (float)b.g.v[i % N * K + at];
                sum += low ? (float)as_bf16(x) * (float)as_bf16(y * y) : x * (y * y);
                mag += fabs((double)x * y * y);
            }
            double got = low ? as_bf16(sum) : (double)sum, lo = b.state[0].lo[i],
                   hi = b.state[0].hi[i];
            ck_assert_msg(got >= lo && got <= hi, "value %d: %.9g is not in [%.9g, %.9g]", i, got,
                          lo, hi);
            ck_assert_msg(hi - lo <= kinds[_i].wide * mag, "value %d: [%.9g, %.9g] is wide", i, lo,
                          hi);
        }
    for (int i = 0; i < 3; i++) {
        Vals *v = i == 0 ? &b.g : i == 1 ? &b.p : &b.state[0];
        free(v->v), free(v->lo), free(v->hi);
    }
    gen_free(&b.gen);
}
END_TEST

/* ---- what is traced ---- */
static char *dumped(const char *text, bool ir, const char *pass)
{
    Gen g = {0};
    Buf b = {0};
    GenOptions o = {.find = find_wrapper, .dump = pass, .dump_to = &b, .rule_only = true};
    Source s = {"made.lua", text, strlen(text)};
    ck_assert_msg(ir ? gen_read_ir(&g, s, &o) : gen_compile(&g, s, &o), "%s", g.diag.text);
    gen_free(&g);
    return buf_take(&b);
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, part)); s += strlen(part))
        n++;
    return n;
}

START_TEST(text_reads_back)
{
    char *spec = spec_of_words();
    static const char *const passes[] = {"trace", "fold", "calls"};
    for (int i = 0; i < COUNT(passes); i++) {
        char *ir = dumped(spec, false, passes[i]), *again = dumped(ir, true, "trace");
        ck_assert_msg(!strcmp(ir, again), "after %s:\n%s\nread back:\n%s", passes[i], ir, again);
        free(ir);
        free(again);
    }
    free(spec);
}
END_TEST

/* How many products, symmetric products, transposes and sums remain of an expression of L (rows), M
 * (rows) and g. */
static const struct { const char *y, *lua; int mm, symmetric, turn, beta, diagonal; } forms[] = {
    {"L", "mm(g, g.T)", 1, 1, 0, 0, 0},
    {"L", "gram(g).T", 1, 1, 0, 0, 0},
    {"L", "mm(2 * g, 2 * g.T)", 1, 1, 0, 0, 0},
    {"L", "mm((3 * g.T - g.T / 7).T, g.T)", 1, 0, 0, 0, 0},
    {"L", "(L.T).T + M", 0, 0, 0, 0, 0},
    {"L", "(L.T + M.T).T", 0, 0, 0, 0, 0},
    {"L", "sqrt(L.T * 2).T", 0, 0, 0, 0, 0},
    {"L", "L + M.T", 0, 0, 1, 0, 0},
    {"L", "(L + L.T).T", 0, 0, 1, 0, 0},
    {"L", "mm(L + L.T, L + L.T)", 1, 1, 1, 0, 0},
    {"L", "(eye(2, 'rows') - gram(g)).T", 1, 1, 0, 0, 0},
    {"L", "mm(L.T, M.T)", 1, 0, 0, 0, 0},
    {"L", "mm(L, L)", 1, 0, 0, 0, 0},
    {"L", "mm(L.T, L)", 1, 1, 0, 0, 0},
    {"L", "where(lt(L.T, 0), L.T, 1).T", 0, 0, 2, 0, 0},
    {"L", "mm(where(lt(g.T, 0), 0, g.T).T, g.T)", 1, 0, 0, 0, 0},
    {"r", "rowsum(L.T)", 0, 0, 1, 0, 0},
    {"r", "colsum(L.T).T", 0, 0, 0, 0, 0},
    {"r", "r + sum(g.T) + slice.max(L.T)", 0, 0, 0, 0, 0},
    {"L", "mm(2 * mm(M, gram(g)) - 3 * gram(g), M)", 3, 1, 0, 1, 0},
    /* a pass reads it: the pass does the addition */
    {"L", "2 * mm(M, gram(g)) - 3 * gram(g)", 2, 1, 0, 0, 0},
    /* a pass adds a state that a lower precision would round */
    {"L", "mm(0.9 * L + gram(g), M)", 2, 1, 0, 0, 0},
    {"L", "mm(M, gram(g) - mm(L, M))", 3, 1, 0, 1, 0},
    {"L", "mm(gram(g) + lr * mm(L, M), M)", 3, 1, 0, 0, 0},     /* only constants */
    {"L", "mm(M, mm(gram(g), gram(g)) + mm(L, M))", 4, 2, 0, 1, 0},
    {"L", "mm(M, gram(g) + mm(gram(g), gram(g)) * (gram(g) + 1))", 3, 2, 0, 0, 0},
    {"L", "mm(M, 2 * -mm(L, M))", 2, 0, 0, 0, 0},
    {"L", "2 * mm(L, M)", 1, 0, 0, 0, 0},
    {"L", "mm(M, eye(3, 'rows') - 2 * gram(g))", 2, 1, 0, 0, 1},
    {"L", "mm(M, 4 * (mm(gram(g), gram(g)) - gram(g) / 2 - 2 * eye 'rows'))", 3, 2, 0, 1, 1},
    {"L", "mm(M, mm(gram(g), gram(g)) + eye(1, 'rows') + eye(2, 'rows') + gram(g))", 3, 2, 0, 1, 1},
    {"L", "mm(M, -(gram(g) + eye(2, 'rows')))", 2, 1, 0, 0, 1},
    /* three terms */
    {"L", "mm(M, mm(gram(g), gram(g)) + gram(g) + 2 * mm(L, M))", 4, 2, 0, 0, 0},
    /* not symmetric */
    {"L", "mm(M, mm(L, M) + eye 'rows')", 2, 0, 0, 0, 0},
    /* a pass reads it */
    {"L", "gram(g) + eye 'rows'", 1, 1, 0, 0, 0},
    /* only constants */
    {"L", "mm(M, gram(g) + eye(lr, 'rows'))", 2, 1, 0, 0, 0},
    /* a pass adds a state */
    {"L", "mm(M, gram(g) + L + eye 'rows')", 2, 1, 0, 0, 0},
    /* the product's type may have fewer bits than what a factor reads: it would lose the ridge */
    {"L", "chol(gram(g) + eye(1e-6, 'rows'))", 1, 1, 0, 0, 0},
    {"L", "power(2 * mm(gram(g), gram(g)) - 3 * gram(g) + eye(9, 'rows'), -1)", 2, 2, 0, 0, 0},
};

START_TEST(normal_forms)
{
    char text[400];
    snprintf(text, sizeof text,
             "return optimizer { name = 'x', hyper = { lr = 1 }, state = { L = zeros 'rows', M = "
             "zeros 'rows', r = "
             "zeros 'row' },\n"
             "matrix = function() %s = %s %s M = M + 1 p = p - lr * g end, step = function() p = p "
             "- g end }",
             forms[_i].y, forms[_i].lua, *forms[_i].y == 'L' ? "r = r + 1" : "L = L + 1");
    char *ir = dumped(text, false, "calls");
    int got[] = {count_of(ir, " = mm "), count_of(ir, " symmetric"), count_of(ir, " = transpose "),
                 count_of(ir, " beta "), count_of(ir, " diagonal ")};
    const int want[] = {forms[_i].mm, forms[_i].symmetric, forms[_i].turn, forms[_i].beta,
                        forms[_i].diagonal};
    ck_assert_msg(!memcmp(got, want, sizeof want),
                  "%s: %d products, %d symmetric, %d turns, %d sums and %d diagonals taken in, not "
                  "%d, %d, %d, %d, %d:\n%s",
                  forms[_i].lua, got[0], got[1], got[2], got[3], got[4], want[0], want[1], want[2],
                  want[3], want[4], ir);
    free(ir);
}
END_TEST

/* An operand that folds to a constant is broadcast again for the product, and folding ends. */
START_TEST(constant_operands)
{
    char *ir = dumped("return optimizer { name = 'x', state = { r = zeros 'row', L = zeros 'rows' "
                      "}, step = function() p = "
                      "0.25 + 0 * p p = where(lt(0, 1), 2, p) "
                      "r = mm(p * 3, colmean(g + 0 * p)) L = (mm(g, p.T) + mm(p, g.T)).T end }",
                      false, "calls");
    ck_assert_msg(count_of(ir, " = copy elem ") == 2 && count_of(ir, " = mm ") == 3, "%s", ir);
    free(ir);
}
END_TEST

/* Text with invalid products. */
static const struct { const char *from, *to, *says;
} broken[] = {
    {"trans_b symmetric", "symmetric", "the inner axes of the operands differ"},
    {"trans_b", "trans_a", "the product's domain does not follow from its operands"},
    {"mm rows", "mm cols", "the product's domain does not follow from its operands"},
    {"symmetric", "symmetrical", "expected"},
    {"symmetric", "alpha inf", "alpha or beta is not finite"},
    {"symmetric", "beta 2", "beta has no third operand"},
    {"symmetric", "diagonal 2", "no diagonal of a product, which needs 'optc-ir 3'"},
    {"transpose row_t", "transpose row",
     "a transpose of a value that has no transpose, or with a wrong domain"},
    {"transpose row_t", "transpose elem_t", "transposed elements may occur only as a flag"},
    {"down rows", "down row", "a leaf outside its own domain"},
    {"products tf32", "products tf33", "a precision of products"},
    {"rank 3", "rank 0", "a rank"},
    {"rank 3\n", "", "a rank axis without 'rank'"},
    {"eye @", "eye eye @", "a place"},
    {"state Q rank", "state Q rank1", "'eye' needs a state over two equal axes"},
    {"row_t %", "row_t %9", "an earlier node"},
};

static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "'%s' is not in:\n%s", from, text);
    Buf b = {0};
    buf_printf(&b, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return buf_take(&b);
}

/* Old words of the text form are read as their new names. */
START_TEST(old_words_are_read)
{
    static const char *const words[][2] =
        {{" = transpose ", " = turn "}, {" trans_a", " turn_a"}, {" trans_b", " turn_b"}};
    char *ir = dumped("return optimizer { name = 'x', state = { L = zeros 'rows', M = zeros "
                      "'rows', R = zeros 'cols' "
                      "},\nmatrix = function() "
                      "M = L + L.T L = mm(g, g.T) R = mm(g.T, g) p = p - g end, step = function() "
                      "p = p - g end }",
                      false, "calls");
    char *old = strdup(ir);
    for (int i = 0; i < COUNT(words); i++) {
        char *next = replaced(old, words[i][0], words[i][1]);
        free(old);
        old = next;
    }
    Gen g = {0};
    Rule *r = rule_parse(&g.arena, (Source){"old.ir", old, strlen(old)}, &g.diag);
    ck_assert_msg(r != NULL, "%s", g.diag.text);
    Buf b = {0};
    rule_print(&b, r);
    ck_assert_str_eq(b.s, ir);
    buf_free(&b);
    gen_free(&g);
    free(old);
    free(ir);
}
END_TEST

START_TEST(text_refused)
{
    char *ir = dumped("return optimizer { name = 'x', rank = 3, products = 'tf32', state = { L = "
                      "zeros 'rows', Q = eye(1, "
                      "'rank') },\nmatrix = function() "
                      "L = mm(g, g.T) + outer(rowsum(g), rowsum(g * g)) + eye 'rows' Q = Q * 2 p = "
                      "p - g end, step = "
                      "function() p = p - g end }",
                      false, "trace");
    char *bad = replaced(ir, broken[_i].from, broken[_i].to);
    Gen g = {0};
    ck_assert_msg(
        !gen_read_ir(&g, (Source){"made.ir", bad, strlen(bad)}, &(GenOptions){.rule_only = true}),
        "'%s' was taken", broken[_i].to);
    ck_assert_msg(strstr(g.diag.text, broken[_i].says), "'%s' for '%s': %s", broken[_i].to,
                  broken[_i].from, g.diag.text);
    gen_free(&g);
    free(bad);
    free(ir);
}
END_TEST

Suite *matrix_suite(void)
{
    Suite *s = suite_create("matrix");
    TCase *w = tcase_create("words"), *f = tcase_create("forms");
    tcase_add_test(w, words_evaluated);
    tcase_add_loop_test(w, words_compiled, 0, 2);
    tcase_add_loop_test(w, products_in_bounds, 0, 3);
    tcase_add_test(w, text_reads_back);
    tcase_add_loop_test(f, normal_forms, 0, COUNT(forms));
    tcase_add_test(f, constant_operands);
    tcase_add_test(f, old_words_are_read);
    tcase_add_loop_test(f, text_refused, 0, COUNT(broken));
    suite_add_tcase(s, w);
    suite_add_tcase(s, f);
    return s;
}

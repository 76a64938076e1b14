/* Products on a GPU: every layout of operands, in every precision, with and without cuBLAS, against plain loops in f64.
 * The programs are made by hand and contain only calls. */
#include "tests/gpu/gpu_product_program.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* in the last shape matrices are not aligned for tensor cores */
static const int64_t shapes[TENSORS][3] = {{1, 7, 5}, {1, 1, 9}, {1, 6, 1}, {2, 7, 5}, {1, 7, 5}, {3, 5, 8}, {3, 5, 8}};
static const struct { const char *name; Type type; double unit; Product product; } kinds[] = {
    {"f64", T_F64, DBL_EPSILON, PRODUCT_F64}, {"f32", T_F32, FLT_EPSILON, PRODUCT_F32},
    {"tf32", T_F32, 1.0 / 1024, PRODUCT_TF32},
    {"bf16", T_BF16, 1.0 / 128, PRODUCT_BF16}, {"f16", T_F16, 1.0 / 1024, PRODUCT_F16}};

/* ---- values ---- */
static int64_t length_of(const Bound *x, int tensor, int array)
{
    return dom_len(x->m.array[array].dom, x->b->tensor[tensor].shape);
}

static double *get(const Bound *x, int tensor, int array)
{
    int64_t n = length_of(x, tensor, array);
    double *v = malloc(sizeof *v * (size_t)(n + 1));
    OK(optc_state_read(x->b, tensor, x->m.array[array].name, v, n));
    return v;
}

static void put(Bound *x, int tensor, int array, int seed)
{
    int64_t n = length_of(x, tensor, array);
    double *v = malloc(sizeof *v * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        v[i] = ref_value(tensor, seed, i);
    OK(optc_state_write(x->b, tensor, x->m.array[array].name, v, n));
    free(v);
}

/* The rows of a, or the columns of b, one after another: n of k terms. apart: they are columns as stored. */
static double *lines_of(const double *p, int64_t n, int64_t k, bool apart)
{
    double *v = malloc(sizeof *v * (size_t)(n * k + 1));
    for (int64_t t = 0; t < k; t++)
        for (int64_t i = 0; i < n; i++)
            v[i * k + t] = apart ? p[t * n + i] : p[i * k + t];
    return v;
}

/* Checks one product of one tensor against plain loops. Bounds: k units of the accumulator's type for a sum of k
 * values, half a unit of the storage type for the result, which is rounded again where the diagonal is added, half a
 * unit for each tf32 operand. */
static void check_product(const Bound *x, int kind, int tensor, const ProgCall *c, const double *a, const double *b,
                          const double *was, const double *got, const char *what)
{
    const ProgArray *m = x->m.array;
    Shape s = x->b->tensor[tensor].shape;
    ProductShape z = product_shape(&x->m.p, c, s, s.cols);
    double carried = kinds[kind].type == T_F64 ? DBL_EPSILON : FLT_EPSILON,
        kept = kinds[kind].type == T_F32 ? FLT_EPSILON : kinds[kind].unit;
    double operands = kinds[kind].product == PRODUCT_TF32 ? 2 * kinds[kind].unit : 0;
    for (int64_t l = 0; l < s.slices; l++) {
        double *rows = lines_of(a + l * dom_len_inside(m[c->a].dom, s), z.m, z.k, c->flags & TRANS_A),
            *cols = lines_of(b + l * dom_len_inside(m[c->b].dom, s), z.n, z.k, !(c->flags & TRANS_B));
        const double *pw = was + l * dom_len_inside(m[c->out].dom, s);
        const double *pg = got + l * dom_len_inside(m[c->out].dom, s);
        for (int64_t i = 0; i < z.m; i++)
            for (int64_t j = 0; j < z.n; j++) {
                if (c->flags & SYMMETRIC && j > i) {       /* only the lower triangle is computed */
                    ck_assert_msg(pg[i * z.n + j] == pg[j * z.n + i], "%s %s: not mirrored", kinds[kind].name, what);
                    continue;
                }
                double sum = 0, size = 0;
                for (int64_t k = 0; k < z.k; k++) {
                    sum += rows[i * z.k + k] * cols[j * z.k + k];
                    size += fabs(rows[i * z.k + k] * cols[j * z.k + k]);
                }
                double diagonal = i == j ? c->diagonal : 0;
                double want = c->alpha * sum + c->beta * pw[i * z.n + j] + diagonal,
                    mag = fabs(c->alpha) * size + fabs(c->beta * pw[i * z.n + j]) + fabs(diagonal);
                double off = fabs(want - pg[i * z.n + j]), rounded = diagonal != 0 ? 2 * kept : kept,
                    most = ((double)(z.k + 4) * carried + operands + rounded) * mag +
                           1e-7 * (kinds[kind].type == T_F16);
                ck_assert_msg(off <= most,
                        "%s %s: tensor %d, matrix %lld, (%lld, %lld): %.17g, not %.17g: off by %g, at most %g",
                        kinds[kind].name, what, tensor, (long long)l, (long long)i, (long long)j,
                              pg[i * z.n + j], want, off, most);
            }
        free(rows), free(cols);
    }
}

/* ---- every form ---- */
static const struct { Dom a, b, out; unsigned flags; double alpha, beta, diagonal; } forms[] = {
    /* the output of this one becomes elem_t below */
    {ELEM, COLS2, ELEM, 0, 1, 0, 0},             {ROWS2, ELEM, ELEM, TRANS_A, -0.5, 2, 0},
    {COLS2, ELEM, RANK, TRANS_B, 1, 0, 0},
    {ELEM, ELEM, ROWS2, TRANS_B, 1, 0, 0},        {ELEM, ELEM, COLS2, TRANS_A, 0.25, -1, 0},
    {ELEM, ELEM, ROWS2, TRANS_B | SYMMETRIC, 1, 0, 0},
    {ELEM, ELEM, COLS2, TRANS_A | SYMMETRIC, 3, 0.5, 2}, {ELEM, COL, ROW, 0, 1, 0, 0},
    {ELEM, ROW, COL, TRANS_A, 1, 1, 0},              {ROW, COL, ELEM, TRANS_B, 1, 0, 0},
    {ROWS2, ROWS2, ROWS2, TRANS_A | TRANS_B, 1, 0, 0}, {ROW, ROW, ROWS2, TRANS_B | SYMMETRIC, 1, 0, 0},
    {ROW, ROW, SLICE, TRANS_A, 1, 0, 0},
    /* with a diagonal it is mirrored all the same */
    {ELEM, ELEM, ROWS2, TRANS_B | SYMMETRIC | LOWER, 0.5, 0, -3}};
enum { NFORMS = sizeof forms / sizeof *forms };

/* 2.5 I - 1.5 s + 0.5 a a.T, with the addend s in an array of its own */
static void add_polynomial(ProductProgram *m, int a, Type t)
{
    int s = add_array(m, MEM_STATE, ROWS2, t, "s");
    add_mm_to(m, a, a, s, add_array(m, MEM_STATE, ROWS2, t, "z"), TRANS_B | SYMMETRIC, 0.5, -1.5);
    m->call[m->ncall - 1].diagonal = 2.5;
}

static void make_forms(ProductProgram *m, int kind)
{
    static const char *const names[NFORMS][3] = {{"a0", "b0", "c0"}, {"a1", "b1", "c1"}, {"a2", "b2", "c2"},
            {"a3", "b3", "c3"}, {"a4", "b4", "c4"}, {"a5", "b5", "c5"}, {"a6", "b6", "c6"},
                                                 {"a7", "b7", "c7"}, {"a8", "b8", "c8"}, {"a9", "b9", "c9"},
                                                 {"a10", "b10", "c10"}, {"a11", "b11", "c11"}, {"a12", "b12", "c12"},
                                                 {"a14", "b14", "c14"}};
    for (int i = 0; i < NFORMS; i++) {
        bool same = forms[i].flags & SYMMETRIC;
        int a = add_array(m, MEM_STATE, forms[i].a, kinds[kind].type, names[i][0]);
        int b = same ? a : add_array(m, MEM_STATE, forms[i].b, kinds[kind].type, names[i][1]);
        int c = add_array(m, MEM_STATE, forms[i].out == RANK ? ELEM_T : forms[i].out, kinds[kind].type, names[i][2]);
        add_mm(m, a, b, c, forms[i].flags, forms[i].alpha, forms[i].beta);
        m->call[m->ncall - 1].diagonal = forms[i].diagonal;
    }
    int a = add_array(m, MEM_STATE, ELEM, kinds[kind].type, "a13"), b = add_array(m, MEM_STATE, COLS2, kinds[kind].type,
            "b13"), c = add_array(m, MEM_STATE, ELEM, kinds[kind].type, "c13");
    add_mm_to(m, a, b, c, add_array(m, MEM_STATE, ELEM, kinds[kind].type, "d13"), 0, 1, 0.5);
    add_polynomial(m, a, kinds[kind].type);
    end_program(m, kinds[kind].product);
}

static void step_forms(Bound *x, int kind, int n, const char *what)
{
    double *a[MOST][TENSORS], *b[MOST][TENSORS], *was[MOST][TENSORS];
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++)
            a[i][k] = get(x, k, x->m.call[i].a), b[i][k] = get(x, k, x->m.call[i].b),
            was[i][k] = get(x, k, x->m.call[i].c < 0 ? x->m.call[i].out : x->m.call[i].c);
    OK(optc_step(x->b));
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++) {
            char label[64];
            double *got = get(x, k, x->m.call[i].out);
            snprintf(label, sizeof label, "%s, product %d", what, i);
            check_product(x, kind, k, &x->m.call[i], a[i][k], b[i][k], was[i][k], got, label);
            free(a[i][k]), free(b[i][k]), free(was[i][k]), free(got);
        }
}

static void fill_forms(Bound *x, int n)
{
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++) {
            put(x, k, x->m.call[i].a, 3 * i);
            if (x->m.call[i].b != x->m.call[i].a)
                put(x, k, x->m.call[i].b, 3 * i + 1);
            put(x, k, x->m.call[i].out, 3 * i + 2);
            if (x->m.call[i].c >= 0 && x->m.call[i].c != x->m.call[i].out)
                put(x, k, x->m.call[i].c, 3 * i);
        }
}

static void same_results(const Bound *x, const Bound *y, int n, const char *what)
{
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++) {
            double *p = get(x, k, x->m.call[i].out), *q = get(y, k, x->m.call[i].out);
            ck_assert_msg(!memcmp(p, q, sizeof *p * (size_t)length_of(x, k, x->m.call[i].out)),
                          "%s: product %d of tensor %d has other bits", what, i, k);
            free(p), free(q);
        }
}

static void open_forms(Bound *x, int kind, bool library)
{
    use_cublas(library);
    open_rule(x, T_F32, 1 << 20);
    make_forms(&x->m, kind);
    bind_program(x, shapes, TENSORS, 4);
    ck_assert_msg(strstr(optc_rule_path(x->r), library ? "products by cuBLAS"
                         : "products by a plain kernel, slower (OPTC_CUBLAS is none)"), "%s", optc_rule_path(x->r));
    fill_forms(x, TENSORS);
}

/* Single steps, then steps as graphs; without graphs the bits are the same. */
START_TEST(every_form)
{
    SHARED();
    int kind = _i / 2;
    bool library = _i % 2 == 0;
    Bound x, y;
    open_forms(&x, kind, library);
    /* tensor-core tiles take long on the emulated GPU */
    if (!library && kind && getenv("OPTC_TEST_SMALL")) {
        step_forms(&x, kind, TENSORS, "ours");
        close_program(&x);
        use_cublas(true);
        return;
    }
    for (int s = 0; s < 3; s++)
        step_forms(&x, kind, TENSORS, library ? "cuBLAS" : "ours");
    ck_assert_msg(x.b->gpu->launch_list[0].exec != NULL, "products do not run as a graph of our own");
    open_forms(&y, kind, library);
    y.e->gpu->no_graphs = true;
    for (int s = 0; s < 3; s++)
        OK(optc_step(y.b));
    same_results(&x, &y, TENSORS, "without graphs");
    close_program(&x);
    close_program(&y);
    use_cublas(true);
}
END_TEST

/* Gram matrices of rows, of a transposed array with an addend, and with an addend and a diagonal, and the addend times
 * another matrix, whose upper half differs from the mirrored one, over n tensors. The third needs no copy of its addend
 * where cuBLASLt computes it. hopper: the least rows of matrices that gpu_symmetric.c computes, 0: none. Returns how
 * many pointers the largest set has for a matrix. */
static int64_t check_triangles(int kind, const int64_t (*large)[3], int n, int64_t workspace, int hopper)
{
    Bound x;
    int64_t most = 0;
    open_rule(&x, T_F32, workspace);
    x.e->gpu->symmetric_rows = hopper;
    int e = add_array(&x.m, MEM_STATE, ELEM, kinds[kind].type, "e"),
        r = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "r");
    int t = add_array(&x.m, MEM_STATE, ELEM_T, kinds[kind].type, "t"),
        q = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "q");
    add_mm(&x.m, e, e, r, TRANS_B | SYMMETRIC, 1, 0);
    x.m.call[0].diagonal = -500;                           /* beyond the bounds of long sums */
    add_mm(&x.m, t, t, q, TRANS_A | SYMMETRIC, 2, -1);
    add_polynomial(&x.m, e, kinds[kind].type);
    int s = x.m.call[2].c;
    int u = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "u");
    add_mm(&x.m, s, u, add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "w"), SYMMETRIC, 0.25, 0);
    end_program(&x.m, kinds[kind].product);
    bind_program(&x, large, n, 4);
    ck_assert_int_eq(x.b->gpu->calls->ntask, hopper && x.e->gpu->arch == 90 ? x.b->gpu->calls->nstep : 0);
    bool lt = kind >= 2 || large[0][1] <= 16;              /* gpu_products.c */
    for (int i = 0; i < x.b->gpu->calls->nstep; i++) {
        const CallStep *s = &x.b->gpu->calls->step[i];
        ck_assert_msg(s->reader < 0 || x.b->gpu->calls->step[s->reader].algorithm.known == lt, "step %d", i);
    }
    fill_forms(&x, n);
    for (int k = 0; k < n; k++) {                  /* the addend must be symmetric */
        int64_t rows = large[k][1], all = large[k][0] * rows * rows;
        double *v = malloc(sizeof *v * (size_t)all);
        for (int64_t at = 0; at < all; at++) {
            int64_t i = at / rows % rows, j = at % rows;
            v[at] = ref_value(k, 9, i < j ? i * rows + j : j * rows + i);
        }
        OK(optc_state_write(x.b, k, "q", v, all));
        OK(optc_state_write(x.b, k, "s", v, all));
        free(v);
    }
    for (int s = 0; s < (hopper ? 5 : n); s++)     /* an emulated GPU does things in another order each time */
        step_forms(&x, kind, n, "triangle");
    for (int i = 0; i < x.b->gpu->calls->nset; i++)
        most = x.b->gpu->calls->set[i].each > most ? x.b->gpu->calls->set[i].each : most;
    close_program(&x);
    return most;
}

/* Symmetric products that are large enough for several blocks, with rows left over. */
START_TEST(triangles)
{
    SHARED();
    static const int64_t all[3][3] = {{1, 600, 5}, {1, 600, 5}, {1, 256, 3}}, few[1][3] = {{1, 300, 2}},
        two[1][3] = {{1, 520, 2}};
    bool small = getenv("OPTC_TEST_SMALL") != NULL;            /* mirroring takes long on the emulated GPU */
    check_triangles(_i, !small ? all : _i ? two : few, small ? 1 : 3, 1 << 20, 0);
}
END_TEST

/* The kernel for Hopper, with tiles on, below and beside the diagonal, and rows and terms left over. Steps are graphs
 * from the second on. */
START_TEST(hopper_halves)
{
    SHARED();
    static const int64_t small[1][3] = {{1, 264, 136}},
        all[3][3] = {{48, 392, 72}, {1, 392, 72}, {1, 1032, 200}};         /* 294 tiles: more than multiprocessors */
    bool few = getenv("OPTC_TEST_SMALL") != NULL;
    check_triangles(3 + _i, few ? small : all, few ? 1 : 3, 1 << 20, 8);
}
END_TEST

/* Sums of 16384 and more terms are computed in parts of 4096, here four of them and some terms more. Two matrices of a
 * tensor, and a workspace that holds the parts of one matrix at a time. */
START_TEST(long_sums)
{
    SHARED();
    static const int64_t shape[2][3] = {{2, 9, 16390}, {1, 9, 16390}}, several[1][3] = {{1, 320, 16390}};
    static const int64_t even[2][3] = {{2, 8, 16390}, {1, 8, 16390}}, halves[1][3] = {{1, 512, 16390}};
    static const int64_t shorter[1][3] = {{1, 9, 16383}};
    bool wide = _i < 2;                                    /* f64, f32; bf16 and f16, whose parts are f32 */
    int kind = wide ? _i : _i + 1;
    ck_assert_int_eq(check_triangles(kind, wide ? shape : even, 2, 1 << 20, 0), 4);
    ck_assert_int_eq(check_triangles(kind, shorter, 1, 1 << 20, 0), 1);
    if (!getenv("OPTC_TEST_SMALL"))
        ck_assert_int_eq(check_triangles(kind, wide ? several : halves, 1, 64 << 20, 0), wide ? 4 * 15 : 4 * 3);
}
END_TEST

/* Products that are not symmetric, with and without an addend. */
START_TEST(long_products)
{
    SHARED();
    static const int64_t shape[2][3] = {{2, 8, 16390}, {1, 8, 16390}};
    int kind = _i < 2 ? _i : _i + 1;
    int64_t most = 0;
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    int e = add_array(&x.m, MEM_STATE, ELEM, kinds[kind].type, "e"),
        t = add_array(&x.m, MEM_STATE, ELEM_T, kinds[kind].type, "t"),
        r = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "r"),
        q = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "q");
    add_mm(&x.m, e, t, r, 0, 1, 0);
    add_mm_to(&x.m, e, e, add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "s"), q, TRANS_B, 2, -1);
    end_program(&x.m, kinds[kind].product);
    bind_program(&x, shape, 2, 4);
    fill_forms(&x, 2);
    step_forms(&x, kind, 2, "long sums");
    for (int i = 0; i < x.b->gpu->calls->nset; i++)
        most = x.b->gpu->calls->set[i].each > most ? x.b->gpu->calls->set[i].each : most;
    ck_assert_int_eq(most, 4);
    close_program(&x);
}
END_TEST

/* Writes a lower triangle; values above its diagonal are 0, and `beyond` right of the diagonal's block. */
static void put_lower(Bound *x, int tensor, int array, int64_t block, double beyond)
{
    Shape s = x->b->tensor[tensor].shape;
    int64_t n = length_of(x, tensor, array), side = x->m.array[array].dom == ROWS2 ? s.rows : s.cols;
    double *v = malloc(sizeof *v * (size_t)(n + 1));
    for (int64_t at = 0; at < n; at++) {
        int64_t i = at / side % side, j = at % side;
        v[at] = j / block > i / block ? beyond : j > i ? 0 : ref_value(tensor, array, at);
    }
    OK(optc_state_write(x->b, tensor, x->m.array[array].name, v, n));
    free(v);
}

/* Triangles as operands, from both sides and transposed: products in panels do not read the zeros right of the blocks
 * on the diagonal. 13 and 29 rows have short last panels. */
START_TEST(lower_operands)
{
    SHARED();
    enum { BLOCK = 4 };
    static const int64_t sides[3][3] = {{2, 13, 29}, {1, 13, 29}, {1, 8, 13}};
    static const char *const names[] = {"o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7"};
    const Type type = kinds[_i].type;
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    x.e->gpu->block = BLOCK;
    int e = add_array(&x.m, MEM_STATE, ELEM, type, "e"), l = add_array(&x.m, MEM_STATE, ROWS2, type, "l"),
        r = add_array(&x.m, MEM_STATE, COLS2, type, "r"), q = add_array(&x.m, MEM_STATE, COLS2, type, "q"),
        t = add_array(&x.m, MEM_STATE, ELEM_T, type, "t"), o[8];
    for (int i = 0; i < 8; i++)
        o[i] = add_array(&x.m, MEM_STATE, i < 5 ? ELEM : COLS2, type, names[i]);
    add_mm(&x.m, l, e, o[0], LOWER_A, 1, 0);
    add_mm(&x.m, l, e, o[1], LOWER_A | TRANS_A, -2, 0.5);
    add_mm(&x.m, e, r, o[2], LOWER_B, 1, 0);
    add_mm(&x.m, e, r, o[3], LOWER_B | TRANS_B, 1, 0);
    add_mm_to(&x.m, t, r, e, o[4], LOWER_B | TRANS_A, 1, -1);
    add_mm(&x.m, r, q, o[5], LOWER_A | LOWER_B, 1, 0);
    add_mm(&x.m, r, q, o[6], LOWER_A | LOWER_B | TRANS_A, 1, 0);
    add_mm(&x.m, r, q, o[7], LOWER_A | LOWER_B | TRANS_B, 1, 1);
    end_program(&x.m, kinds[_i].product);
    bind_program(&x, sides, 3, 4);
    fill_forms(&x, 3);
    ck_assert_int_gt(x.b->gpu->calls->nstep, 8 * 3 * 3);
    for (int again = 0; again < 2; again++) {
        double *zeros[3][3];
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 3; i++) {
                put_lower(&x, k, i == 0 ? l : i == 1 ? r : q, BLOCK, 0);
                zeros[k][i] = NULL;
            }
        step_forms(&x, _i, 3, "triangles as operands");
        for (int k = 0; k < 3; k++) {
            put_lower(&x, k, l, BLOCK, NAN);
            put_lower(&x, k, r, BLOCK, NAN);
            for (int i = 0; i < 3; i++)
                zeros[k][i] = get(&x, k, o[i == 0 ? 0 : i + 1]);
        }
        OK(optc_step(x.b));
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 3; i++) {
                double *got = get(&x, k, o[i == 0 ? 0 : i + 1]);
                ck_assert_msg(!memcmp(got, zeros[k][i], sizeof *got * (size_t)length_of(&x, k, e)),
                              "product %d of tensor %d reads zeros", i, k);
                free(got);
                free(zeros[k][i]);
            }
    }
    close_program(&x);
}
END_TEST

/* ---- gradients that move, tensors without one, small workspaces ---- */
/* t = g g^T, u = t t, w = u g, with t and u in the workspace. */
static void open_chain(Bound *x, int64_t workspace, int n)
{
    static const int64_t equal[TENSORS][3] =
        {{1, 40, 30}, {1, 40, 30}, {1, 40, 30}, {2, 11, 3}, {1, 40, 30}, {1, 40, 30}, {1, 40, 30}};
    open_rule(x, T_F32, workspace);
    int t = add_array(&x->m, MEM_TEMP, ROWS2, T_F32, "t"), u = add_array(&x->m, MEM_TEMP, ROWS2, T_F32, "u"),
        w = add_array(&x->m, MEM_STATE, ELEM, T_F32, "w");
    add_mm(&x->m, 1, 1, t, TRANS_B | SYMMETRIC, 1, 0);
    add_mm(&x->m, t, t, u, 0, 1, 0);
    add_mm(&x->m, u, 1, w, 0, 1, 0);
    end_program(&x->m, PRODUCT_F32);
    bind_program(x, equal, n, 4);
}

static void give_grads(Bound *x, int n, int seed)
{
    for (int k = 0; k < n; k++) {
        int64_t all = x->b->tensor[k].shape.n;
        float *v = malloc(4 * (size_t)all);
        for (int64_t i = 0; i < all; i++)
            v[i] = (float)ref_value(k, seed, i);
        ck_assert(!d->cuMemcpyHtoDAsync_v2(x->g[k], v, 4 * (size_t)all, NULL) && !d->cuStreamSynchronize(NULL));
        free(v);
    }
}

static void check_chain(Bound *x, int n, int seed, const bool *out, const char *what)
{
    for (int k = 0; k < n; k++) {
        Shape s = x->b->tensor[k].shape;
        int64_t r = s.rows, c = s.cols;
        double *got = get(x, k, x->m.call[2].out), t[40 * 40], u[40 * 40];
        for (int64_t l = 0; l < s.slices; l++) {
            for (int64_t i = 0; i < r * r; i++) {
                t[i] = 0;
                for (int64_t j = 0; j < c; j++)
                    t[i] += (double)(float)ref_value(k, seed, (l * r + i / r) * c + j) * (float)ref_value(k, seed,
                            (l * r + i % r) * c + j);
            }
            for (int64_t i = 0; i < r * r; i++) {
                u[i] = 0;
                for (int64_t j = 0; j < r; j++)
                    u[i] += t[i / r * r + j] * t[j * r + i % r];
            }
            for (int64_t i = 0; i < r * c; i++) {
                double want = 0;
                for (int64_t j = 0; j < r; j++)
                    want += u[i / c * r + j] * (float)ref_value(k, seed, (l * r + j) * c + i % c);
                want = out && out[k] ? 0 : want;
                /* three products of entries below 1: at most 30, then 40 * 30^2, then 40 times that */
                double off = fabs(got[l * r * c + i] - want),
                    most = out && out[k] ? 0 : 120 * FLT_EPSILON * 40.0 * 40 * 900;
                ck_assert_msg(off <= most, "%s: tensor %d, element %lld: %g, not %g", what, k, (long long)i,
                              got[l * r * c + i], want);
            }
        }
        free(got);
    }
}

START_TEST(gradients_move)
{
    SHARED();
    Bound x;
    CUdeviceptr other;
    open_chain(&x, 1 << 20, TENSORS);
    give_grads(&x, TENSORS, 1);
    for (int s = 0; s < 3; s++)
        OK(optc_step(x.b));
    check_chain(&x, TENSORS, 1, NULL, "as bound");
    void *graph = x.b->gpu->launch_list[0].exec;
    ck_assert(graph && !d->cuMemAlloc_v2(&other, 40 * 30 * 4));
    CUdeviceptr was = x.g[1];
    x.g[1] = other;
    OK(optc_set_grad(x.b, 1, (void *)(uintptr_t)other, 40 * 30));
    ck_assert(!d->cuMemsetD8Async(was, 0xff, 40 * 30 * 4, NULL));
    give_grads(&x, TENSORS, 2);
    OK(optc_step(x.b));
    check_chain(&x, TENSORS, 2, NULL, "moved");
    ck_assert_msg(x.b->gpu->launch_list[0].exec == graph, "a moved gradient costs a graph");
    x.g[1] = was;
    OK(optc_set_grad(x.b, 1, (void *)(uintptr_t)was, 40 * 30));
    OK(optc_sync(x.b));
    d->cuMemFree_v2(other);
    close_program(&x);
}
END_TEST

START_TEST(absent)
{
    SHARED();
    Bound x;
    bool out[TENSORS] = {false, true, false, true, false};
    double zero[2 * 11 * 3 + 40 * 30] = {0};
    open_chain(&x, 1 << 20, TENSORS);
    for (int turn = 0; turn < 2; turn++) {
        give_grads(&x, TENSORS, 1);
        for (int k = 0; k < TENSORS; k++)
            if (out[k]) {
                OK(optc_set_grad(x.b, k, NULL, 0));
                OK(optc_state_write(x.b, k, "w", zero, x.b->tensor[k].shape.n));
            }
        for (int s = 0; s < 3; s++)
            OK(optc_step(x.b));
        check_chain(&x, TENSORS, 1, out, "some are absent");
        for (int k = 0; k < TENSORS; k++)
            OK(optc_set_grad(x.b, k, (void *)(uintptr_t)x.g[k], x.b->tensor[k].shape.n));
        for (int s = 0; s < 3; s++)
            OK(optc_step(x.b));
        check_chain(&x, TENSORS, 1, NULL, "all are back");
    }
    close_program(&x);
}
END_TEST

/* A workspace for one or two tensors: the same bits in more batches; and one that is too small. */
START_TEST(batches)
{
    SHARED();
    Bound x, y;
    optc_held held;
    open_chain(&x, 0, TENSORS);
    open_chain(&y, 32000, TENSORS);
    OK(optc_binding_held(y.b, &held));
    ck_assert_msg(held.batches >= 2 && held.workspace <= 32000, "%d batches in %lld bytes", held.batches,
                  (long long)held.workspace);
    for (int s = 1; s <= 3; s++) {
        give_grads(&x, TENSORS, s);
        give_grads(&y, TENSORS, s);
        OK(optc_step(x.b));
        OK(optc_step(y.b));
        check_chain(&x, TENSORS, s, NULL, "one batch");
        check_chain(&y, TENSORS, s, NULL, "several batches");
    }
    close_program(&x);
    close_program(&y);
}
END_TEST

/* ---- in a graph of the caller's ---- */
START_TEST(captured)
{
    SHARED();
    Bound x;
    CUstream st;
    CUgraph graph;
    CUgraphExec exec;
    open_chain(&x, 32000, TENSORS);
    give_grads(&x, TENSORS, 1);
    OK(optc_step(x.b));
    OK(optc_sync(x.b));
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_set_stream(x.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(x.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) && !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int s = 2; s < 5; s++) {
        give_grads(&x, TENSORS, s);
        ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
        check_chain(&x, TENSORS, s, NULL, "replayed");
    }
    OK(optc_set_grad(x.b, 1, NULL, 0));
    FAILS(optc_step(x.b), OPTC_ERROR_ARGUMENT, "the captured graph has products");
    OK(optc_set_grad(x.b, 1, (void *)(uintptr_t)x.g[1], 40 * 30));
    give_grads(&x, TENSORS, 7);
    OK(optc_step(x.b));
    check_chain(&x, TENSORS, 7, NULL, "steps go on");
    OK(optc_set_stream(x.b, NULL));
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    close_program(&x);
    d->cuStreamDestroy_v2(st);
}
END_TEST

/* ---- calls that fail ---- */
static int fails_batched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                         const void *alpha, const void *const *a, cudaDataType at, int lda,
                         const void *const *b, cudaDataType bt, int ldb, const void *beta, void *const *c,
                         cudaDataType ct, int ldc, int count, cublasComputeType_t t, cublasGemmAlgo_t g)
{
    (void)h, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)at, (void)lda, (void)b,
        (void)bt, (void)ldb, (void)beta, (void)c, (void)ct, (void)ldc, (void)count, (void)t, (void)g;
    return CUBLAS_STATUS_EXECUTION_FAILED;
}

START_TEST(failing)
{
    SHARED();
    Bound x;
    open_chain(&x, 1 << 20, 3);
    give_grads(&x, 3, 1);
    Cublas *f = &x.b->gpu->calls->blas, was = *f;
    f->cublasGemmBatchedEx = fails_batched;
    FAILS(optc_step(x.b), OPTC_ERROR_DEVICE, "cublasGemmBatchedEx: ");
    FAILS(optc_step(x.b), OPTC_ERROR_DEVICE,
          "the product of 40 x 30 by 30 x 40 in f32 at made.lua:7, for tensor 'tensor0' (number 0) and others of its "
          "shape, of rule 'made'");
    for (int k = 0; k < 3; k++) {
        double *w = get(&x, k, x.m.call[2].out);
        for (int64_t i = 0; i < x.b->tensor[k].shape.n; i++)
            ck_assert(w[i] == 0);
        free(w);
    }
    *f = was;
    OK(optc_step(x.b));
    check_chain(&x, 3, 1, NULL, "after a failure");
    close_program(&x);
}
END_TEST

/* Parts have a multiple of 8 terms, for which cuBLAS's arrays of pointers need addresses at multiples of 16 bytes. Here
 * parts of a result would be 100 bytes, or the second matrix starts at an odd address. The whole product, whose number
 * of terms is odd, needs no alignment. The last shape has aligned parts. */
START_TEST(long_sums_of_odd_sizes)
{
    SHARED();
    static const int64_t shape[3][3] = {{1, 5, 16385}, {2, 6, 16387}, {2, 4, 16390}};
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    int e = add_array(&x.m, MEM_STATE, ELEM, T_BF16, "e"), r = add_array(&x.m, MEM_STATE, ROWS2, T_BF16, "r"),
        q = add_array(&x.m, MEM_STATE, ROWS2, T_BF16, "q");
    add_mm(&x.m, e, e, r, TRANS_B, 1, 0);
    add_mm(&x.m, e, e, q, TRANS_B | SYMMETRIC, 1, 0);
    add_polynomial(&x.m, e, T_BF16);
    end_program(&x.m, PRODUCT_BF16);
    bind_program(&x, &shape[_i], 1, 4);
    use_cublas_alone(x.b);                         /* as a library without cuBLASLt's arrays of pointers */
    fill_forms(&x, 1);
    step_forms(&x, 3, 1, "odd sizes");
    bool parts = false;
    for (int i = 0; i < x.b->gpu->calls->nset; i++)
        parts = parts || x.b->gpu->calls->set[i].parts > 1;
    ck_assert_int_eq(parts, _i == 2);
    close_program(&x);
}
END_TEST

void add_products(TCase *t)
{
    tcase_add_loop_test(t, every_form, 0, 10);
    for (int i = 0; i < 5; i += getenv("OPTC_TEST_SMALL") ? 3 : 1)
        tcase_add_loop_test(t, triangles, i, i + 1);
    tcase_add_loop_test(t, long_sums, 0, 4);
    tcase_add_loop_test(t, long_products, 0, 4);
    tcase_add_loop_test(t, long_sums_of_odd_sizes, 0, 3);
    tcase_add_test(t, gradients_move);
    tcase_add_test(t, absent);
    tcase_add_test(t, batches);
    tcase_add_test(t, captured);
    tcase_add_test(t, failing);
}

void add_halves(TCase *t)
{
    tcase_add_loop_test(t, hopper_halves, 0, 2);
    tcase_add_loop_test(t, lower_operands, 0, 2);
}

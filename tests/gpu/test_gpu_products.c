/* Products on a GPU: every layout of operands, in every precision, with and without cuBLAS, against
 * plain loops in f64. The programs are made by hand and contain only calls. */
#include "tests/gpu/gpu_product_program.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* in the last shape matrices are not aligned for tensor cores */
static const int64_t shapes[TENSORS][3] = {{1, 7, 5}, {1, 1, 9}, {1, 6, 1}, {2, 7, 5},
                                           {1, 7, 5}, {3, 5, 8}, {3, 5, 8}};

/* ---- every form ---- */
static const struct { Dom a, b, out; unsigned flags; double alpha, beta, diagonal;
} forms[] = {
    /* the output of this one becomes elem_t below */
    {ELEM, COLS2, ELEM, 0, 1, 0, 0},
    {ROWS2, ELEM, ELEM, TRANS_A, -0.5, 2, 0},
    {COLS2, ELEM, RANK, TRANS_B, 1, 0, 0},
    {ELEM, ELEM, ROWS2, TRANS_B, 1, 0, 0},
    {ELEM, ELEM, COLS2, TRANS_A, 0.25, -1, 0},
    {ELEM, ELEM, ROWS2, TRANS_B | SYMMETRIC, 1, 0, 0},
    {ELEM, ELEM, COLS2, TRANS_A | SYMMETRIC, 3, 0.5, 2},
    {ELEM, COL, ROW, 0, 1, 0, 0},
    {ELEM, ROW, COL, TRANS_A, 1, 1, 0},
    {ROW, COL, ELEM, TRANS_B, 1, 0, 0},
    {ROWS2, ROWS2, ROWS2, TRANS_A | TRANS_B, 1, 0, 0},
    {ROW, ROW, ROWS2, TRANS_B | SYMMETRIC, 1, 0, 0},
    {ROW, ROW, SLICE, TRANS_A, 1, 0, 0},
    /* with a diagonal it is mirrored all the same */
    {ELEM, ELEM, ROWS2, TRANS_B | SYMMETRIC | LOWER, 0.5, 0, -3}};
enum { NFORMS = sizeof forms / sizeof *forms };

static void make_forms(ProductProgram *m, int kind)
{
    static const char *const names[NFORMS][3] = {
        {"a0", "b0", "c0"},    {"a1", "b1", "c1"},   {"a2", "b2", "c2"},    {"a3", "b3", "c3"},
        {"a4", "b4", "c4"},    {"a5", "b5", "c5"},   {"a6", "b6", "c6"},    {"a7", "b7", "c7"},
        {"a8", "b8", "c8"},    {"a9", "b9", "c9"},   {"a10", "b10", "c10"}, {"a11", "b11", "c11"},
        {"a12", "b12", "c12"}, {"a14", "b14", "c14"}};
    for (int i = 0; i < NFORMS; i++) {
        bool same = forms[i].flags & SYMMETRIC;
        int a = add_array(m, MEM_STATE, forms[i].a, kinds[kind].type, names[i][0]);
        int b = same ? a : add_array(m, MEM_STATE, forms[i].b, kinds[kind].type, names[i][1]);
        int c = add_array(m, MEM_STATE, forms[i].out == RANK ? ELEM_T : forms[i].out,
                          kinds[kind].type, names[i][2]);
        add_mm(m, a, b, c, forms[i].flags, forms[i].alpha, forms[i].beta);
        m->call[m->ncall - 1].diagonal = forms[i].diagonal;
    }
    int a = add_array(m, MEM_STATE, ELEM, kinds[kind].type, "a13"),
        b = add_array(m, MEM_STATE, COLS2, kinds[kind].type, "b13"),
        c = add_array(m, MEM_STATE, ELEM, kinds[kind].type, "c13");
    add_mm_to(m, a, b, c, add_array(m, MEM_STATE, ELEM, kinds[kind].type, "d13"), 0, 1, 0.5);
    add_polynomial(m, a, kinds[kind].type);
    end_program(m, kinds[kind].product);
}

static void same_results(const Bound *x, const Bound *y, int n, const char *what)
{
    for (int i = 0; i < x->m.ncall; i++)
        for (int k = 0; k < n; k++) {
            double *p = get_array(x, k, x->m.call[i].out), *q = get_array(y, k, x->m.call[i].out);
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
    ck_assert_msg(strstr(optc_rule_path(x->r),
                         library ? "products by cuBLAS"
                                 : "products by a plain kernel, slower (OPTC_CUBLAS is none)"),
                  "%s", optc_rule_path(x->r));
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
    ck_assert_msg(list_whole(x.b->gpu->launch_list) != NULL,
                  "products do not run as a graph of our own");
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

/* ---- gradients that move, tensors without one, small workspaces ---- */
/* t = g g^T, u = t t, w = u g, with t and u in the workspace. */
static void open_chain(Bound *x, int64_t workspace, int n)
{
    static const int64_t equal[TENSORS][3] =
        {{1, 40, 30}, {1, 40, 30}, {1, 40, 30}, {2, 11, 3}, {1, 40, 30}, {1, 40, 30}, {1, 40, 30}};
    open_rule(x, T_F32, workspace);
    int t = add_array(&x->m, MEM_TEMP, ROWS2, T_F32, "t"),
        u = add_array(&x->m, MEM_TEMP, ROWS2, T_F32, "u"),
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
        ck_assert(!d->cuMemcpyHtoDAsync_v2(x->g[k], v, 4 * (size_t)all, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        free(v);
    }
}

static void check_chain(Bound *x, int n, int seed, const bool *out, const char *what)
{
    for (int k = 0; k < n; k++) {
        Shape s = x->b->tensor[k].shape;
        int64_t r = s.rows, c = s.cols;
        double *got = get_array(x, k, x->m.call[2].out), t[40 * 40], u[40 * 40];
        for (int64_t l = 0; l < s.slices; l++) {
            for (int64_t i = 0; i < r * r; i++) {
                t[i] = 0;
                for (int64_t j = 0; j < c; j++)
                    t[i] += (double)(float)ref_value(k, seed, (l * r + i / r) * c + j) *
                            (float)ref_value(k, seed, (l * r + i % r) * c + j);
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
                /* three products of entries below 1: at most 30, then 40 * 30^2, then 40 times
                 * that */
                double off = fabs(got[l * r * c + i] - want),
                    most = out && out[k] ? 0 : 120 * FLT_EPSILON * 40.0 * 40 * 900;
                ck_assert_msg(off <= most, "%s: tensor %d, element %lld: %g, not %g", what, k,
                              (long long)i, got[l * r * c + i], want);
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
    void *graph = list_whole(x.b->gpu->launch_list);
    ck_assert(graph && !d->cuMemAlloc_v2(&other, 40 * 30 * 4));
    CUdeviceptr was = x.g[1];
    x.g[1] = other;
    OK(optc_set_grad(x.b, 1, (void *)(uintptr_t)other, 40 * 30));
    ck_assert(!d->cuMemsetD8Async(was, 0xff, 40 * 30 * 4, NULL));
    give_grads(&x, TENSORS, 2);
    OK(optc_step(x.b));
    check_chain(&x, TENSORS, 2, NULL, "moved");
    ck_assert_msg(list_whole(x.b->gpu->launch_list) == graph, "a moved gradient costs a graph");
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
    ck_assert_msg(held.batches >= 2 && held.workspace <= 32000, "%d batches in %lld bytes",
                  held.batches, (long long)held.workspace);
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
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
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
static int fails_batched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                         int k, const void *alpha, const void *const *a, cudaDataType at, int lda,
                         const void *const *b, cudaDataType bt, int ldb, const void *beta,
                         void *const *c, cudaDataType ct, int ldc, int count, cublasComputeType_t t,
                         cublasGemmAlgo_t g)
{
    (void)h, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)at,
        (void)lda, (void)b, (void)bt, (void)ldb, (void)beta, (void)c, (void)ct, (void)ldc,
        (void)count, (void)t, (void)g;
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
          "the product of 40 x 30 by 30 x 40 in f32 at made.lua:7, for tensor 'tensor0' (number 0) "
          "and others of its "
          "shape, of rule 'made'");
    for (int k = 0; k < 3; k++) {
        double *w = get_array(&x, k, x.m.call[2].out);
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

void add_products(TCase *t)
{
    tcase_add_loop_test(t, every_form, 0, 10);
    tcase_add_test(t, gradients_move);
    tcase_add_test(t, absent);
    tcase_add_test(t, batches);
    tcase_add_test(t, captured);
    tcase_add_test(t, failing);
}

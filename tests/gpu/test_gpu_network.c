/* Shampoo and SOAP on a small network: a thousand steps, resumed from their states bit for bit.
 * Also running out of memory while roots and bases are computed. */
#include "tests/harness/network.h"
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *spec, *soon; double beta2; } rules[] =
    {{"shampoo", "interval=7", 0.99}, {"soap", "", 0.95}};

static void open_network(Side *g, int rule, bool soon)
{
    TestShape shapes[NSHAPES] = {{0, {0}}};
    for (int k = 0; k < NET_TENSORS; k++)
        shapes[k] = net[k];
    use_shapes(shapes);
    open_side(
        g, "cuda",
        (optc_rule_options){.spec = rules[rule].spec, .options = soon ? rules[rule].soon : ""}, 0);
    OK(optc_set_hyper(g->b, -1, "lr", 0.01));
    OK(optc_set_hyper(g->b, -1, "beta2", rules[rule].beta2));
}

/* Returns the loss, then steps with its gradients. Scalars that are not part of the network have no
 * gradient. */
static double step_network(Side *g)
{
    OK(optc_sync(g->b));
    fetch_params(g);
    double loss = network(g->hp, g->hg);
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemcpyHtoDAsync_v2(g->g[k], g->hg[k], (size_t)g->n[k] * g->wg, NULL));
    d->cuStreamSynchronize(NULL);
    return loss;
}

typedef struct Kept {
    size_t bytes[NET_TENSORS][16]; void *data[NET_TENSORS][16], *p[NET_TENSORS]; int64_t t;
} Kept;

static Kept keep(Side *g)
{
    Kept x = {.t = 0};
    OK(optc_sync(g->b));
    fetch_params(g);
    for (int k = 0; k < NET_TENSORS; k++) {
        x.p[k] = malloc((size_t)g->n[k] * 4 + 1);
        memcpy(x.p[k], g->hp[k], (size_t)g->n[k] * 4);
        for (int i = 0; i < optc_rule_states(g->r); i++) {
            optc_state_info info;
            optc_state_view at;
            ck_assert(i < 16);
            OK(optc_rule_state(g->r, i, &info));
            if (optc_state(g->b, k, info.name, &at) != OPTC_OK)
                continue;                                  /* a state of other tensors */
            x.bytes[k][i] = (size_t)at.count * (at.type == OPTC_F64 ? 8 : 4);
            x.data[k][i] = malloc(x.bytes[k][i] + 1);
            OK(optc_state_get(g->b, k, info.name, x.data[k][i], x.bytes[k][i]));
        }
    }
    OK(optc_get_t(g->b, -1, &x.t));
    return x;
}

static void go_on_from(Side *g, const Kept *x)
{
    for (int k = 0; k < NET_TENSORS; k++) {
        ck_assert(!d->cuMemcpyHtoDAsync_v2(g->p[k], x->p[k], (size_t)g->n[k] * 4, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        for (int i = 0; i < optc_rule_states(g->r); i++) {
            optc_state_info info;
            OK(optc_rule_state(g->r, i, &info));
            if (x->data[k][i])
                OK(optc_state_put(g->b, k, info.name, x->data[k][i], x->bytes[k][i]));
        }
    }
    OK(optc_set_t(g->b, -1, x->t));
}

/* returns "" if everything is the same, otherwise what differs */
static const char *differs(const Side *g, const Kept *x, const Kept *y)
{
    static char what[80];
    *what = 0;
    for (int k = 0; k < NET_TENSORS; k++) {
        if (memcmp(x->p[k], y->p[k], (size_t)g->n[k] * 4))
            return strcpy(what, "p");
        for (int i = 0; i < optc_rule_states(g->r); i++) {
            optc_state_info info;
            OK(optc_rule_state(g->r, i, &info));
            if (x->data[k][i] && memcmp(x->data[k][i], y->data[k][i], x->bytes[k][i]))
                return strcpy(what, info.name);
        }
    }
    return what;
}

static void drop(Kept *x)
{
    for (int k = 0; k < NET_TENSORS; k++) {
        free(x->p[k]);
        for (int i = 0; i < 16; i++)
            free(x->data[k][i]);
    }
}

START_TEST(a_thousand_steps)
{
    SHARED();
    if (thinned(_i))
        return;
    /* on the emulated GPU few steps, with a refresh before and after */
    bool small = getenv("OPTC_TEST_SMALL") != NULL;
    int last = small ? 13 : 1000, middle = small ? 9 : 503;
    Side f, g;
    Kept x, y;
    open_network(&f, _i, small);
    open_network(&g, _i, small);
    double first = 0, loss = 0;
    for (int step = 1; step <= last; step++) {
        loss = step_network(&f);
        first = step == 1 ? loss : first;
        ck_assert_msg(isfinite(loss), "%s: step %d", rules[_i].spec, step);
        OK(optc_step(f.b));
        if (step == middle) {
            x = keep(&f);
            go_on_from(&g, &x);
            drop(&x);
        }
        if (step > middle) {
            step_network(&g);
            OK(optc_step(g.b));
        }
    }
    optc_factors said;
    OK(optc_factors_about(f.b, -1, &said));
    ck_assert_msg(said.computed > 0 && said.refused == 0, "%s: of %d factors %d refused",
                  rules[_i].spec, (int)said.computed, (int)said.refused);
    ck_assert_msg(small || loss < 0.02 * first, "%s: %g of %g", rules[_i].spec, loss, first);
    x = keep(&f);
    y = keep(&g);
    ck_assert_msg(!*differs(&f, &x, &y), "%s, gone on with: %s is another", rules[_i].spec,
                  differs(&f, &x, &y));
    drop(&x), drop(&y);
    close_side(&f, 0);
    close_side(&g, 0);
}
END_TEST

/* ---- memory ---- */
static Cublas real;
/* calls that found no memory: those in f64, or (all_of_them) of any type */
static int64_t without;
static bool all_of_them;

static bool no_memory_for(cudaDataType t) { return (all_of_them || t == CUDA_R_64F) && ++without; }

static int batched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                   int k, const void *alpha, const void *const *a, cudaDataType at, int lda,
                   const void *const *b, cudaDataType bt, int ldb, const void *beta, void *const *c,
                   cudaDataType ct, int ldc, int count, cublasComputeType_t t, cublasGemmAlgo_t g)
{
    if (no_memory_for(at))
        return CUBLAS_STATUS_ALLOC_FAILED;
    return real.cublasGemmBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct,
                                    ldc, count, t, g);
}

/* All products are cuBLAS's, which run_out replaces. */
static void open_network_blas(Side *g, int rule)
{
    open_network(g, rule, true);
    use_cublas_alone(g->b);
}

static void run_out(Side *g, bool all)
{
    real = g->b->gpu->calls->blas;
    all_of_them = all;
    without = 0;
    g->b->gpu->calls->blas.cublasGemmBatchedEx = batched;
}

static void run_on(Side *g) { g->b->gpu->calls->blas = real; }

static bool root_moved(const Side *g, const Kept *x, const Kept *y)
{
    for (int k = 0; k < NET_TENSORS; k++)
        for (int i = 0; i < optc_rule_states(g->r); i++) {
            optc_state_info info;
            OK(optc_rule_state(g->r, i, &info));
            if (x->data[k][i] && (!strcmp(info.name, "X") || !strcmp(info.name, "Y")) &&
                memcmp(x->data[k][i], y->data[k][i], x->bytes[k][i])) return true;
        }
    return false;
}

/* The products of the roots, which are in f64, find no memory at a refresh: the step uses the last
 * roots, which is counted, and the next refresh computes new ones. Then no product finds memory,
 * and the message names the product, its matrices, the tensor and the line. */
START_TEST(no_memory_for_roots)
{
    SHARED();
    Side g;
    Kept x, y;
    optc_factors said;
    int refresh = 0;
    open_network_blas(&g, _i);
    /* replayed graphs would not ask for memory */
    g.e->gpu->no_graphs = true;
    for (int step = 1; step <= 24 && refresh < 2; step++) {
        step_network(&g);
        x = keep(&g);
        if (step > 3 && refresh == 0)
            run_out(&g, false);
        OK(optc_step(g.b));
        if (step > 3 && refresh == 0)
            run_on(&g);
        y = keep(&g);
        OK(optc_factors_about(g.b, -1, &said));
        if (step > 3 && refresh == 0 && without) {
            ck_assert_msg(said.refused > 0 && !root_moved(&g, &x, &y) && *differs(&g, &x, &y),
                          "%s: %d refused", rules[_i].spec, (int)said.refused);
            refresh = 1;
        } else if (refresh == 1 && root_moved(&g, &x, &y)) {
            refresh = 2;
        }
        drop(&x), drop(&y);
    }
    ck_assert_msg(refresh == 2, "%s: after %d of 2 refreshes; products by %s", rules[_i].spec,
                  refresh, g.b->gpu->calls->library ? "cuBLAS" : g.b->gpu->calls->why);
    run_out(&g, true);
    FAILS(optc_step(g.b), OPTC_ERROR_MEMORY, "the product of ");
    ck_assert_msg(strstr(optc_message(), " x ") && strstr(optc_message(), "f32 at ") &&
                      strstr(optc_message(), "for tensor number ") &&
                      strstr(optc_message(), rules[_i].spec),
                  "%s", optc_message());
    run_on(&g);
    close_side(&g, 0);
}
END_TEST

/* From the first step on no product finds memory: the step fails, and parameters, states and t do
 * not change. Later steps succeed and equal those of a run without failures. */
START_TEST(no_memory_at_once)
{
    SHARED();
    if (thinned(_i))
        return;
    Side f, g;
    Kept x, y;
    open_network_blas(&f, _i);
    open_network_blas(&g, _i);
    step_network(&g);
    x = keep(&g);
    run_out(&g, true);
    for (int i = 0; i < 2; i++) {
        FAILS(optc_step(g.b), OPTC_ERROR_MEMORY, "the product of ");
        y = keep(&g);
        ck_assert_msg(without > i && y.t == x.t && !*differs(&g, &x, &y), "%s: %s moved",
                      rules[_i].spec, differs(&g, &x, &y));
        drop(&y);
    }
    run_on(&g);
    for (int step = 1; step <= 3; step++) {
        step_network(&f), step_network(&g);
        OK(optc_step(f.b));
        OK(optc_step(g.b));
    }
    drop(&x);
    x = keep(&f), y = keep(&g);
    ck_assert_msg(!*differs(&g, &x, &y), "%s: %s is another's", rules[_i].spec,
                  differs(&g, &x, &y));
    drop(&x), drop(&y);
    close_side(&f, 0);
    close_side(&g, 0);
}
END_TEST

void add_network(TCase *t)
{
    tcase_add_loop_test(t, no_memory_at_once, 0, 2);
    tcase_add_loop_test(t, a_thousand_steps, 0, 2);
    tcase_add_loop_test(t, no_memory_for_roots, 0, 2);
}

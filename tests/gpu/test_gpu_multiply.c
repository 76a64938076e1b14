/* Products without a rule (optc_multiply, optc_kron) on a GPU. */
#include "tests/gpu/device_side.h"

#include "tests/harness/reference_product.h"

#include <stdlib.h>
#include <string.h>

static optc_engine *open_gpu(void)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = ""}, &e));
    return e;
}

START_TEST(multiply)
{
    SHARED();
    optc_engine *e = open_gpu();
    for (int i = 0; i < 4 * ALONES; i++) {
        size_t bytes;
        free(reference_product(e, &device_where, &alone_cases[i / 4], (optc_type)(OPTC_F32 + i % 4),
                               i % 3 ? 0 : 140000, &bytes));
    }
    OK(optc_close(e));
}
END_TEST

START_TEST(kronecker)
{
    SHARED();
    static const int64_t sizes[][5] = {{1, 1, 1, 1, 1},   {2, 3, 4, 5, 1},  {3, 1, 2, 7, 4},
                                       {5, 4, 1, 1, 2},   {0, 2, 3, 1, 1},  {9, 6, 5, 11, 2},
                                       {2, 300, 3, 3, 1}, {3, 2, 2, 700, 2}};
    optc_engine *e = open_gpu();
    for (int i = 0; i < 4 * 2 * 8; i++)
        reference_kron(e, &device_where, sizes[i / 8], (optc_type)(OPTC_F32 + i % 4), i / 4 % 2);
    OK(optc_close(e));
}
END_TEST

/* In a captured stream. An engine's first product must not be captured. */
START_TEST(in_a_graph)
{
    SHARED();
    enum { N = 6 };
    double a[N * N], b[N * N], c[N * N];
    CUstream st;
    void *graph, *exec;
    optc_engine *e = open_gpu();
    for (int i = 0; i < N * N; i++)
        a[i] = i % 7 - 3, b[i] = i % 5 - 2;
    void *at = device_take(sizeof a), *bt = device_take(sizeof b), *ct = device_take(sizeof c);
    optc_product x = {.a = at, .b = bt, .c = ct, .type = OPTC_F64, .m = N, .n = N, .k = N};
    ck_assert(!d->cuStreamCreate(&st, 1));
    x.stream = st;
    device_put(at, a, sizeof a);
    device_put(bt, b, sizeof b);
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    FAILS(optc_multiply(e, &x), OPTC_ERROR_ARGUMENT, "make one product before capturing");
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    OK(optc_multiply(e, &x));
    ck_assert(!d->cuStreamSynchronize(st) && !d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_multiply(e, &x));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < N * N; i++)
        a[i] = i % 3;
    device_put(at, a, sizeof a);
    ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
    device_get(c, ct, sizeof c);
    bool same = true;
    for (int i = 0; i < N * N; i++) {
        double want = 0;
        for (int k = 0; k < N; k++)
            want += a[i / N * N + k] * b[k * N + i % N];
        same = same && c[i] == want;
    }
    ck_assert(same);
    device_give(at), device_give(bt), device_give(ct);
    OK(optc_close(e));
}
END_TEST

START_TEST(refused)
{
    SHARED();
    float host[16] = {0};
    optc_engine *e = open_gpu();
    void *at = device_take(64), *ct = device_take(64);
    optc_product x = {.a = at, .b = host, .c = ct, .m = 2, .n = 2, .k = 2};
    FAILS(optc_multiply(e, &x), OPTC_ERROR_ARGUMENT, "b is not in the memory of cuda:0");
    x.b = NULL;
    x.workspace = 1000;
    FAILS(optc_multiply(e, &x), OPTC_ERROR_ARGUMENT, "needs at least 65536");
    OK(optc_close(e));
    use_cublas(false);
    x.workspace = 0;
    e = open_gpu();
    FAILS(optc_multiply(e, &x), OPTC_ERROR_UNAVAILABLE, "OPTC_CUBLAS");
    /* works without cuBLAS */
    OK(optc_kron(e, &(optc_kronecker){.a = at, .b = at, .c = ct, .m = 1, .n = 1, .p = 1, .q = 1}));
    OK(optc_close(e));
    use_cublas(true);
    device_give(at), device_give(ct);
}
END_TEST

void add_matrices(TCase *t)
{
    tcase_add_test(t, multiply);
    tcase_add_test(t, kronecker);
    tcase_add_test(t, in_a_graph);
    tcase_add_test(t, refused);
}

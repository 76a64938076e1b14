/* Times of symmetric products against full ones on this GPU (tests/gpu/products.sh). Runs only if
 * OPTC_PRODUCT_TIMES is set. The bars are for a product that a pass reads, which needs no mirror; a
 * product that another product reads is mirrored and timed too. */
#include "tests/gpu/gpu_product_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, REPS = 10 };
typedef enum { FULL, SYMMETRIC_ALONE, SYMMETRIC_MIRRORED, NWAY } Way;
static const struct {
    Type type;
    Product product;
    const char *name;
    int64_t shape[1][3];
    double bar;
} works[] = {{T_BF16, PRODUCT_BF16, "bf16", {{48, 2048, 2048}}, 0.6},
             {T_F64, PRODUCT_F64, "f64", {{8, 1024, 1024}}, 0.7},
             {T_BF16, PRODUCT_BF16, "bf16", {{32, 512, 2048}}, 0},
             {T_BF16, PRODUCT_BF16, "bf16", {{24, 768, 3072}}, 0},
             {T_BF16, PRODUCT_BF16, "bf16", {{12, 768, 768}}, 0},
             {T_BF16, PRODUCT_BF16, "bf16", {{8, 1024, 1024}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{16, 2048, 8192}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{12, 2048, 2048}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{32, 512, 512}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{48, 2048, 2048}}, 0},
             {T_BF16, PRODUCT_BF16, "bf16", {{12, 2048, 2048}}, 0},
             {T_BF16, PRODUCT_BF16, "bf16", {{24, 2048, 2048}}, 0},
             {T_F32, PRODUCT_TF32, "tf32", {{8, 1024, 1024}}, 0},
             {T_F32, PRODUCT_TF32, "tf32", {{8, 2048, 2048}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{8, 1024, 4096}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{1, 4096, 4096}}, 0},
             {T_F16, PRODUCT_F16, "f16", {{8, 1600, 1600}}, 0},
             {T_F32, PRODUCT_F32, "f32", {{64, 256, 256}}, 0},
             {T_F32, PRODUCT_F32, "f32", {{8, 1024, 1024}}, 0},
             {T_F32, PRODUCT_F32, "f32", {{12, 768, 768}}, 0},
             {T_F32, PRODUCT_F32, "f32", {{12, 768, 3072}}, 0},
             {T_F32, PRODUCT_F32, "f32", {{12, 2304, 768}}, 0},
             {T_F32, PRODUCT_F32, "f32", {{12, 384, 1536}}, 0},
             {T_F64, PRODUCT_F64, "f64", {{64, 256, 256}}, 0},
             {T_F64, PRODUCT_F64, "f64", {{1, 4096, 4096}}, 0},
             {T_F64, PRODUCT_F64, "f64", {{24, 768, 768}}, 0}};

static CUevent from, to;

static void open_way(Bound *x, int work, Way way, int block)
{
    open_rule(x, T_F32, 0);
    x->e->gpu->block = block;
    int e = add_array(&x->m, MEM_STATE, ELEM, works[work].type, "e"),
        r = add_array(&x->m, MEM_STATE, ROWS2, works[work].type, "r");
    add_mm(&x->m, e, e, r, TRANS_B | (way == FULL ? 0 : SYMMETRIC), 1, 0);
    end_program(&x->m, works[work].product);
    bind_program(x, works[work].shape, 1, 4);
    if (way == SYMMETRIC_ALONE)
        x->b->gpu->calls->call[0].n--;                 /* the mirror is last */
    size_t each = (size_t)(works[work].shape[0][1] * works[work].shape[0][2]),
        bytes = (size_t)type_info[works[work].type].bytes;
    char *v = malloc(each * bytes);
    for (size_t i = 0; i < each; i++)
        type_store((int)works[work].type, v, (int64_t)i, ref_value(0, 0, (int64_t)i));
    for (int64_t k = 0; k < works[work].shape[0][0]; k++)
        ck_assert(!d->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)x->b->tensor[0].mem[e] +
                                               (size_t)k * each * bytes,
                                           v, each * bytes, NULL) &&
                  !d->cuStreamSynchronize(NULL));
    free(v);
    for (int i = 0; i < 3; i++)
        OK(optc_step(x->b));                           /* a graph from here on */
}

static double time_way(Bound *x)
{
    float ms;
    ck_assert(!d->cuStreamSynchronize(NULL) && !d->cuEventRecord(from, NULL));
    for (int i = 0; i < REPS; i++)
        OK(optc_step(x->b));
    ck_assert(!d->cuEventRecord(to, NULL) && !d->cuEventSynchronize(to) &&
              !d->cuEventElapsedTime(&ms, from, to));
    return ms / REPS;
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Medians over alternating rounds, so that clock changes affect all alike. */
static void time_all(Bound *x, int n, double *ms)
{
    double t[16][ROUNDS];
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < n; i++)
            t[i][r] = time_way(&x[i]);
    for (int i = 0; i < n; i++) {
        qsort(t[i], ROUNDS, sizeof **t, ascending);
        ms[i] = t[i][ROUNDS / 2];
    }
}

START_TEST(product_times)
{
    enum { NBLOCK = 6 };
    /* 0: the block size of the table */
    static const int blocks[NBLOCK] = {0, 64, 128, 256, 384, 512};
    static Bound x[2 + NBLOCK];
    double ms[2 + NBLOCK];
    int n = 0;
    if (!getenv("OPTC_PRODUCT_TIMES"))
        return;
    ck_assert(!d->cuEventCreate(&from, 0) && !d->cuEventCreate(&to, 0));
    open_way(&x[n++], _i, FULL, 0);
    for (int k = 0; k < NBLOCK; k++)
        open_way(&x[n++], _i, SYMMETRIC_MIRRORED, blocks[k]);
    open_way(&x[n++], _i, SYMMETRIC_ALONE, 0);
    time_all(x, n, ms);
    const int64_t *s = works[_i].shape[0];
    printf("%lld x %lld x %lld %s: full %.3f ms (%.0f TFLOP/s); symmetric, of that: %.2f for a "
           "pass, %.2f mirrored; "
           "mirrored by blocks:",
           (long long)s[0], (long long)s[1], (long long)s[2], works[_i].name, ms[0],
           2e-9 * (double)s[0] * (double)s[1] * (double)s[1] * (double)s[2] / ms[0],
           ms[n - 1] / ms[0], ms[1] / ms[0]);
    for (int k = 1; k < NBLOCK; k++)
        printf(" %d %.2f", blocks[k], ms[1 + k] / ms[0]);
    puts(works[_i].bar && ms[n - 1] > works[_i].bar * ms[0] ? "  misses its bar" : "");
    fflush(stdout);
    for (int i = 0; i < n; i++)
        close_program(&x[i]);
    d->cuEventDestroy_v2(from);
    d->cuEventDestroy_v2(to);
    ck_assert_msg(!works[_i].bar || ms[n - 1] <= works[_i].bar * ms[0],
                  "a symmetric product takes %.2f of the full one's time, not %.2f",
                  ms[n - 1] / ms[0], works[_i].bar);
}
END_TEST

void add_product_times(TCase *t)
{
    tcase_add_loop_test(t, product_times, 0, (int)(sizeof works / sizeof *works));
}

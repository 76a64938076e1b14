/* Products without a rule on the CPU: all transposes, types and sizes, for any workspace and number
 * of threads. */
#include "tests/harness/reference_product.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *take(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }
static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static const Where host = {take, free, copy, copy};

static optc_engine *open_with(int threads)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = threads, .cache_dir = "", .compiler = ""}, &e));
    return e;
}

/* _i: with or without a BLAS */
START_TEST(products)
{
    if (_i)
        setenv("OPTC_BLAS", "none", 1);
    optc_engine *one = open_with(1), *two = open_with(2);
    for (int i = 0; i < 4 * ALONES; i++) {
        optc_type type = (optc_type)(OPTC_F32 + i % 4);
        size_t bytes, again;
        const Alone *x = &alone_cases[i / 4];
        if (thinned(i))
            continue;
        void *a = reference_product(one, &host, x, type, 0, &bytes),
            *b = reference_product(two, &host, x, type, 2 << 20, &again);
        ck_assert_msg(bytes == again && !memcmp(a, b, bytes),
                      "case %d, type %d: bits by threads or workspace", i / 4, (int)type);
        free(a), free(b);
    }
    optc_memory m;
    OK(optc_memory_info(two, &m));
    ck_assert_int_eq(m.ours, 0);
    ck_assert_int_le(m.peak, 2 << 20);
    OK(optc_close(one));
    OK(optc_close(two));
    unsetenv("OPTC_BLAS");
}
END_TEST

START_TEST(kronecker)
{
    static const int64_t sizes[][5] = {{1, 1, 1, 1, 1}, {2, 3, 4, 5, 1}, {3, 1, 2, 7, 3},
                                       {5, 4, 1, 1, 2}, {0, 2, 3, 1, 1}, {30, 20, 19, 21, 1}};
    optc_engine *e = open_with(2);
    for (int i = 0; i < 4 * 2 * 6; i++)
        reference_kron(e, &host, sizes[i / 8], (optc_type)(OPTC_F32 + i % 4), i / 4 % 2);
    OK(optc_close(e));
}
END_TEST

static double value_at(const void *p, int f64, int64_t i)
{
    return f64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* Both triangles of a Gram matrix are exact for small integers, and gaps between rows are not
 * written. Sizes have whole and partial tiles, one and two panels. _i: f64 */
START_TEST(gram)
{
    enum { K = 3, MOST = 660, GAP = 5 };
    static const int sizes[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,
                                17, 24, 31, 33, 49, 64, 100, 300, 530, 642};
    optc_engine *e = open_with(2);
    size_t size = _i ? 8 : 4;
    char *a = calloc(MOST * K, size), *c = malloc(MOST * (MOST + GAP) * size);
    for (int i = 0; i < MOST * K; i++) {
        double v = (double)(i * 7 % 11 - 5);
        if (_i)
            ((double *)(void *)a)[i] = v;
        else
            ((float *)(void *)a)[i] = (float)v;
    }
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k], wrong = 0;
        memset(c, 255, (size_t)n * (size_t)(n + GAP) * size);            /* NaN */
        OK(optc_multiply(e, &(optc_product){.a = a, .c = c, .m = n, .k = K, .ldc = n + GAP,
                                            .type = _i ? OPTC_F64 : OPTC_F32}));
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n + (i < n - 1 ? GAP : 0); j++) {
                double x = value_at(c, _i, i * (n + GAP) + j), y = 0;
                for (int l = 0; l < K && j < n; l++)
                    y += value_at(a, _i, i * K + l) * value_at(a, _i, j * K + l);
                wrong += j < n ? x != y : x == x;
            }
        ck_assert_msg(!wrong, "%d x %d: %d values are wrong", n, n, wrong);
    }
    free(a), free(c);
    OK(optc_close(e));
}
END_TEST

START_TEST(refused)
{
    float a[12] = {0}, b[12] = {0}, c[16] = {0};
    optc_engine *e = open_with(1);
    const optc_product good = {.a = a, .b = b, .c = c, .m = 3, .n = 4, .k = 2};
#define BAD(part, ...) \
    do { \
        optc_product x = good; \
        __VA_ARGS__; \
        FAILS(optc_multiply(e, &x), OPTC_ERROR_ARGUMENT, part); \
    } while (0)
    OK(optc_multiply(e, &good));
    BAD("a is NULL", x.a = NULL);
    BAD("c is NULL", x.c = NULL);
    BAD("there is no type 99", x.type = (optc_type)99);
    BAD("matrices cannot be stored as q8", x.type = OPTC_Q8);
    BAD("matrices cannot be stored as i16", x.type = OPTC_I16);
    BAD("the sizes m = 3, n = 4, k = 0", x.k = 0);
    BAD("the sizes m = -1, n = 4", x.m = -1);
    BAD("scale is nan; it must be a finite number", x.scale = NAN);
    BAD("add is inf; it must be a finite number", x.add = INFINITY);
    BAD("rows of b have 4 values, but its leading dimension is 3", x.ldb = 3);
    BAD("the distance between matrices of a is -2 values", x.next_a = -2; x.batch = 2);
    BAD("the distance between matrices of c is -1 values", x.next_c = OPTC_ONE; x.batch = 2);
    BAD("the matrices of c overlap", x.next_c = 3; x.batch = 2; x.next_a = x.next_b = OPTC_ONE);
    BAD("c overlaps a in memory", x.c = a + 2);
    BAD("c overlaps b in memory", x.c = b);
    BAD("larger than memory", x.m = (int64_t)1 << 62);
    BAD("larger than memory", x.batch = (int64_t)1 << 61);
    BAD("not aligned", x.a = (char *)a + 1);
    BAD("workspace is -1 bytes", x.workspace = -1);
    BAD("products = 'bf16' is not possible for f32", x.products = "bf16");
    BAD("a Gram matrix cannot be multiplied by a third matrix", x.b = NULL; x.d = b);
    BAD("needs at least 64", x.d = b + 8; x.p = 1; x.k = 1; x.workspace = 63);
    FAILS(optc_multiply(NULL, &good), OPTC_ERROR_ARGUMENT, "the engine is NULL");
    FAILS(optc_multiply_sized(e, &good, 1), OPTC_ERROR_ARGUMENT, "pass sizeof(optc_product)");
    FAILS(optc_kron(e, &(optc_kronecker){.a = a, .b = b, .c = c, .m = -1}), OPTC_ERROR_ARGUMENT,
          "-1 x 0 and 0 x 0, batch = 0; a size is negative");
    FAILS(optc_kron(e, &(optc_kronecker){.a = a, .b = b, .c = a, .m = 1, .n = 2, .p = 2, .q = 1}),
          OPTC_ERROR_ARGUMENT, "c overlaps a in memory");
    setenv("OPTC_BLAS", "/nowhere/libnone.so", 1);
    optc_engine *other = open_with(1);
    FAILS(optc_multiply(other, &good), OPTC_ERROR_UNAVAILABLE, "OPTC_BLAS");
    unsetenv("OPTC_BLAS");
    OK(optc_multiply(other, &good));                       /* queried again */
    OK(optc_close(other));
    OK(optc_close(e));
}
END_TEST

/* A child of fork continues with one thread and the same bits. */
START_TEST(forked)
{
    size_t bytes, again;
    optc_engine *e = open_with(2);
    void *a = reference_product(e, &host, &alone_cases[6], OPTC_F32, 0, &bytes);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        void *b = reference_product(e, &host, &alone_cases[6], OPTC_F32, 0, &again);
        _exit(memcmp(a, b, bytes) != 0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
    free(a);
    OK(optc_close(e));
}
END_TEST

Suite *multiply_suite(void)
{
    Suite *s = suite_create("multiply");
    TCase *t = tcase_create("multiply");
    tcase_add_loop_test(t, products, 0, 2);
    tcase_add_test(t, kronecker);
    tcase_add_loop_test(t, gram, 0, 2);
    tcase_add_test(t, refused);
    tcase_add_test(t, forked);
    suite_add_tcase(s, t);
    return s;
}

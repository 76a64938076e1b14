/* Functions of matrices without a rule: each against its definition in f64, in every storage type,
 * with strides and in place; the same bits for any number of threads; bad input changes nothing. */
#include "tests/harness/function_cases.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *take(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }
static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static const Where host = {take, free, copy, copy};

static optc_engine *open_with(int threads)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = threads}, &e));
    return e;
}

START_TEST(definitions)
{
    optc_engine *one = open_with(1), *two = open_with(2);
    for (int i = 0; i < FUNCTION_CASES; i++) {
        size_t bytes, again;
        char *a = function_case(one, &host, &function_cases[i], &bytes),
             *b = function_case(two, &host, &function_cases[i], &again);
        ck_assert_msg(bytes == again && !memcmp(a, b, bytes), "case %d: bits by threads", i);
        free(a), free(b);
    }
    OK(optc_close(one));
    OK(optc_close(two));
}
END_TEST

/* Orthonormal columns in blocks (lapack.c): whole blocks, a shorter last one, and fewer columns
 * than blocks need. */
START_TEST(column_blocks)
{
    static const FunctionCase of[] = {
        {.kind = DO_QR, .type = OPTC_F64, .m = 64, .n = 64, .batch = 1},
        {.kind = DO_QR, .type = OPTC_F64, .m = 90, .n = 71, .batch = 2},
        {.kind = DO_QR, .type = OPTC_F32, .m = 70, .n = 97, .batch = 1},
        {.kind = DO_QR, .type = OPTC_F64, .m = 70, .n = 63, .batch = 1}};
    optc_engine *e = open_with(1);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        size_t bytes;
        free(function_case(e, &host, &of[i], &bytes));
    }
    OK(optc_close(e));
}
END_TEST

/* The engine keeps entries for the next call, and frees them when it is closed or told to. */
START_TEST(kept)
{
    optc_memory m;
    double a[4] = {2, 0, 0, 3}, x[4];
    int64_t bytes = 0;
    optc_engine *e = open_with(1);
    optc_function f = {
        .a = {a, 0, 0}, .x = {x, 0, 0}, .type = OPTC_F64, .n = 2, .exponent = -1, .bytes = &bytes};
    OK(optc_matrix_power(e, &f));
    ck_assert_int_gt(bytes, 0);
    f.bytes = NULL;
    OK(optc_matrix_power(e, &f));
    OK(optc_memory_info(e, &m));
    ck_assert_int_gt(m.ours, 0);
    int64_t held = m.ours;
    f.exponent = -1, f.ridge = 1;                          /* another spec */
    OK(optc_matrix_power(e, &f));
    ck_assert_double_eq_tol(x[0], 1.0 / 3, 1e-12);
    f.ridge = 2;                                           /* the same spec with another number */
    OK(optc_memory_info(e, &m));
    int64_t both = m.ours;
    OK(optc_matrix_power(e, &f));
    ck_assert_double_eq_tol(x[0], 0.25, 1e-12);
    OK(optc_memory_info(e, &m));
    ck_assert_int_eq(m.ours, both);
    ck_assert_int_gt(both, held);
    OK(optc_functions_held(e, &bytes));
    ck_assert_int_eq(bytes, both);
    OK(optc_functions_drop(e));
    OK(optc_functions_held(e, &bytes));
    OK(optc_memory_info(e, &m));
    ck_assert(m.ours == 0 && bytes == 0);
    OK(optc_matrix_power(e, &f));
    OK(optc_close(e));
}
END_TEST

/* More signatures than the table keeps. */
START_TEST(limits)
{
    double a[40], x[40];
    optc_memory m;
    optc_engine *e = open_with(1);
    int64_t most = 0;
    for (int n = 1; n <= 40; n++) {
        for (int i = 0; i < n; i++)
            a[i] = 1 + i;
        optc_function f = {.a = {a, 0, 0}, .x = {x, 0, 0}, .type = OPTC_F64, .n = 1, .batch = n};
        OK(optc_cholesky(e, &f));
        OK(optc_memory_info(e, &m));
        if (n == 20)
            most = m.ours;
    }
    ck_assert_int_lt(m.ours, 2 * most);
    OK(optc_close(e));
}
END_TEST

#define BAD(f, status, part, ...)                                                     \
    do {                                                                              \
        optc_function y = good;                                                       \
        __VA_ARGS__;                                                                  \
        FAILS(f(e, &y), status, part);                                                \
        ck_assert_msg(!memcmp(x, was, sizeof x), "%s changed its result", part);      \
    } while (0)

START_TEST(refused)
{
    double a[8] = {2, 1, 1, 2, 3, 0, 0, 3}, b[8] = {1, 2, 3, 4, 5, 6, 7, 8}, x[8], w[4], was[8],
           bad[8];
    optc_engine *e = open_with(1);
    memset(x, 0x55, sizeof x);
    memcpy(was, x, sizeof x);
    const optc_function good = {.a = {a, 0, 0},
                                .b = {b, 0, 0},
                                .x = {x, 0, 0},
                                .type = OPTC_F64,
                                .n = 2,
                                .m = 2,
                                .batch = 2,
                                .exponent = -0.5};
    const optc_status ARG = OPTC_ERROR_ARGUMENT, RANGE = OPTC_ERROR_RANGE;
    FAILS(optc_eigh(NULL, &good), ARG, "optc_eigh: the engine is NULL");
    FAILS(optc_eigh(e, NULL), ARG, "the function is NULL");
    FAILS(optc_eigh_sized(e, &good, 1), ARG, "pass sizeof(optc_function)");
    FAILS(optc_functions_drop(NULL), ARG, "the engine is NULL");
    BAD(optc_matrix_power, ARG, "a is NULL", y.a.data = NULL);
    BAD(optc_matrix_power, ARG, "x is NULL", y.x.data = NULL);
    BAD(optc_solve, ARG, "b is NULL", y.b.data = NULL);
    BAD(optc_cholesky, ARG, "n = -1", y.n = -1);
    BAD(optc_cholesky, ARG, "batch = -3", y.batch = -3);
    BAD(optc_polar, ARG, "m = -1", y.m = -1);
    BAD(optc_cholesky, ARG, "larger than memory", y.n = (int64_t)1 << 40);
    BAD(optc_qr, ARG, "larger than memory", y.m = (int64_t)1 << 40);
    BAD(optc_cholesky, ARG, "larger than memory", y.batch = (int64_t)1 << 61);
    BAD(optc_cholesky, ARG, "larger than memory", y.a.ld = (int64_t)1 << 62);
    BAD(optc_cholesky, ARG, "its leading dimension is 1", y.a.ld = 1);
    BAD(optc_cholesky, ARG, "distance between matrices of a is -1", y.a.next = -1);
    BAD(optc_cholesky, ARG, "the matrices of x overlap", y.x.next = 3);
    BAD(optc_cholesky, ARG, "not aligned", y.a.data = (char *)a + 1);
    BAD(optc_cholesky, ARG, "x overlaps a in memory", y.x.data = a + 1; y.batch = 1);
    BAD(optc_eigh, ARG, "y overlaps x in memory", y.y.data = x);
    BAD(optc_cholesky, ARG, "there is no type 77", y.type = (optc_type)77);
    BAD(optc_cholesky, ARG, "matrices cannot be stored as q8", y.type = OPTC_Q8);
    BAD(optc_matrix_power, ARG, "exponent is 0", y.exponent = 0);
    BAD(optc_matrix_power, ARG, "exponent is nan", y.exponent = NAN);
    BAD(optc_matrix_power, ARG, "ridge is -1", y.ridge = -1);
    BAD(optc_matrix_power, ARG, "floor is inf", y.floor = INFINITY);
    BAD(optc_polar, ARG, "steps is -2", y.steps = -2);
    BAD(optc_polar, ARG, "there are no coefficients", y.coefficients = "a b");
    BAD(optc_polar, ARG, "there are no coefficients 'none_such'", y.coefficients = "none_such");
    BAD(optc_polar, ARG, "ntriples is 9", y.ntriples = 9; y.triples = b);
    BAD(optc_polar, ARG, "triples is NULL", y.ntriples = 1);
    BAD(optc_polar, ARG, "a coefficient is nan", y.ntriples = 1; y.triples = (double[]){1, NAN, 1});
    FAILS(optc_functions_held(e, NULL), ARG, "the result pointer is NULL");
    BAD(optc_solve, ARG, "positive is set together with right", y.positive = y.right = 1);
    memcpy(bad, a, sizeof a);
    bad[1] = 1.5;
    BAD(optc_cholesky, RANGE, "matrix 0 of 2 of a is not symmetric", y.a.data = bad);
    BAD(optc_eigh, RANGE, "not symmetric", y.a.data = bad; y.y.data = w);
    bad[1] = 1, bad[7] = -3;
    BAD(optc_cholesky, RANGE, "no result for matrix 1 of 2: it is not positive definite",
        y.a.data = bad);
    BAD(optc_matrix_power, RANGE, "no result for matrix 1 of 2: its eigenvalues", y.a.data = bad);
    BAD(optc_solve, RANGE, "a is not positive definite", y.a.data = bad; y.positive = 1);
    bad[7] = 0;
    BAD(optc_matrix_power, RANGE, "no result for matrix 1 of 2", y.a.data = bad);
    BAD(optc_solve, RANGE, "0 on its diagonal", y.a.data = bad);
    bad[7] = NAN;
    BAD(optc_cholesky, RANGE, "matrix 1 of 2 of a contains a NaN", y.a.data = bad);
    BAD(optc_eigh, RANGE, "matrix 1 of 2 of a contains a NaN", y.a.data = bad; y.y.data = w);
    BAD(optc_polar, RANGE, "contains a NaN", y.a.data = bad);
    BAD(optc_qr, RANGE, "contains a NaN", y.a.data = bad);
    BAD(optc_solve, RANGE, "matrix 1 of 2 of a or b contains a NaN", y.b.data = bad);
    bad[7] = 3, bad[1] = NAN;                              /* above the diagonal */
    BAD(optc_cholesky, RANGE, "NaN", y.a.data = bad);
    optc_function f = good;
    f.a.data = bad, f.lower = 1;
    OK(optc_cholesky(e, &f));
    /* unchecked: NaN for the matrix without a result, the other one as before */
    double first[4];
    memcpy(first, x, sizeof first);
    bad[7] = -3, f.unchecked = 1;
    OK(optc_cholesky(e, &f));
    ck_assert(!memcmp(first, x, sizeof first) && isnan(x[7]));
    OK(optc_close(e));
}
END_TEST

/* A result that the storage type cannot hold is refused; unchecked, it is stored as the type rounds
 * it. */
START_TEST(beyond_type)
{
    static const struct { optc_type type; uint16_t small, large, most; const char *name; } of[] = {
        {OPTC_F16, 0x1400, 0x5c00, 0x7c00, "f16"},         /* 2^-10, 2^8; stored: infinity */
        {OPTC_E5M2, 0x14, 0x5c, 0x7c, "e5m2"},             /* 2^-10, 2^8 */
        {OPTC_E4M3, 0x08, 0x68, 0x7e, "e4m3"}};            /* 2^-6, 2^6; stored: 448 */
    optc_engine *e = open_with(1);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int k = 0; k < 2; k++) {                      /* powers of -2 and 2 */
            size_t size = of[i].type < OPTC_Q8 ? 2 : 1;
            uint16_t v = k ? of[i].large : of[i].small, got = 0;
            unsigned char a[2], x[2] = {0x55, 0x55};
            memcpy(a, &v, sizeof a);
            optc_function f = {
                .a = {a, 0, 0}, .x = {x, 0, 0}, .type = of[i].type, .n = 1, .exponent = k ? 2 : -2};
            FAILS(optc_matrix_power(e, &f), OPTC_ERROR_RANGE, of[i].name);
            ck_assert_int_eq(x[0], 0x55);
            f.unchecked = 1;
            OK(optc_matrix_power(e, &f));
            memcpy(&got, x, size);
            ck_assert_uint_eq(got, of[i].most);
        }
    double a = 4, x = 0;
    optc_function f = {
        .a = {&a, 0, 0}, .x = {&x, 0, 0}, .type = OPTC_F64, .n = 1, .exponent = 1e300};
    FAILS(optc_matrix_power(e, &f), OPTC_ERROR_RANGE, "a value of it exceeds the range of f64");
    OK(optc_close(e));
}
END_TEST

/* Every set of coefficients that the spec language has. */
START_TEST(coefficient_sets)
{
    static const char *const sets[] = {"polar_express", "polar_express_5", "jordan",     "cans",
                                       "turbo",         "quintic",         "deepseekv4", "cubic5"};
    optc_engine *e = open_with(1);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        double a[] = {3, 0, 0, 2}, x[4];
        OK(optc_polar(e, &(optc_function){.a = {a, 0, 0},
                                          .x = {x, 0, 0},
                                          .type = OPTC_F64,
                                          .m = 2,
                                          .n = 2,
                                          .coefficients = sets[i]}));
        double one = strcmp(sets[i], "turbo") ? 1 : -1;    /* its first polynomial is -0.6 at 1 */
        ck_assert_msg(fabs(x[0] - one) < 0.4 && fabs(x[3] - one) < 0.4 && fabs(x[1]) < 1e-12,
                      "%s: %g %g", sets[i], x[0], x[3]);
    }
    OK(optc_close(e));
}
END_TEST

/* lower: the upper triangle is not read, also where an algorithm uses whole matrices. */
START_TEST(lower_triangle)
{
    enum { N = 3 };
    static const double whole[N * N] = {2, 1, 0.5, 1, 3, 0.25, 0.5, 0.25, 4};
    static const double upper[] = {100, NAN, -7};
    optc_engine *e = open_with(1);
    for (int k = 0; k < 6; k++) {
        double half[N * N], x[2][N * N] = {{0}}, w[2][N] = {{0}};
        memcpy(half, whole, sizeof half);
        half[1] = half[2] = half[5] = upper[k / 2];
        for (int i = 0; i < 2; i++) {
            optc_function f = {.type = OPTC_F64,
                               .n = N,
                               .a = {i ? half : (double *)(uintptr_t)whole, N, 0},
                               .x = {x[i], N, 0},
                               .lower = i,
                               .unchecked = k % 2};
            optc_function y = f;
            y.y.data = w[i];
            OK(optc_eigh(e, &y));
            f.exponent = -0.5, f.relative = 0.125;
            f.x.data = x[i];
            OK(optc_matrix_power(e, &f));
        }
        ck_assert_msg(!memcmp(w[0], w[1], sizeof w[0]), "eigh: %g and %g", w[0][0], w[1][0]);
        ck_assert_msg(!memcmp(x[0], x[1], sizeof x[0]), "power: %g and %g", x[0][0], x[1][0]);
    }
    double skew[4] = {1e170, 3e169, -3e169, 1e170}, v[4], w[2];
    FAILS(
        optc_eigh(e,
                  &(optc_function){
                      .type = OPTC_F64, .n = 2, .a = {skew, 2, 0}, .x = {v, 2, 0}, .y = {w, 0, 0}}),
        OPTC_ERROR_RANGE, "not symmetric");
    int64_t bytes;
    FAILS(optc_eigh(e, &(optc_function){.n = INT32_MAX, .batch = 1 << 20, .bytes = &bytes}),
          OPTC_ERROR_ARGUMENT, "larger than memory can be");
    OK(optc_close(e));
}
END_TEST

/* Nothing to do is no error, and needs no memory. */
START_TEST(empty)
{
    float a[1] = {7}, x[1] = {5};
    optc_memory m;
    optc_engine *e = open_with(1);
    OK(optc_cholesky(e, &(optc_function){.a = {a, 0, 0}, .x = {x, 0, 0}}));
    OK(optc_polar(e, &(optc_function){.a = {a, 0, 0}, .x = {x, 0, 0}, .m = 3}));
    ck_assert(x[0] == 5);
    OK(optc_memory_info(e, &m));
    ck_assert_int_eq(m.ours, 0);
    OK(optc_close(e));
}
END_TEST

/* Coefficients as numbers: Jordan's triple, by name and by value. */
START_TEST(triples)
{
    static const double jordan[3] = {3.4445, -4.775, 2.0315};
    double a[6] = {3, 1, -2, 0, 5, 1}, x[6], y[6];
    optc_engine *e = open_with(1);
    optc_function f = {.a = {a, 0, 0}, .x = {x, 0, 0}, .type = OPTC_F64, .m = 2, .n = 3, .steps = 5,
                       .coefficients = "jordan"};
    OK(optc_polar(e, &f));
    f.coefficients = NULL, f.triples = jordan, f.ntriples = 1, f.x.data = y;
    OK(optc_polar(e, &f));
    ck_assert(!memcmp(x, y, sizeof x));
    OK(optc_close(e));
}
END_TEST

/* Residuals of f32 results are not 0, and of the size of roundings. Wrong results would have larger
 * ones. */
START_TEST(residuals)
{
    enum { N = 12, M = 5 };
    static float a[2 * N * N], b[2 * N * N], x[2 * N * N], y[2 * N];
    double r;
    optc_engine *e = open_with(1);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                a[(k * N + i) * N + j] = (i == j ? 3.0f : 0.0f) + 1.0f / (float)(1 + k + i + j);
                b[(k * N + i) * N + j] = 1.0f / (float)(3 + i + 2 * j) + (float)((i * j + k) % 5);
            }
    optc_function f = {.a = {a, 0, 0},
                       .b = {b, 0, 0},
                       .x = {x, 0, 0},
                       .y = {y, 0, 0},
                       .n = N,
                       .m = M,
                       .batch = 2,
                       .residual = &r};
#define MEASURED(call)                                                   \
    do {                                                                 \
        r = -1;                                                          \
        OK(call);                                                        \
        ck_assert_msg(r > 0 && r < 1e-5, "%s: %g", #call, r);            \
    } while (0)
    MEASURED(optc_eigh(e, &f));
    MEASURED(optc_cholesky(e, &f));
    MEASURED(optc_solve(e, &f));
    f.upper = 1;
    MEASURED(optc_solve(e, &f));
    f.right = 1;
    MEASURED(optc_solve(e, &f));
    f.upper = 0;
    MEASURED(optc_solve(e, &f));
    f.right = 0, f.positive = 1;
    f.x = f.b;                                             /* in place */
    MEASURED(optc_solve(e, &f));
    f.x = (optc_matrix){x, 0, 0};
    for (int i = 0; i < 6; i++) {
        static const double exponents[] = {0.5, 2, 0.75, -2, -0.75, -0.25};
        f.exponent = exponents[i], f.relative = 0.125, f.ridge = 0.5;
        MEASURED(optc_matrix_power(e, &f));
    }
    f.relative = f.ridge = 0, f.floor = 1, f.exponent = 0.5;
    OK(optc_matrix_power(e, &f));
    ck_assert_msg(isnan(r), "a floor: %g", r);
    f.floor = 0, f.exponent = 0.3183;
    OK(optc_matrix_power(e, &f));
    ck_assert_msg(isnan(r), "an exponent without p / q: %g", r);
    f.n = M, f.m = N, f.y.data = NULL, f.a.data = b;
    MEASURED(optc_qr(e, &f));
    MEASURED(optc_polar(e, &f));
    f.n = N, f.m = M;                                      /* wide */
    MEASURED(optc_polar(e, &f));
    f.steps = 1;                                           /* has not converged */
    OK(optc_polar(e, &f));
    ck_assert_msg(r > 0.1 && r < 10, "%g", r);
    a[0] = NAN, f.unchecked = 1, f.steps = 0, f.a.data = a, f.n = N;
    OK(optc_cholesky(e, &f));
    ck_assert_msg(r == INFINITY, "%g", r);
    OK(optc_close(e));
}
END_TEST

Suite *matrix_functions_suite(void)
{
    Suite *s = suite_create("matrix_functions");
    TCase *t = tcase_create("matrix_functions");
    tcase_add_test(t, definitions);
    tcase_add_test(t, column_blocks);
    tcase_add_test(t, kept);
    tcase_add_test(t, limits);
    tcase_add_test(t, refused);
    tcase_add_test(t, lower_triangle);
    tcase_add_test(t, beyond_type);
    tcase_add_test(t, coefficient_sets);
    tcase_add_test(t, empty);
    tcase_add_test(t, triples);
    tcase_add_test(t, residuals);
    suite_add_tcase(s, t);
    return s;
}

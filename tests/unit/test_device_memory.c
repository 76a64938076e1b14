/* optc_alloc, optc_free, optc_fill and optc_copy on the CPU. tests/gpu/test_gpu_memory.c runs them
 * on a GPU. */
#include "tests/harness/help.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static optc_engine *engine;
static void open_engine(void)
{
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &engine));
}
static void close_engine(void) { OK(optc_close(engine)); }

static int64_t held(optc_engine *e)
{
    optc_memory m;
    OK(optc_memory_info(e, &m));
    return m.ours;
}

/* Memory is zero, also where a freed block with other contents was; it is counted until it is
 * freed. */
START_TEST(zeroed_and_counted)
{
    for (int round = 0; round < 3; round++) {
        char *p = NULL;
        OK(optc_alloc(engine, 10001, NULL, (void **)&p));
        ck_assert_int_eq((uintptr_t)p % 64, 0);
        for (int i = 0; i < 10001; i++)
            ck_assert_msg(!p[i], "byte %d is %d", i, p[i]);
        ck_assert_int_eq(held(engine), 10001);
        memset(p, 0xa5, 10001);
        OK(optc_free(engine, p, NULL));
        ck_assert_int_eq(held(engine), 0);
    }
    void *none = &none;
    OK(optc_alloc(engine, 0, NULL, &none));
    ck_assert_ptr_nonnull(none);
    OK(optc_free(engine, none, NULL));
    OK(optc_free(engine, NULL, NULL));
}
END_TEST

START_TEST(bad_sizes_and_pointers)
{
    char stack[64], *p, *q;
    void *out = stack;
    optc_engine *other;
    FAILS(optc_alloc(NULL, 8, NULL, &out), OPTC_ERROR_ARGUMENT, "optc_alloc: the engine is NULL");
    ck_assert_ptr_null(out);
    FAILS(optc_alloc(engine, 8, NULL, NULL), OPTC_ERROR_ARGUMENT, "the result pointer is NULL");
    FAILS(optc_alloc(engine, -1, NULL, &out), OPTC_ERROR_ARGUMENT, "-1 bytes");
    FAILS(optc_alloc(engine, INT64_MAX, NULL, &out), OPTC_ERROR_ARGUMENT, "at most 2^60");
    ck_assert(!out && held(engine) == 0);
    OK(optc_alloc(engine, 100, NULL, (void **)&p));
    OK(optc_alloc(engine, 100, NULL, (void **)&q));
    FAILS(optc_free(engine, stack, NULL), OPTC_ERROR_ARGUMENT,
          "is not memory of optc_alloc, or is already freed");
    FAILS(optc_free(engine, p + 1, NULL), OPTC_ERROR_ARGUMENT, "1 bytes inside a block of 100");
    FAILS(optc_free(NULL, p, NULL), OPTC_ERROR_ARGUMENT, "the engine is NULL");
    OK(optc_open(&(optc_engine_options){.cache_dir = ""}, &other));
    FAILS(optc_free(other, p, NULL), OPTC_ERROR_ARGUMENT, "belongs to another engine");
    FAILS(optc_close(engine), OPTC_ERROR_BUSY, "2 blocks of optc_alloc are not freed (200 bytes)");
    OK(optc_close(other));
    ck_assert_int_eq(held(engine), 200);
    OK(optc_free(engine, p, NULL));
    FAILS(optc_free(engine, p, NULL), OPTC_ERROR_ARGUMENT, "already freed");
    OK(optc_free(engine, q, NULL));
    FAILS(optc_free(engine, q, NULL), OPTC_ERROR_ARGUMENT, "already freed");
}
END_TEST

START_TEST(copies)
{
    char here[100], back[100], *p;
    OK(optc_alloc(engine, 100, NULL, (void **)&p));
    for (int i = 0; i < 100; i++)
        here[i] = (char)i;
    OK(optc_copy(engine, p, here, 100, NULL));
    OK(optc_copy(engine, back, p, 100, NULL));
    ck_assert_mem_eq(here, back, 100);
    FAILS(optc_copy(engine, p, here, 101, NULL), OPTC_ERROR_ARGUMENT,
          "its block of optc_alloc ends after 100");
    FAILS(optc_copy(engine, back, p + 90, 11, NULL), OPTC_ERROR_ARGUMENT, "ends after 10");
    FAILS(optc_copy(engine, p, p + 5, 6, NULL), OPTC_ERROR_ARGUMENT,
          "the two ranges of 6 bytes overlap");
    FAILS(optc_copy(engine, p + 5, p, 6, NULL), OPTC_ERROR_ARGUMENT, "overlap");
    FAILS(optc_copy(engine, p, p, 1, NULL), OPTC_ERROR_ARGUMENT, "overlap");
    OK(optc_copy(engine, p + 5, p, 5, NULL));
    FAILS(optc_copy(engine, p, here, -1, NULL), OPTC_ERROR_ARGUMENT, "-1 bytes");
    FAILS(optc_copy(engine, p, here, INT64_MAX, NULL), OPTC_ERROR_ARGUMENT, "at most 2^60");
    FAILS(optc_copy(engine, NULL, here, 1, NULL), OPTC_ERROR_ARGUMENT,
          "the memory to write is NULL");
    FAILS(optc_copy(engine, p, NULL, 1, NULL), OPTC_ERROR_ARGUMENT, "the memory to read is NULL");
    FAILS(optc_copy(NULL, p, here, 1, NULL), OPTC_ERROR_ARGUMENT, "the engine is NULL");
    OK(optc_copy(engine, NULL, NULL, 0, NULL));
    OK(optc_free(engine, p, NULL));
}
END_TEST

/* Every plain type and count gives the type's own rounding of the value, and bytes behind the range
 * stay. */
START_TEST(fills_values)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 1000};
    char *p;
    OK(optc_alloc(engine, 8192, NULL, (void **)&p));
    for (int t = 1; t <= optc_types(); t++) {
        optc_type_info about;
        OK(optc_type_about((optc_type)t, &about));
        if (type_is_coded(t - 1)) {
            FAILS(optc_fill(engine, p, 8, (optc_type)t, 1, 0, NULL), OPTC_ERROR_ARGUMENT,
                  "stores blocks with scales");
            continue;
        }
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int v = 0; v < 3; v++) {
                const double value = v == 0 ? 0 : v == 1 ? 1.2345 : -3e38;
                unsigned char one[8] = {0};
                int size = about.bits / 8;
                type_store(t - 1, one, 0, value);
                memset(p, 0x5a, 8192);
                OK(optc_fill(engine, p, counts[c], (optc_type)t, value, 0, NULL));
                int64_t i = 0;                 /* one assertion: each writes to Check's pipe */
                while (i < 8192 &&
                       (unsigned char)p[i] == (i < counts[c] * size ? one[i % size] : 0x5a))
                    i++;
                ck_assert_msg(i == 8192, "%s, %lld values of %g: byte %lld", about.name,
                              (long long)counts[c], value, (long long)i);
            }
    }
    OK(optc_fill(engine, p, 3, OPTC_DEFAULT, NAN, 0, NULL));
    ck_assert(isnan(((float *)p)[2]));
    OK(optc_free(engine, p, NULL));
}
END_TEST

START_TEST(fills_diagonals)
{
    enum { MOST = 5 * 17 * 17 };
    double *p;
    OK(optc_alloc(engine, MOST * 8, NULL, (void **)&p));
    for (int64_t rows = 1; rows <= 17; rows += rows < 4 ? 1 : 13)
        for (int64_t batch = 0; batch <= 5; batch += batch == 1 ? 4 : 1) {
            OK(optc_fill(engine, p, MOST, OPTC_F64, 9, 0, NULL));
            OK(optc_fill(engine, p, batch * rows * rows, OPTC_F64, 0.5, rows, NULL));
            for (int64_t i = 0; i < MOST; i++) {
                int64_t k = i % (rows * rows);
                ck_assert(p[i] == (i >= batch * rows * rows ? 9 : k / rows == k % rows ? 0.5 : 0));
            }
        }
    OK(optc_fill(engine, p, 8, OPTC_F64, 0, 2, NULL));
    ck_assert(p[0] == 0 && p[7] == 0);
    FAILS(optc_fill(engine, p, 10, OPTC_F64, 1, 3, NULL), OPTC_ERROR_ARGUMENT,
          "10 values are no whole number of matrices of 3 rows");
    FAILS(optc_fill(engine, p, 9, OPTC_F64, 1, -3, NULL), OPTC_ERROR_ARGUMENT, "of -3 rows");
    FAILS(optc_fill(engine, p, 9, OPTC_F64, 1, (int64_t)1 << 40, NULL), OPTC_ERROR_ARGUMENT,
          "no whole number");
    FAILS(optc_fill(engine, p, MOST + 1, OPTC_F64, 1, 0, NULL), OPTC_ERROR_ARGUMENT,
          "its block of optc_alloc ends");
    FAILS(optc_fill(engine, p, -1, OPTC_F64, 1, 0, NULL), OPTC_ERROR_ARGUMENT, "-1 values");
    FAILS(optc_fill(engine, p, (int64_t)1 << 61, OPTC_F64, 1, 0, NULL), OPTC_ERROR_ARGUMENT,
          "at most 2^60 bytes");
    FAILS(optc_fill(engine, p, 1, (optc_type)99, 1, 0, NULL), OPTC_ERROR_ARGUMENT,
          "there is no type 99");
    FAILS(optc_fill(engine, (char *)p + 2, 1, OPTC_F64, 1, 0, NULL), OPTC_ERROR_ARGUMENT,
          "not aligned");
    FAILS(optc_fill(engine, NULL, 1, OPTC_F64, 1, 0, NULL), OPTC_ERROR_ARGUMENT,
          "the memory is NULL");
    FAILS(optc_fill(NULL, p, 1, OPTC_F64, 1, 0, NULL), OPTC_ERROR_ARGUMENT, "the engine is NULL");
    OK(optc_free(engine, p, NULL));
}
END_TEST

/* The caller's allocator: its memory is used, zeroed and given back; misaligned memory is given
 * back at once. */
static struct { int live, off; char *block; } own;
static void *own_alloc(void *ctx, size_t bytes, void *stream)
{
    (void)ctx, (void)stream;
    own.block = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(own.block, 0x77, bytes + 8);
    own.live++;
    return own.off < 0 ? (own.live--, free(own.block), NULL) : own.block + own.off;
}
static void own_release(void *ctx, void *p, size_t bytes, void *stream)
{
    (void)ctx, (void)bytes, (void)stream;
    ck_assert(p == own.block + own.off);
    own.live--;
    free(own.block);
}

START_TEST(callers_allocator)
{
    optc_engine *e;
    char *p;
    OK(optc_open(
        &(optc_engine_options){.cache_dir = "",
                               .allocator = &(optc_allocator){own_alloc, own_release, NULL}},
        &e));
    OK(optc_alloc(e, 10, NULL, (void **)&p));
    ck_assert(p == own.block && !p[0] && !p[9] && own.live == 1 && held(e) == 10);
    OK(optc_free(e, p, NULL));
    own.off = 4;
    FAILS(optc_alloc(e, 10, NULL, (void **)&p), OPTC_ERROR_ARGUMENT, "not aligned to 64 bytes");
    ck_assert(own.live == 0 && held(e) == 0 && !p);
    own.off = -1;
    FAILS(optc_alloc(e, 10, NULL, (void **)&p), OPTC_ERROR_MEMORY,
          "optc_alloc: out of memory: 10 bytes");
    OK(optc_close(e));
}
END_TEST

/* Threads allocate and free on one engine: no block is lost, and none is returned twice. */
static void *churn(void *with)
{
    void *p[40];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 40; i++) {
            OK(optc_alloc(engine, 8 * (i + 1), NULL, &p[i]));
            memset(p[i], (int)(intptr_t)with, (size_t)(8 * (i + 1)));
        }
        for (int i = 0; i < 40; i++) {
            ck_assert(((unsigned char *)p[i])[8 * i + 7] == (unsigned char)(intptr_t)with);
            OK(optc_free(engine, p[i], NULL));
        }
    }
    return NULL;
}

START_TEST(threads)
{
    pthread_t t[4];
    for (intptr_t i = 0; i < 4; i++)
        ck_assert(!pthread_create(&t[i], NULL, churn, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    ck_assert_int_eq(held(engine), 0);
}
END_TEST

Suite *device_memory_suite(void)
{
    Suite *s = suite_create("device_memory");
    TCase *t = tcase_create("device_memory");
    tcase_add_checked_fixture(t, open_engine, close_engine);
    tcase_add_test(t, zeroed_and_counted);
    tcase_add_test(t, bad_sizes_and_pointers);
    tcase_add_test(t, copies);
    tcase_add_test(t, fills_values);
    tcase_add_test(t, fills_diagonals);
    tcase_add_test(t, callers_allocator);
    tcase_add_test(t, threads);
    suite_add_tcase(s, t);
    return s;
}

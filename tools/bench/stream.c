/* Large buffers, and loops that stream them: the reference rate of `explain` and `bench`. Also
 * clocks and medians. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/tools.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double cli_cpu_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t)
               ? 0
               : (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A sorted copy, malloc'ed. NULL: n is 0, or out of memory. */
static double *sorted(const double *v, int n)
{
    double *s = n > 0 ? malloc(sizeof *s * (size_t)n) : NULL;
    if (s) {
        memcpy(s, v, sizeof *s * (size_t)n);
        qsort(s, (size_t)n, sizeof *s, by_value);
    }
    return s;
}

double cli_median(const double *v, int n)
{
    double *s = sorted(v, n), m = 0;
    if (s)
        m = n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
    free(s);
    return m;
}

double cli_spread(const double *v, int n)
{
    double *s = sorted(v, n), half = s ? (s[n - 1 - n / 4] - s[n / 4]) / 2 : 0,
           m = cli_median(v, n);
    free(s);
    return m > 0 ? half / m : 0;
}

void *stream_alloc(size_t bytes)
{
    size_t page = (size_t)2 << 20;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + page - 1) / page * page;
    void *p = aligned_alloc(page, bytes ? bytes : page);
    if (p)
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* The part of n values that thread k of `threads` owns; parts begin at cache lines. */
static void part_of(int64_t n, int k, int threads, int64_t *from, int64_t *to)
{
    int64_t lines = (n + 15) / 16;
    *from = lines * k / threads * 16;
    *to = lines * (k + 1) / threads * 16;
    *to = *to < n ? *to : n;
}

/* Keeps the compiler from removing stores to p. */
static inline void keep(const void *p) { __asm__ __volatile__("" : : "r"(p) : "memory"); }

void stream_touch(float *x, int64_t n, int threads)
{
#pragma omp parallel num_threads(threads)
    {
        int64_t from, to;
        part_of(n, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        for (int64_t i = from; i < to; i++)
            x[i] = 1.0f + (float)(i % 1021) * 0x1p-10f;
        keep(x);
    }
}

/* The C library's copy: for large blocks it uses non-temporal stores, the fastest way to copy. */
void stream_copy(float *to, const float *from, int64_t n, int threads)
{
#pragma omp parallel num_threads(threads)
    {
        int64_t a, z;
        part_of(n, omp_get_thread_num(), omp_get_num_threads(), &a, &z);
        memcpy(to + a, from + a, (size_t)(z - a) * sizeof *to);
        keep(to);
    }
}

/* One loop for each vector level that the library's rules are compiled for: on one or two cores
 * narrow vectors stream measurably slower. */
#define SCALE(NAME, ATTRIBUTE)                            \
    ATTRIBUTE static void NAME(float *x, int64_t n, float c) \
    {                                                     \
        _Pragma("omp simd")                               \
        for (int64_t i = 0; i < n; i++)                   \
            x[i] *= c;                                    \
    }
typedef void ScaleFn(float *x, int64_t n, float c);
SCALE(scale_any, )
#if defined __x86_64__ && defined __GNUC__
SCALE(scale_avx2, __attribute__((target("avx2"))))
SCALE(scale_avx512, __attribute__((target("avx512f"))))
static ScaleFn *widest(void)
{
    return __builtin_cpu_supports("avx512f") ? scale_avx512
           : __builtin_cpu_supports("avx2")  ? scale_avx2
                                             : scale_any;
}
#else
static ScaleFn *widest(void) { return scale_any; }
#endif

void stream_scale(float *x, int64_t n, int threads)
{
    ScaleFn *scale = widest();
    /* exact: repeated scaling does not lead to denormals */
    static volatile float factor = -1.0f;
    float c = factor;
#pragma omp parallel num_threads(threads)
    {
        int64_t a, z;
        part_of(n, omp_get_thread_num(), omp_get_num_threads(), &a, &z);
        scale(x + a, z - a, c);
        keep(x);
    }
}

/* Eight vector sums in separate variables, so that they stay in registers: an array would be stored
 * in every iteration, and the stores slowed the loads down. Whether prefetching helps depends on
 * the machine: an x86 gains, a Neoverse N1 loses half its rate. */
#define SUM(NAME, BYTES, ATTRIBUTE, FETCH) \
    typedef float NAME##_v __attribute__((vector_size(BYTES), aligned(4), may_alias)); \
    ATTRIBUTE static float NAME(const float *x, int64_t n) \
    { \
        enum { W = BYTES / 4 }; \
        const NAME##_v *v = (const NAME##_v *)x; \
        NAME##_v a = {0}, b = a, c = a, d = a, e = a, f = a, g = a, h = a; \
        for (int64_t i = 0; i < n / W / 8 * 8; i += 8) { \
            FETCH \
            a += v[i], b += v[i + 1], c += v[i + 2], d += v[i + 3]; \
            e += v[i + 4], f += v[i + 5], g += v[i + 6], h += v[i + 7]; \
        } \
        a = ((a + b) + (c + d)) + ((e + f) + (g + h)); \
        float s = 0; \
        for (int l = 0; l < W; l++) s += a[l]; \
        for (int64_t i = n / W / 8 * 8 * W; i < n; i++) s += x[i]; \
        return s; \
    }
#define AHEAD                                             \
    for (int64_t k = 0; k < 8 * W; k += 16)               \
        __builtin_prefetch((const float *)(v + i) + 1024 + k);
typedef float SumFn(const float *x, int64_t n);
SUM(sum_any, 16, , )
SUM(sum_any_ahead, 16, , AHEAD)
#if defined __x86_64__ && defined __GNUC__
SUM(sum_avx2, 32, __attribute__((target("avx2"))), )
SUM(sum_avx2_ahead, 32, __attribute__((target("avx2"))), AHEAD)
static SumFn *sum_of(bool ahead)
{
    return __builtin_cpu_supports("avx2") ? (ahead ? sum_avx2_ahead : sum_avx2)
           : ahead                        ? sum_any_ahead
                                          : sum_any;
}
#else
static SumFn *sum_of(bool ahead) { return ahead ? sum_any_ahead : sum_any; }
#endif

float stream_read(const float *x, int64_t n, int threads, bool ahead)
{
    SumFn *sum = sum_of(ahead);
    float all = 0;
#pragma omp parallel num_threads(threads) reduction(+ : all)
    {
        int64_t a, z;
        part_of(n, omp_get_thread_num(), omp_get_num_threads(), &a, &z);
        all += sum(x + a, z - a);
    }
    return all;
}

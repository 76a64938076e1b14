/* Measures the cost of a profile on the CPU: the CPU time of steps with and without it, alternating
 * in one process.
 *
 *     cc -O2 tests/bench/profile_cost.c -Iruntime -Lbuild -loptc -Wl,-rpath,"$PWD/build" -o
 *     build/profile_cost build/profile_cost [RULE [ELEMENTS [TENSORS [PAIRS]]]]
 *
 * A pair is 1000 steps without and 1000 with the profile, in an order that alternates. The engine
 * has one thread, so the thread's CPU time covers all work and excludes the time that other
 * processes had the core. Prints medians over the pairs, the quartiles of the ratio, and the times
 * of the lowest tenth, which other processes disturb least. */
#include <optc.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 1000 };
#define CHECK(call) if ((call) != OPTC_OK) return fprintf(stderr, "%s\n", optc_message()), 1

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double *v, int n, double q)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[(int)(q * (n - 1) + 0.5)];
}

/* Microseconds of CPU time per step. */
static int measure(optc_binding *b, int profiled, double *us)
{
    if (profiled)
        CHECK(optc_profile_start());
    CHECK(optc_step(b));
    double began = cpu_seconds();
    for (int i = 0; i < STEPS; i++)
        CHECK(optc_step(b));
    *us = 1e6 * (cpu_seconds() - began) / STEPS;
    if (profiled)
        CHECK(optc_profile_stop());
    return 0;
}

int main(int argc, char **argv)
{
    const char *rule = argc > 1 ? argv[1] : "adamw";
    int64_t n = argc > 2 ? atoll(argv[2]) : 65536;
    int tensors = argc > 3 ? atoi(argv[3]) : 1, pairs = argc > 4 ? atoi(argv[4]) : 101;
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    optc_tensor *t = calloc((size_t)tensors, sizeof *t);
    float *p = calloc((size_t)n * (size_t)tensors, sizeof *p),
          *g = calloc((size_t)n * (size_t)tensors, sizeof *g);
    double *plain = calloc((size_t)pairs, sizeof *plain),
           *with = calloc((size_t)pairs, sizeof *with),
           *ratio = calloc((size_t)pairs, sizeof *ratio);
    if (!t || !p || !g || !plain || !with || !ratio)
        return fprintf(stderr, "out of memory\n"), 1;
    for (int64_t i = 0; i < n * tensors; i++)
        g[i] = p[i] = (float)(i % 13) * 0.01f - 0.06f;
    for (int i = 0; i < tensors; i++)
        t[i] = (optc_tensor){.param = p + n * i, .grad = g + n * i, .rank = 1, .shape = &n};
    CHECK(optc_open(&(optc_engine_options){.threads = 1}, &e));
    CHECK(optc_compile(e, &(optc_rule_options){.spec = rule}, &r));
    CHECK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = tensors}, 1, &b));
    for (int k = -2; k < pairs; k++) {                     /* two pairs warm up */
        double us[2];
        for (int i = 0; i < 2; i++)
            if (measure(b, (k + i) & 1, &us[(k + i) & 1]))
                return 1;
        if (k < 0)
            continue;
        plain[k] = us[0];
        with[k] = us[1];
        ratio[k] = us[1] / us[0] - 1;
    }
    printf("%s, %d x %lld elements: %.2f us per step, with a profile %.2f us; pairs differ by "
           "%+.2f %% "
           "(quartiles %+.2f to %+.2f); lowest tenth %.2f and %.2f us\n",
           rule, tensors, (long long)n, quantile(plain, pairs, 0.5), quantile(with, pairs, 0.5),
           100 * quantile(ratio, pairs, 0.5), 100 * quantile(ratio, pairs, 0.25),
           100 * quantile(ratio, pairs, 0.75), quantile(plain, pairs, 0.1),
           quantile(with, pairs, 0.1));
    return optc_unbind(b) || optc_release(r) || optc_close(e);
}

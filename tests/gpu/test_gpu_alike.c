/* The results of a matrix do not depend on how many alike matrices a binding steps, nor on whether
 * products read the caller's gradient or an array of the rule. Sharded models need both: an owner
 * steps some of the matrices. */
#include "tests/gpu/device_side.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 12, RUNS = 3 };
/* Shampoo staggers its roots, and slots depend on the other tensors, so it computes them in every
 * step. most: rows. */
static const struct { const char *spec, *options; int64_t most;
} rules[] = {{"muon", "", 1600},
             {"shampoo", "interval=1", 520},
             {"soap", "interval=2", 330},
             {"splus", "interval=2", 330},
             {"soap", "interval=2,apply=f32", 330}};
static const int64_t shapes[][2] = {{18, 6},    {20, 36},    {64, 64},    {100, 300},   {96, 130},
                                    {256, 256}, {520, 200},  {768, 3072}, {1024, 1024}, {1600, 400},
                                    {330, 77},  {1593, 200}, {16411, 24}};
static const int counts[] = {1, 2, 3, 6, ALL};
enum { NRULES = sizeof rules / sizeof *rules, NSIZES = sizeof shapes / sizeof *shapes,
       NCOUNTS = sizeof counts / sizeof *counts };

typedef struct Stepped {
    int first, n; int64_t values; CUdeviceptr p[ALL], g[ALL]; float *out;
} Stepped;

static void to_device(CUdeviceptr to, int k, int step, int64_t n, double scale)
{
    float *x = malloc(sizeof *x * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * ref_value(k, step, i));
    ck_assert(!d->cuMemcpyHtoDAsync_v2(to, x, sizeof *x * (size_t)n, NULL) &&
              !d->cuStreamSynchronize(NULL));
    free(x);
}

static void take_steps(optc_binding *b, const Stepped *x, double scale)
{
    for (int step = 1; step <= RUNS; step++) {
        for (int k = 0; k < x->n; k++)
            to_device(x->g[k], x->first + k, step, x->values, scale);
        OK(optc_step(b));
    }
    OK(optc_sync(b));
}

/* Steps matrices first to first + n - 1 alone. Gradients are scaled by a power of two, which the
 * wrapper divides by. */
static Stepped step_some(optc_rule *r, const int64_t *shape, int first, int n, double scale)
{
    Stepped x = {.first = first, .n = n, .values = shape[0] * shape[1]};
    const size_t bytes = sizeof(float) * (size_t)x.values;
    optc_tensor t[ALL] = {{0}};
    optc_binding *b;
    for (int k = 0; k < n; k++) {
        ck_assert(!d->cuMemAlloc_v2(&x.p[k], bytes) && !d->cuMemAlloc_v2(&x.g[k], bytes));
        to_device(x.p[k], first + k, 0, x.values, 0.5);
        t[k] = (optc_tensor){.param = (void *)(uintptr_t)x.p[k],
                             .grad = (void *)(uintptr_t)x.g[k],
                             .rank = 2,
                             .shape = shape};
    }
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = n}, 1, &b));
    take_steps(b, &x, scale);
    OK(optc_unbind(b));
    x.out = malloc(bytes * (size_t)n);
    for (int k = 0; k < n; k++) {
        ck_assert(!d->cuMemcpyDtoHAsync_v2(x.out + k * x.values, x.p[k], bytes, NULL));
        ck_assert(!d->cuStreamSynchronize(NULL) && !d->cuMemFree_v2(x.p[k]) &&
                  !d->cuMemFree_v2(x.g[k]));
    }
    return x;
}

static void compare_some(const char *what, const Stepped *all, const Stepped *some)
{
    const float *want = all->out + (some->first - all->first) * all->values;
    for (int64_t i = 0; i < some->n * some->values; i++)
        ck_assert_msg(!memcmp(&want[i], &some->out[i], sizeof *want),
                      "%s: %d of %d matrices alone: matrix %d, element %lld: %.9g, with all %.9g",
                      what, some->n, all->n, some->first + (int)(i / some->values),
                      (long long)(i % some->values), (double)some->out[i], (double)want[i]);
}

static void alike_matrices(optc_rule *plain, optc_rule *scaled, const char *name,
                           const int64_t *shape)
{
    char what[120];
    snprintf(what, sizeof what, "%s, %lld x %lld", name, (long long)shape[0], (long long)shape[1]);
    Stepped all = step_some(plain, shape, 0, ALL, 1);
    for (int i = 0; i < 2 * NCOUNTS; i++) {
        bool divides = i % 2;
        int n = counts[i / 2];
        char label[160];
        if ((n == ALL && !divides) || thinned(n == 2 || n == 6))
            continue;
        snprintf(label, sizeof label, "%s%s", what, divides ? ", divided gradients" : "");
        Stepped some = step_some(divides ? scaled : plain, shape, ALL - n, n, divides ? 65536 : 1);
        compare_some(label, &all, &some);
        free(some.out);
    }
    free(all.out);
}

/* The emulated GPU has libraries whose roundings depend on the number of matrices of a call, as the
 * real ones do. */
START_TEST(any_number_of_matrices)
{
    SHARED();
    int rule = _i / NSIZES;
    const int64_t *shape = shapes[_i % NSIZES];
    bool small = getenv("OPTC_TEST_SMALL") != NULL;
    int64_t longest = shape[0] > shape[1] ? shape[0] : shape[1];
    /* the emulated GPU takes seconds for each */
    if (small && (_i % NSIZES != (rule + 1) % 2 || thinned(rule == 3)))
        return;
    if (longest > (rule == 0 && (shape[0] == 768 || shape[0] == 16411) ? 16411 : rules[rule].most))
        return;
    optc_engine *e;
    optc_rule *plain, *scaled;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    optc_rule_options o = {.spec = rules[rule].spec, .options = rules[rule].options};
    OK(optc_compile(e, &o, &plain));
    o.with = "loss_scale(65536)";
    OK(optc_compile(e, &o, &scaled));
    alike_matrices(plain, scaled, o.spec, shape);
    OK(optc_release(plain));
    OK(optc_release(scaled));
    OK(optc_close(e));
}
END_TEST

/* Products whose bits could depend on the number of matrices: tf32, 16 bits with odd lengths, 16
 * rows or fewer. */
static const struct { const char *products; int64_t shape[2]; } sensitive[] = {
    {"tf32", {24, 40}}, {"bf16", {21, 19}}, {"f32", {6, 40}}, {"f64", {6, 40}}};
enum { NSENSITIVE = sizeof sensitive / sizeof *sensitive };

/* The emulated library's number of products; -1: a real GPU. */
static long long count_products(void)
{
    void (*counts)(long long out[3]);
    long long n[3] = {0};
    void *library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&counts = library ? dlsym(library, "emu_products") : NULL;
    if (!counts)
        return -1;
    counts(n);
    ck_assert_msg(!n[2], "the emulated cuBLAS refused %lld products", n[2]);
    return n[0];
}

/* cuBLASLt multiplies all matrices in one call, with the bits of a call for one. A library without
 * arrays of pointers (EMU_LT) takes one call per matrix. */
START_TEST(one_call_for_all)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'once', state = { m = zeros }, step = function() p = p - g "
        "end, matrix = function() m = mm(gram(g), g)  p = p - 0.125 * m end }";
    int which = _i / 2;
    bool old = _i % 2;
    optc_engine *e;
    optc_rule *r;
    optc_rule_options o = {.text = text, .products = sensitive[which].products};
    if (old)
        setenv("EMU_LT", "none", 1);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &o, &r));
    Stepped one = step_some(r, sensitive[which].shape, 4, 1, 1);
    long long before = count_products();
    Stepped all = step_some(r, sensitive[which].shape, 0, ALL, 1);
    long long calls = (count_products() - before) / RUNS, each = 2 * (old ? ALL : 1);
    compare_some(sensitive[which].products, &all, &one);
    /* each list is tried once before it runs: those calls count too */
    ck_assert_msg(before < 0 || (calls >= each && calls <= 2 * each),
                  "%s: %lld calls of the library per step, wanted %lld", sensitive[which].products,
                  calls, each);
    free(all.out);
    free(one.out);
    OK(optc_release(r));
    OK(optc_close(e));
    unsetenv("EMU_LT");
}
END_TEST

void add_alike(TCase *t)
{
    tcase_add_loop_test(t, any_number_of_matrices, 0, NRULES * NSIZES);
    tcase_add_loop_test(t, one_call_for_all, 0, 2 * NSENSITIVE);
}

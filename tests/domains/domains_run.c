/* Steps scratch.lua compiled and on the evaluator, and L and R by plain loops. States computed from
 * maxima, products and sums of two are equal bit for bit in f64, the others are close. run SPEC
 * [DEVICE]: the device of the compiled rule, the CPU or the emulated GPU, whose memory is the
 * host's. */
#include "optc.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NTENSOR = 6, STEPS = 3, MOST = 150 * 150 };
typedef struct { int rank; int64_t dim[3], slices, rows, cols; } Case;
static const Case cases[NTENSOR] = {{2, {5, 7}, 1, 5, 7},       {3, {3, 4, 6}, 3, 4, 6},
                                    {2, {130, 33}, 1, 130, 33}, {2, {1, 9}, 1, 1, 9},
                                    {2, {9, 1}, 1, 9, 1},       {3, {2, 3, 150}, 2, 3, 150}};
typedef struct {
    optc_engine *e; optc_rule *r; optc_binding *b; void *p[NTENSOR], *g[NTENSOR];
} Run;

static void must(optc_status s, const char *what)
{
    if (s) {
        fprintf(stderr, "%s: %s\n", what, optc_message());
        exit(1);
    }
}

static int64_t size_of(const Case *c) { return c->slices * c->rows * c->cols; }
static double grad(int t, int step, int64_t i)
{
    return (double)((i * 37 + t * 11 + step * 101) % 251) / 64 - 1.5;
}

static void put(void *v, int wide, int64_t i, double x)
{
    if (wide)
        ((double *)v)[i] = x;
    else
        ((float *)v)[i] = (float)x;
}

/* Zeroed device memory. */
static void *room(const char *device, size_t bytes)
{
    unsigned long long at = 0;
    if (!device)
        return calloc(bytes, 1);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*alloc)(unsigned long long *, size_t) = NULL;
    if (driver)
        *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
    if (!alloc || alloc(&at, bytes))
        must(OPTC_ERROR_UNAVAILABLE, "the device's memory");
    return memset((void *)(uintptr_t)at, 0, bytes);
}

static void start(Run *x, const char *spec, const char *device, const char *compiler, int wide)
{
    optc_engine_options eo = {
        .device = device, .compiler = compiler, .cache_dir = "", .no_builtin = 1};
    optc_rule_options ro = {.spec = spec, .param = wide ? OPTC_F64 : OPTC_F32};
    ro.grad = ro.state = ro.param;
    optc_tensor t[NTENSOR] = {{0}};
    must(optc_open(&eo, &x->e), "open");
    must(optc_compile(x->e, &ro, &x->r), "compile");
    if (!optc_rule_native(x->r) != (compiler && !*compiler))
        must(OPTC_ERROR_UNAVAILABLE, optc_rule_path(x->r));
    for (int i = 0; i < NTENSOR; i++) {
        x->p[i] = room(device, (size_t)size_of(&cases[i]) * 8);
        x->g[i] = room(device, (size_t)size_of(&cases[i]) * 8);
        t[i] = (optc_tensor){
            .param = x->p[i], .grad = x->g[i], .rank = cases[i].rank, .shape = cases[i].dim};
    }
    must(optc_bind(x->r, &(optc_group){.tensors = t, .ntensors = NTENSOR}, 1, &x->b), "bind");
}

static int differ(const char *what, int t, const double *a, const double *b, int64_t n,
                  double within)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= within * (1 + fabs(b[i])))) {
            fprintf(stderr, "%s of tensor %d: value %lld is %.17g, not %.17g\n", what, t,
                    (long long)i, a[i], b[i]);
            return 1;
        }
    return 0;
}

/* L and R after a step, as the spec defines them. */
static void plain(const Case *c, int t, int step, double *l, double *r)
{
    for (int64_t s = 0; s < c->slices; s++) {
        double most = -INFINITY;
        for (int64_t i = 0; i < c->rows * c->cols; i++)
            most = fmax(most, grad(t, step, s * c->rows * c->cols + i));
        for (int64_t i = 0; i < c->rows; i++) {
            double top = -INFINITY;
            for (int64_t k = 0; k < c->cols; k++)
                top = fmax(top, grad(t, step, (s * c->rows + i) * c->cols + k));
            for (int64_t j = 0; j < c->rows; j++, l++)
                *l = 0.75 * *l + top;
        }
        for (int64_t i = 0; i < c->cols; i++)
            for (int64_t j = 0; j < c->cols; j++, r++) {
                double low = INFINITY;
                for (int64_t k = 0; k < c->rows; k++)
                    low = fmin(low, grad(t, step, (s * c->rows + k) * c->cols + j));
                *r = (0.5 * *r - low) + most;
            }
    }
}

static int compare(Run *x, Run *y, int wide, double *const l[], double *const r[])
{
    static const char *const name[] = {"L", "R", "N", "s"};
    static double a[2 * MOST], b[2 * MOST];
    int bad = 0;
    for (int t = 0; t < NTENSOR; t++) {
        const Case *c = &cases[t];
        const int64_t n[] = {c->slices * c->rows * c->rows, c->slices * c->cols * c->cols,
                             c->slices * c->rows * c->rows, c->slices};
        for (int k = 0; k < 4; k++) {
            double near = wide ? (k < 2 ? 0 : 1e-12) : 1e-5;
            must(optc_state_read(x->b, t, name[k], a, n[k]), name[k]);
            must(optc_state_read(y->b, t, name[k], b, n[k]), name[k]);
            bad |= differ(name[k], t, a, b, n[k], near);
            if (k < 2)
                bad |= differ(name[k], t, a, k ? r[t] : l[t], n[k], wide ? 0 : 1e-5);
        }
        for (int64_t i = 0; i < size_of(c); i++) {
            a[i] = wide ? ((double *)x->p[t])[i] : (double)((float *)x->p[t])[i];
            b[i] = wide ? ((double *)y->p[t])[i] : (double)((float *)y->p[t])[i];
        }
        bad |= differ("p", t, a, b, size_of(c), wide ? 1e-12 : 1e-5);
    }
    return bad;
}

int main(int argc, char **argv)
{
    int bad = argc < 2;
    for (int wide = 0; wide < 2 && !bad; wide++) {
        Run native, slow;
        double *l[NTENSOR], *r[NTENSOR];
        for (int t = 0; t < NTENSOR; t++) {
            l[t] =
                calloc((size_t)(cases[t].slices * cases[t].rows * cases[t].rows), sizeof(double));
            r[t] =
                calloc((size_t)(cases[t].slices * cases[t].cols * cases[t].cols), sizeof(double));
        }
        start(&native, argv[1], argc > 2 ? argv[2] : NULL, NULL, wide);
        start(&slow, argv[1], NULL, "", wide);
        for (int step = 0; step < STEPS; step++) {
            for (int t = 0; t < NTENSOR; t++) {
                for (int64_t i = 0; i < size_of(&cases[t]); i++) {
                    put(native.g[t], wide, i, grad(t, step, i));
                    put(slow.g[t], wide, i, grad(t, step, i));
                }
                plain(&cases[t], t, step, l[t], r[t]);
            }
            must(optc_step(native.b), "step");
            must(optc_step(slow.b), "step");
        }
        must(optc_sync(native.b), "sync");
        bad = compare(&native, &slow, wide, l, r);
        printf("%s: %s, %s\n", wide ? "f64" : "f32", optc_rule_path(native.r),
               bad ? "WRONG" : "as it should be");
    }
    return bad;
}

/* Times of optc_multiply on the CPU against OpenBLAS: products, Gram matrices and chains, f32 and
 * f64.
 *
 *   cc -O2 tests/bench/blas_peer.c -Iruntime -Lbuild -loptc -ldl -Wl,-rpath,"$PWD/build" -o
 *   build/blas-peer build/blas-peer [f32 | f64 | both [SECONDS [SIZE…]]] $OPENBLAS names the
 *   library
 *
 * Prints milliseconds and ratios. A Gram matrix is compared with cblas_xsyrk, which leaves the
 * upper triangle as it is, with cblas_xsyrk and the simplest loop that mirrors its triangle, and
 * with cblas_xgemm, which computes both. Rounds alternate between all of them, for SECONDS per size
 * (default 4). A ratio is the median of the ratios of the rounds. CPU time is measured. $THREADS is
 * the number of threads of both sides (default 1); with more, the time of a clock is measured. */
#include "optc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 101, PLAIN = 111, LOWER = 122, MOST = 2048 };
static void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                     float, float *, int);
static void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int,
                     double, double *, int);
static void (*ssyrk)(int, int, int, int, int, float, const float *, int, float, float *, int);
static void (*dsyrk)(int, int, int, int, int, double, const double *, int, double, double *, int);
static optc_engine *engine;
static int n, f64, threads = 1;
static void *a, *b, *c, *d, *t;

static double now(void)
{
    struct timespec s;
    clock_gettime(threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &s);
    return (double)s.tv_sec + 1e-9 * (double)s.tv_nsec;
}

static void gemm(const void *x, const void *y, void *z)
{
    if (f64)
        dgemm(ROWS, PLAIN, PLAIN, n, n, n, 1, x, n, y, n, 0, z, n);
    else
        sgemm(ROWS, PLAIN, PLAIN, n, n, n, 1, x, n, y, n, 0, z, n);
}

static void blas_product(void) { gemm(a, b, c); }
static void blas_chain(void) { gemm(a, b, t), gemm(t, d, c); }
static void blas_gram(void)
{
    if (f64)
        dsyrk(ROWS, LOWER, PLAIN, n, n, 1, a, n, 0, c, n);
    else
        ssyrk(ROWS, LOWER, PLAIN, n, n, 1, a, n, 0, c, n);
}

static void blas_mirrored(void)
{
    blas_gram();
    for (size_t i = 0, rows = (size_t)n; i < rows; i++)
        for (size_t j = 0; j < i; j++)
            if (f64)
                ((double *)c)[j * rows + i] = ((double *)c)[i * rows + j];
            else
                ((float *)c)[j * rows + i] = ((float *)c)[i * rows + j];
}

static void multiply(const void *y, const void *z)
{
    optc_product x = {.a = a, .b = y, .d = z, .c = c, .m = n, .n = n, .k = n, .p = z ? n : 0,
                      .type = f64 ? OPTC_F64 : OPTC_F32, .workspace = 64 << 20};
    if (optc_multiply(engine, &x)) {
        fprintf(stderr, "%s\n", optc_message());
        exit(1);
    }
}
static void our_product(void) { multiply(b, NULL); }
static void our_chain(void) { multiply(b, d); }
static void our_gram(void) { multiply(NULL, NULL); }

enum { PRODUCT, GEMM, GRAM, SYRK, MIRRORED, CHAIN, TWO, KINDS, MOST_ROUNDS = 501 };
static void (*const kinds[KINDS])(void) = {our_product, blas_product, our_gram, blas_gram,
                                            blas_mirrored, our_chain, blas_chain};
static double took[KINDS][MOST_ROUNDS];

static int ascending(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

/* The median over the rounds of the time of x, divided by that of y (y == KINDS: not divided). */
static double median(int x, int y, int rounds)
{
    double v[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++)
        v[i] = y == KINDS ? took[x][i] : took[x][i] / took[y][i];
    qsort(v, (size_t)rounds, sizeof *v, ascending);
    return v[rounds / 2];
}

/* Fills `took` and returns the number of rounds. A measurement takes at least 2 ms. */
static int measure(double seconds)
{
    int times[KINDS], round = 0;
    for (int k = 0; k < KINDS; k++) {
        double s = 0;
        kinds[k]();
        for (times[k] = 1; s < 2e-3; times[k] *= 2) {
            s = now();
            for (int i = 0; i < times[k]; i++)
                kinds[k]();
            s = now() - s;
        }
    }
    for (double start = now(); round < MOST_ROUNDS && (round < 3 || now() - start < seconds);
         round++)
        for (int k = 0; k < KINDS; k++) {
            /* its operands are then in the caches, whatever ran before */
            kinds[k]();
            double s = now();
            for (int i = 0; i < times[k]; i++)
                kinds[k]();
            took[k][round] = (now() - s) / times[k];
        }
    return round;
}

static void *symbol(void *library, const char *name)
{
    void *f = dlsym(library, name);
    if (!f)
        fprintf(stderr, "no %s\n", name), exit(1);
    return f;
}

static void compare(double seconds)
{
    int r = measure(seconds);
    printf("%s %4d  product %8.3f ms, %.2f of gemm; gram %8.3f ms, %.2f of syrk, %.2f of syrk and "
           "mirror, "
           "%.2f of gemm; chain %8.3f ms, %.2f of two gemm (%d rounds)\n",
           f64 ? "f64" : "f32", n, 1e3 * median(PRODUCT, KINDS, r), median(PRODUCT, GEMM, r),
           1e3 * median(GRAM, KINDS, r), median(GRAM, SYRK, r), median(GRAM, MIRRORED, r),
           median(GRAM, GEMM, r), 1e3 * median(CHAIN, KINDS, r), median(CHAIN, TWO, r), r);
    fflush(stdout);
}

static void open_blas(void)
{
    void *library = dlopen(getenv("OPENBLAS") ? getenv("OPENBLAS") : "libopenblas.so.0",
                           RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror()), exit(1);
    *(void **)&sgemm = symbol(library, "cblas_sgemm"),
           *(void **)&dgemm = symbol(library, "cblas_dgemm");
    *(void **)&ssyrk = symbol(library, "cblas_ssyrk"),
           *(void **)&dsyrk = symbol(library, "cblas_dsyrk");
    void (*set)(int);
    *(void **)&set = symbol(library, "openblas_set_num_threads");
    set(threads);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {128, 192, 256, 384, 512, 640, 768, 1024, 1536, 2048};
    const char *type = argc > 1 ? argv[1] : "both";
    double seconds = argc > 2 ? atof(argv[2]) : 4;
    if (getenv("THREADS") && atoi(getenv("THREADS")) > 1)
        threads = atoi(getenv("THREADS"));
    open_blas();
    if (optc_open(&(optc_engine_options){.threads = threads}, &engine))
        return fprintf(stderr, "%s\n", optc_message()), 1;
    void **all[] = {&a, &b, &c, &d, &t};
    for (int i = 0; i < 5; i++)
        *all[i] = calloc((size_t)MOST * MOST, sizeof(double));
    for (f64 = !strcmp(type, "f64"); f64 < (strcmp(type, "f32") ? 2 : 1); f64++) {
        for (int i = 0; i < MOST * MOST; i++)
            for (int k = 0; k < 5; k++) {
                double v = rand() / (double)RAND_MAX - 0.5;
                if (f64)
                    ((double *)*all[k])[i] = v;
                else
                    ((float *)*all[k])[i] = (float)v;
            }
        for (int i = 3; i < argc; i++)
            if ((n = atoi(argv[i])) > 0 && n <= MOST)
                compare(seconds);
        for (size_t i = 0; argc <= 3 && i < sizeof sizes / sizeof *sizes; i++) {
            n = sizes[i];
            compare(seconds);
        }
    }
    return optc_close(engine) != OPTC_OK;
}

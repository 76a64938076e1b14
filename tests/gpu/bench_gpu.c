/* How near the stages come to the copy bandwidth of the GPU at hand: AdamW and others over one large tensor, GPT-2's shapes and many small
 * tensors, CUDA events, medians, copies measured in between. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, MOST = 8192 };
static const Driver *d;
static void die(const char *what) { fprintf(stderr, "%s: %s\n", what, optc_message()); exit(1); }
static double now_us(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3; }

static int by_value(const void *a, const void *b) { float x = *(const float *)a, y = *(const float *)b; return (x > y) - (x < y); }
static double median(float *v, int n) { qsort(v, (size_t)n, sizeof *v, by_value); return v[n / 2]; }

typedef struct { int rank; int64_t dim[2]; } Dim;

static int gpt2(Dim *out, int layers, int64_t w)
{
    int n = 0;
    out[n++] = (Dim){2, {50257, w}};
    out[n++] = (Dim){2, {1024, w}};
    for (int l = 0; l < layers; l++) {
        Dim one[] = {{1, {w}}, {1, {w}}, {2, {w, 3 * w}}, {1, {3 * w}}, {2, {w, w}}, {1, {w}}, {1, {w}}, {1, {w}}, {2, {w, 4 * w}}, {1, {4 * w}}, {2, {4 * w, w}}, {1, {w}}};
        for (int i = 0; i < 12; i++)
            out[n++] = one[i];
    }
    out[n++] = (Dim){1, {w}};
    out[n++] = (Dim){1, {w}};
    return n;
}

static void run(optc_engine *e, const char *spec, const char *with, const char *label, const Dim *dim, int n)
{
    static optc_tensor t[MOST];
    int64_t total = 0, at = 0;
    for (int i = 0; i < n; i++)
        total += ((dim[i].rank == 2 ? dim[i].dim[0] * dim[i].dim[1] : dim[i].dim[0]) + 63) / 64 * 64;
    CUdeviceptr p, g;
    if (d->cuMemAlloc_v2(&p, (size_t)total * 4) || d->cuMemAlloc_v2(&g, (size_t)total * 4))
        die("memory");
    d->cuMemsetD32Async(p, 0x3f000000, (size_t)total, NULL);
    d->cuMemsetD32Async(g, 0x3c23d70a, (size_t)total, NULL);
    for (int i = 0; i < n; i++) {
        t[i] = (optc_tensor){.param = (void *)(uintptr_t)(p + (size_t)at * 4), .grad = (void *)(uintptr_t)(g + (size_t)at * 4), .rank = dim[i].rank, .shape = dim[i].dim};
        at += ((dim[i].rank == 2 ? dim[i].dim[0] * dim[i].dim[1] : dim[i].dim[0]) + 63) / 64 * 64;
    }
    optc_rule *r;
    optc_binding *b;
    double c0 = now_us();
    if (optc_compile(e, &(optc_rule_options){.spec = spec, .with = with}, &r))
        die("compile");
    double compile_ms = (now_us() - c0) * 1e-3;
    if (optc_bind(r, &(optc_group){.tensors = t, .ntensors = n}, 1, &b))
        die("bind");
    for (int i = 0; i < 3; i++)
        if (optc_step(b))
            die("step");
    if (optc_sync(b))
        die("sync");
    void *e0, *e1;
    d->cuEventCreate(&e0, 0);
    d->cuEventCreate(&e1, 0);
    float ms[ROUNDS], copy[ROUNDS], host[ROUNDS];
    size_t cb = (size_t)total * 4 < ((size_t)1 << 30) ? (size_t)1 << 30 : (size_t)total * 4;
    CUdeviceptr x, y;
    if (d->cuMemAlloc_v2(&x, cb) || d->cuMemAlloc_v2(&y, cb))
        die("copy memory");
    optc_bytes bytes;
    optc_plan_bytes(b, "step", 4, &bytes);
    int reps = bytes.read + bytes.written < 2e9 ? 10 : 1;
    for (int k = 0; k < ROUNDS; k++) {
        d->cuEventRecord(e0, NULL);
        d->cuMemcpyDtoDAsync_v2(y, x, cb, NULL);
        d->cuEventRecord(e1, NULL);
        d->cuEventSynchronize(e1);
        d->cuEventElapsedTime(&copy[k], e0, e1);
        double h0 = now_us();
        d->cuEventRecord(e0, NULL);
        for (int i = 0; i < reps; i++)
            optc_step(b);
        d->cuEventRecord(e1, NULL);
        host[k] = (float)((now_us() - h0) / reps);
        d->cuEventSynchronize(e1);
        d->cuEventElapsedTime(&ms[k], e0, e1);
        ms[k] /= (float)reps;
    }
    double c = median(copy, ROUNDS), m = median(ms, ROUNDS), bw = 2.0 * (double)cb / (c * 1e-3);
    printf("%-22s %-18s %5d tensors %8.3f ms  %6.0f GB/s  %5.1f %% of copy (%.0f)  host %.1f us  compile %.0f ms\n", label, spec, n, m, (bytes.read + bytes.written) / m * 1e-6,
           100 * (bytes.read + bytes.written) / (m * 1e-3) / bw, bw * 1e-9, median(host, ROUNDS), compile_ms);
    fflush(stdout);
    optc_unbind(b);
    optc_release(r);
    d->cuMemFree_v2(x), d->cuMemFree_v2(y), d->cuMemFree_v2(p), d->cuMemFree_v2(g);
}

int main(int argc, char **argv)
{
    static Dim dims[MOST];
    optc_engine *e;
    if (optc_open(&(optc_engine_options){.device = "cuda"}, &e))
        die("open");
    d = driver_get(NULL);
    CUcontext c;
    d->cuDevicePrimaryCtxRetain(&c, 0);
    d->cuCtxPushCurrent_v2(c);
    printf("%s\n", optc_device_name(e));
    for (int i = 1; i < argc; i++)                  /* named rules only, for looking closer */
        run(e, argv[i], "", "GPT-2 1.5B", dims, gpt2(dims, 48, 1600));
    if (argc > 1)
        return 0;
    dims[0] = (Dim){1, {1 << 28}};
    run(e, "adamw", "", "one of 2^28", dims, 1);
    run(e, "lamb", "", "one of 2^28", dims, 1);
    dims[0] = (Dim){2, {16384, 16384}};
    run(e, "adafactor", "", "16384^2", dims, 1);
    int n = gpt2(dims, 12, 768);
    run(e, "adamw", "", "GPT-2 124M", dims, n);
    run(e, "adamw", "clip(1)", "GPT-2 124M clip", dims, n);
    n = gpt2(dims, 48, 1600);
    static const char *const rules[] = {"adamw", "lamb", "nadam", "radam", "adan", "lion", "sgd", "adafactor"};
    for (int i = 0; i < 8; i++)
        run(e, rules[i], "", "GPT-2 1.5B", dims, n);
    run(e, "adamw", "clip(1)", "GPT-2 1.5B clip", dims, n);
    for (int i = 0; i < 5000; i++)
        dims[i] = (Dim){1, {4096}};
    run(e, "adamw", "", "5000 of 4096", dims, 5000);
    return 0;
}

/* A libcusolver.so.12 for the emulated driver: eigenvectors of a batch by Jacobi rotations, run in
 * the order of their stream, or recorded into its graph during a capture. It refuses what the real
 * library refuses or might refuse: sizes that do not fit, memory outside of the device, a workspace
 * that is too small, a stream that was not set, more than 65535 matrices, values that are not
 * finite; and more than the 256 rows that it is used for. EMU_FAIL: the call that fails
 * (emu_fail.h). EMU_SOLVER gives one call a status ("create 2", "params 2", "stream 6", "size 2",
 * "call 7"), or "info 3" the fourth matrix of every batch, whose vectors become NaN. emu_solved:
 * number of batches, of matrices, and of refusals. */
#define _GNU_SOURCE
#include "runtime/library/compile/nvrtc.h"
#include <stdint.h>
#include "runtime/core/matrix/cublas.h"
#include "runtime/core/matrix/cusolver.h"

#include "tests/emu/emu_fail.h"
#define CALL(name) do { int rc_ = told(name); if (rc_) return rc_; } while (0)

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

typedef struct Handle { CUstream stream; bool has_stream; } Handle;
typedef struct Batch {
    int64_t n, count; bool f64; void *a, *w, *work; size_t bytes; int *info; int64_t fails;
} Batch;

static long long batches, matrices, broken;
void emu_solved(long long out[3]);
void emu_solved(long long out[3]) { out[0] = batches, out[1] = matrices, out[2] = broken; }
static int refuse(const char *why)
{
    return broken++, fprintf(stderr, "emulated cuSOLVER: %s\n", why), CUSOLVER_STATUS_INVALID_VALUE;
}

static bool asked(const char *name, int *number)
{
    const char *s = getenv("EMU_SOLVER");
    size_t n = strlen(name);
    return s && !strncmp(s, name, n) && s[n] == ' ' && ((*number = atoi(s + n)), true);
}

static int told(const char *name)
{
    int rc = 0;
    return told_to_fail("libcusolver.so.12") ? CUSOLVER_STATUS_EXECUTION_FAILED
           : asked(name, &rc)                ? rc
                                             : 0;
}

static int (*in_stream)(CUstream s, void (*call)(const void *), const void *data, size_t n);
static int (*reaches)(const void *p, size_t n);
static int (*waits)(CUstream s), (*captures)(CUstream s, int *yes);

/* ---- one matrix, by columns; its upper triangle says all ---- */
static void rotate(double *a, double *v, int64_t n, int64_t p, int64_t q)
{
    double between = (a[q * n + q] - a[p * n + p]) / (2 * a[q * n + p]),
           t = (between < 0 ? -1 : 1) / (fabs(between) + hypot(between, 1)), c = 1 / hypot(t, 1),
           s = t * c;
    for (int64_t i = 0; i < n; i++) {
        double x = a[i * n + p], y = a[i * n + q];
        a[i * n + p] = c * x - s * y, a[i * n + q] = s * x + c * y;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = a[p * n + i], y = a[q * n + i], z = v[p * n + i], w = v[q * n + i];
        a[p * n + i] = c * x - s * y, a[q * n + i] = s * x + c * y;
        v[p * n + i] = c * z - s * w, v[q * n + i] = s * z + c * w;
    }
}

/* backwards: another order of rotations, which gives other roundings */
static void diagonalise(double *a, double *v, int64_t n, bool backwards)
{
    double size = 0;
    for (int64_t i = 0; i < n * n; i++) {
        v[i] = i / n == i % n;
        size += a[i] * a[i];
    }
    bool more = true;
    for (int sweep = 0; more && sweep < 60; sweep++) {
        more = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t k = p + 1; k < n; k++) {
                int64_t q = backwards ? n + p - k : k;
                if (fabs(a[q * n + p]) > 1e-17 * sqrt(size)) {
                    rotate(a, v, n, p, q);
                    more = true;
                }
            }
    }
}

static double load(const Batch *b, const void *p, int64_t i)
{
    return b->f64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void store(const Batch *b, void *p, int64_t i, double x)
{
    if (b->f64)
        ((double *)p)[i] = x;
    else
        ((float *)p)[i] = (float)x;
}

static void solve(const Batch *b, int64_t k)
{
    int64_t n = b->n, all = n * n;
    double *a = malloc(16 * (size_t)all), *v = a + all;
    for (int64_t i = 0; i < all; i++) {                        /* column i / n, row i % n */
        a[i] = load(b, b->a, k * all + (i % n <= i / n ? i : i % n * n + i / n));
        if (!isfinite(a[i])) {
            refuse("a value that is not finite");
            a[i] = 0;
        }
    }
    /* the real library's bits depend on the count */
    diagonalise(a, v, n, b->count % 2);
    b->info[k] = k == b->fails ? 1 : 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t below = 0;
        for (int64_t i = 0; i < n; i++)
            below += a[i * (n + 1)] < a[j * (n + 1)] || (a[i * (n + 1)] == a[j * (n + 1)] && i < j);
        store(b, b->w, k * n + below, a[j * (n + 1)]);
        for (int64_t i = 0; i < n; i++)                        /* signs are arbitrary */
            store(b, b->a, k * all + below * n + i,
                  b->info[k]    ? NAN
                  : (j + k) % 2 ? -v[j * n + i]
                                : v[j * n + i]);
    }
    free(a);
}

static void run(const void *data)
{
    const Batch *b = data;
    size_t size = b->f64 ? 8 : 4, n = (size_t)b->n, count = (size_t)b->count;
    if (!reaches(b->a, n * n * count * size) || !reaches(b->w, n * count * size) ||
        !reaches(b->work, b->bytes) || !reaches(b->info, count * sizeof(int))) {
        refuse("matrices, values, information or the workspace do not lie in the device's memory");
        return;
    }
    int (*log_library)(const char *, const void *const *const *, int, int);
    *(void **)&log_library = dlsym(RTLD_DEFAULT, "emu_log_library");
    char what[80];
    snprintf(what, sizeof what, "eigenvectors %zu rows %zu matrices f%d", n, count,
             b->f64 ? 64 : 32);
    const void *a = b->a, *w = b->w, *const *const lists[] = {&a, &w};
    if (log_library)
        log_library(what, lists, 2, 1);
    memset(b->work, 0x7f, b->bytes);
    for (int64_t k = 0; k < b->count; k++)
        solve(b, k);
}

/* ---- as its header has it ---- */
#define DECLARE(name, args) int name args;
CUSOLVER_FUNCTIONS(DECLARE)
#undef DECLARE
int cusolverDnCreate(cusolverDnHandle_t *h)
{
    CALL("create");
    return *h = calloc(1, sizeof(Handle)), 0;
}
int cusolverDnDestroy(cusolverDnHandle_t h) 
{
    int (*all_wait)(void);
    *(void **)&all_wait = dlsym(RTLD_DEFAULT, "emu_all_wait");
    return free(h), all_wait ? (all_wait(), 0) : 0;
}
int cusolverDnCreateParams(cusolverDnParams_t *p) { CALL("params"); return *p = malloc(1), 0; }
int cusolverDnDestroyParams(cusolverDnParams_t p) { return free(p), 0; }
int cusolverGetProperty(libraryPropertyType what, int *out)
{
    CALL("property"); return *out = what == MAJOR_VERSION ? 12 : 0, 0;
}
int cusolverDnSetStream(cusolverDnHandle_t h, cudaStream_t s)
{
    CALL("stream"); return *(Handle *)h = (Handle){s, true}, 0;
}

static size_t workspace(int64_t n, int64_t count, bool f64)
{
    return (size_t)((2 * n * n + 64) * count) * (f64 ? 8 : 4);
}

static int known(cusolverEigMode_t job, cublasFillMode_t fill, int64_t n, cudaDataType a,
                 int64_t lda, cudaDataType w, cudaDataType c, int64_t count)
{
    if (job != CUSOLVER_EIG_MODE_VECTOR || fill != CUBLAS_FILL_MODE_UPPER || a != w || a != c ||
        (a != CUDA_R_32F && a != CUDA_R_64F))
        return refuse("a job, a triangle or types that it does not know");
    if (n < 1 || n > 256 || lda != n || count < 1 || count > 65535 || n * n * count > INT32_MAX)
        return refuse("sizes that it does not take, or matrices with gaps");
    return 0;
}

int cusolverDnXsyevBatched_bufferSize(cusolverDnHandle_t h, cusolverDnParams_t p,
                                      cusolverEigMode_t job, cublasFillMode_t fill, int64_t n,
                                      cudaDataType ta, const void *a, int64_t lda, cudaDataType tw,
                                      const void *w, cudaDataType tc, size_t *device, size_t *host,
                                      int64_t count)
{
    CALL("size");
    (void)a, (void)w;
    int yes = 0;
    *(void **)&captures = dlsym(RTLD_DEFAULT, "cuStreamIsCapturing");
    if (h && captures && captures(((Handle *)h)->stream, &yes))
        return refuse("the handle's stream was destroyed");
    *device = workspace(n, count, ta == CUDA_R_64F);
    *host = 100;
    return h && p ? known(job, fill, n, ta, lda, tw, tc, count) : CUSOLVER_STATUS_NOT_INITIALIZED;
}

int cusolverDnXsyevBatched(cusolverDnHandle_t h, cusolverDnParams_t p, cusolverEigMode_t job,
                           cublasFillMode_t fill, int64_t n, cudaDataType ta, void *a, int64_t lda,
                           cudaDataType tw, void *w, cudaDataType tc, void *device, size_t bytes,
                           void *host, size_t host_bytes, int *info, int64_t count)
{
    CALL("call");
    Handle *x = h;
    int fails = -1, yes = 0;
    *(void **)&in_stream = dlsym(RTLD_DEFAULT, "emu_in_stream");
    *(void **)&reaches = dlsym(RTLD_DEFAULT, "emu_reaches");
    *(void **)&waits = dlsym(RTLD_DEFAULT, "cuStreamSynchronize");
    *(void **)&captures = dlsym(RTLD_DEFAULT, "cuStreamIsCapturing");
    if (!h || !p || !in_stream || !reaches || !waits || !captures)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (known(job, fill, n, ta, lda, tw, tc, count))
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (!x->has_stream || bytes < workspace(n, count, ta == CUDA_R_64F) || !host ||
        host_bytes < 100)
        return refuse("no stream was set, or a workspace is too small");
    bool captured = captures(x->stream, &yes) == 0 && yes;
    /* the library may wait internally: only relaxed threads may call it during a capture */
    if (captured && waits(NULL))
        return CUSOLVER_STATUS_INTERNAL_ERROR;
    memset(host, 0x7f, host_bytes);
    asked("info", &fails);
    batches++;
    matrices += count;
    Batch b = {n, count, ta == CUDA_R_64F, a, w, device, bytes, info, fails};
    return in_stream(x->stream, run, &b, sizeof b) ? CUSOLVER_STATUS_INTERNAL_ERROR : 0;
}

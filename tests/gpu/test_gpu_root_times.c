/* Times of an inverse fourth root, or an inverse, on this GPU against cuSOLVER's batched
 * eigenvectors in f32 (tests/gpu/roots.sh). Runs only if OPTC_ROOT_TIMES is set. Matrices have
 * condition 1e6; the rule states that, and the number of iterations follows from it. */
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/cuda_library.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5 };
static const struct { int64_t n, side; double bar; int reps, p; } works[] = {
    {64, 256, 1, 5, 4}, {8, 1024, 7, 2, 4},
        {1, 4096, 1.8, 2, 4}, {24, 768, 0, 2, 4}, {500, 128, 0, 5, 4}, {2000, 64, 0, 5, 4},
    {64, 256, 1, 5, 1}, {8, 1024, 4, 2, 1}, {1, 4096, 1, 2, 1}};             /* p: A^(-1/p) */
static CUevent from, to;

/* cuSOLVER's functions, as declared in its header */
typedef struct Solver {
    int (*create)(void **), (*params)(void **), (*stream)(void *, CUstream);
    int (*size)(void *, void *, int, int, int64_t, int, const void *, int64_t, int, const void *,
                int, size_t *, size_t *, int64_t);
    int (*run)(void *, void *, int, int, int64_t, int, void *, int64_t, int, void *, int, void *,
               size_t, void *, size_t, int *, int64_t);
    void *handle, *settings, *host;
    size_t bytes, host_bytes;
    CUdeviceptr a, kept, w, space, info;
} Solver;

static bool open_solver(Solver *s, int64_t n, int64_t side, const float *one)
{
    static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", NULL},
        *const folders[] = {"nvidia/cu13/lib", "nvidia/cusolver/lib", NULL};
    LibrarySearch find = {.names = names, .folders = folders};
    static const char *const symbol[] = {"cusolverDnCreate", "cusolverDnCreateParams",
                                         "cusolverDnSetStream", "cusolverDnXsyevBatched_bufferSize",
                                         "cusolverDnXsyevBatched"};
    void *to[5];
    memset(s, 0, sizeof *s);
    if (!library_find(&find))
        return false;
    for (int i = 0; i < 5; i++)
        if (!(to[i] = dlsym(find.library, symbol[i])))
            return false;
    memcpy((void *)&s->create, &to[0], sizeof to[0]);
    memcpy((void *)&s->params, &to[1], sizeof to[0]);
    memcpy((void *)&s->stream, &to[2], sizeof to[0]);
    memcpy((void *)&s->size, &to[3], sizeof to[0]);
    memcpy((void *)&s->run, &to[4], sizeof to[0]);
    size_t each = 4 * (size_t)(side * side), all = each * (size_t)n;
    ck_assert(!s->create(&s->handle) && !s->params(&s->settings) && !s->stream(s->handle, NULL));
    ck_assert(!d->cuMemAlloc_v2(&s->a, all) && !d->cuMemAlloc_v2(&s->kept, all) &&
              !d->cuMemAlloc_v2(&s->w, 4 * (size_t)(n * side)) &&
              !d->cuMemAlloc_v2(&s->info, 4 * (size_t)n));
    for (int64_t i = 0; i < n; i++)
        ck_assert(!d->cuMemcpyHtoDAsync_v2(s->kept + (size_t)i * each, one, each, NULL));
    ck_assert(!s->size(s->handle, s->settings, 1, 0, side, 0, (void *)(uintptr_t)s->a, side, 0,
                       (void *)(uintptr_t)s->w, 0, &s->bytes, &s->host_bytes, n));
    s->host = malloc(s->host_bytes + 1);
    ck_assert(!d->cuMemAlloc_v2(&s->space, s->bytes + 1));
    return true;
}

static void run_solver(Solver *s, int64_t n, int64_t side)
{
    ck_assert(!d->cuMemcpyDtoDAsync_v2(s->a, s->kept, 4 * (size_t)(n * side * side), NULL));
    ck_assert(!s->run(s->handle, s->settings, 1, 0, side, 0, (void *)(uintptr_t)s->a, side, 0,
                      (void *)(uintptr_t)s->w, 0, (void *)(uintptr_t)s->space, s->bytes, s->host,
                      s->host_bytes, (int *)(uintptr_t)s->info, n));
}

static void close_solver(Solver *s)
{
    CUdeviceptr all[] = {s->a, s->kept, s->w, s->space, s->info};
    for (int i = 0; i < 5; i++)
        d->cuMemFree_v2(all[i]);
    free(s->host);                                         /* the process frees the handle */
}

/* H D H with a reflection H: D's entries are the eigenvalues. */
static void make_matrix(int64_t n, double low, float *out)
{
    double *v = malloc(8 * (size_t)n), *dv = malloc(8 * (size_t)n), norm = 0, vdv = 0;
    for (int64_t i = 0; i < n; i++) {
        v[i] = ref_value(1, 1, i);
        norm += v[i] * v[i];
    }
    for (int64_t i = 0; i < n; i++) {
        dv[i] = v[i] * pow(low, (double)i / (double)(n - 1));
        vdv += v[i] * dv[i];
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            out[i * n + j] = (float)((i == j ? pow(low, (double)i / (double)(n - 1)) : 0) -
                                     2 / norm * (dv[i] * v[j] + v[i] * dv[j]) +
                                     4 / norm / norm * vdv * v[i] * v[j]);
    free(v), free(dv);
}

static double elapsed(void)
{
    float ms;
    ck_assert(!d->cuEventRecord(to, NULL) && !d->cuEventSynchronize(to) &&
              !d->cuEventElapsedTime(&ms, from, to));
    return ms;
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

START_TEST(root_times)
{
    char text[400];
    if (!getenv("OPTC_ROOT_TIMES"))
        return;
    snprintf(text, sizeof text,
             "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', X = "
             "zeros 'rows' },\n"
             "  matrix = function() X = power(A, %s last = X })  A = A + 0 * sum(g)  p = p + 0 * g "
             "end, step = function() p = p + 0 * g end }",
             works[_i].p == 1 ? "-1, {" : "-1/4, { relative = 1e-6,");
    int64_t n = works[_i].n, side = works[_i].side, all = side * side;
    TestShape one[NSHAPES] = {{3, {n, side, 1}}};
    float *a = malloc(4 * (size_t)all);
    double *wide = malloc(8 * (size_t)(n * all)), t[2][ROUNDS];
    Side g;
    Solver s;
    make_matrix(side, 1e-6, a);
    for (int64_t i = 0; i < n * all; i++)
        wide[i] = a[i % all];
    use_shapes(one);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
    OK(optc_state_write(g.b, 0, "A", wide, n * all));
    set_grads(&g, 1);
    bool there = open_solver(&s, n, side, a);
    ck_assert(!d->cuEventCreate(&from, 0) && !d->cuEventCreate(&to, 0));
    for (int i = 0; i < 3; i++)
        OK(optc_step(g.b));
    if (there)
        run_solver(&s, n, side);
    for (int r = 0; r < ROUNDS; r++) {
        ck_assert(!d->cuStreamSynchronize(NULL) && !d->cuEventRecord(from, NULL));
        for (int i = 0; i < works[_i].reps; i++)
            OK(optc_step(g.b));
        t[0][r] = elapsed() / works[_i].reps;
        ck_assert(!d->cuEventRecord(from, NULL));
        for (int i = 0; there && i < works[_i].reps; i++)
            run_solver(&s, n, side);
        t[1][r] = elapsed() / works[_i].reps;
    }
    qsort(t[0], ROUNDS, 8, ascending);
    qsort(t[1], ROUNDS, 8, ascending);
    double ours = t[0][ROUNDS / 2], theirs = t[1][ROUNDS / 2];
    OK(optc_state_read(g.b, 0, "X", wide, n * all));
    ck_assert_msg(wide[0] != 0 && isfinite(wide[0]), "the root was refused");
    printf("inverse %s, %lld x %lld^2: %.2f ms; eigenvectors by cuSOLVER %.2f ms: %.2f times as "
           "fast\n",
           works[_i].p == 1 ? "itself" : "fourth root", (long long)n, (long long)side, ours, theirs,
           theirs / ours);
    fflush(stdout);
    if (there)
        close_solver(&s);
    close_side(&g, 0);
    free(a), free(wide);
    d->cuEventDestroy_v2(from);
    d->cuEventDestroy_v2(to);
    ck_assert_msg(!there || !works[_i].bar || theirs >= works[_i].bar * ours,
                  "%.2f times as fast, not %.2f", theirs / ours, works[_i].bar);
}
END_TEST

/* ---- orthonormal columns, beside geqrf and orgqr one by one ---- */
typedef struct Columns {
    int (*size)(void *, int, int, float *, int, int *),
        (*size2)(void *, int, int, int, const float *, int, const float *, int *);
    int (*factor)(void *, int, int, float *, int, float *, float *, int, int *),
        (*make)(void *, int, int, int, float *, int, const float *, float *, int, int *);
    void *handle;
    CUdeviceptr a, kept, tau, space, info;
    int work;
} Columns;

static bool open_columns(Columns *s, int64_t n, int side, const float *one)
{
    static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", NULL},
        *const folders[] = {"nvidia/cu13/lib", "nvidia/cusolver/lib", NULL};
    static const char *const symbol[] = {"cusolverDnCreate",
                                         "cusolverDnSetStream",
                                         "cusolverDnSgeqrf_bufferSize",
                                         "cusolverDnSorgqr_bufferSize",
                                         "cusolverDnSgeqrf",
                                         "cusolverDnSorgqr"};
    LibrarySearch find = {.names = names, .folders = folders};
    int (*create)(void **), (*stream)(void *, CUstream), work[2];
    void *to[6];
    memset(s, 0, sizeof *s);
    if (!library_find(&find))
        return false;
    for (int i = 0; i < 6; i++)
        if (!(to[i] = dlsym(find.library, symbol[i])))
            return false;
    void *const field[] = {(void *)&create,   (void *)&stream,    (void *)&s->size,
                           (void *)&s->size2, (void *)&s->factor, (void *)&s->make};
    for (int i = 0; i < 6; i++)
        memcpy(field[i], &to[i], sizeof to[i]);
    size_t each = 4 * (size_t)side * (size_t)side;
    ck_assert(!create(&s->handle) && !stream(s->handle, NULL));
    ck_assert(!d->cuMemAlloc_v2(&s->a, each * (size_t)n) &&
              !d->cuMemAlloc_v2(&s->kept, each * (size_t)n) &&
              !d->cuMemAlloc_v2(&s->tau, 4 * (size_t)side) && !d->cuMemAlloc_v2(&s->info, 4));
    for (int64_t i = 0; i < n; i++)
        ck_assert(!d->cuMemcpyHtoDAsync_v2(s->kept + (size_t)i * each, one, each, NULL));
    ck_assert(!s->size(s->handle, side, side, (float *)(uintptr_t)s->a, side, &work[0]) &&
              !s->size2(s->handle, side, side, side, (float *)(uintptr_t)s->a, side,
                        (float *)(uintptr_t)s->tau, &work[1]));
    s->work = work[0] > work[1] ? work[0] : work[1];
    ck_assert(!d->cuMemAlloc_v2(&s->space, 4 * (size_t)s->work + 4));
    return true;
}

static void run_columns(Columns *s, int64_t n, int side)
{
    size_t each = 4 * (size_t)side * (size_t)side;
    ck_assert(!d->cuMemcpyDtoDAsync_v2(s->a, s->kept, each * (size_t)n, NULL));
    float *tau = (float *)(uintptr_t)s->tau, *space = (float *)(uintptr_t)s->space;
    for (int64_t i = 0; i < n; i++) {
        float *a = (float *)(uintptr_t)(s->a + (size_t)i * each);
        ck_assert(!s->factor(s->handle, side, side, a, side, tau, space, s->work,
                             (int *)(uintptr_t)s->info) &&
                  !s->make(s->handle, side, side, side, a, side, tau, space, s->work,
                           (int *)(uintptr_t)s->info));
    }
}

static double off_one(const double *q, int64_t n)          /* the largest entry of q.T q - 1 */
{
    double *sum = calloc((size_t)(n * n), 8), most = 0;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++)
                sum[i * n + j] += q[k * n + i] * q[k * n + j];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            most = fmax(most, fabs(sum[i * n + j] - (i == j)));
    free(sum);
    return most;
}

START_TEST(column_times)
{
    static const char text[] =
        "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', X = zeros "
        "'rows' },\n"
        "  matrix = function() X = qr(A, { last = X })  A = A + 0 * sum(g)  p = p + 0 * g end, "
        "step = function() p = p + 0 * g end }";
    enum { N = 24, SIDE = 768, ALL = SIDE * SIDE };
    if (!getenv("OPTC_ROOT_TIMES"))
        return;
    TestShape one[NSHAPES] = {{3, {N, SIDE, 1}}};
    float *a = malloc(4 * (size_t)ALL);
    double *wide = malloc(8 * (size_t)N * ALL), t[2][ROUNDS];
    Side g;
    Columns s;
    make_matrix(SIDE, 1e-6, a);
    for (int64_t i = 0; i < (int64_t)N * ALL; i++)
        wide[i] = a[i % ALL];
    use_shapes(one);
    open_side(&g, "cuda", (optc_rule_options){.text = text, .products = "f32"}, 0);
    OK(optc_state_write(g.b, 0, "A", wide, (int64_t)N * ALL));
    set_grads(&g, 1);
    bool there = open_columns(&s, N, SIDE, a);
    ck_assert(!d->cuEventCreate(&from, 0) && !d->cuEventCreate(&to, 0));
    for (int i = 0; i < 3; i++)
        OK(optc_step(g.b));
    if (there)
        run_columns(&s, N, SIDE);
    for (int r = 0; r < ROUNDS; r++) {
        ck_assert(!d->cuStreamSynchronize(NULL) && !d->cuEventRecord(from, NULL));
        OK(optc_step(g.b));
        t[0][r] = elapsed();
        ck_assert(!d->cuEventRecord(from, NULL));
        if (there)
            run_columns(&s, N, SIDE);
        t[1][r] = elapsed();
    }
    qsort(t[0], ROUNDS, 8, ascending);
    qsort(t[1], ROUNDS, 8, ascending);
    double ours = t[0][ROUNDS / 2], theirs = t[1][ROUNDS / 2];
    OK(optc_state_read(g.b, 0, "X", wide, (int64_t)N * ALL));
    double off = off_one(wide, SIDE);
    printf("orthonormal columns, %d x %d^2, condition 1e6: %.2f ms, off by %.1e; by cuSOLVER one "
           "by one %.2f ms: %.2f "
           "times as fast\n",
           N, SIDE, ours, off, theirs, theirs / ours);
    fflush(stdout);
    close_side(&g, 0);
    free(a), free(wide);
    ck_assert_msg(off <= 1e-5 && (!there || theirs >= 5 * ours),
                  "off by %g, %.2f times as fast, not 5", off, theirs / ours);
}
END_TEST

void add_root_times(TCase *t)
{
    tcase_add_loop_test(t, root_times, 0, (int)(sizeof works / sizeof *works));
    tcase_add_test(t, column_times);
}

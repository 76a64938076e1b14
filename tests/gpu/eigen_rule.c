#include "tests/gpu/eigen_rule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool emulated(void) { return getenv("OPTC_TEST_SMALL") != NULL; }

const Driver *next_driver;
void (*between)(optc_engine *e);

optc_status bind_one(One *o, const char *text, int64_t n, int64_t side, How how)
{
    int64_t dim[3] = {n, side, how.cols ? how.cols : 1};
    size_t bytes = (size_t)(n * side * dim[2] + 16) * (how.f64 ? 8 : 4);
    memset(o, 0, sizeof *o);
    o->n = n;
    o->side = side;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE"),
                                        .workspace = how.workspace}, &o->e));
    if (between)
        between(o->e);
    optc_status s = optc_compile(o->e,
                                 &(optc_rule_options){.text = text,
                                                      .param = how.f64 ? OPTC_F64 : OPTC_F32,
                                                      .products = how.f64 ? "f64" : "f32"},
                                 &o->r);
    ck_assert_msg(s == OPTC_OK, "%s: %s", text, optc_message());
    o->e->gpu->eigen = how.method;
    ck_assert(!d->cuMemAlloc_v2(&o->p, bytes) && !d->cuMemAlloc_v2(&o->g, bytes) &&
              !d->cuMemsetD8Async(o->p, 0, bytes, NULL) &&
              !d->cuMemsetD8Async(o->g, 0, bytes, NULL));
    ck_assert(!d->cuStreamSynchronize(NULL));
    optc_tensor t = {
        .param = (void *)(uintptr_t)o->p, .grad = (void *)(uintptr_t)o->g, .rank = 3, .shape = dim};
    const Driver *own = o->e->gpu->d;
    o->e->gpu->d = next_driver ? next_driver : own;
    s = optc_bind(o->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &o->b);
    o->e->gpu->d = own;
    return s;
}

void open_one(One *o, const char *text, int64_t n, int64_t side, How how)
{
    optc_status s = bind_one(o, text, n, side, how);
    ck_assert_msg(s == OPTC_OK, "%s: %s", text, optc_message());
}

void close_one(One *o)
{
    if (o->b)
        OK(optc_sync(o->b));
    OK(optc_unbind(o->b));
    OK(optc_release(o->r));
    OK(optc_close(o->e));
    d->cuMemFree_v2(o->p);
    d->cuMemFree_v2(o->g);
}

/* ---- matrices whose eigenvalues are known: reflections from both sides of a diagonal ---- */
static void reflect(double *a, int64_t n, uint64_t *seed)
{
    double *v = malloc(16 * (size_t)n), *w = v + n, norm = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (double)(*seed >> 33) / 4294967296.0 - 0.25;
        norm += v[i] * v[i];
    }
    for (int64_t i = 0; i < n; i++) {
        w[i] = 0;
        for (int64_t j = 0; j < n; j++)
            w[i] += a[i * n + j] * v[j];
        dot += v[i] * w[i];
    }
    /* H A H = A - 2 (v w.T + w v.T) / norm + 4 dot v v.T / norm^2 */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * n + j] +=
                -2 / norm * (v[i] * w[j] + w[i] * v[j]) + 4 * dot / norm / norm * v[i] * v[j];
    free(v);
}

void make_matrix(double *a, int64_t n, const double *value, double exponent, uint64_t seed)
{
    memset(a, 0, 8 * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        a[i * (n + 1)] = value[i] == 0 && exponent > 0 ? 0 : pow(value[i], exponent);
    for (int h = 0; h < 3; h++)
        reflect(a, n, &seed);
}

void spread(double *value, int64_t n, double low)
{
    for (int64_t i = 0; i < n; i++)
        value[i] = n > 1 ? pow(low, (double)i / (double)(n - 1)) : 1;
}

void are_vectors(const double *a, const double *v, int64_t n, int64_t some, double bound,
                 const char *what)
{
    double *av = malloc(8 * (size_t)n), before = INFINITY, size = 0;
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs(a[i * (n + 1)]));
    for (int64_t k = 0; k < some; k++) {
        double w = 0;
        int64_t at = 0;
        for (int64_t i = 0; i < n; i++) {
            av[i] = 0;
            for (int64_t j = 0; j < n; j++)
                av[i] += a[i >= j ? i * n + j : j * n + i] * v[j * some + k];
            w += v[i * some + k] * av[i];
            at = fabs(v[i * some + k]) > fabs(v[at * some + k]) ? i : at;
        }
        for (int64_t i = 0; i < n; i++)
            ck_assert_msg(fabs(av[i] - w * v[i * some + k]) <= bound * size,
                          "%s: A V - V w of vector %lld is %g", what, (long long)k,
                          av[i] - w * v[i * some + k]);
        ck_assert_msg(v[at * some + k] > 0 && w <= before + bound * size,
                      "%s: vector %lld has the wrong sign or place (%g behind %g)", what,
                      (long long)k, w, before);
        before = w;
        for (int64_t l = k > 40 ? k - 40 : 0; l <= k; l++) {
            double dot = 0;
            for (int64_t i = 0; i < n; i++)
                dot += v[i * some + k] * v[i * some + l];
            ck_assert_msg(fabs(dot - (k == l)) <= bound, "%s: vectors %lld and %lld: %g", what,
                          (long long)k, (long long)l, dot);
        }
    }
    free(av);
}

const char vectors_rule[] =
    "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', V = zeros 'rows' "
    "},\n"
    "  matrix = function() local _, U = eigh(A)  V = U  A = A + 0 * sum(g)  p = p + 0 * "
    "g end, step = function() p = p + 0 * g end }";

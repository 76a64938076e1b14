/* Methods for eigenvectors and roots of matrices on a GPU: measures them, stores the best as a
 * tuned result, and looks it up when tensors are bound.
 *
 * Results are keyed by (rows rounded to a power of two, number of matrices). Other sizes use the
 * nearest number of rows. The number of matrices is fixed, so that results do not depend on how
 * many matrices a binding steps. Methods differ in their last bits, as two versions of a library
 * do. So a method is tried only if it is at least as accurate as the model's: f32 only if the model
 * uses it, or if roots in f32 are known to be accurate enough
 * (runtime/core/matrix/gpu_roots_f32.c). */
#include "runtime/library/tune/launch_search.h"

#include "gen/gen.h"
#include "runtime/library/rule/gpu_code.h"
#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ---- */
_Static_assert((int)METHOD_REACH == (int)TUNED_REACH, "packages look as far");

static int nearest_power(int64_t rows) { return (int)lround(log2((double)rows)); }

/* Results for eigenvectors from before divide and conquer have another hash, so they are ignored,
 * as those of changed kernels are: `way=2` was another method, and the times were compared with
 * cuSOLVER for all rows. */
void method_key(const GpuEngine *g, MethodWork w, bool f64, TunedKey *k)
{
    char what[64], hex[DIGEST_HEX];
    const char *type = f64 ? "f64" : "f32";
    memset(k, 0, sizeof *k);
    tuned_set_device(k, g->name, g->sms, g->driver);
    k->form = w.roots ? FORM_ROOT : FORM_EIGEN;
    snprintf(k->types, sizeof k->types, "%s,%s,%s", type, type, type);
    digest_hex(what, (size_t)snprintf(what, sizeof what, "%s of 2^%d rows%s", form_name[k->form],
                                      nearest_power(w.rows), w.roots ? "" : ", divide and conquer"),
               hex);
    memcpy(k->stage, hex, sizeof k->stage - 1);
    k->bucket = tuned_bucket(w.matrices);
}

EigenMethod method_measured(const optc_engine *e, bool roots, bool f64, int power, int bucket)
{
    TunedKey k;
    int lo = 0, hi = INT_MAX;
    method_key(e->gpu, (MethodWork){roots, (int64_t)1 << power, (int64_t)1 << bucket}, f64, &k);
    tuned_reach(&k, &lo, &hi);
    const Tuned *t = tuned_look(&e->library->tuned, &k, lo, hi, NULL);
    return t ? (EigenMethod)t->launch.v[KNOB_METHOD] : EIGEN_BY_SIZE;
}

/* ---- sizes that are measured ---- */
bool method_next(MethodWork *w)
{
    const int64_t most = w->roots ? 128 : (int64_t)1 << METHOD_MOST;
    w->rows = w->rows ? 2 * w->rows : (int64_t)1 << METHOD_LEAST;
    w->matrices = w->roots ? METHOD_ROOTS : METHOD_VECTORS;
    return w->rows <= most;
}

void method_label(MethodWork w, char out[64])
{
    snprintf(out, 64, "%s_%lldx%lld", w.roots ? "roots" : "eigenvectors", (long long)w.rows,
             (long long)w.matrices);
}

bool method_for(const Program *p, bool roots)
{
    for (int i = 0; i < p->nstage; i++)
        if (roots ? stage_takes(&p->stage[i], FOR_ROOT) &&
                        p->array[p->stage[i].call->a].type == (int)T_F32 &&
                        f32_suffices(call_root(p->stage[i].call), call_low(p->stage[i].call), 0)
                  : stage_takes(&p->stage[i], FOR_EIGEN))
            return true;
    return false;
}

bool method_f64(const Program *p)
{
    for (int i = 0; i < p->nstage; i++)
        if (stage_takes(&p->stage[i], FOR_EIGEN) &&
            p->array[p->stage[i].call->a].type == (int)T_F64)
            return true;
    return false;
}

/* ---- a tuner ---- */
enum { NWAY = EIGEN_F64 + 1 };
struct MethodTuner {
    optc_engine *e;
    optc_rule *r;
    MethodWork work;
    bool f64, solver;                          /* solver: cuSOLVER was found */
    CUdeviceptr p, g;
    double *a;                                 /* one matrix: all matrices are equal */
    optc_binding *b[NWAY];
    CUevent begin, end;
};

static const char eigen_text[] = "return optimizer { name = 'eigenvectors', view = 'last', state = "
                                 "{ A = zeros 'rows', V = eye(1, 'rows') },\n"
                                 "  matrix = function() local w, U = eigh(A)  V = U + 0 * w.T  A = "
                                 "A + 0 * sum(g)  p = p + 0 * g end,\n"
                                 "  step = function() p = p + 0 * g end }";
static const char root_text[] = "return optimizer { name = 'roots', view = 'last', state = { A = "
                                "zeros 'rows', X = zeros 'rows' },\n"
                                "  matrix = function() X = power(A, -1/4, { relative = 1/32, last "
                                "= X })  A = A + 0 * sum(g)  p = p + 0 * g end,\n"
                                "  step = function() p = p + 0 * g end }";

/* A dense matrix with known eigenvalues from 1 to 0.001: a diagonal matrix between two
 * reflections. */
static void fill(double *a, int64_t n)
{
    double *v = a + n * n, *w = v + n;
    unsigned seed = 1;
    memset(a, 0, sizeof *a * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        a[i * (n + 1)] = pow(1e-3, n > 1 ? (double)i / (double)(n - 1) : 0);
    for (int h = 0; h < 3; h++) {
        double norm = 0, dot = 0;
        for (int64_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            v[i] = (double)(seed >> 8) / 16777216 - 0.25;
            norm += v[i] * v[i];
        }
        for (int64_t i = 0; i < n; i++) {
            w[i] = 0;
            for (int64_t j = 0; j < n; j++)
                w[i] += a[i * n + j] * v[j];
            dot += v[i] * w[i];
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                a[i * n + j] +=
                    -2 / norm * (v[i] * w[j] + w[i] * v[j]) + 4 * dot / norm / norm * v[i] * v[j];
    }
}

static optc_status take_memory(MethodTuner *u)
{
    GpuEngine *g = u->e->gpu;
    int64_t n = u->work.rows, all = n * u->work.matrices;
    Cusolver f;
    char why[400];
    u->solver = cusolver_open(&f, g->d->version, NULL, why, sizeof why);
    if (!(u->a = malloc(sizeof *u->a * (size_t)(n * n + 2 * n))))
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    fill(u->a, n);
    TRY(g, cuMemAlloc_v2(&u->p, (size_t)all * 8), "tuning");
    TRY(g, cuMemAlloc_v2(&u->g, (size_t)all * 8), "tuning");
    TRY(g, cuMemsetD8Async(u->p, 0, (size_t)all * 8, NULL), "tuning");
    TRY(g, cuMemsetD8Async(u->g, 0, (size_t)all * 8, NULL), "tuning");
    TRY(g, cuEventCreate(&u->begin, 0), "tuning");
    TRY(g, cuEventCreate(&u->end, 0), "tuning");
    return OPTC_OK;
}

static void end(MethodTuner *u, EigenMethod method)
{
    (void)optc_sync(u->b[method]);
    (void)optc_unbind(u->b[method]);
    u->b[method] = NULL;
}

void method_tuner_close(MethodTuner *u)
{
    if (!u)
        return;
    const Driver *d = u->e->gpu->d;
    for (int i = 0; i < NWAY; i++)
        if (u->b[i])
            end(u, (EigenMethod)i);
    (void)optc_release(u->r);
    gpu_enter(u->e->gpu);
    if (u->begin)
        d->cuEventDestroy_v2(u->begin);
    if (u->end)
        d->cuEventDestroy_v2(u->end);
    if (u->p)
        d->cuMemFree_v2(u->p);
    if (u->g)
        d->cuMemFree_v2(u->g);
    gpu_leave(u->e->gpu, OPTC_OK);
    free(u->a);
    free(u);
}

/* ---- methods ---- */
/* The facts by which a binding of the tuner's rule chooses a method. */
static MethodAt tuner_facts(const MethodTuner *u)
{
    const Program *p = u->r->program;
    int i = 0;
    while (!stage_takes(&p->stage[i], u->work.roots ? FOR_ROOT : FOR_EIGEN))
        i++;
    return (MethodAt){.gpu = u->e->gpu,
                      .call = p->stage[i].call,
                      .m = u->work.rows,
                      .n = u->work.rows,
                      .library = u->solver,
                      .f64 = u->f64,
                      .exact = u->f64};
}

static EigenMethod model_method(const MethodTuner *u)
{
    const MethodAt f = tuner_facts(u);
    return method_model(&f);
}

/* For a thousand rows one thread block takes minutes. */
static bool may_be(const MethodTuner *u, EigenMethod method)
{
    const MethodAt f = tuner_facts(u);
    return method == method_model(&f) ||
           (method_fits(&f, method) && (method != EIGEN_ROTATED || u->work.rows <= 256));
}

static bool worth(void *ctx, const Launch *l)
{
    return may_be(ctx, (EigenMethod)l->v[KNOB_METHOD]);
}

static Launch as_launch(EigenMethod method)
{
    Launch l = {{0}};
    l.v[KNOB_METHOD] = (int)method;
    return l;
}

Space method_tuner_space(const MethodTuner *u)
{
    Launch model = as_launch(model_method(u));
    return (Space){.form = u->work.roots ? FORM_ROOT : FORM_EIGEN, .model = model, .rival = model};
}

bool method_tuner_choice(const MethodTuner *u)
{
    int n = 0;
    for (int i = EIGEN_ROTATED; i < NWAY; i++)
        n += may_be(u, (EigenMethod)i);
    return n > 1;
}

static optc_status write_all(MethodTuner *u, optc_binding *b)
{
    int64_t n = u->work.rows * u->work.rows;
    double *all = malloc(sizeof *all * (size_t)(n * u->work.matrices));
    if (!all)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    for (int64_t i = 0; i < u->work.matrices; i++)
        memcpy(all + i * n, u->a, sizeof *all * (size_t)n);
    optc_status s = optc_state_write(b, 0, "A", all, n * u->work.matrices);
    free(all);
    return s;
}

/* Binds with this method and steps twice. False: that failed, or a factor was refused. */
static bool begin(MethodTuner *u, EigenMethod method)
{
    GpuEngine *g = u->e->gpu;
    int64_t dim[3] = {u->work.matrices, u->work.rows, 1};
    optc_tensor t = {
        .param = (void *)(uintptr_t)u->p, .grad = (void *)(uintptr_t)u->g, .rank = 3, .shape = dim};
    optc_factors said;
    EigenMethod was = g->eigen;
    g->eigen = method;
    optc_status s = optc_bind(u->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &u->b[method]);
    g->eigen = was;
    if (s == OPTC_OK)
        s = write_all(u, u->b[method]);
    for (int i = 0; i < 2 && s == OPTC_OK; i++)
        s = optc_step(u->b[method]);
    bool ok = s == OPTC_OK && optc_factors_about(u->b[method], -1, &said) == OPTC_OK &&
              said.computed && !said.refused;
    if (!ok && u->b[method])
        end(u, method);
    return ok;
}

/* Binds and steps the model's method before a search starts its clock: the first call waits a
 * second or more for libraries to load, which would use up the budget. */
int method_tuner_open(optc_engine *e, MethodWork w, bool f64, MethodTuner **out)
{
    MethodTuner *u = calloc(1, sizeof *u);
    *out = NULL;
    if (!u)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    u->e = e;
    u->work = w;
    u->f64 = f64;
    optc_type type = f64 ? OPTC_F64 : OPTC_F32;
    optc_status s = optc_compile(e,
                                 &(optc_rule_options){.text = w.roots ? root_text : eigen_text,
                                                      .param = type,
                                                      .grad = type,
                                                      .state = type,
                                                      .products = f64 ? "f64" : "f32"},
                                 &u->r);
    gpu_enter(e->gpu);
    s = gpu_leave(e->gpu, s == OPTC_OK ? take_memory(u) : s);
    if (s == OPTC_OK && method_tuner_choice(u))
        /* after a failure the search tries again, and reports it */
        (void)begin(u, model_method(u));
    if (s != OPTC_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", optc_message());
        method_tuner_close(u);
        return fail(s, "%s", why);
    }
    *out = u;
    return OPTC_OK;
}

static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    MethodTuner *u = ctx;
    for (int i = 0; i < n; i++) {
        EigenMethod method = (EigenMethod)l[i].v[KNOB_METHOD];
        ok[i] = u->b[method] || begin(u, method);
    }
}

static bool run_timed(MethodTuner *u, optc_binding *b, double *ms)
{
    const Driver *d = u->e->gpu->d;
    float t = 0;
    int reps = 1, done = 0;
    bool ok = optc_sync(b) == OPTC_OK;
    gpu_enter(u->e->gpu);
    ok = ok && !d->cuEventRecord(u->begin, NULL);
    /* 0.2 ms: far above the clock's resolution */
    for (; ok && t < 0.2 && done < 1024; reps *= 2) {
        for (int i = 0; i < reps && ok; i++, done++)
            ok = optc_step(b) == OPTC_OK;
        ok = ok && !d->cuEventRecord(u->end, NULL) && !d->cuEventSynchronize(u->end) &&
             !d->cuEventElapsedTime(&t, u->begin, u->end);
    }
    gpu_leave(u->e->gpu, OPTC_OK);
    *ms = done ? t / done : 0;
    return ok;
}

static bool race(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a,
                 double *ms_b)
{
    MethodTuner *u = ctx;
    optc_binding *side[2] = {u->b[a->v[KNOB_METHOD]], u->b[b->v[KNOB_METHOD]]};
    double t[2][128], ratio[128];
    (void)layout;
    samples = samples > 128 ? 128 : samples;
    for (int i = 0; i < samples; i++) {
        for (int k = 0; k < 2; k++)
            if (!run_timed(u, side[(i + k) % 2], &t[(i + k) % 2][i]))
                return false;
        ratio[i] = t[0][i] / t[1][i];
    }
    *ms_b = median(t[1], samples);
    *ms_a = *ms_b * median(ratio, samples);
    return true;
}

static double now(void *ctx)
{
    (void)ctx;
    return now_ms() * 1e-3;
}

Meter method_tuner_meter(MethodTuner *u)
{
    return (Meter){
        .ctx = u, .layouts = 1, .ready = ready, .race = race, .now = now, .worth = worth};
}

/* Each matrix is read and written once. */
double method_tuner_bytes(const MethodTuner *u)
{
    return 2.0 * (double)(u->work.rows * u->work.rows * u->work.matrices) * (u->f64 ? 8 : 4);
}

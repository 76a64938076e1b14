/* Which row of methods.def computes a call on a GPU. */
#include "runtime/core/matrix/gpu_calls.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    CALLEES_ON_GPU = 0
#define GPU_METHOD(callee, ...) | 1 << CALL_##callee
#include "gen/abi/methods.def"
};
#define CALLEE(ID, name, ...) \
    static_assert((CALLEES_ON_GPU >> CALL_##ID & 1) != 0, \
                  "gen/abi/methods.def: '" name "' has no row GPU_METHOD");
#include "gen/abi/callees.def"
static_assert((int)NGPUMETHOD <= 32, "callee_methods has a bit per row");

static const GpuMethod gpu_methods[NGPUMETHOD] = {
#define GPU_METHOD(callee, name, way, when, use, fits, rate, record, steps) \
    {EIGEN_##way, use, record, steps},
#include "gen/abi/methods.def"
};

static unsigned method_rows(const ProgCall *c)
{
    return callee_methods(c->callee, c->alpha, call_low(c), c->flags);
}

CORE const GpuMethod *method_room(const ProgCall *c)
{
    int i = 0;
    while (!(method_rows(c) >> i & 1))
        i++;
    return &gpu_methods[i];
}

/* The rate of each row, or -1 if the call cannot use it. */
static void method_rates(const MethodAt *f, double rate[NGPUMETHOD])
{
    unsigned rows = method_rows(f->call);
    int i = 0;
#define GPU_METHOD(callee, name, way, when, use, fits, speed, ...) \
    rate[i] = rows >> i & 1 && (fits) ? (double)(speed) : -1; \
    i++;
#include "gen/abi/methods.def"
}

static const GpuMethod *method_of_way(const double rate[NGPUMETHOD], EigenMethod way)
{
    for (int i = 0; i < NGPUMETHOD && way != EIGEN_BY_SIZE; i++)
        if (rate[i] >= 0 && gpu_methods[i].way == way)
            return &gpu_methods[i];
    return NULL;
}

static const GpuMethod *fastest(const double rate[NGPUMETHOD])
{
    int best = -1;
    for (int i = 0; i < NGPUMETHOD; i++)
        if (rate[i] > (best < 0 ? 0 : rate[best]))
            best = i;
    return &gpu_methods[best];
}

/* Methods must not be less exact than the model's. Roots use f32 only where that is exact. */
static bool as_exact(const GpuMethod *m, const GpuMethod *model, const MethodAt *f)
{
    return m->use & FOR_ROOT || !way_in_f32(m->way, f->exact) || way_in_f32(model->way, f->exact);
}

CORE EigenMethod method_model(const MethodAt *f)
{
    double rate[NGPUMETHOD];
    method_rates(f, rate);
    return fastest(rate)->way;
}

CORE bool method_fits(const MethodAt *f, EigenMethod way)
{
    double rate[NGPUMETHOD];
    method_rates(f, rate);
    const GpuMethod *m = method_of_way(rate, way);
    return m && as_exact(m, fastest(rate), f);
}

CORE const GpuMethod *method_choose(const MethodAt *f)
{
    double rate[NGPUMETHOD];
    method_rates(f, rate);
    const GpuMethod *model = fastest(rate), *m = method_of_way(rate, f->gpu->eigen);
    if (f->gpu->eigen || model->way == EIGEN_BY_SIZE)
        return m ? m : model;
    m = method_of_way(rate,
                      method_known(f->b->rule->engine, model->use & FOR_ROOT, f->f64, f->m));
    return m && as_exact(m, model, f) ? m : model;
}

CORE bool way_in_f32(EigenMethod way, bool exact)
{
    return way == EIGEN_F32 || (way == EIGEN_DIVIDED && !exact);
}

CORE optc_status too_long(const MethodAt *f, const char *why)
{
    char what[400];
    call_label(f->b, f->stage, &f->x->group[f->group], what, sizeof what);
    return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: %s", what, why);
}

CORE optc_status method_steps(const MethodAt *at)
{
    MethodAt f = *at;
    if (!f.m || !f.n || !f.x->group[f.group].shape.slices)
        return OPTC_OK;                                    /* there is nothing to compute */
    const GpuMethod *m = method_choose(at);
    f.way = m->way;
    f.fits = true;
    optc_status s = m->steps(&f);
    return s != OPTC_OK || f.fits
               ? s
               : too_long(&f, "more than 2^31 - 1 blocks, or rows; bind fewer tensors at a time");
}

/* ---- measured ways ---- */
CORE EigenMethod method_known(const optc_engine *e, bool roots, bool f64, int64_t rows)
{
    int power = rows ? (int)lround(log2((double)rows)) : METHOD_LEAST,
        last = rows ? power : (int)METHOD_MOST;
    EigenMethod method = EIGEN_BY_SIZE;
    if (!e->gpu->measured || power < METHOD_LEAST || power > METHOD_MOST)
        return EIGEN_BY_SIZE;
    for (; power <= last && method != EIGEN_F32; power++)
        method = e->gpu->measured(e, roots, f64, power,
                                  size_bucket(roots ? METHOD_ROOTS : METHOD_VECTORS));
    return rows || method == EIGEN_F32 ? method : EIGEN_BY_SIZE;
}

/* Takes the nearest bucket, and the upper one of two, like all tuned results
 * (runtime/library/tuned/tuned.c). */
CORE EigenMethod method_packed(const KnownMethod *w, int n, bool roots, bool f64, int power,
                               int bucket)
{
    int method = EIGEN_BY_SIZE, near = METHOD_REACH + 1;
    for (int i = 0; i < n; i++) {
        int off = w[i].bucket > bucket ? w[i].bucket - bucket : bucket - w[i].bucket;
        bool closer = off < near || (off == near && w[i].bucket > bucket);
        if (w[i].roots == (int)roots && w[i].f64 == (int)f64 && w[i].power == power &&
            off <= METHOD_REACH && closer) {
            method = w[i].method;
            near = off;
        }
    }
    return (EigenMethod)method;
}

/* ---- what the choice depends on ---- */
CORE MethodAt method_facts(const optc_binding *b, const ProgStage *s, int64_t n)
{
    const ProgCall *c = s->call;
    MethodAt f;
    memset(&f, 0, sizeof f);
    f.b = b;
    f.gpu = b->rule->engine->gpu;
    f.stage = s;
    f.call = c;
    f.m = n;
    f.work = call_type_f64();
    f.library = true;
    f.exact = f.f64 = b->program->array[c->a].type == (int)T_F64;
    if (stage_takes(s, FOR_EIGEN))
        f.exact = f.exact || callee_spectral(c->callee);
    else if (stage_takes(s, FOR_ROOT))
        f.exact = f.exact || (f.gpu->eigen != EIGEN_F32 &&
                              !f32_suffices(call_root(c), call_low(c), n));
    return f;
}

CORE MethodAt method_at(const optc_binding *b, GpuCalls *x, const ProgStage *s, int group)
{
    const Program *p = b->program;
    const CallGroup *g = &x->group[group];
    int64_t n = 1, cols = 1;
    if (stage_of_kind(s, CALLEE_FACTOR))
        factor_sides(p, s->call, g->shape, &n, &cols);
    MethodAt f = method_facts(b, s, n);
    f.x = x;
    f.n = cols;
    f.group = group;
    f.exact = f.exact || g->again;
    f.library = x->library || stage_takes(s, FOR_EIGEN);   /* eigen_steps opens cuSOLVER */
    if (stage_of_kind(s, CALLEE_PRODUCT)) {
        f.z = product_shape(p, s->call, g->shape, g->row_stride);
        f.m = f.z.m, f.n = f.z.n;
        f.type = call_type(p, s->call);
        f.parts = sum_parts(f.type, s->call, f.z);
        f.library = f.library && f.z.k && !misaligned(b, g, s->call, f.z.k);
    }
    return f;
}

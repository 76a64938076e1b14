/* Inverse roots on a GPU: A^(-1/p) by n x n products in f64, whatever type A is stored in, since
 * small eigenvalues are lost in less. In f32 where f64 is slow and the ratio of the eigenvalues is
 * small enough (gpu_roots_f32.c).
 *
 *   M = A / norm, X = 1; then some times  Q = q(M), X = X Q, M = Q^p M  (inverse_root.h)
 *
 * The number of steps follows from the rule's lower bound for eigenvalues, as a share of the norm:
 * the host does not wait for anything. If M is not near 1 in the end, the root is refused: the
 * previous one stays if the call names it.
 *
 * Each matrix has a record of five squares and some numbers. Records are behind the library's
 * workspace, for as many matrices at a time as half of the engine's workspace holds. Squares 0 and
 * 1: M and its next value, or its square. Square 2: Q, and sums of tiles before and after it.
 * Squares 3 and 4: X, its next value, and powers of Q.
 *
 * Nothing but the check needs the last M, whose p / 2 + 1 products (3 of 29 for p = 4 and
 * eigenvalues down to 1e-6) would be a tenth of the time. So the check of large matrices multiplies
 * PROBES random vectors v of signs instead: the mean of |Q^p M v - v|^2 estimates the squared
 * Frobenius norm, with a relative deviation of sqrt(2 / PROBES) or less. */
#include "runtime/core/matrix/gpu_calls.h"
#include "runtime/core/matrix/inverse_root.h"

#include <float.h>
#include <limits.h>
#include <string.h>

/* The largest distance of M from 1, in the Frobenius norm: of a root of a rule, and of a function
 * with a bound of its own (root_low), where eigenvalues below the bound must not pass for exact. X
 * is off by at most 1 / p of that. If all eigenvalues are inside the bound, M ends within 1e-7
 * sqrt(n). */
static const double root_off = 0.05, function_off = 1e-4;

CORE int64_t probed_rows(const optc_binding *b)
{
    enum { PROBED_ROWS = 512 };
    int rows = b->rule->engine->gpu->probed_rows;
    return rows ? rows : (int)PROBED_ROWS;
}

static int64_t root_room(int64_t n) { return (dom_times(n, n) + 31) / 32 * 32; }

static int64_t record_bytes(int64_t n, int bytes)
{
    int64_t numbers = RECORD_NUMBERS * (int64_t)sizeof(double);
    return dom_times(dom_times(AREAS, root_room(n)) + numbers / bytes, bytes);
}

CORE int64_t root_side(const Program *p, const ProgCall *c, Shape s)
{
    return axis_len(dom_matrix(p->array[c->a].dom, false).down, s);
}

CORE int64_t root_record(const optc_binding *b, const ProgStage *s, Shape shape)
{
    return record_bytes(root_side(b->program, s->call, shape), 8);
}

/* Bytes of all records, at most half of the workspace, at least the largest record. */
CORE int64_t roots_bytes(const optc_binding *b)
{
    const Program *p = b->program;
    int64_t most = 0, all = 0, half = b->rule->engine->workspace / 2;
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *stage = &p->stage[i];
        const GpuMethod *m = stage->kind == S_CALL ? method_room(stage->call) : NULL;
        const Range r = call_range(b, stage);
        int64_t sum = 0;
        for (int t = r.from; m && m->record && t < r.to; t++)
            if (b->tensor[t].variant == stage->variant) {
                Shape s = b->tensor[t].shape;
                int64_t bytes = s.slices ? m->record(b, stage, s) : 0;
                int64_t more = dom_times(bytes, s.slices);
                most = bytes > most ? bytes : most;
                sum = more > half - sum ? half : sum + more;
            }
        all = sum > all ? sum : all;
    }
    return all > most ? all : most;
}

/* ---- pointers into records ---- */
CORE int64_t root_pointers(const GpuCalls *x, const PointerSet *s)
{
    const CallGroup *g = &x->group[s->group];
    int64_t all = g->most, fit = all;
    if (s->array == OWN_EIGEN)
        fit = s->most;
    else if (s->array != OWN_STATS)
        fit = x->room_bytes / s->record;
    return dom_times(s->each, all < fit ? all : fit);
}

CORE int factor_stats_set(GpuCalls *x, const optc_binding *b, const ProgStage *stage, int group)
{
    return whole_set(x, OWN_STATS, group, stage - b->program->stage);
}

/* The statistics of a matrix have a fixed address, whichever other matrices take part. The set's
 * offset is the stage. */
static void factor_stats_addresses(const optc_binding *b, const GpuCalls *x, const PointerSet *s,
                                   MatrixAddress *to)
{
    const CallGroup *g = &x->group[s->group];
    const ProgStage *stage = &b->program->stage[s->offset];
    for (int k = 0; k < g->n; k++) {
        const FactorStats *at =
            (const FactorStats *)b->stats + factor_stats_first(b, stage, g->tensor[k]);
        for (int64_t q = 0; q < g->shape.slices; q++)
            if (calls_participate(b, g, g->tensor[k], q)) {
                to->slot = -1;
                to++->offset = (long long)(uintptr_t)(at + q);
            }
    }
}

CORE void root_addresses(const optc_binding *b, const GpuCalls *x, PointerSet *s, MatrixAddress *to)
{
    if (s->array == OWN_STATS) {
        factor_stats_addresses(b, x, s, to);
        return;
    }
    if (s->array == OWN_EIGEN) {
        eigen_addresses(x, s, to);
        return;
    }
    int64_t n = root_pointers(x, s) / s->each;
    CUdeviceptr first = x->scratch + (CUdeviceptr)(s->bytes * s->base);
    for (int64_t i = 0, at = 0; i < n; i++) {
        CUdeviceptr here = first + (CUdeviceptr)(i * s->record);
        for (int64_t part = 0; part < (s->parts ? s->parts : 1); part++)
            for (int64_t r = 0; r < (s->blocks ? s->blocks : 1); r++)
                for (int64_t k = 0; k <= r; k++, at++) {
                    int64_t values = s->offset + part * s->apart + r * s->down + k * s->across;
                    to[at].slot = -1;
                    to[at].offset = (long long)here + s->bytes * values;
                }
    }
}

/* ---- steps ---- */
typedef struct Root {
    const optc_binding *b;
    GpuCalls *x;
    const ProgStage *stage;
    const CallType *type;                                  /* precision of the products */
    int group;
    int64_t n;
    bool fits;                                             /* no launch exceeds MOST_BLOCKS */
} Root;

static bool root_of_f32(const Root *r) { return r->type == call_type_f32(); }

static CallStep *root_step(Root *r, CallKernel kernel, int a, int c)
{
    CallStep *s = add_step(r->x, kernel, r->type, r->group);
    int64_t blocks = kernel_blocks(kernel, r->n, r->n, true),
            all = dom_times(r->x->group[r->group].n, r->x->group[r->group].shape.slices);
    s->a = s->b = whole_set(r->x, a, r->group, 0);
    s->c = whole_set(r->x, c, r->group, 0);
    s->n = r->n;
    s->own = true;
    s->blocks = (unsigned)blocks;
    s->flags = root_of_f32(r) ? 64 : 0;
    r->fits = r->fits && dom_times(blocks, all) <= MOST_BLOCKS && r->n <= INT_MAX;
    return s;
}

/* Square `out` = alpha a b. All three are symmetric functions of one matrix, so a and b commute. */
static void root_product(Root *r, int a, int b, int out, double alpha, bool lower)
{
    ProgCall c;
    ProductShape z;
    memset(&c, 0, sizeof c);
    c.flags = SYMMETRIC | (lower ? LOWER : 0);
    c.a = AREA(a);
    c.b = AREA(b);
    c.c = -1;
    c.out = AREA(out);
    c.alpha = alpha;
    z.slices = 1;
    z.m = z.n = z.k = r->n;
    z.ld[0] = z.ld[1] = z.ld[2] = z.ld[3] = r->n;
    r->fits = product_steps(r->b, r->x, r->type, &c, r->group, z, !r->x->library) && r->fits;
}

/* M = Q^p M: p / 2 times the square of Q, and Q itself if p is odd. Returns the square that holds
 * M. */
static int root_onward(Root *r, int p, int q, int m, int spare, bool last)
{
    int times = p > 2 ? p / 2 + p % 2 : p;
    if (p > 2)
        root_product(r, q, q, spare, 1, false);
    for (int i = 0; i < times; i++, m = 1 - m)
        root_product(r, p > 2 && !(p % 2 && i == 0) ? spare : q, m, 1 - m, 1,
                     last && i == times - 1);
    return m;
}

static bool root_probed(const Root *r)
{
    /* root_probe needs the room */
    return !root_of_f32(r) && r->n >= probed_rows(r->b) && r->n >= 2 * PROBES;
}

/* Square `in` holds two arrays of n x PROBES values. Sets array `to` to square a times the other
 * array. */
static void probe_product(Root *r, int a, int in, int to)
{
    CallStep *s = add_step(r->x, r->type->mm, r->type, r->group);
    const CallGroup *g = &r->x->group[r->group];
    int64_t blocks = kernel_blocks(s->kernel, r->n, PROBES, false);
    s->a = whole_set(r->x, AREA(a), r->group, 0);
    s->b = whole_set(r->x, AREA(in), r->group, to ? 0 : r->n * PROBES);
    s->c = whole_set(r->x, AREA(in), r->group, to ? r->n * PROBES : 0);
    s->m = s->k = s->lda = r->n;
    s->n = s->ldb = s->ldc = PROBES;
    s->alpha = 1;
    s->own = !r->x->library;
    s->blocks = (unsigned)blocks;
    r->fits = r->fits && dom_times(blocks, dom_times(g->n, g->shape.slices)) <= MOST_BLOCKS;
}

/* Q^p M times random vectors, in square `in`, which has room for two arrays of them. Returns the
 * result's set. */
static int root_probe(Root *r, int p, int q, int m, int in)
{
    CallStep *s = root_step(r, KERNEL_ROOT_SIGNS, AREA(in), AREA(in));
    int to = 1;
    s->m = PROBES;
    s->blocks = (unsigned)kernel_blocks(KERNEL_ROOT_SIGNS, r->n, PROBES, false);
    probe_product(r, m, in, to);
    for (int i = 0; i < p; i++)
        probe_product(r, q, in, to = 1 - to);
    return whole_set(r->x, AREA(in), r->group, to ? r->n * PROBES : 0);
}

/* The first Q is X. m, x: the squares that hold M and X, updated. Returns the set of the last M, or
 * of its products with random vectors. */
static int root_iterate(Root *r, int p, const RootStep *q, int n, int *m, int *x)
{
    int set = -1;
    for (int i = 0; i < n; i++) {
        bool last = i == n - 1;
        int spare = 7 - *x, at = i ? 2 : *x;
        root_product(r, *m, *m, 1 - *m, q[i].c, true);
        CallStep *s = root_step(r, root_of_f32(r) ? KERNEL_ROOT32_POLY : KERNEL_ROOT_POLY, AREA(*m),
                                AREA(at));
        s->b = whole_set(r->x, AREA(1 - *m), r->group, 0);
        s->alpha = q[i].a;
        s->beta = q[i].b;
        bool probed = last && root_probed(r);
        if (probed)
            set = root_probe(r, p, at, *m, 1 - *m);
        else
            *m = root_onward(r, p, at, *m, spare, last);
        if (i) {
            root_product(r, *x, 2, spare, 1, last);
            *x = spare;
        }
    }
    return set >= 0 ? set : whole_set(r->x, AREA(*m), r->group, 0);
}

static void root_all(Root *r, int p, const RootStep *q, int n, double off)
{
    int m = 0, x = 3;
    const ProgCall *c = r->stage->call;
    CallStep *s = root_step(r, KERNEL_ROOT_SUMS, c->a, AREA(2));
    s = root_step(r, KERNEL_ROOT_NORM, AREA(2), AREA(2));
    s->k = 2;
    s->alpha = c->alpha;
    root_step(r, root_of_f32(r) ? KERNEL_ROOT32_BEGIN : KERNEL_ROOT_BEGIN, c->a, AREA(0));
    int off_by = root_iterate(r, p, q, n, &m, &x);
    s = root_step(r, root_of_f32(r) ? KERNEL_ROOT32_OFF : KERNEL_ROOT_OFF, AREA(m), AREA(2));
    s->a = off_by;
    s->m = root_probed(r) ? PROBES : 0;
    s->flags |= root_probed(r) ? 256 : 0;
    s->b = whole_set(r->x, AREA(x), r->group, 0);
    s->k = 2;
    s->alpha = r->b->program->array[c->out].type == (int)T_F64 ? DBL_MAX : FLT_MAX;
    s = root_step(r, KERNEL_ROOT_JUDGE, AREA(2), AREA(2));
    s->k = 2;
    s->beta = off;
    s->b = factor_stats_set(r->x, r->b, r->stage, r->group);
    s->flags |= r->x->group[r->group].again ? 128 : 0;
    s = root_step(r, root_of_f32(r) ? KERNEL_ROOT32_END : KERNEL_ROOT_END, AREA(x), c->out);
    s->k = x;
    s->b = c->c >= 0 ? whole_set(r->x, c->c, r->group, 0) : s->c;
    s->flags |= c->c < 0 ? 0 : c->c == c->out ? 3 : 1;
}

CORE void root_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets)
{
    int root = call_root(s->call);
    (void)b, (void)shape;
    *steps = MOST_ROOT_STEPS * (1 + 3 * (3 + root / 2 + root % 2)) + 8;
    *sets = 32;                        /* of five squares, of probes, and of four more arrays */
}

CORE optc_status build_root(const MethodAt *f)
{
    GpuCalls *x = f->x;
    bool in_f32 = f->way == EIGEN_F32;
    const double bound = f->b->rule->root_low;
    Root r = {f->b, x, f->stage, in_f32 ? call_type_f32() : call_type_f64(), f->group, f->n, true};
    RootStep q[MOST_ROOT_STEPS];
    int root = call_root(f->call), first = x->nstep;
    int n = root_steps(root, bound > 0 ? bound : call_low(f->call),
                       f->b->program->array[f->call->out].type == (int)T_F64, q);
    if (!n)                                                /* cannot happen: call_root checks it */
        return bad_call(f->b->program, f->stage,
                        "the bounds of its eigenvalues are too far apart for a root by products");
    x->value_bytes = r.type->bytes;
    x->record = record_bytes(r.n, r.type->bytes);
    for (int i = 0; i < AREAS; i++) {
        x->area[i] = i * root_room(r.n);
        x->area_ld[i] = 0;
    }
    root_all(&r, root, q, n, bound > 0 && !in_f32 ? function_off : root_off);
    for (int i = first; i < x->nstep; i++)
        x->step[i].at_once = x->room_bytes / x->record;
    x->record = 0;
    return steps_fit(f, r.fits);
}

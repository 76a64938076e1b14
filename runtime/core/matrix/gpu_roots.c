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

CORE int64_t root_side(const Program *p, const ProgCall *c, Shape s)
{
    return axis_len(dom_matrix(p->array[c->a].dom, false).down, s);
}

static void root_values(int64_t n, int64_t values[AREAS])
{
    for (int i = 0; i < AREAS; i++)
        values[i] = root_room(n);
}

CORE int64_t root_record(const optc_binding *b, const ProgStage *s, Shape shape)
{
    int64_t values[AREAS];
    root_values(root_side(b->program, s->call, shape), values);
    return record_bytes(values, 8);
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

/* ---- steps ---- */
static bool root_of_f32(const MethodAt *f) { return f->work == call_type_f32(); }

/* a, c: sets */
static CallStep *root_step(MethodAt *f, CallKernel kernel, int a, int c)
{
    CallStep *s = add_launch(f, kernel, a, a, c, 0, f->m);
    s->flags = root_of_f32(f) ? 64 : 0;
    return s;
}

static int square(const MethodAt *f, int area) { return part_set(f, at(area, 0, 0)); }

/* Square `out` = alpha a b. All three are symmetric functions of one matrix, so a and b commute. */
static void root_product(MethodAt *f, int a, int b, int out, double alpha, bool lower)
{
    symmetric_product(f, a, b, out, f->m, f->m, alpha, lower ? LOWER : 0);
}

/* M = Q^p M: p / 2 times the square of Q, and Q itself if p is odd. Returns the square that holds
 * M. */
static int root_onward(MethodAt *f, int p, int q, int m, int spare, bool last)
{
    int times = p > 2 ? p / 2 + p % 2 : p;
    if (p > 2)
        root_product(f, q, q, spare, 1, false);
    for (int i = 0; i < times; i++, m = 1 - m)
        root_product(f, p > 2 && !(p % 2 && i == 0) ? spare : q, m, 1 - m, 1,
                     last && i == times - 1);
    return m;
}

static bool root_probed(const MethodAt *f)
{
    /* root_probe needs the room */
    return !root_of_f32(f) && f->m >= probed_rows(f->b) && f->m >= 2 * PROBES;
}

/* Q^p M times random vectors, in square `in`, which has room for two arrays of n x PROBES values.
 * Returns the result's set. */
static int root_probe(MethodAt *f, int p, int q, int m, int in)
{
    const ProductSize z = {f->m, PROBES, f->m};
    const Operand array[] = {operand(square(f, in), PROBES),
                             operand(part_set(f, at(in, 0, f->m * PROBES)), PROBES)};
    CallStep *s = root_step(f, KERNEL_ROOT_SIGNS, array[0].set, array[0].set);
    s->m = PROBES;
    s->blocks = (unsigned)kernel_blocks(KERNEL_ROOT_SIGNS, f->m, PROBES, false);
    int to = 1;
    add_product(f, operand(square(f, m), f->m), array[0], array[1], z, 0, 1, 0);
    for (int i = 0; i < p; i++, to = 1 - to)
        add_product(f, operand(square(f, q), f->m), array[to], array[1 - to], z, 0, 1, 0);
    return array[to].set;
}

/* The first Q is X. m, x: the squares that hold M and X, updated. Returns the set of the last M, or
 * of its products with random vectors. */
static int root_iterate(MethodAt *f, int p, const RootStep *q, int n, int *m, int *x)
{
    int set = -1;
    for (int i = 0; i < n; i++) {
        bool last = i == n - 1;
        int spare = 7 - *x, at = i ? 2 : *x;
        root_product(f, *m, *m, 1 - *m, q[i].c, true);
        CallStep *s = root_step(f, root_of_f32(f) ? KERNEL_ROOT32_POLY : KERNEL_ROOT_POLY,
                                square(f, *m), square(f, at));
        s->b = square(f, 1 - *m);
        s->alpha = q[i].a;
        s->beta = q[i].b;
        bool probed = last && root_probed(f);
        if (probed)
            set = root_probe(f, p, at, *m, 1 - *m);
        else
            *m = root_onward(f, p, at, *m, spare, last);
        if (i) {
            root_product(f, *x, 2, spare, 1, last);
            *x = spare;
        }
    }
    return set >= 0 ? set : square(f, *m);
}

static void root_all(MethodAt *f, int p, const RootStep *q, int n, double off)
{
    const ProgCall *c = f->call;
    const bool f32 = root_of_f32(f), probed = root_probed(f);
    const int from = whole_set(f, c->a);
    int m = 0, x = 3;
    root_step(f, KERNEL_ROOT_SUMS, from, square(f, 2));
    CallStep *s = root_step(f, KERNEL_ROOT_NORM, square(f, 2), square(f, 2));
    s->k = 2;
    s->alpha = c->alpha;
    root_step(f, f32 ? KERNEL_ROOT32_BEGIN : KERNEL_ROOT_BEGIN, from, square(f, 0));
    int off_by = root_iterate(f, p, q, n, &m, &x);
    s = root_step(f, f32 ? KERNEL_ROOT32_OFF : KERNEL_ROOT_OFF, off_by, square(f, 2));
    s->m = probed ? PROBES : 0;
    s->flags |= probed ? 256 : 0;
    s->b = square(f, x);
    s->k = 2;
    s->alpha = result_most(f);
    s = root_step(f, KERNEL_ROOT_JUDGE, square(f, 2), square(f, 2));
    s->k = 2;
    s->beta = off;
    s->b = stats_set(f);
    s->flags |= f->x->group[f->group].again ? 128 : 0;
    s = root_step(f, f32 ? KERNEL_ROOT32_END : KERNEL_ROOT_END, square(f, x), square(f, x));
    s->k = x;
    store_result(f, s);
}

CORE optc_status build_root(MethodAt *f)
{
    const bool in_f32 = f->way == EIGEN_F32;
    const double bound = f->b->rule->root_low;
    RootStep q[MOST_ROOT_STEPS];
    int64_t values[AREAS];
    const int root = call_root(f->call),
              n = root_steps(root, bound > 0 ? bound : call_low(f->call), stores_f64(f), q);
    if (!n)                                                /* cannot happen: call_root checks it */
        return bad_call(f->b->program, f->stage,
                        "the bounds of its eigenvalues are too far apart for a root by products");
    f->work = in_f32 ? call_type_f32() : call_type_f64();
    root_values(f->m, values);
    optc_status s = add_record(f, values, NULL, f->work->bytes);
    if (s == OPTC_OK)
        root_all(f, root, q, n, bound > 0 && !in_f32 ? function_off : root_off);
    return s;
}

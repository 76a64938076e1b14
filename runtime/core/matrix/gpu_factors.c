/* Cholesky, QR, triangular solves and inverses in f64 on a GPU.
 *
 * Factors are computed in f64 whatever type the matrices are stored in, by panels of 64 columns: a
 * kernel factors a panel's tile and inverts it, and everything else is products. Products with all
 * earlier panels are subtracted for eight panels at a time, since 64 columns of one large matrix do
 * not keep a GPU busy. Each matrix has a record, in the same memory as the records of roots:
 *   area 0   SOLVE: the triangle, or its inverse, QR: x, POWER: 1, then a
 *   area 1   QR: q, SOLVE: the right-hand sides, POWER: the triangle's inverse
 *   area 2   the matrix to factor: CHOL's and POWER's copy of a, QR's Gram matrix; SOLVE, POWER:
 *            the result
 *   area 3   the triangle; POWER: at the end the result times a
 *   area 4   inverses of its tiles, 64 columns of them
 * POWER is the inverse of a matrix with positive eigenvalues (inverse_by_triangle): L L.T = a, X =
 * L^-T L^-1. It is refused if there is no L, or if X a differs from 1 by more than inverse_off.
 * Eigenvectors would take about ten times as many operations. gpu_qr.c has QR. */
#include "runtime/core/matrix/gpu_factor.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double inverse_off = 0.05;                     /* as roots: root_off */

/* A solve of at least as many right-hand sides as the triangle has rows multiplies them by the
 * triangle's inverse. A substitution moves about 110 bytes per value, mostly for products over 64
 * terms, and this about 50. Errors grow with the condition number of the whole triangle instead of
 * that of its tiles. Results in f64 would show this, so they are computed by substitution. The
 * choice depends on the shape and the type alone. */
enum { INVERTED_MOST = 2048 };
CORE bool solves_by_inverse(const MethodAt *f)
{
    return f->m > FACTOR_PANEL && f->m <= INVERTED_MOST && f->n >= f->m && !f->f64 &&
           f->library;                                     /* our own product takes no pairs */
}

/* Values of each area of an m x n factor, and its row stride */
static void factor_areas(const ProgCall *call, int64_t m, int64_t n, int64_t values[AREAS],
                         int64_t ld[AREAS])
{
    Callee c = call->callee;
    bool qr = c == CALL_QR, chol = c == CALL_CHOL, solve = c == CALL_SOLVE;
    int64_t side = qr ? n : m, across = chol ? 0 : n;
    /* row stride of the right-hand sides */
    int64_t wide = call->flags & FROM_RIGHT ? m : across;
    const int64_t square = dom_times(side, side), all = dom_times(m, across);
    const int64_t length[AREAS] = {qr ? all : chol ? 0 : square, all, solve ? all : square,
                                   solve ? 0 : square, dom_times(side, FACTOR_PANEL)};
    const int64_t row[AREAS] = {qr ? across : side, qr ? across : wide, solve ? wide : side, side,
                                FACTOR_PANEL};
    for (int i = 0; i < AREAS; i++) {
        values[i] = (length[i] + 31) / 32 * 32;
        ld[i] = row[i];
    }
}

CORE int64_t factor_record(const optc_binding *b, const ProgStage *s, Shape shape)
{
    int64_t m, n, values[AREAS], ld[AREAS];
    factor_sides(b->program, s->call, shape, &m, &n);
    factor_areas(s->call, m, n, values, ld);
    return m && n ? record_bytes(values, (int)sizeof(double)) : 0;
}

/* ---- steps ---- */
/* offset from p to the record's numbers */
CORE int64_t area_to_numbers(MethodAt *f, Part p)
{
    const Area *area = f->x->area + f->areas;
    int64_t k = (area[NUMBERS].at - area[p.area].at) / 8 - p.row * area[p.area].ld - p.col;
    f->reach = k > f->reach ? k : f->reach;
    return k;
}

CORE CallStep *add_area_step(MethodAt *f, CallKernel kernel, Part p, int64_t m, int64_t n)
{
    int set = part_set(f, p);
    CallStep *s = add_launch(f, kernel, set, set, set, m, n);
    s->k = area_to_numbers(f, p);
    return s;
}

static int64_t panel_at(int64_t n, int64_t k)
{
    return n - k < FACTOR_PANEL ? n - k : (int64_t)FACTOR_PANEL;
}

/* Area 3 = the triangle of area 2, whose lower half is overwritten; the inverses of its tiles go to
 * area 4. flags 2: columns may depend on each other; the triangle's diagonal is -1 at a column that
 * depends on earlier ones. */
CORE void add_chol(MethodAt *f, int64_t n, unsigned flags)
{
    for (int64_t k = 0, w; k < n; k += w) {
        w = panel_at(n, k);
        int64_t first = k - k % FACTOR_WIDE,
                wide = n - k < FACTOR_WIDE ? n - k : (int64_t)FACTOR_WIDE;
        ProductSize before = {n - k, wide, k}, update = {n - k, w, k - first},
                    below = {n - k - w, w, w};
        if (k && k == first)
            part_product(f, at(3, k, 0), at(3, k, 0), at(2, k, k), before, TRANS_B, -1, 1);
        if (k > first)
            part_product(f, at(3, k, first), at(3, k, first), at(2, k, k), update, TRANS_B, -1, 1);
        CallStep *s = add_area_step(f, KERNEL_FACTOR_TILE, at(3, k, k), n, w);
        s->a = part_set(f, at(2, k, k));
        s->b = part_set(f, at(4, k, 0));
        s->flags = flags;
        s->alpha = (double)(n < 64 ? 64 : n) * 32 * DBL_EPSILON;
        if (below.m)
            part_product(f, at(2, k + w, k), at(4, k, 0), at(3, k + w, k), below, TRANS_B, 1, 0);
    }
}

/* Subtracts from the w columns (or rows) at k their products with the `done` solved ones from
 * `before` on. */
CORE void add_off(MethodAt *f, TriangleSolve z, int64_t k, int64_t w, int64_t before, int64_t done)
{
    /* the part of the triangle that connects them, as stored */
    Part tri = z.right == z.transposed ? at(z.t, k, before) : at(z.t, before, k);
    ProductSize right = {z.other, w, done}, left = {w, z.other, done};
    if (!done)
        return;
    if (z.right)
        part_product(f, at(z.to, 0, before), tri, at(z.from, 0, k), right,
                     z.transposed ? TRANS_B : 0, -1, 1);
    else
        part_product(f, tri, at(z.to, before, 0), at(z.from, k, 0), left,
                     z.transposed ? TRANS_A : 0, -1, 1);
}

CORE void add_solve(MethodAt *f, TriangleSolve z)
{
    bool forward = z.right == z.transposed;
    int64_t panels = count_up(z.n, FACTOR_PANEL);
    for (int64_t i = 0; i < panels; i++) {
        int64_t k = (forward ? i : panels - 1 - i) * FACTOR_PANEL, w = panel_at(z.n, k),
                first = k - k % FACTOR_WIDE;
        int64_t last = z.n - first < FACTOR_WIDE ? z.n : first + FACTOR_WIDE;
        ProductSize right = {z.other, w, w}, left = {w, z.other, w};
        if (forward ? k == first : k + w == last)
            add_off(f, z, first, last - first, forward ? 0 : last, forward ? first : z.n - last);
        add_off(f, z, k, w, forward ? first : k + w, forward ? k - first : last - k - w);
        if (z.right)
            part_product(f, at(z.from, 0, k), at(4, k, 0), at(z.to, 0, k), right,
                         z.transposed ? TRANS_B : 0, 1, 0);
        else
            part_product(f, at(4, k, 0), at(z.from, k, 0), at(z.to, k, 0), left,
                         z.transposed ? TRANS_A : 0, 1, 0);
    }
}

CORE void add_load(MethodAt *f, int array, int area, int64_t m, int64_t n, unsigned flags)
{
    int from = whole_set(f, array), to = part_set(f, at(area, 0, 0));
    CallStep *s = add_launch(f, KERNEL_FACTOR_LOAD, from, from, to, m, n);
    s->flags = flags;
    s->k = flags & 512 ? area_to_numbers(f, at(area, 0, 0)) : 0;
}

/* Counts the factor and stores its result. flags: of the kernels; of a QR also which matrices are
 * meant (gpu_qr.c) */
CORE void add_result(MethodAt *f, int area, int64_t m, int64_t n, unsigned flags)
{
    CallStep *s = add_area_step(f, KERNEL_FACTOR_STATS, at(area, 0, 0), m, n);
    s->b = stats_set(f);
    s->flags = flags & ~255u;
    s = add_area_step(f, KERNEL_FACTOR_STORE, at(area, 0, 0), m, n);
    s->flags = flags;
    store_result(f, s);
}

/* Stores a result that has no previous one, and checks it in the same pass. */
static void add_checked_store(MethodAt *f, int area, int64_t m, int64_t n)
{
    for (unsigned flags = 128; flags <= 256; flags *= 2) {
        CallStep *s = add_area_step(f, KERNEL_FACTOR_STORE, at(area, 0, 0), m, n);
        s->b = s->c = whole_set(f, f->call->out);
        s->alpha = FLT_MAX;
        s->flags = flags;
        if (flags == 128)
            add_area_step(f, KERNEL_FACTOR_STATS, at(area, 0, 0), m, n)->b = stats_set(f);
    }
}

CORE void add_store(MethodAt *f, int area, int64_t m, int64_t n, unsigned flags)
{
    CallStep *s = add_area_step(f, KERNEL_FACTOR_CHECK, at(area, 0, 0), m, n);
    s->alpha = result_most(f);
    s->flags = flags;
    add_result(f, area, m, n, flags);
}

static void chol_steps(MethodAt *f)
{
    add_load(f, f->call->a, 2, f->m, f->m, 64);
    add_chol(f, f->m, 0);
    add_store(f, 3, f->m, f->m, 64);
}

/* The same part of each of `pairs` pairs, which are `length` rows and columns apart. */
static Operand pair_operand(const MethodAt *f, Part p, int64_t pairs, int64_t length)
{
    const int64_t ld = f->x->area[f->areas + p.area].ld;
    return operand(parts_set(f, p, pairs, length * (ld + 1)), ld);
}

/* Pairs of triangles A, w rows, and D, v rows, follow one another on the diagonal from `first` on.
 * From their inverses this makes that of each pair: -D^-1 C A^-1 for the block C below A. No
 * operand is in the rows of a result. */
static void add_pairs(MethodAt *f, InverseAreas z, int64_t first, int64_t w, int64_t v,
                      int64_t pairs)
{
    const Operand a = pair_operand(f, at(z.inverse, first, first), pairs, 2 * w),
                  c = pair_operand(f, at(z.triangle, first + w, first), pairs, 2 * w),
                  d = pair_operand(f, at(z.inverse, first + w, first + w), pairs, 2 * w),
                  below = pair_operand(f, at(z.inverse, first + w, first), pairs, 2 * w),
                  between = pair_operand(f, at(z.between, first + w, first), pairs, 2 * w);
    const ProductSize dc = {v, w, v}, product = {v, w, w};
    add_product(f, d, c, between, dc, 0, 1, 0);
    add_product(f, between, a, below, product, 0, -1, 0);
}

/* Inverts the blocks of `most` rows on a triangle's diagonal, n rows in all: its tiles, then
 * triangles of 128 rows, 256 and so on. */
CORE void add_inverse(MethodAt *f, InverseAreas z, int64_t n, int64_t most)
{
    add_area_step(f, KERNEL_FACTOR_TILES, at(z.triangle, 0, 0), n, n)->b =
        part_set(f, at(z.inverse, 0, 0));
    for (int64_t w = FACTOR_PANEL; w < n && w < most; w *= 2) {
        int64_t pairs = n / (2 * w), left = n - pairs * 2 * w;
        if (pairs)
            add_pairs(f, z, 0, w, w, pairs);
        if (left > w)
            add_pairs(f, z, pairs * 2 * w, w, left - w, 1);
    }
}

/* Area 2 = the right-hand sides in area 1 multiplied by the inverse in area 0, without the zeros in
 * it. */
static void add_times_inverse(MethodAt *f, TriangleSolve z)
{
    bool forward = z.right == z.transposed;
    for (int64_t k = 0, w; k < z.n; k += w) {
        w = z.n - k < INVERSE_PANEL ? z.n - k : (int64_t)INVERSE_PANEL;
        int64_t from = forward ? 0 : k, terms = forward ? k + w : z.n - k;
        Part tri = at(0, k, from);
        ProductSize right = {z.other, w, terms}, left = {w, z.other, terms};
        if (z.right)
            part_product(f, at(1, 0, from), tri, at(2, 0, k), right, z.transposed ? TRANS_B : 0, 1,
                         0);
        else
            part_product(f, tri, at(1, from, 0), at(2, k, 0), left, z.transposed ? TRANS_A : 0, 1,
                         0);
    }
}

static void solve_steps(MethodAt *f, bool by_inverse)
{
    bool right = (f->call->flags & FROM_RIGHT) != 0;
    int64_t down = right ? f->n : f->m, across = right ? f->m : f->n;
    TriangleSolve z = {0, 1, 2, right, (f->call->flags & TRANS_A) != 0, f->m, f->n};
    InverseAreas whole = {0, 0, 2};
    add_load(f, f->call->a, 0, f->m, f->m, 64 | 512);
    add_load(f, f->call->b, 1, down, across, 512);
    if (by_inverse) {
        add_inverse(f, whole, f->m, f->m);
        add_times_inverse(f, z);
    } else {
        add_area_step(f, KERNEL_FACTOR_TILES, at(0, 0, 0), FACTOR_PANEL, f->m)->b =
            part_set(f, at(4, 0, 0));
        add_solve(f, z);
    }
    if (f->call->c < 0 && !stores_f64(f))
        add_checked_store(f, 2, down, across);
    else
        add_store(f, 2, down, across, 0);
}

static void substitution_steps(MethodAt *f) { solve_steps(f, false); }
static void times_inverse_steps(MethodAt *f) { solve_steps(f, true); }

/* area 2 = x.T x: the lower triangle, or the whole matrix (POWER: m and n are equal) */
CORE void add_gram(MethodAt *f, int x, bool whole)
{
    symmetric_product(f, x, x, 2, f->n, f->m, 1, TRANS_A | (whole ? 0 : LOWER));
}

static void inverse_steps(MethodAt *f)
{
    TriangleSolve z = {3, 0, 1, false, false, f->m, f->m};
    ProductSize all = {f->m, f->m, f->m};
    add_load(f, f->call->a, 2, f->m, f->m, 64);
    add_chol(f, f->m, 0);
    add_load(f, f->call->a, 0, f->m, f->m, 256);
    add_solve(f, z);
    add_gram(f, 1, true);
    add_load(f, f->call->a, 0, f->m, f->m, 128);
    part_product(f, at(2, 0, 0), at(0, 0, 0), at(3, 0, 0), all, 0, 1, 0);
    add_area_step(f, KERNEL_FACTOR_ONE, at(3, 0, 0), f->m, f->m)->c = part_set(f, at(1, 0, 0));
    add_area_step(f, KERNEL_FACTOR_JUDGE, at(1, 0, 0), f->m, f->m)->alpha = inverse_off;
    add_store(f, 2, f->m, f->m, 0);
}

/* The rows that it names have the same ratio to the columns. */
static optc_status out_of_reach(const MethodAt *f)
{
    const double scale = sqrt((double)INT_MAX / (double)f->reach);
    char why[300];
    snprintf(
        why, sizeof why,
        "one matrix needs %lld values of working memory, and kernels reach %d, enough for about "
        "%lld x %lld; choose a smaller `limit`, or divide the tensor into blocks",
        (long long)f->reach, INT_MAX, (long long)((double)f->m * scale),
        (long long)((double)f->n * scale));
    return too_long(f, why);
}

static optc_status build_factor(MethodAt *f, void (*steps)(MethodAt *f))
{
    int64_t values[AREAS], ld[AREAS];
    factor_areas(f->call, f->m, f->n, values, ld);
    optc_status s = add_record(f, values, ld, (int)sizeof(double));
    if (s != OPTC_OK)
        return s;
    add_area_step(f, KERNEL_FACTOR_START, at(4, 0, 0), 1, 1);
    steps(f);
    return f->reach > INT_MAX ? out_of_reach(f) : OPTC_OK;
}

CORE optc_status build_chol(MethodAt *f) { return build_factor(f, chol_steps); }
CORE optc_status build_solve(MethodAt *f) { return build_factor(f, substitution_steps); }
CORE optc_status build_solve_inverse(MethodAt *f) { return build_factor(f, times_inverse_steps); }
CORE optc_status build_inverse(MethodAt *f) { return build_factor(f, inverse_steps); }
CORE optc_status build_qr(MethodAt *f) { return build_factor(f, qr_steps); }

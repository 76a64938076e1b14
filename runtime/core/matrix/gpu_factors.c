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

static Factor factor_in(const optc_binding *b, GpuCalls *x, const ProgStage *s, int group,
                        Shape shape)
{
    Factor f = {b, x, s, s->call, group, 0, 0, {0}, true, 0};
    factor_sides(b->program, s->call, shape, &f.m, &f.n);
    return f;
}

/* A solve of at least as many right-hand sides as the triangle has rows multiplies them by the
 * triangle's inverse. A substitution moves about 110 bytes per value, mostly for products over 64
 * terms, and this about 50. Errors grow with the condition number of the whole triangle instead of
 * that of its tiles. Results in f64 would show this, so they are computed by substitution. The
 * choice depends on the shape and the type alone. */
enum { INVERTED_MOST = 2048 };
CORE bool solves_by_inverse(const MethodAt *f)
{
    return f->n > FACTOR_PANEL && f->n <= INVERTED_MOST && f->cols >= f->n && !f->f64 &&
           f->library;                                     /* our own product takes no pairs */
}

/* Values of each area, and its row stride */
static void areas_of(const Factor *f, int64_t *values, int64_t *ld)
{
    Callee c = f->call->callee;
    int64_t side = c == CALL_QR ? f->n : f->m, down = f->m, across = c == CALL_CHOL ? 0 : f->n;
    bool right = (f->call->flags & FROM_RIGHT) != 0;
    /* row stride of the right-hand sides */
    int64_t wide = right ? f->m : across;
    const int64_t square = dom_times(side, side), all = dom_times(down, across);
    bool qr = c == CALL_QR, solve = c == CALL_SOLVE;
    const int64_t length[AREAS] = {qr               ? all
                                   : c == CALL_CHOL ? 0
                                                    : square,
                                   all, solve ? all : square, solve ? 0 : square,
                                   dom_times(side, FACTOR_PANEL)};
    const int64_t row[AREAS] = {qr ? across : side, qr ? across : wide, solve ? wide : side, side,
                                FACTOR_PANEL};
    for (int i = 0; i < AREAS; i++) {
        values[i] = (length[i] + 31) / 32 * 32;
        ld[i] = row[i];
    }
}

CORE int64_t factor_record(const optc_binding *b, const ProgStage *s, Shape shape)
{
    Factor f = factor_in(b, NULL, s, 0, shape);
    int64_t values[AREAS], ld[AREAS], all = RECORD_NUMBERS;
    areas_of(&f, values, ld);
    for (int i = 0; i < AREAS; i++)
        all = values[i] > INT64_MAX / 64 ? INT64_MAX / 64 : all + values[i];
    return f.m && f.n ? dom_times(all, (int64_t)sizeof(double)) : 0;
}

/* Upper bounds. Steps of a panel: three for a triangle, two for its right-hand sides, one for a
 * tile of its own; two more for every eight panels. 24 others of a round: Gram matrix, at most 10
 * steps for inverses of blocks, check, result. */
CORE void factor_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets)
{
    Factor f = factor_in(b, NULL, s, 0, shape);
    int64_t panels = count_up(f.m > f.n ? f.m : f.n, FACTOR_PANEL),
            rounds = s->call->callee == CALL_QR ? SHORT_ROUNDS + ROUNDS : 1;
    int64_t n = 16 + rounds * (24 + 7 * panels);
    *steps = n < INT_MAX / 8 ? (int)n : INT_MAX / 8;
    *sets = *steps * 3;
}

/* ---- steps ---- */
CORE int part_set(const Factor *f, Part p)
{
    return whole_set(f->x, AREA(p.area), f->group, p.row * f->ld[p.area] + p.col);
}

CORE CallStep *add_kernel_step(Factor *f, CallKernel kernel, int a, int c, int64_t m, int64_t n)
{
    CallStep *s = add_step(f->x, kernel, call_type_f64(), f->group);
    const CallGroup *g = &f->x->group[f->group];
    int64_t blocks = kernel_blocks(kernel, m, n, false);
    s->a = s->b = a;
    s->c = c;
    s->m = m;
    s->n = n;
    s->own = true;
    s->blocks = (unsigned)blocks;
    f->fits = f->fits && dom_times(blocks, dom_times(g->n, g->shape.slices)) <= MOST_BLOCKS &&
              m <= INT_MAX && n <= INT_MAX;
    return s;
}

/* offset from p to the record's numbers */
static int64_t to_numbers(Factor *f, Part p)
{
    int64_t k = f->x->numbers - f->x->area[p.area] - p.row * f->ld[p.area] - p.col;
    f->reach = k > f->reach ? k : f->reach;
    return k;
}

CORE CallStep *add_area_step(Factor *f, CallKernel kernel, Part p, int64_t m, int64_t n)
{
    int set = part_set(f, p);
    CallStep *s = add_kernel_step(f, kernel, set, set, m, n);
    s->k = to_numbers(f, p);
    return s;
}

CORE CallStep *part_product(Factor *f, Part a, Part b, Part c, ProductSize z, unsigned transpose,
                            double alpha, double beta)
{
    CallStep *s = add_step(f->x, KERNEL_MM_F64, call_type_f64(), f->group);
    const CallGroup *g = &f->x->group[f->group];
    int64_t blocks = kernel_blocks(s->kernel, z.m, z.n, false);
    s->a = part_set(f, a);
    s->b = part_set(f, b);
    s->c = part_set(f, c);
    s->m = z.m;
    s->n = z.n;
    s->k = z.k;
    s->lda = f->ld[a.area];
    s->ldb = f->ld[b.area];
    s->ldc = f->ld[c.area];
    s->flags = transpose;
    s->alpha = alpha;
    s->beta = beta;
    s->own = !f->x->library;
    s->blocks = (unsigned)blocks;
    f->fits = f->fits && dom_times(blocks, dom_times(g->n, g->shape.slices)) <= MOST_BLOCKS;
    return s;
}

static int64_t panel_at(int64_t n, int64_t k)
{
    return n - k < FACTOR_PANEL ? n - k : (int64_t)FACTOR_PANEL;
}

/* Area 3 = the triangle of area 2, whose lower half is overwritten; the inverses of its tiles go to
 * area 4. flags 2: columns may depend on each other; the triangle's diagonal is -1 at a column that
 * depends on earlier ones. */
CORE void add_chol(Factor *f, int64_t n, unsigned flags)
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
CORE void add_off(Factor *f, TriangleSolve z, int64_t k, int64_t w, int64_t before, int64_t done)
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

CORE void add_solve(Factor *f, TriangleSolve z)
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

CORE void add_load(Factor *f, int array, int area, int64_t m, int64_t n, unsigned flags)
{
    int from = whole_set(f->x, array, f->group, 0), to = part_set(f, at(area, 0, 0));
    CallStep *s = add_kernel_step(f, KERNEL_FACTOR_LOAD, from, to, m, n);
    s->flags = flags;
    s->k = flags & 512 ? to_numbers(f, at(area, 0, 0)) : 0;
}

/* Counts the factor and stores its result. flags: of the kernels; of a QR also which matrices are
 * meant (gpu_qr.c) */
CORE void add_result(Factor *f, int area, int64_t m, int64_t n, unsigned flags)
{
    const ProgCall *c = f->call;
    CallStep *s = add_area_step(f, KERNEL_FACTOR_STATS, at(area, 0, 0), m, n);
    s->b = factor_stats_set(f->x, f->b, f->stage, f->group);
    s->flags = flags & ~255u;
    s = add_area_step(f, KERNEL_FACTOR_STORE, at(area, 0, 0), m, n);
    s->c = whole_set(f->x, c->out, f->group, 0);
    s->b = c->c >= 0 ? whole_set(f->x, c->c, f->group, 0) : s->c;
    s->flags = flags | (c->c < 0 ? 0u : c->c == c->out ? 3u : 1u);
}

/* Stores a result that has no previous one, and checks it in the same pass. */
static void add_checked_store(Factor *f, int area, int64_t m, int64_t n)
{
    int stats = factor_stats_set(f->x, f->b, f->stage, f->group);
    for (unsigned flags = 128; flags <= 256; flags *= 2) {
        CallStep *s = add_area_step(f, KERNEL_FACTOR_STORE, at(area, 0, 0), m, n);
        s->b = s->c = whole_set(f->x, f->call->out, f->group, 0);
        s->alpha = FLT_MAX;
        s->flags = flags;
        if (flags == 128)
            add_area_step(f, KERNEL_FACTOR_STATS, at(area, 0, 0), m, n)->b = stats;
    }
}

CORE bool stores_f64(const Factor *f)
{
    return f->b->program->array[f->call->out].type == (int)T_F64;
}

CORE void add_store(Factor *f, int area, int64_t m, int64_t n, unsigned flags)
{
    CallStep *s = add_area_step(f, KERNEL_FACTOR_CHECK, at(area, 0, 0), m, n);
    s->alpha = stores_f64(f) ? DBL_MAX : FLT_MAX;
    s->flags = flags;
    add_result(f, area, m, n, flags);
}

static void chol_steps(Factor *f)
{
    add_load(f, f->call->a, 2, f->m, f->m, 64);
    add_chol(f, f->m, 0);
    add_store(f, 3, f->m, f->m, 64);
}

/* The same part of each of `pairs` pairs, which are `length` rows and columns apart. */
static int pairs_set(const Factor *f, Part p, int64_t pairs, int64_t length)
{
    return parts_set(f->x, AREA(p.area), f->group, p.row * f->ld[p.area] + p.col, (int)pairs,
                     length * (f->ld[p.area] + 1));
}

/* Pairs of triangles A, w rows, and D, v rows, follow one another on the diagonal from `first` on.
 * From their inverses this makes that of each pair: -D^-1 C A^-1 for the block C below A. No
 * operand is in the rows of a result. */
static void add_pairs(Factor *f, InverseAreas z, int64_t first, int64_t w, int64_t v, int64_t pairs)
{
    Part a = at(z.inverse, first, first), c = at(z.triangle, first + w, first),
         d = at(z.inverse, first + w, first + w), below = at(z.inverse, first + w, first),
         between = at(z.between, first + w, first);
    for (int i = 0; i < 2 && pairs; i++) {
        Part left = i ? between : d, right = i ? a : c, to = i ? below : between;
        ProductSize size = {v, w, i ? w : v};
        CallStep *s = part_product(f, left, right, to, size, 0, i ? -1 : 1, 0);
        s->a = pairs_set(f, left, pairs, 2 * w);
        s->b = pairs_set(f, right, pairs, 2 * w);
        s->c = pairs_set(f, to, pairs, 2 * w);
    }
}

/* Inverts the blocks of `most` rows on a triangle's diagonal, n rows in all: its tiles, then
 * triangles of 128 rows, 256 and so on. */
CORE void add_inverse(Factor *f, InverseAreas z, int64_t n, int64_t most)
{
    add_area_step(f, KERNEL_FACTOR_TILES, at(z.triangle, 0, 0), n, n)->b =
        part_set(f, at(z.inverse, 0, 0));
    for (int64_t w = FACTOR_PANEL; w < n && w < most; w *= 2) {
        int64_t pairs = n / (2 * w), left = n - pairs * 2 * w;
        add_pairs(f, z, 0, w, w, pairs);
        if (left > w)
            add_pairs(f, z, pairs * 2 * w, w, left - w, 1);
    }
}

/* Area 2 = the right-hand sides in area 1 multiplied by the inverse in area 0, without the zeros in
 * it. */
static void add_times_inverse(Factor *f, TriangleSolve z)
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

static void solve_steps(Factor *f, bool by_inverse)
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

static void substitution_steps(Factor *f) { solve_steps(f, false); }
static void times_inverse_steps(Factor *f) { solve_steps(f, true); }

/* area 2 = x.T x: the lower triangle, or the whole matrix (POWER: m and n are equal) */
CORE void add_gram(Factor *f, int x, bool whole)
{
    ProgCall c;
    ProductShape z;
    memset(&c, 0, sizeof c);
    c.flags = SYMMETRIC | TRANS_A | (whole ? 0 : LOWER);
    c.a = c.b = AREA(x);
    c.c = -1;
    c.out = AREA(2);
    c.alpha = 1;
    z.slices = 1;
    z.m = z.n = f->n;
    z.k = f->m;
    z.ld[0] = z.ld[1] = f->ld[x];
    z.ld[2] = z.ld[3] = f->ld[2];
    f->fits =
        product_steps(f->b, f->x, call_type_f64(), &c, f->group, z, !f->x->library) && f->fits;
}

static void inverse_steps(Factor *f)
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
static optc_status out_of_reach(const Factor *f)
{
    const double scale = sqrt((double)INT_MAX / (double)f->reach);
    char why[300];
    snprintf(
        why, sizeof why,
        "one matrix needs %lld values of working memory, and kernels reach %d, enough for about "
        "%lld x %lld; choose a smaller `limit`, or divide the tensor into blocks",
        (long long)f->reach, INT_MAX, (long long)((double)f->m * scale),
        (long long)((double)f->n * scale));
    return too_long(f->b, f->stage, &f->x->group[f->group], why);
}

static optc_status build_factor(const MethodAt *of, void (*steps)(Factor *f))
{
    GpuCalls *x = of->x;
    const Shape shape = x->group[of->group].shape;
    Factor f = factor_in(of->b, x, of->stage, of->group, shape);
    int64_t values[AREAS];
    int first = x->nstep;
    areas_of(&f, values, f.ld);
    x->numbers = 0;
    for (int i = 0; i < AREAS; i++) {
        x->area[i] = x->numbers;
        x->area_ld[i] = f.ld[i];
        x->numbers += values[i];
    }
    x->record = factor_record(of->b, of->stage, shape);
    x->value_bytes = (int)sizeof(double);
    add_area_step(&f, KERNEL_FACTOR_START, at(4, 0, 0), 1, 1);
    steps(&f);
    for (int i = first; i < x->nstep; i++)
        x->step[i].at_once = x->room_bytes / x->record;
    x->record = 0;
    return f.reach > INT_MAX ? out_of_reach(&f) : steps_fit(of, f.fits);
}

CORE optc_status build_chol(const MethodAt *f) { return build_factor(f, chol_steps); }
CORE optc_status build_solve(const MethodAt *f) { return build_factor(f, substitution_steps); }
CORE optc_status build_solve_inverse(const MethodAt *f)
{
    return build_factor(f, times_inverse_steps);
}
CORE optc_status build_inverse(const MethodAt *f) { return build_factor(f, inverse_steps); }
CORE optc_status build_qr(const MethodAt *f) { return build_factor(f, qr_steps); }

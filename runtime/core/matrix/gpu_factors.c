/* Cholesky, QR, triangular solves and inverses in f64 on a GPU.
 *
 * Factors are computed in f64 whatever type the matrices are stored in, by panels of 64 columns: a kernel factors a
 * panel's tile and inverts it, and everything else is products. Products with all earlier panels are subtracted for
 * eight panels at a time, since 64 columns of one large matrix do not keep a GPU busy. Each matrix has a record, in the
 * same memory as the records of roots:
 *   area 0   SOLVE: the triangle, or its inverse, QR: x, POWER: 1, then a
 *   area 1   QR: q, SOLVE: the right-hand sides, POWER: the triangle's inverse
 *   area 2   the matrix to factor: CHOL's and POWER's copy of a, QR's Gram matrix; SOLVE, POWER: the result
 *   area 3   the triangle; POWER: at the end the result times a
 *   area 4   inverses of its tiles, 64 columns of them
 * POWER is the inverse of a matrix with positive eigenvalues (inverse_by_triangle): L L.T = a, X = L^-T L^-1. It is
 * refused if there is no L, or if X a differs from 1 by more than inverse_off. Eigenvectors would take about ten times
 * as many operations.
 * QR is Cholesky QR in rounds, each by the triangle of the columns' Gram matrix. A matrix that is not stored in f64 and
 * whose columns are orthonormal within settled_off after a round is settled: the result of that round is stored. Large
 * matrices are checked with random vectors for that. A graph runs further rounds only if there are matrices that are
 * not settled (gpu_conditional.c). In the order in which they run:
 *   1. Rules whose graphs have conditional nodes first try one round, then two, with the diagonal of the Gram matrix as
 *      it is (add_short_rounds). Most bases of a power iteration have columns of very different lengths but not close
 *      to each other, and Cholesky's errors do not depend on lengths. The second round is for matrices that it will
 *      settle.
 *   2. Two rounds that start again from the matrix: the first with the diagonal slightly raised, the second as it is. A
 *      column that depends on earlier ones, or is zero, shows in the second: only rounding errors are left of it. Its
 *      row of the triangle is zero, so any column may replace it; one of random numbers does, which the third round
 *      makes orthogonal to the others.
 *   3. A third round for matrices that are not settled. Its Gram matrix decides whether the result is accepted.
 * If the third round fails (huge and tiny values, nothing but zeros), one thread block computes Householder reflections
 * from the original matrix; blocks of other matrices return at once. That block reads the matrix as often as it has
 * columns, by its bytes a tenth of a second at 1024 and minutes at 3000, so larger matrices keep the previous result if
 * the call names one. If reflections fail too, the result is NaN, or the previous one. */
#include "runtime/core/matrix/gpu_calls.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { FACTOR_PANEL = 64, FACTOR_WIDE = 8 * FACTOR_PANEL, SHORT_ROUNDS = 2, ROUNDS = 3 };
static const double columns_off = 1e-6, reflected_most = 0x1p30, inverse_off = 0.05;      /* as roots: root_off */
/* Rounding a result of m x n to f32 moves its Gram matrix by about 2^-25 n / sqrt(m): 1e-6 at 1024 x 1024. A quarter of
 * that adds 3 % to the error. Of 200 bases of a small transformer under SOAP (ten matrices, every tenth of 200 steps,
 * emulated) two rounds settled 197 within 1e-7, most at 1e-14. One round leaves 1e-13 to 1e-9 where each step has a new
 * gradient (NumPy, 768 columns, spectrum over 4 decades), and 2e-9 to 1e-7 for the fixed gradient of 768 x 3072 that
 * `optc bench` has, whose Gram matrix has rank 768. */
static double settled_off(int64_t m, int64_t n)
{
    return fmin(columns_off, 0x1p-27 * (double)n / sqrt((double)m));
}
/* flags of some steps: for settled matrices only, and for the others */
static const unsigned for_settled = 1024, for_open = 2048;

typedef struct Factor {
    const optc_binding *b;
    GpuCalls *x;
    const ProgStage *stage;
    const ProgCall *call;
    int group;
    int64_t m, n;  /* QR: the matrix; else the triangle's side, and the number of right-hand sides */
    int64_t ld[AREAS];
    bool fits;
} Factor;
typedef struct Part { int area; int64_t row, col; } Part;          /* position in an area */

CORE bool is_factor(const ProgStage *s)
{
    return stage_takes(s, FOR_PANEL);
}

static Factor factor_in(const optc_binding *b, GpuCalls *x, const ProgStage *s, int group, Shape shape)
{
    Factor f = {b, x, s, s->call, group, 0, 0, {0}, true};
    factor_sides(b->program, s->call, shape, &f.m, &f.n);
    return f;
}

/* A solve of at least as many right-hand sides as the triangle has rows multiplies them by the triangle's inverse. A
 * substitution moves about 110 bytes per value, mostly for products over 64 terms, and this about 50. Errors grow with
 * the condition number of the whole triangle instead of that of its tiles. Results in f64 would show this, so they are
 * computed by substitution. The choice depends on the shape and the type alone. */
enum { INVERTED_MOST = 2048, INVERSE_PANEL = 256 };
static bool solves_by_inverse(const Factor *f)
{
    return f->call->callee == CALL_SOLVE && f->m > FACTOR_PANEL && f->m <= INVERTED_MOST && f->n >= f->m &&
           f->b->program->array[f->call->out].type != (int)T_F64;
}

/* Values of each area, and its row stride */
static void areas_of(const Factor *f, int64_t *values, int64_t *ld)
{
    Callee c = f->call->callee;
    int64_t side = c == CALL_QR ? f->n : f->m, down = f->m, across = c == CALL_CHOL ? 0 : f->n;
    bool right = (f->call->flags & FROM_RIGHT) != 0;
    int64_t wide = right ? f->m : across;                      /* row stride of the right-hand sides */
    const int64_t square = dom_times(side, side), all = dom_times(down, across);
    bool qr = c == CALL_QR, solve = c == CALL_SOLVE;
    const int64_t length[AREAS] = {qr ? all : c == CALL_CHOL ? 0 : square, all, solve ? all : square,
                                   solve ? 0 : square,
                                   dom_times(side, FACTOR_PANEL)};
    const int64_t row[AREAS] = {qr ? across : side, qr ? across : wide, solve ? wide : side, side, FACTOR_PANEL};
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

/* Upper bounds. Steps of a panel: three for a triangle, two for its right-hand sides, one for a tile of its own; two
 * more for every eight panels. 24 others of a round: Gram matrix, at most 10 steps for inverses of blocks, check,
 * result. */
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
static int part_set(const Factor *f, Part p)
{
    return whole_set(f->x, AREA(p.area), f->group, p.row * f->ld[p.area] + p.col);
}

static CallStep *own_of(Factor *f, CallKernel kernel, int a, int c, int64_t m, int64_t n)
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
    f->fits = f->fits && dom_times(blocks, dom_times(g->n, g->shape.slices)) <= MOST_BLOCKS && m <= INT_MAX &&
              n <= INT_MAX;
    return s;
}

static int64_t to_numbers(Factor *f, Part p)                       /* offset from p to the record's numbers */
{
    int64_t k = f->x->numbers - f->x->area[p.area] - p.row * f->ld[p.area] - p.col;
    f->fits = f->fits && k <= INT_MAX;
    return k;
}

static CallStep *on_area(Factor *f, CallKernel kernel, Part p, int64_t m, int64_t n)
{
    int set = part_set(f, p);
    CallStep *s = own_of(f, kernel, set, set, m, n);
    s->k = to_numbers(f, p);
    return s;
}

typedef struct Shaped { int64_t m, n, k; } Shaped;

/* c = alpha a b + beta c; transpose: ProductFlag that transposes an operand */
static CallStep *part_product(Factor *f, Part a, Part b, Part c, Shaped z, unsigned transpose, double alpha,
                              double beta)
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

static Part at(int area, int64_t row, int64_t col)
{
    Part p = {area, row, col};
    return p;
}

static int64_t panel_at(int64_t n, int64_t k) { return n - k < FACTOR_PANEL ? n - k : (int64_t)FACTOR_PANEL; }

/* Area 3 = the triangle of area 2, whose lower half is overwritten; the inverses of its tiles go to area 4. flags 2:
 * columns may depend on each other; the diagonal is then -1. */
static void add_chol(Factor *f, int64_t n, unsigned flags)
{
    for (int64_t k = 0, w; k < n; k += w) {
        w = panel_at(n, k);
        int64_t first = k - k % FACTOR_WIDE, wide = n - k < FACTOR_WIDE ? n - k : (int64_t)FACTOR_WIDE;
        Shaped before = {n - k, wide, k}, update = {n - k, w, k - first}, below = {n - k - w, w, w};
        if (k && k == first)
            part_product(f, at(3, k, 0), at(3, k, 0), at(2, k, k), before, TRANS_B, -1, 1);
        if (k > first)
            part_product(f, at(3, k, first), at(3, k, first), at(2, k, k), update, TRANS_B, -1, 1);
        CallStep *s = on_area(f, KERNEL_FACTOR_TILE, at(3, k, k), n, w);
        s->a = part_set(f, at(2, k, k));
        s->b = part_set(f, at(4, k, 0));
        s->flags = flags;
        s->alpha = (double)(n < 64 ? 64 : n) * 32 * DBL_EPSILON;
        if (below.m)
            part_product(f, at(2, k + w, k), at(4, k, 0), at(3, k + w, k), below, TRANS_B, 1, 0);
    }
}

/* Solves for the right-hand sides in area `from`, which are overwritten, by the triangle in area t; the result goes to
 * area `to`. For each panel: subtract the products with solved panels, multiply by its tile's inverse. */
typedef struct Solved { int t, from, to; bool right, transposed; int64_t n, other; } Solved;

/* Subtracts from the w columns (or rows) at k their products with the `done` solved ones from `before` on. */
static void add_off(Factor *f, Solved z, int64_t k, int64_t w, int64_t before, int64_t done)
{
    /* the part of the triangle that connects them, as stored */
    Part tri = z.right == z.transposed ? at(z.t, k, before) : at(z.t, before, k);
    Shaped right = {z.other, w, done}, left = {w, z.other, done};
    if (!done)
        return;
    if (z.right)
        part_product(f, at(z.to, 0, before), tri, at(z.from, 0, k), right, z.transposed ? TRANS_B : 0, -1, 1);
    else
        part_product(f, tri, at(z.to, before, 0), at(z.from, k, 0), left, z.transposed ? TRANS_A : 0, -1, 1);
}

static void add_solve(Factor *f, Solved z)
{
    bool forward = z.right == z.transposed;
    int64_t panels = count_up(z.n, FACTOR_PANEL);
    for (int64_t i = 0; i < panels; i++) {
        int64_t k = (forward ? i : panels - 1 - i) * FACTOR_PANEL, w = panel_at(z.n, k), first = k - k % FACTOR_WIDE;
        int64_t last = z.n - first < FACTOR_WIDE ? z.n : first + FACTOR_WIDE;
        Shaped right = {z.other, w, w}, left = {w, z.other, w};
        if (forward ? k == first : k + w == last)
            add_off(f, z, first, last - first, forward ? 0 : last, forward ? first : z.n - last);
        add_off(f, z, k, w, forward ? first : k + w, forward ? k - first : last - k - w);
        if (z.right)
            part_product(f, at(z.from, 0, k), at(4, k, 0), at(z.to, 0, k), right, z.transposed ? TRANS_B : 0, 1, 0);
        else
            part_product(f, at(4, k, 0), at(z.from, k, 0), at(z.to, k, 0), left, z.transposed ? TRANS_A : 0, 1, 0);
    }
}

static void add_load(Factor *f, int array, int area, int64_t m, int64_t n, unsigned flags)
{
    CallStep *s = own_of(f, KERNEL_FACTOR_LOAD, whole_set(f->x, array, f->group, 0), part_set(f, at(area, 0, 0)), m, n);
    s->flags = flags;
    s->k = flags & 512 ? to_numbers(f, at(area, 0, 0)) : 0;
}

/* Counts and stores; flags: of the kernels, and for_settled or for_open */
static void add_result(Factor *f, int area, int64_t m, int64_t n, unsigned flags)
{
    const ProgCall *c = f->call;
    CallStep *s = on_area(f, KERNEL_FACTOR_STATS, at(area, 0, 0), m, n);
    s->b = factor_stats_set(f->x, f->b, f->stage, f->group);
    s->flags = flags & ~255u;
    s = on_area(f, KERNEL_FACTOR_STORE, at(area, 0, 0), m, n);
    s->c = whole_set(f->x, c->out, f->group, 0);
    s->b = c->c >= 0 ? whole_set(f->x, c->c, f->group, 0) : s->c;
    s->flags = flags | (c->c < 0 ? 0u : c->c == c->out ? 3u : 1u);
}

/* Stores a result that has no previous one, and checks it in the same pass. */
static void add_checked_store(Factor *f, int area, int64_t m, int64_t n)
{
    for (unsigned flags = 128; flags <= 256; flags *= 2) {
        CallStep *s = on_area(f, KERNEL_FACTOR_STORE, at(area, 0, 0), m, n);
        s->b = s->c = whole_set(f->x, f->call->out, f->group, 0);
        s->alpha = FLT_MAX;
        s->flags = flags;
        if (flags == 128)
            on_area(f, KERNEL_FACTOR_STATS, at(area, 0, 0), m, n)->b = factor_stats_set(f->x, f->b, f->stage, f->group);
    }
}

static bool stores_f64(const Factor *f) { return f->b->program->array[f->call->out].type == (int)T_F64; }

static void add_store(Factor *f, int area, int64_t m, int64_t n, unsigned flags)
{
    CallStep *s = on_area(f, KERNEL_FACTOR_CHECK, at(area, 0, 0), m, n);
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

/* The areas of a triangle, of inverses of blocks on its diagonal, and of products between. The triangle's area may be
 * that of the inverses. */
typedef struct InverseAreas { int triangle, inverse, between; } InverseAreas;

/* Pairs of triangles A, w rows, and D, v rows, follow one another on the diagonal from `first` on. From their inverses
 * this makes that of each pair: -D^-1 C A^-1 for the block C below A. No operand is in the rows of a result. */
static void add_pairs(Factor *f, InverseAreas z, int64_t first, int64_t w, int64_t v, int64_t pairs)
{
    Part a = at(z.inverse, first, first), c = at(z.triangle, first + w, first), d = at(z.inverse, first + w, first + w),
         below = at(z.inverse, first + w, first), between = at(z.between, first + w, first);
    for (int i = 0; i < 2 && pairs; i++) {
        Part left = i ? between : d, right = i ? a : c, to = i ? below : between;
        Shaped size = {v, w, i ? w : v};
        CallStep *s = part_product(f, left, right, to, size, 0, i ? -1 : 1, 0);
        s->a = pairs_set(f, left, pairs, 2 * w);
        s->b = pairs_set(f, right, pairs, 2 * w);
        s->c = pairs_set(f, to, pairs, 2 * w);
    }
}

/* Inverts the blocks of `most` rows on a triangle's diagonal, n rows in all: its tiles, then triangles of 128 rows, 256
 * and so on. */
static void add_inverse(Factor *f, InverseAreas z, int64_t n, int64_t most)
{
    on_area(f, KERNEL_FACTOR_TILES, at(z.triangle, 0, 0), n, n)->b = part_set(f, at(z.inverse, 0, 0));
    for (int64_t w = FACTOR_PANEL; w < n && w < most; w *= 2) {
        int64_t pairs = n / (2 * w), left = n - pairs * 2 * w;
        add_pairs(f, z, 0, w, w, pairs);
        if (left > w)
            add_pairs(f, z, pairs * 2 * w, w, left - w, 1);
    }
}

/* Area 2 = the right-hand sides in area 1 multiplied by the inverse in area 0, without the zeros in it. */
static void add_times_inverse(Factor *f, Solved z)
{
    bool forward = z.right == z.transposed;
    for (int64_t k = 0, w; k < z.n; k += w) {
        w = z.n - k < INVERSE_PANEL ? z.n - k : (int64_t)INVERSE_PANEL;
        int64_t from = forward ? 0 : k, terms = forward ? k + w : z.n - k;
        Part tri = at(0, k, from);
        Shaped right = {z.other, w, terms}, left = {w, z.other, terms};
        if (z.right)
            part_product(f, at(1, 0, from), tri, at(2, 0, k), right, z.transposed ? TRANS_B : 0, 1, 0);
        else
            part_product(f, tri, at(1, from, 0), at(2, k, 0), left, z.transposed ? TRANS_A : 0, 1, 0);
    }
}

static void solve_steps(Factor *f)
{
    bool right = (f->call->flags & FROM_RIGHT) != 0;
    int64_t down = right ? f->n : f->m, across = right ? f->m : f->n;
    Solved z = {0, 1, 2, right, (f->call->flags & TRANS_A) != 0, f->m, f->n};
    InverseAreas whole = {0, 0, 2};
    add_load(f, f->call->a, 0, f->m, f->m, 64 | 512);
    add_load(f, f->call->b, 1, down, across, 512);
    if (solves_by_inverse(f) && f->x->library) {           /* our own product takes no pairs */
        add_inverse(f, whole, f->m, f->m);
        add_times_inverse(f, z);
    } else {
        on_area(f, KERNEL_FACTOR_TILES, at(0, 0, 0), FACTOR_PANEL, f->m)->b = part_set(f, at(4, 0, 0));
        add_solve(f, z);
    }
    if (f->call->c < 0 && !stores_f64(f))
        add_checked_store(f, 2, down, across);
    else
        add_store(f, 2, down, across, 0);
}

/* area 2 = x.T x: the lower triangle, or the whole matrix (POWER: m and n are equal) */
static void add_gram(Factor *f, int x, bool whole)
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
    f->fits = product_steps(f->b, f->x, call_type_f64(), &c, f->group, z, !f->x->library) && f->fits;
}

static void inverse_steps(Factor *f)
{
    Solved z = {3, 0, 1, false, false, f->m, f->m};
    Shaped all = {f->m, f->m, f->m};
    add_load(f, f->call->a, 2, f->m, f->m, 64);
    add_chol(f, f->m, 0);
    add_load(f, f->call->a, 0, f->m, f->m, 256);
    add_solve(f, z);
    add_gram(f, 1, true);
    add_load(f, f->call->a, 0, f->m, f->m, 128);
    part_product(f, at(2, 0, 0), at(0, 0, 0), at(3, 0, 0), all, 0, 1, 0);
    on_area(f, KERNEL_FACTOR_ONE, at(3, 0, 0), f->m, f->m)->c = part_set(f, at(1, 0, 0));
    on_area(f, KERNEL_FACTOR_JUDGE, at(1, 0, 0), f->m, f->m)->alpha = inverse_off;
    add_store(f, 2, f->m, f->m, 0);
}

/* Area 3 = sums of squares of Q.T Q - 1, Q in area x, by the Gram matrix in area 2 */
static void add_gram_error(Factor *f)
{
    CallStep *s = on_area(f, KERNEL_FACTOR_ONE, at(2, 0, 0), f->n, f->n);
    s->c = part_set(f, at(3, 0, 0));
    s->flags = 64;
}

/* The same by random vectors v, with v, Q v and Q.T Q v in area 2. Our own product would need row strides for them. */
static bool qr_probed(const Factor *f)
{
    return f->x->library && f->n >= probed_rows(f->b) && dom_times(2 * f->n + f->m, PROBES) <= dom_times(f->n, f->n);
}

static void add_probe_error(Factor *f, int x)
{
    const int64_t at_q = f->n * PROBES, at_out = at_q + f->m * PROBES;
    const int q = part_set(f, at(x, 0, 0)), v = whole_set(f->x, AREA(2), f->group, 0),
              qv = whole_set(f->x, AREA(2), f->group, at_q), out = whole_set(f->x, AREA(2), f->group, at_out);
    own_of(f, KERNEL_FACTOR_SIGNS, v, v, f->n, PROBES);
    for (int i = 0; i < 2; i++) {
        CallStep *s = add_step(f->x, KERNEL_MM_F64, call_type_f64(), f->group);
        s->a = q;
        s->b = i ? qv : v;
        s->c = i ? out : qv;
        s->m = i ? f->n : f->m;
        s->k = i ? f->m : f->n;
        s->n = s->ldb = s->ldc = PROBES;
        s->lda = f->ld[x];
        s->flags = i ? TRANS_A : 0;
        s->alpha = 1;
    }
    CallStep *s = own_of(f, KERNEL_FACTOR_ONE, out, part_set(f, at(3, 0, 0)), f->n, PROBES);
    s->flags = 256;
}

/* Settles matrices whose columns in area x are orthonormal, as the check with this number, and stores them. Without
 * random vectors the Gram matrix is then in area 2. Returns the step that settles. */
static int add_settle(Factor *f, int x, unsigned number)
{
    bool probed = qr_probed(f);
    if (probed)
        add_probe_error(f, x);
    else
        add_gram(f, x, false), add_gram_error(f);
    CallStep *s = on_area(f, KERNEL_FACTOR_JUDGE, at(3, 0, 0), f->n, probed ? (int64_t)PROBES : f->n);
    int judge = f->x->nstep - 1;
    s->alpha = settled_off(f->m, f->n);
    s->flags = 64 | number << 12;
    add_result(f, x, f->m, f->n, for_settled | number << 12);
    return judge;
}

/* The steps from `first` on are only for matrices that are not settled. */
static void close_body(Factor *f, int first, int judge, bool continues)
{
    CallStep *s = &f->x->step[first];
    s->body = f->x->nstep - first;
    s->judge = judge;
    s->continues = continues;
}

/* Few large matrices wait for launches: 48 panels of one matrix of 3072 columns are 95 products, a third of them 5 us.
 * Panels of 256 by the inverses of blocks on the diagonal, in area 2, are 23, and 5 steps for the inverses. Errors grow
 * with the condition number of a block instead of that of its tiles: results in f64 would show this (orthogonality is
 * that of the last round). Our own product takes no pairs. */
static bool qr_by_blocks(const Factor *f)
{
    return f->x->library && !stores_f64(f) && f->n > 2 * FACTOR_PANEL && f->m >= f->n;
}

static void add_block_solve(Factor *f, Solved z)
{
    InverseAreas blocks = {z.t, 2, z.to};
    add_load(f, f->call->a, 2, z.n, z.n, 256);             /* the products read zeros above the inverses */
    add_inverse(f, blocks, z.n, INVERSE_PANEL);
    for (int64_t k = 0, w; k < z.n; k += w) {
        w = z.n - k < INVERSE_PANEL ? z.n - k : (int64_t)INVERSE_PANEL;
        Shaped size = {z.other, w, w};
        add_off(f, z, k, w, 0, k);
        part_product(f, at(z.from, 0, k), at(2, k, k), at(z.to, 0, k), size, TRANS_B, 1, 0);
    }
}

/* A round from area x to the other one. lift: share of the trace that is added to the diagonal. flags: of add_chol */
static void add_round(Factor *f, int x, bool gram, double lift, unsigned flags)
{
    Solved z = {3, x, 1 - x, true, true, f->n, f->m};
    if (gram)
        add_gram(f, x, false);
    CallStep *s = on_area(f, KERNEL_FACTOR_LIFT, at(2, 0, 0), f->n, f->n);
    s->b = part_set(f, at(4, 0, 0));
    s->alpha = lift;
    add_chol(f, f->n, flags);
    if (qr_by_blocks(f))
        add_block_solve(f, z);
    else
        add_solve(f, z);
}

/* Rounds without a raised diagonal. The device decides what follows, so the rule's captures must have conditional
 * nodes: a caller's graph of a rule without periods has none, and would run all rounds. */
static bool qr_short(const Factor *f)
{
    return !stores_f64(f) && driver_conditions(f->b) && (f->b->program->nperiod || f->stage->stagger);
}

static void add_short_rounds(Factor *f)
{
    add_round(f, 0, true, 0, 2);
    int judge = add_settle(f, 1, 1), body = f->x->nstep;
    add_round(f, 1, qr_probed(f), 0, 2);
    add_settle(f, 0, 2);
    close_body(f, body, judge, true);
}

static void qr_steps(Factor *f)
{
    double hair = 11 * ((double)f->m * (double)f->n + (double)f->n * (double)(f->n + 1)) * DBL_EPSILON / 2;
    bool settles = !stores_f64(f), tries_short = qr_short(f);
    int judge = 0, body;
    add_load(f, f->call->a, 0, f->m, f->n, 0);
    if (tries_short)
        add_short_rounds(f);
    body = f->x->nstep;
    if (tries_short) {
        on_area(f, KERNEL_FACTOR_START, at(4, 0, 0), 1, 1)->flags = for_open;
        add_load(f, f->call->a, 0, f->m, f->n, 0);
    }
    add_round(f, 0, true, hair, 0);
    add_round(f, 1, true, 0, 2);
    on_area(f, KERNEL_FACTOR_FILL, at(0, 0, 0), f->m, f->n)->a = part_set(f, at(3, 0, 0));
    if (settles)
        judge = add_settle(f, 0, ROUNDS);
    if (tries_short)
        close_body(f, body, judge, false);
    body = f->x->nstep;
    add_round(f, 0, !settles || qr_probed(f), 0, 0);
    add_gram(f, 1, true);
    on_area(f, KERNEL_FACTOR_ONE, at(2, 0, 0), f->n, f->n)->c = part_set(f, at(3, 0, 0));
    on_area(f, KERNEL_FACTOR_JUDGE, at(3, 0, 0), f->n, f->n)->alpha = columns_off;
    bool alone = f->b->rule->engine->gpu->eigen != EIGEN_DIVIDED;           /* one block computes a whole matrix */
    if (f->call->c < 0 || (alone && (double)f->m * (double)f->n * (double)f->n <= reflected_most)) {
        CallStep *s = on_area(f, KERNEL_FACTOR_HOUSE, at(0, 0, 0), f->m, f->n);
        s->a = whole_set(f->x, f->call->a, f->group, 0);
        s->b = part_set(f, at(1, 0, 0));
        s->alpha = columns_off;
    }
    add_store(f, 1, f->m, f->n, settles ? for_open : 0);
    if (settles)
        close_body(f, body, judge, false);
}

CORE optc_status add_factor(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group)
{
    const CallGroup *g = &x->group[group];
    Factor f = factor_in(b, x, stage, group, g->shape);
    int64_t values[AREAS];
    int first = x->nstep;
    if (!f.m || !f.n || !g->shape.slices)
        return OPTC_OK;
    areas_of(&f, values, f.ld);
    x->numbers = 0;
    for (int i = 0; i < AREAS; i++) {
        x->area[i] = x->numbers;
        x->area_ld[i] = f.ld[i];
        x->numbers += values[i];
    }
    x->record = factor_record(b, stage, g->shape);
    x->value_bytes = (int)sizeof(double);
    on_area(&f, KERNEL_FACTOR_START, at(4, 0, 0), 1, 1);
    if (stage->call->callee == CALL_CHOL)
        chol_steps(&f);
    else if (stage->call->callee == CALL_SOLVE)
        solve_steps(&f);
    else if (stage->call->callee == CALL_POWER)
        inverse_steps(&f);
    else
        qr_steps(&f);
    for (int i = first; i < x->nstep; i++)
        x->step[i].at_once = x->room_bytes / x->record;
    x->record = 0;
    return f.fits ? OPTC_OK : too_long(b, stage, g, "more than 2^31 - 1 blocks, or rows; bind fewer tensors at a time");
}

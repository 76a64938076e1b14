/* Eigenvectors on a GPU by divide and conquer (templates/divide_cuda.txt): the steps of a round, and the launch of its
 * first kernel.
 *
 *   SQUARES: A -> T, and H's reflectors as rows of MORE -> leaves -> merges, each a kernel for its eigenvectors in the
 *   bases of its two parts (BASES) and a product with the parts -> eigenvectors Z of T as rows of PARTS
 *   -> H Z, by panels of reflectors: the triangle of a panel, and two products -> SQUARES
 *
 * No step waits for the host, and all of them can be captured. Time on an H200 in ms, f32 (f64), by tests/gpu/roots.sh,
 * beside cuSOLVER 12.0, which waits for the host from 512 rows on:
 *   1 x 3072   25.7 (65), 51 (59)     1 x 2304   14.6 (22), - (34)    60 x 768   31, 480
 *   64 x 256   4.9 (5.2), 3.5 (7.1)   8 x 512    3.6, -               12 x 768   6.9 (12.7), - (96)
 * Of the 25.7 ms T takes 20: some 3 us for each wait of a column, the rest for the rows that shared memory has no room
 * for. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <limits.h>
#include <string.h>

/* A leaf has at most 32 rows: one warp solves it. `rows`: of the padded matrix. Panels of 256 reflectors keep products
 * large; those of small matrices would be mostly padding. ARRAYS: values for each row; 16.5 are used, and an even
 * number keeps what is behind them at multiples of 16 bytes. */
enum { DIVIDE_LEAF = 32, DIVIDE_PANEL = 256, DIVIDE_SMALL_PANEL = 64, DIVIDE_SMALL = 512, DIVIDE_THREADS = 512,
       DIVIDE_SLICES = 4, DIVIDE_ARRAYS = 18, DIVIDE_COLUMNS = 64 };
typedef struct DivideShape { int64_t n, wide, leaf, rows, panel, panels; int levels; } DivideShape;

static DivideShape divide_shape(int64_t n)
{
    DivideShape d = {n, (n + 3) / 4 * 4, n, 0, n < DIVIDE_SMALL ? DIVIDE_SMALL_PANEL : DIVIDE_PANEL, 0, 0};
    for (; d.leaf > DIVIDE_LEAF; d.levels++)
        d.leaf = count_up(n, (int64_t)2 << d.levels);
    d.rows = d.leaf << d.levels;
    d.panels = count_up(n, d.panel);
    return d;
}

/* ---- memory ---- */
/* Of a block with `rows` rows of a matrix: three vectors, sums of warps, sums of slices of the rows' products. */
static int64_t shared_without_rows(int64_t wide, int64_t rows, int bytes)
{
    return (3 * wide + 64 + (rows * DIVIDE_SLICES + 3) / 4 * 4) * bytes;
}

CORE bool divide_fits(const GpuEngine *g, int64_t n, bool f32)
{
    return n <= INT_MAX / n && shared_without_rows((n + 3) / 4 * 4, count_up(n, g->sms), f32 ? 4 : 8) <= g->shared;
}

static int64_t greater_of(int64_t a, int64_t b) { return a > b ? a : b; }

CORE void divide_sizes(const EigenRound *r, int64_t each[EIGEN_ARRAYS])
{
    const DivideShape d = divide_shape(r->n);
    int64_t reflectors = d.panels * d.panel * d.wide, panels = d.panels * d.panel * d.panel, size = r->f32 ? 4 : 8;
    int64_t most = greater_of(d.rows * d.rows, greater_of(reflectors, panels)) * size;
    each[EIGEN_SQUARES] = each[EIGEN_PARTS] = each[EIGEN_BASES] = (most + 255) / 256 * 256;
    each[EIGEN_MORE] = (reflectors * size + 255) / 256 * 256;
    each[EIGEN_VALUES] = ((DIVIDE_ARRAYS * d.rows + 4 * d.wide) * 8 + 255) / 256 * 256;
}

CORE void divide_bounds(int64_t n, int *steps, int *sets)
{
    const DivideShape d = divide_shape(n);
    *steps = (int)(8 + 6 * d.levels + 2 * d.panels);
    *sets = (int)(8 + 8 * d.levels + 5 * d.panels);
}

/* ---- steps ---- */
/* `count` matrices in an array of each matrix, `apart` values apart, from `offset` on */
typedef struct DividePart { int array; int64_t offset, ld, apart, count; } DividePart;

static DividePart in_array(int array, int64_t offset, int64_t ld, int64_t apart, int64_t count)
{
    DividePart y = {array, offset, ld, apart, count};
    return y;
}

static int array_part_set(const EigenRound *r, DividePart o)
{
    PointerSet s;
    memset(&s, 0, sizeof s);
    s.array = OWN_EIGEN;
    s.group = r->group;
    s.bytes = 8;
    s.record = r->each[o.array];
    s.base = r->at[o.array] + o.offset * (r->f32 ? 4 : 8);
    s.most = r->count;
    s.parts = (int)o.count;
    s.apart = o.apart * (r->f32 ? 4 : 8);
    s.row_stride = o.ld;
    return add_set(r->x, &s);
}

static void divide_product(EigenRound *r, unsigned flags, int64_t m, int64_t n, int64_t k, DividePart a, DividePart b,
                           DividePart c, double alpha, double beta)
{
    const CallType *t = r->f32 ? call_type_f32() : call_type_f64();
    CallStep *s = add_step(r->x, t->mm, t, r->group);
    int64_t blocks = dom_times(kernel_blocks(t->mm, m, n, false), c.count);
    s->a = array_part_set(r, a);
    s->b = array_part_set(r, b);
    s->c = array_part_set(r, c);
    s->m = m, s->n = n, s->k = k;
    s->lda = a.ld, s->ldb = b.ld, s->ldc = c.ld;
    s->flags = flags;
    s->alpha = alpha, s->beta = beta;
    s->own = !r->x->library;
    s->blocks = (unsigned)blocks;
    r->fits = r->fits && dom_times(blocks, r->count) <= MOST_BLOCKS;
}

static CallStep *divide_step(EigenRound *r, CallKernel kernel, int a, int b, int64_t m, int64_t n, int64_t k,
                             int64_t blocks)
{
    CallStep *s = eigen_blocks(r, kernel, a, m, n, blocks);
    s->b = eigen_array(r, b);
    s->c = eigen_array(r, EIGEN_VALUES);
    s->k = k;
    return s;
}

/* Merges all pairs of parts of `half` rows: eigenvectors of the pairs are rows of `to`. */
static void add_merges(EigenRound *r, const DivideShape *d, int64_t half, int from, int to, bool odd)
{
    int64_t all = 2 * half, merges = d->rows / all, warps = count_up(d->rows, 8);
    CallStep *s[] = {divide_step(r, KERNEL_DIVIDE_DEFLATE, from, from, half, d->rows, merges, merges),
                     divide_step(r, KERNEL_DIVIDE_ROOTS, from, from, half, d->rows, merges, warps),
                     divide_step(r, KERNEL_DIVIDE_EXACT, from, from, half, d->rows, merges, warps),
                     divide_step(r, KERNEL_DIVIDE_VECTORS, from, EIGEN_BASES, half, d->rows, merges, warps)};
    for (int i = 0; i < 4; i++)
        s[i]->flags |= odd ? EIGEN_ODD : 0;
    for (int part = 0; part < 2; part++)
        divide_product(r, 0, all, half, half, in_array(EIGEN_BASES, part * half, all, all * all, merges),
                       in_array(from, part * half * half, half, 2 * half * half, merges),
                       in_array(to, part * half, all, all * all, merges), 1, 0);
}

/* PARTS = Z H.T, where rows are eigenvectors: from the last panel to the first, Z - (Z V) T.T V.T. */
static void add_reflections(EigenRound *r, const DivideShape *d)
{
    const int64_t n = d->n, wide = d->wide, panel = d->panel, square = panel * panel, apart = panel * wide;
    const DividePart all = in_array(EIGEN_MORE, 0, wide, apart, d->panels),
                     triangles = in_array(EIGEN_SQUARES, 0, panel, square, d->panels);
    divide_product(r, TRANS_B, panel, panel, n, all, all, in_array(EIGEN_BASES, 0, panel, square, d->panels), 1, 0);
    CallStep *s = divide_step(r, KERNEL_DIVIDE_PANELS, EIGEN_BASES, EIGEN_SQUARES, panel, d->rows, d->panels,
                              d->panels * panel / 8);
    s->alpha = (double)(n - 1);
    divide_product(r, TRANS_A, panel, n, panel, triangles, all, in_array(EIGEN_BASES, 0, wide, apart, d->panels), 1, 0);
    /* Columns before a panel's own have zeros in it. Products of 16 columns or fewer could have bits that depend on the
     * number of matrices (count_changes_bits). */
    const int64_t last = n > DIVIDE_COLUMNS ? (n - DIVIDE_COLUMNS) / 4 * 4 : 0;
    for (int64_t i = d->panels - 1; i >= 0; i--) {
        const int64_t from = i * panel < last ? i * panel : last, at = i * apart + from;
        const DividePart z = in_array(EIGEN_PARTS, from, d->rows, 0, 1),
                         product = in_array(EIGEN_SQUARES, 0, panel, 0, 1);
        divide_product(r, TRANS_B, n, panel, n - from, z, in_array(EIGEN_MORE, at, wide, 0, 1), product, 1, 0);
        divide_product(r, 0, n, n - from, panel, product, in_array(EIGEN_BASES, at, wide, 0, 1), z, -1, 1);
    }
}

CORE void add_divide(EigenRound *r)
{
    const DivideShape d = divide_shape(r->n);
    const CallKernel first = r->f32 ? KERNEL_TRIDIAGONAL_F32 : KERNEL_TRIDIAGONAL_F64;
    const int64_t leaves = d.rows / d.leaf, behind = d.panels * d.panel - (r->n - 1);
    int from = d.levels % 2 ? EIGEN_SQUARES : EIGEN_PARTS, to = from == EIGEN_PARTS ? EIGEN_SQUARES : EIGEN_PARTS;
    divide_step(r, first, EIGEN_SQUARES, EIGEN_MORE, 0, r->n, d.rows, 1);
    divide_step(r, KERNEL_DIVIDE_BEGIN, EIGEN_SQUARES, EIGEN_MORE, behind, r->n, d.rows, behind + 1);
    divide_step(r, KERNEL_DIVIDE_LEAVES, from, from, d.leaf, d.rows, leaves, count_up(leaves, 4));
    for (int level = 0; level < d.levels; level++) {
        add_merges(r, &d, d.leaf << level, from, to, level % 2);
        const int last = from;
        from = to;
        to = last;
    }
    add_reflections(r, &d);
    CallStep *s = divide_step(r, KERNEL_DIVIDE_END, EIGEN_SQUARES, EIGEN_PARTS, r->n, r->n, d.rows,
                              kernel_blocks(KERNEL_DIVIDE_END, r->n, r->n, false));
    s->flags |= d.levels % 2 ? EIGEN_ODD : 0;
}

/* ---- the launch of T ---- */
CORE bool divide_launches(const CallStep *s)
{
    return s->kernel == KERNEL_TRIDIAGONAL_F32 || s->kernel == KERNEL_TRIDIAGONAL_F64;
}

/* Blocks for each of n matrices: as many as all of them can have at a time, or more in several launches until all rows
 * fit into shared memory. Bits do not depend on it. */
static int64_t team_blocks(const GpuEngine *g, const CallStep *s, int64_t sms, int64_t n)
{
    const int bytes = s->kernel == KERNEL_TRIDIAGONAL_F32 ? 4 : 8;
    const int64_t wide = (s->n + 3) / 4 * 4;
    int64_t teams = n < sms ? n : sms, rows;
    for (; teams > 1; teams--) {
        rows = count_up(s->n, sms / teams);
        if (shared_without_rows(wide, rows, bytes) + rows * wide * bytes <= g->shared)
            break;
    }
    teams = count_up(n, count_up(n, teams));               /* launches of the same size */
    return sms / teams < s->n ? sms / teams : s->n;
}

/* sms 0: one block per matrix, which waits for no other */
static int launch_teams(const optc_binding *b, const CallStep *s, Matrices of, int64_t sms)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const GpuCalls *x = b->gpu->calls;
    CUfunction fn = b->gpu->code->call[s->kernel];
    const int64_t blocks = sms ? team_blocks(g, s, sms, of.n) : 1, teams = sms ? sms / blocks : of.n;
    int rc = g->d->cuFuncSetAttribute(fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, g->shared);
    for (int64_t i = 0; i < of.n && !rc; i += teams) {
        const size_t at = sizeof(void *) * (size_t)i;
        const int64_t now = teams < of.n - i ? teams : of.n - i;
        CallArgs a = {set_pointers(x, s->a, of.from) + at, set_pointers(x, s->b, of.from) + at,
                      set_pointers(x, s->c, of.from) + at, (int)blocks, (int)s->n, (int)s->k, (int)s->flags, s->alpha,
                      (double)g->shared};
        void *args[] = {&a};
        a.alpha += (double)(i * EIGEN_NUMBERS_BYTES - i * x->set[s->a].record);
        const unsigned grid = (unsigned)(blocks * now), shared = (unsigned)g->shared;
        rc = sms ? g->d->cuLaunchCooperativeKernel(fn, grid, 1, 1, DIVIDE_THREADS, 1, 1, shared, b->gpu->stream, args)
                 : g->d->cuLaunchKernel(fn, grid, 1, 1, DIVIDE_THREADS, 1, 1, shared, b->gpu->stream, args, NULL);
    }
    return rc;
}

static bool fits_teams(const GpuEngine *g, const CallStep *s, int64_t sms)
{
    const int bytes = s->kernel == KERNEL_TRIDIAGONAL_F32 ? 4 : 8;
    return shared_without_rows((s->n + 3) / 4 * 4, count_up(s->n, sms), bytes) <= g->shared;
}

/* Blocks of a team wait for each other, so all of a launch must run at the same time: as many as there are
 * multiprocessors, in a cooperative launch. A client of MPS, or a stream of a green context, may have fewer than the
 * device. Then the driver refuses the first launch, and half as many blocks are tried.
 *
 * Bodies of conditional nodes cannot contain such a launch under MPS, nor with drivers before CUDA 12.6. There one
 * block computes each matrix, with the same bits: about a second for 3072 rows, by the bytes it reads. */
CORE int divide_launch(const optc_binding *b, const CallStep *s, Matrices of)
{
    const GpuEngine *g = b->rule->engine->gpu;
    int rc = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (condition_inside(b) && !g->bodies_cooperate)
        return fits_teams(g, s, 1) ? launch_teams(b, s, of, 0) : rc;
    for (int64_t sms = g->sms; sms && rc == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE; sms /= 2)
        if (fits_teams(g, s, sms))
            rc = launch_teams(b, s, of, sms);
    return rc;
}

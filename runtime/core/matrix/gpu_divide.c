/* Eigenvectors on a GPU by divide and conquer (templates/divide_cuda.txt): the steps of a round,
 * and the launch of its first kernel, which computes T.
 *
 *   SQUARES: A -> T, and H's reflectors as rows of MORE -> leaves -> merges, each a kernel for its
 *   eigenvectors in the bases of its two parts (BASES) and a product with the parts -> eigenvectors
 *   Z of T as rows of PARTS -> H Z, by panels of reflectors: the triangle of a panel, and two
 *   products -> SQUARES
 *
 * No step waits for the host, and all of them can be captured. ms on an H200 in f32 (f64), of a
 * prototype of these kernels (tests/bench/h200.txt), beside cuSOLVER 12.0, which waits for the host
 * from 512 rows on:
 *   1 x 3072   26.1 (65), 51 (59)     1 x 2304   14.6 (22), - (34)    60 x 768   32.1
 *   64 x 256   4.9 (5.2), 3.5 (7.1)   8 x 512    3.6                  12 x 768   7.1 (12.7)
 * T takes 20.7 of the 26.1 ms: some 3 us for the wait of each column, the rest for the rows that
 * shared memory has no room for. */
#include "runtime/core/matrix/gpu_eigen.h"

#include <limits.h>

/* A leaf has at most 32 rows: one warp solves it. `rows`: of the padded matrix. Panels of 256
 * reflectors make products large; panels of small matrices would be mostly padding. ARRAYS: f64
 * values for each row. The kernels use 16.5, and an even number aligns what follows them to 16
 * bytes. SUMS: values in which a block's warps exchange sums. COLUMNS: the last panel's products
 * have at least so many. */
enum {
    DIVIDE_LEAF = 32,
    DIVIDE_PANEL = 256,
    DIVIDE_SMALL_PANEL = 64,
    DIVIDE_SMALL = 512,
    DIVIDE_THREADS = 512,
    DIVIDE_SLICES = 4,
    DIVIDE_SUMS = 64,
    DIVIDE_ARRAYS = 18,
    DIVIDE_COLUMNS = 64
};
typedef struct DivideShape {
    int64_t n, stride, leaf, rows, panel, panels; int levels;
} DivideShape;

static DivideShape divide_shape(int64_t n)
{
    DivideShape d = {
        n, (n + 3) / 4 * 4, n, 0, n < DIVIDE_SMALL ? DIVIDE_SMALL_PANEL : DIVIDE_PANEL, 0, 0};
    for (; d.leaf > DIVIDE_LEAF; d.levels++)
        d.leaf = count_up(n, (int64_t)2 << d.levels);
    d.rows = d.leaf << d.levels;
    d.panels = count_up(n, d.panel);
    return d;
}

/* ---- memory ---- */
/* Values of the vectors of a block that has `rows` rows of a matrix: three vectors of a row's
 * length, and sums of slices of the rows' products. */
static int64_t vector_values(const DivideShape *d, int64_t rows)
{
    return 3 * d->stride + DIVIDE_SLICES * rows;
}

/* Shared memory of such a block, without the rows: sums of warps, and its vectors. */
static int64_t shared_bytes(const DivideShape *d, int64_t rows, int bytes)
{
    return (DIVIDE_SUMS + vector_values(d, rows)) * bytes;
}

/* The vectors of a block do not fit into shared memory, even if all blocks compute one matrix, or
 * if only one can. */
static bool divide_large(const GpuEngine *g, const DivideShape *d, int bytes)
{
    const int64_t blocks = g->cooperative && g->bodies_cooperate ? g->sms : 1;
    return shared_bytes(d, count_up(d->n, blocks), bytes) > g->shared;
}

CORE bool divide_possible(int64_t n) { return n <= INT_MAX / n; }

static int64_t greater_of(int64_t a, int64_t b) { return a > b ? a : b; }

CORE void divide_sizes(const EigenRound *r, int64_t each[EIGEN_ARRAYS])
{
    const DivideShape d = divide_shape(r->n);
    const GpuEngine *g = r->b->rule->engine->gpu;
    int64_t reflectors = d.panels * d.panel * d.stride, panels = d.panels * d.panel * d.panel,
            size = r->f32 ? 4 : 8;
    /* for any number of blocks up to that of the multiprocessors */
    int64_t vectors =
        divide_large(g, &d, (int)size) ? g->sms * vector_values(&d, 1) + DIVIDE_SLICES * d.n : 0;
    int64_t largest = greater_of(d.rows * d.rows, greater_of(reflectors, panels)) * size;
    each[EIGEN_SQUARES] = each[EIGEN_PARTS] = each[EIGEN_BASES] = (largest + 255) / 256 * 256;
    each[EIGEN_MORE] = (reflectors * size + 255) / 256 * 256;
    each[EIGEN_VALUES] =
        (DIVIDE_ARRAYS * d.rows * 8 + (4 * d.stride + vectors) * size + 255) / 256 * 256;
}

CORE void divide_bounds(int64_t n, int *steps, int *sets)
{
    const DivideShape d = divide_shape(n);
    *steps = (int)(8 + 6 * d.levels + 2 * d.panels);
    *sets = (int)(8 + 8 * d.levels + 5 * d.panels);
}

/* ---- steps ---- */
/* `count` matrices in one array of a round, `apart` values apart; the first is `offset` values into
 * it */
typedef struct DividePart { int array; int64_t offset, ld, apart, count; } DividePart;

static DividePart in_array(int array, int64_t offset, int64_t ld, int64_t apart, int64_t count)
{
    DividePart y = {array, offset, ld, apart, count};
    return y;
}

static int array_part_set(const EigenRound *r, DividePart o)
{
    const int bytes = r->f32 ? 4 : 8;
    PointerSet s = eigen_set(r, o.array);
    s.base += o.offset * bytes;
    s.parts = (int)o.count;
    s.apart = o.apart * bytes;
    s.row_stride = o.ld;
    return add_set(r->x, &s);
}

static void divide_product(EigenRound *r, unsigned flags, int64_t m, int64_t n, int64_t k,
                           DividePart a, DividePart b, DividePart c, double alpha, double beta)
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

static CallStep *divide_step(EigenRound *r, CallKernel kernel, int a, int b, int64_t m, int64_t n,
                             int64_t k, int64_t blocks)
{
    CallStep *s = eigen_blocks(r, kernel, a, m, n, blocks);
    s->b = eigen_array(r, b);
    s->c = eigen_array(r, EIGEN_VALUES);
    s->k = k;
    return s;
}

/* Merges all pairs of parts of `half` rows: eigenvectors of the pairs are rows of `to`. */
static void add_merges(EigenRound *r, const DivideShape *d, int64_t half, int from, int to,
                       bool odd)
{
    int64_t all = 2 * half, merges = d->rows / all, warps = count_up(d->rows, 8);
    CallStep *s[] = {
        divide_step(r, KERNEL_DIVIDE_DEFLATE, from, from, half, d->rows, merges, merges),
        divide_step(r, KERNEL_DIVIDE_ROOTS, from, from, half, d->rows, merges, warps),
        divide_step(r, KERNEL_DIVIDE_EXACT, from, from, half, d->rows, merges, warps),
        divide_step(r, KERNEL_DIVIDE_VECTORS, from, EIGEN_BASES, half, d->rows, merges, warps)};
    for (int i = 0; i < 4; i++)
        s[i]->flags |= odd ? EIGEN_ODD : 0;
    for (int part = 0; part < 2; part++)
        divide_product(r, 0, all, half, half,
                       in_array(EIGEN_BASES, part * half, all, all * all, merges),
                       in_array(from, part * half * half, half, 2 * half * half, merges),
                       in_array(to, part * half, all, all * all, merges), 1, 0);
}

/* PARTS = Z H.T, where rows are eigenvectors: from the last panel to the first, Z - (Z V) T.T
 * V.T. */
static void add_reflections(EigenRound *r, const DivideShape *d)
{
    const int64_t n = d->n, stride = d->stride, panel = d->panel, square = panel * panel,
                  apart = panel * stride;
    const DividePart all = in_array(EIGEN_MORE, 0, stride, apart, d->panels),
                     triangles = in_array(EIGEN_SQUARES, 0, panel, square, d->panels);
    divide_product(r, TRANS_B, panel, panel, n, all, all,
                   in_array(EIGEN_BASES, 0, panel, square, d->panels), 1, 0);
    CallStep *s = divide_step(r, KERNEL_DIVIDE_PANELS, EIGEN_BASES, EIGEN_SQUARES, panel, d->rows,
                              d->panels, d->panels * panel / 8);
    s->alpha = (double)(n - 1);
    divide_product(r, TRANS_A, panel, n, panel, triangles, all,
                   in_array(EIGEN_BASES, 0, stride, apart, d->panels), 1, 0);
    /* Columns before a panel's own have zeros in it. Products of 16 columns or fewer could have
     * bits that depend on the number of matrices (count_changes_bits). */
    const int64_t last = n > DIVIDE_COLUMNS ? (n - DIVIDE_COLUMNS) / 4 * 4 : 0;
    for (int64_t i = d->panels - 1; i >= 0; i--) {
        const int64_t from = i * panel < last ? i * panel : last, at = i * apart + from;
        const DividePart z = in_array(EIGEN_PARTS, from, d->rows, 0, 1),
                         product = in_array(EIGEN_SQUARES, 0, panel, 0, 1);
        divide_product(r, TRANS_B, n, panel, n - from, z, in_array(EIGEN_MORE, at, stride, 0, 1),
                       product, 1, 0);
        divide_product(r, 0, n, n - from, panel, product, in_array(EIGEN_BASES, at, stride, 0, 1),
                       z, -1, 1);
    }
}

CORE void add_divide(EigenRound *r)
{
    const DivideShape d = divide_shape(r->n);
    const bool large = divide_large(r->b->rule->engine->gpu, &d, r->f32 ? 4 : 8);
    const CallKernel first = r->f32 ? large ? KERNEL_TRIDIAGONAL_LARGE_F32 : KERNEL_TRIDIAGONAL_F32
                                    : large ? KERNEL_TRIDIAGONAL_LARGE_F64 : KERNEL_TRIDIAGONAL_F64;
    const int64_t leaves = d.rows / d.leaf, behind = d.panels * d.panel - (r->n - 1);
    int from = d.levels % 2 ? EIGEN_SQUARES : EIGEN_PARTS,
        to = from == EIGEN_PARTS ? EIGEN_SQUARES : EIGEN_PARTS;
    divide_step(r, first, EIGEN_SQUARES, EIGEN_MORE, 0, r->n, d.rows, 1);
    divide_step(r, KERNEL_DIVIDE_BEGIN, EIGEN_SQUARES, EIGEN_MORE, behind, r->n, d.rows,
                behind + 1);
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
static bool launches_large(const CallStep *s)
{
    return s->kernel == KERNEL_TRIDIAGONAL_LARGE_F32 || s->kernel == KERNEL_TRIDIAGONAL_LARGE_F64;
}

CORE bool divide_launches(const CallStep *s)
{
    return s->kernel == KERNEL_TRIDIAGONAL_F32 || s->kernel == KERNEL_TRIDIAGONAL_F64 ||
           launches_large(s);
}

/* Blocks for each of n matrices: as many as all of them can have at a time, or more in several
 * launches until all rows fit into shared memory. Bits do not depend on it. 0: a block's vectors do
 * not fit. */
static int64_t team_blocks(const GpuEngine *g, const CallStep *s, int64_t sms, int64_t n)
{
    const DivideShape d = divide_shape(s->n);
    const int bytes = s->flags & EIGEN_IN_F32 ? 4 : 8;
    int64_t teams = n < sms ? n : sms, rows;
    if (!launches_large(s) && shared_bytes(&d, count_up(d.n, sms), bytes) > g->shared)
        return 0;
    for (; teams > 1; teams--) {
        rows = count_up(d.n, sms / teams);
        if (shared_bytes(&d, rows, bytes) + rows * d.stride * bytes <= g->shared)
            break;
    }
    teams = count_up(n, count_up(n, teams));               /* launches of the same size */
    return sms / teams < d.n ? sms / teams : d.n;
}

/* *call: the driver's function that returned the status */
static int launch_teams(const optc_binding *b, const CallStep *s, int64_t blocks, Matrices of,
                        int64_t from, int64_t n, const char **call)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const GpuCalls *x = b->gpu->calls;
    CUfunction fn = b->gpu->code->call[s->kernel];
    const size_t at = sizeof(void *) * (size_t)from;
    const unsigned grid = (unsigned)(blocks * n), shared = (unsigned)g->shared;
    CallArgs a = {set_pointers(x, s->a, of.from) + at,
                  set_pointers(x, s->b, of.from) + at,
                  set_pointers(x, s->c, of.from) + at,
                  (int)blocks,
                  (int)s->n,
                  (int)s->k,
                  (int)s->flags,
                  s->alpha,
                  (double)g->shared};
    void *args[] = {&a};
    a.alpha += (double)(from * (EIGEN_NUMBERS_BYTES - x->set[s->a].record));
    *call = blocks > 1 ? "cuLaunchCooperativeKernel" : "cuLaunchKernel";
    return blocks > 1 ? g->d->cuLaunchCooperativeKernel(fn, grid, 1, 1, DIVIDE_THREADS, 1, 1,
                                                        shared, b->gpu->stream, args)
                      : g->d->cuLaunchKernel(fn, grid, 1, 1, DIVIDE_THREADS, 1, 1, shared,
                                             b->gpu->stream, args, NULL);
}

/* Blocks of a team wait for each other, so all of a launch must run at the same time: as many as
 * there are multiprocessors, in a cooperative launch. A client of MPS, or a stream of a green
 * context, may have fewer than the device. Then the driver refuses the launch, and half as many
 * blocks are tried for the matrices that are left. Fewer blocks have more rows each, and need more
 * shared memory: the last refusal is returned if that does not suffice.
 *
 * Some GPUs have no such launches, and bodies of conditional nodes cannot contain them under MPS,
 * nor with drivers before CUDA 12.6. There one block computes each matrix, with the same bits:
 * about a second for 3072 rows, by the bytes that it reads. */
CORE int divide_launch(const optc_binding *b, const CallStep *s, Matrices of, const char **call)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const bool alone = !g->cooperative || (condition_inside(b) && !g->bodies_cooperate);
    *call = "cuFuncSetAttribute";
    int rc = g->d->cuFuncSetAttribute(b->gpu->code->call[s->kernel],
                                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, g->shared);
    if (alone)
        return rc ? rc : launch_teams(b, s, 1, of, 0, of.n, call);
    for (int64_t i = 0, sms = g->sms; i < of.n && !rc;) {
        const int64_t blocks = team_blocks(g, s, sms, of.n), teams = blocks ? sms / blocks : 0;
        const int64_t now = teams < of.n - i ? teams : of.n - i;
        rc = teams ? launch_teams(b, s, blocks, of, i, now, call)
                   : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        if (rc == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE && sms > 1)
            rc = 0, sms /= 2;
        else
            i += now;
    }
    return rc;
}

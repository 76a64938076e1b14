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

CORE void divide_sizes(const MethodAt *f, int64_t each[EIGEN_ARRAYS])
{
    const DivideShape d = divide_shape(f->m);
    const GpuEngine *g = f->gpu;
    int64_t reflectors = d.panels * d.panel * d.stride, panels = d.panels * d.panel * d.panel,
            size = f->work->bytes;
    /* for any number of blocks up to that of the multiprocessors */
    int64_t vectors =
        divide_large(g, &d, (int)size) ? g->sms * vector_values(&d, 1) + DIVIDE_SLICES * d.n : 0;
    int64_t largest = greater_of(d.rows * d.rows, greater_of(reflectors, panels)) * size;
    each[EIGEN_SQUARES] = each[EIGEN_PARTS] = each[EIGEN_BASES] = (largest + 255) / 256 * 256;
    each[EIGEN_MORE] = (reflectors * size + 255) / 256 * 256;
    each[EIGEN_VALUES] =
        (DIVIDE_ARRAYS * d.rows * 8 + (4 * d.stride + vectors) * size + 255) / 256 * 256;
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

static Operand divide_operand(const MethodAt *f, DividePart o)
{
    PointerSet s = set_in(f, AREA(f->areas + o.array));
    s.offset = o.offset;
    s.parts = (int)o.count;
    s.apart = o.apart;
    s.row_stride = o.ld;
    return operand(add_set(f, &s), o.ld);
}

static void divide_product(MethodAt *f, unsigned flags, ProductSize z, DividePart a, DividePart b,
                           DividePart c, double alpha, double beta)
{
    const Operand x = divide_operand(f, a), y = divide_operand(f, b);
    add_product(f, x, y, divide_operand(f, c), z, flags, alpha, beta);
}

static CallStep *divide_step(MethodAt *f, CallKernel kernel, int a, int b, int64_t m, int64_t n,
                             int64_t k, int64_t blocks)
{
    CallStep *s = eigen_blocks(f, kernel, a, m, n, blocks);
    s->b = eigen_array(f, b);
    s->c = eigen_array(f, EIGEN_VALUES);
    s->k = k;
    return s;
}

/* Merges all pairs of parts of `half` rows: eigenvectors of the pairs are rows of `to`. */
static void add_merges(MethodAt *f, const DivideShape *d, int64_t half, int from, int to,
                       bool odd)
{
    int64_t all = 2 * half, merges = d->rows / all, warps = count_up(d->rows, 8);
    const unsigned flags = odd ? EIGEN_ODD : 0;
    const ProductSize size = {all, half, half};
    static const CallKernel kernel[] = {KERNEL_DIVIDE_DEFLATE, KERNEL_DIVIDE_ROOTS,
                                        KERNEL_DIVIDE_EXACT, KERNEL_DIVIDE_VECTORS};
    for (int i = 0; i < 4; i++)
        divide_step(f, kernel[i], from, i == 3 ? EIGEN_BASES : from, half, d->rows, merges,
                    i ? warps : merges)
            ->flags |= flags;
    for (int part = 0; part < 2; part++)
        divide_product(f, 0, size,
                       in_array(EIGEN_BASES, part * half, all, all * all, merges),
                       in_array(from, part * half * half, half, 2 * half * half, merges),
                       in_array(to, part * half, all, all * all, merges), 1, 0);
}

/* PARTS = Z H.T, where rows are eigenvectors: from the last panel to the first, Z - (Z V) T.T
 * V.T. */
static void add_reflections(MethodAt *f, const DivideShape *d)
{
    const int64_t n = d->n, stride = d->stride, panel = d->panel, square = panel * panel,
                  apart = panel * stride;
    const DividePart all = in_array(EIGEN_MORE, 0, stride, apart, d->panels),
                     triangles = in_array(EIGEN_SQUARES, 0, panel, square, d->panels);
    const ProductSize gram = {panel, panel, n}, second = {panel, n, panel};
    divide_product(f, TRANS_B, gram, all, all,
                   in_array(EIGEN_BASES, 0, panel, square, d->panels), 1, 0);
    CallStep *s = divide_step(f, KERNEL_DIVIDE_PANELS, EIGEN_BASES, EIGEN_SQUARES, panel, d->rows,
                              d->panels, d->panels * panel / 8);
    s->alpha = (double)(n - 1);
    divide_product(f, TRANS_A, second, triangles, all,
                   in_array(EIGEN_BASES, 0, stride, apart, d->panels), 1, 0);
    /* Columns before a panel's own have zeros in it. Products of 16 columns or fewer could have
     * bits that depend on the number of matrices (count_changes_bits). */
    const int64_t last = n > DIVIDE_COLUMNS ? (n - DIVIDE_COLUMNS) / 4 * 4 : 0;
    for (int64_t i = d->panels - 1; i >= 0; i--) {
        const int64_t from = i * panel < last ? i * panel : last, at = i * apart + from;
        const DividePart z = in_array(EIGEN_PARTS, from, d->rows, 0, 1),
                         product = in_array(EIGEN_SQUARES, 0, panel, 0, 1);
        const ProductSize forth = {n, panel, n - from}, back = {n, n - from, panel};
        divide_product(f, TRANS_B, forth, z, in_array(EIGEN_MORE, at, stride, 0, 1), product, 1, 0);
        divide_product(f, 0, back, product, in_array(EIGEN_BASES, at, stride, 0, 1), z, -1, 1);
    }
}

CORE void add_divide(MethodAt *f)
{
    const DivideShape d = divide_shape(f->m);
    const bool large = divide_large(f->gpu, &d, f->work->bytes);
    const CallKernel first =
        eigen_f32(f) ? large ? KERNEL_TRIDIAGONAL_LARGE_F32 : KERNEL_TRIDIAGONAL_F32
        : large      ? KERNEL_TRIDIAGONAL_LARGE_F64
                     : KERNEL_TRIDIAGONAL_F64;
    const int64_t leaves = d.rows / d.leaf, behind = d.panels * d.panel - (f->m - 1);
    int from = d.levels % 2 ? EIGEN_SQUARES : EIGEN_PARTS,
        to = from == EIGEN_PARTS ? EIGEN_SQUARES : EIGEN_PARTS;
    divide_step(f, first, EIGEN_SQUARES, EIGEN_MORE, 0, f->m, d.rows, 1)->kind = STEP_TEAMS;
    divide_step(f, KERNEL_DIVIDE_BEGIN, EIGEN_SQUARES, EIGEN_MORE, behind, f->m, d.rows,
                behind + 1);
    divide_step(f, KERNEL_DIVIDE_LEAVES, from, from, d.leaf, d.rows, leaves, count_up(leaves, 4));
    for (int level = 0; level < d.levels; level++) {
        add_merges(f, &d, d.leaf << level, from, to, level % 2);
        const int last = from;
        from = to;
        to = last;
    }
    add_reflections(f, &d);
    CallStep *s = divide_step(f, KERNEL_DIVIDE_END, EIGEN_SQUARES, EIGEN_PARTS, f->m, f->m, d.rows,
                              kernel_blocks(KERNEL_DIVIDE_END, f->m, f->m, false));
    s->flags |= d.levels % 2 ? EIGEN_ODD : 0;
}

/* ---- the launch of T ---- */
static bool launches_large(const CallStep *s)
{
    return s->kernel == KERNEL_TRIDIAGONAL_LARGE_F32 || s->kernel == KERNEL_TRIDIAGONAL_LARGE_F64;
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
static int launch_some(const optc_binding *b, const CallStep *s, int64_t blocks, Matrices of,
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
    a.alpha += (double)(from * (EIGEN_NUMBERS_BYTES - area_of(x, x->set[s->a].array)->apart));
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
static int launch_all(const optc_binding *b, const CallStep *s, Matrices of, const char **call)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const bool alone = !g->cooperative || (condition_inside(b) && !g->bodies_cooperate);
    *call = "cuFuncSetAttribute";
    int rc = g->d->cuFuncSetAttribute(b->gpu->code->call[s->kernel],
                                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, g->shared);
    if (alone)
        return rc ? rc : launch_some(b, s, 1, of, 0, of.n, call);
    for (int64_t i = 0, sms = g->sms; i < of.n && !rc;) {
        const int64_t blocks = team_blocks(g, s, sms, of.n), teams = blocks ? sms / blocks : 0;
        const int64_t now = teams < of.n - i ? teams : of.n - i;
        rc = teams ? launch_some(b, s, blocks, of, i, now, call)
                   : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        if (rc == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE && sms > 1)
            rc = 0, sms /= 2;
        else
            i += now;
    }
    return rc;
}

CORE optc_status launch_teams(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of)
{
    const GpuCalls *x = b->gpu->calls;
    const char *call;
    char what[400];
    const int rc = launch_all(b, s, of, &call);
    if (rc != CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
        return step_failed(b, c, s, call, rc);
    call_label(b, c->stage, step_group(x, s), what, sizeof what);
    return fail(OPTC_ERROR_DEVICE,
                "optc_run: %s: the stream has too few of the GPU's %d multiprocessors for so many "
                "rows; use a stream of no green context, or a smaller `limit`",
                what, b->rule->engine->gpu->sms);
}

/* Builds the steps of a product on a GPU, and the sets of pointers that they use. */
#include "runtime/core/matrix/gpu_calls.h"

#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */
CORE void *list_more(GpuCalls *x, void *list, int *n, size_t size)
{
    void *to = list;
    if (!(*n & (*n - 1)))                                  /* full at each power of two */
        to = realloc(list, size * (*n ? 2 * (size_t)*n : 1));
    x->out = x->out || !to;
    to = to ? to : list;
    *n += !x->out || !*n;
    if (to)
        memset((char *)to + size * (size_t)(*n - 1), 0, size);
    return to;
}

/* ---- areas ---- */
CORE int64_t record_bytes(const int64_t values[AREAS], int bytes)
{
    int64_t all = RECORD_NUMBERS * (int64_t)sizeof(double) / bytes;
    for (int i = 0; i < AREAS; i++)
        all = values[i] > INT64_MAX / 64 ? INT64_MAX / 64 : all + values[i];
    return dom_times(all, bytes);
}

CORE optc_status add_areas(MethodAt *f, const Area *area, int n)
{
    GpuCalls *x = f->x;
    const size_t bytes = sizeof *area * (size_t)n;
    for (f->areas = 0; f->areas + n <= x->narea; f->areas++)
        if (!memcmp(x->area + f->areas, area, bytes))
            return OPTC_OK;
    Area *all = (Area *)realloc(x->area, sizeof *area * (size_t)x->narea + bytes);
    if (!all)
        return no_memory("optc_bind");
    memcpy(all + x->narea, area, bytes);
    f->areas = x->narea;
    x->area = all;
    x->narea += n;
    return OPTC_OK;
}

CORE optc_status add_record(MethodAt *f, const int64_t values[AREAS], const int64_t *ld, int bytes)
{
    static const char *const names[] = {"area0", "area1", "area2", "area3", "area4", "numbers"};
    Area area[NUMBERS + 1];
    const int64_t record = record_bytes(values, bytes);
    int64_t before = 0;
    memset(area, 0, sizeof area);
    for (int i = 0; i <= NUMBERS; i++) {
        const bool numbers = i == NUMBERS;
        area[i].name = names[i];
        area[i].bytes = numbers ? (int)sizeof(double) : bytes;
        area[i].at = before;
        area[i].apart = record;
        area[i].values = numbers ? (int64_t)RECORD_NUMBERS : values[i];
        area[i].ld = numbers || !ld ? 0 : ld[i];
        area[i].count = f->x->room_bytes / record;
        before += area[i].values * bytes;
    }
    return add_areas(f, area, NUMBERS + 1);
}

CORE const Area *area_of(const GpuCalls *x, int array)
{
    return is_area(array) ? &x->area[-2 - array] : NULL;
}

/* ---- sets ---- */
CORE int add_set(const MethodAt *f, const PointerSet *want)
{
    GpuCalls *x = f->x;
    if (x->out)                    /* the last element of a list that did not grow is not linked */
        return 0;
    CallGroup *g = &x->group[want->group];
    for (int i = g->sets; i >= 0; i = (int)x->set[i].next)
        if (!memcmp(&x->set[i], want, offsetof(PointerSet, next)))
            return i;
    x->set = (PointerSet *)list_more(x, x->set, &x->nset, sizeof *x->set);
    if (x->out)
        return 0;
    PointerSet *s = &x->set[x->nset - 1];
    *s = *want;
    s->each = (want->blocks ? (int64_t)want->blocks * (want->blocks + 1) / 2 : 1) *
              (want->parts ? want->parts : 1);
    s->next = g->sets;
    return g->sets = x->nset - 1;
}

CORE PointerSet set_in(const MethodAt *f, int array)
{
    const CallGroup *g = &f->x->group[f->group];
    const ProgArray *m = &f->b->program->array[array < 0 ? 0 : array];
    const Area *area = area_of(f->x, array);
    PointerSet s;
    memset(&s, 0, sizeof s);
    s.array = array;
    s.group = f->group;
    if (area)
        s.row_stride = area->ld;
    else if (array >= 0 && m->dom == ELEM && g->row_stride != g->shape.cols)
        s.row_stride = g->row_stride;
    if (array >= 0)
        f->x->moves = f->x->moves || m->kind == MEM_P || m->kind == MEM_G || m->kind == MEM_INPUT;
    return s;
}

static int offset_set(const MethodAt *f, int array, int64_t offset)
{
    PointerSet s = set_in(f, array);
    s.offset = offset;
    return add_set(f, &s);
}

CORE int whole_set(const MethodAt *f, int array) { return offset_set(f, array, 0); }

CORE int parts_set(const MethodAt *f, Part p, int64_t parts, int64_t apart)
{
    PointerSet s = set_in(f, AREA(f->areas + p.area));
    s.offset = p.row * s.row_stride + p.col;
    s.parts = (int)parts;
    s.apart = apart;
    return add_set(f, &s);
}

CORE int part_set(const MethodAt *f, Part p) { return parts_set(f, p, 0, 0); }

CORE int stats_set(const MethodAt *f)
{
    return offset_set(f, OWN_STATS, f->stage - f->b->program->stage);
}

static int block_set(const MethodAt *f, int array, int blocks, int64_t down, int64_t across)
{
    PointerSet s = set_in(f, array);
    s.blocks = blocks;
    s.down = down;
    s.across = across;
    return add_set(f, &s);
}

/* ---- steps ---- */
/* Block size for the lower triangle of a symmetric product. It changes bits, so it must follow from
 * the shape alone. Measured on an H200 as shares of the full product's time, mirroring included
 * (tests/gpu/products.sh), for blocks of 64 / 128 / 256:
 *   16 bits   48 x 2048 x 2048   1.01 / 0.63 / 0.65      12 x 2048 x 2048   1.05 / 0.78 / 0.71
 *             16 x 2048 x 8192   1.12 / 0.63 / 0.57       1 x 4096 x 4096   1.15 / 0.64 / 0.69
 *              8 x 1600 x 1600   1.06 / 0.86 / 0.91       8 x 1024 x 4096   1.44 / 0.93 / 0.84
 *             24 x  768 x 3072   1.53 / 0.77 / 0.84      12 x  768 x  768   1.74 / 0.88 / 1.18
 *             32 x  512 x 2048   1.29 / 1.08 / 0.99
 *   tf32       8 x 2048 x 2048   1.33 / 1.33 / 0.71       8 x 1024 x 1024   1.25 / 1.02 / 0.98
 *   f64        8 x 1024 x 1024   0.72 / 0.73 / 0.80      24 x  768 x  768   0.78 / 0.83 / 0.91
 *   f32        8 x 1024 x 1024   0.77 / 0.77 / 0.88      64 x  256 x  256   1.01 / 1.15 / 1.16
 *     without mirroring:
 *             12 x  768 x 2304   0.67 / 0.51 / 0.75      12 x  768 x  768   0.58 / 0.45 / 0.66
 *             12 x  768 x 3072   0.67 / 0.50 / 0.75      60 x  768 x  768   0.65 / 0.56 / 0.67
 *             12 x 2304 x  768   0.65 / 0.54 / 0.60      12 x 3072 x  768   0.64 / 0.52 / 0.56
 *              8 x 2048 x 2048   0.65 / 0.62 / 0.62      16 x  512 x 2048   0.85 / 0.85 / 0.99
 *              8 x 1600 x 1600   0.55 / 0.57 / 0.57      12 x  384 x 1536   0.68 / 0.94 / 1.16
 *     Full products in f32 reach 43 to 51 TFLOP/s; cuBLASLt's first eight algorithms are no faster
 *     for blocks.
 * For two thousand blocks of 128 cuBLAS uses smaller tiles than for three thousand, so the best
 * block depends on the number of matrices too; a choice by shape costs 3 % at 48 x 2048 x 2048.
 * Long sums are faster with large blocks. */
CORE int64_t gram_block(const CallType *t, int64_t n, int64_t k)
{
    if (t->compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return n > 256 ? 256 : n;
    if (t->bytes == 4 && n >= 640 && n % 128 == 0)
        return 128;
    if (t->bytes > 2)
        return n >= 256 ? 64 : n;
    if (n < 640)
        return n > 256 ? 256 : n;
    if (n < 1024 || n % 256)
        return 128;
    return k < 2 * n && n >= 4096 ? 128 : 256;
}

static int64_t at_least_1(int64_t n) { return n > 0 ? n : 1; }

CORE int64_t kernel_blocks(CallKernel k, int64_t m, int64_t n, bool lower)
{
    int64_t tile = kernel_info[k].tile, down = count_up(m, tile), across = count_up(n, tile);
    switch (kernel_info[k].grid) {
    case GRID_VALUES: return count_up(dom_times(m, n), tile);
    case GRID_ROWS: return down;
    case GRID_COLS: return across;
    case GRID_TILES: return lower ? dom_times(down, down + 1) / 2 : dom_times(down, across);
    case GRID_TRIANGLE: return dom_times(across, across + 1) / 2;
    default: return 1;
    }
}

CORE CallStep *add_step(MethodAt *f, StepKind kind, CallKernel kernel, int a, int b, int c)
{
    GpuCalls *x = f->x;
    x->step = (CallStep *)list_more(x, x->step, &x->nstep, sizeof *x->step);
    CallStep *s = &x->step[x->nstep - 1];
    s->kind = kind;
    s->kernel = kernel;
    s->type = f->work;
    s->a = a, s->b = b, s->c = c;
    s->d = -1;
    return s;
}

/* A launch over all matrices of a round must not exceed MOST_BLOCKS. */
static void launch_fits(MethodAt *f, CallStep *s, int64_t blocks)
{
    const CallGroup *g = &f->x->group[f->group];
    const int64_t all = dom_times(g->n, g->shape.slices);
    s->blocks = (unsigned)blocks;
    f->fits = f->fits && dom_times(blocks, all) <= MOST_BLOCKS && s->m <= INT_MAX &&
              s->n <= INT_MAX && s->k <= INT_MAX;
}

CORE CallStep *add_launch_of(MethodAt *f, CallKernel kernel, int a, int b, int c, int64_t m,
                             int64_t n, int64_t blocks)
{
    CallStep *s = add_step(f, STEP_KERNEL, kernel, a, b, c);
    s->m = m;
    s->n = n;
    launch_fits(f, s, blocks);
    return s;
}

CORE CallStep *add_launch(MethodAt *f, CallKernel kernel, int a, int b, int c, int64_t m, int64_t n)
{
    return add_launch_of(f, kernel, a, b, c, m, n, kernel_blocks(kernel, m, n, false));
}

CORE CallStep *add_product(MethodAt *f, Operand a, Operand b, Operand c, ProductSize z,
                           unsigned transpose, double alpha, double beta)
{
    CallStep *s = add_step(f, f->x->library ? STEP_PRODUCT : STEP_KERNEL, f->work->mm, a.set, b.set,
                           c.set);
    s->m = z.m, s->n = z.n, s->k = z.k;
    s->lda = a.ld, s->ldb = b.ld, s->ldc = c.ld;
    s->flags = transpose;
    s->alpha = alpha;
    s->beta = beta;
    launch_fits(f, s, dom_times(kernel_blocks(s->kernel, z.m, z.n, false),
                                f->x->set[c.set].each));
    return s;
}

static Operand part_operand(const MethodAt *f, Part p)
{
    return operand(part_set(f, p), f->x->area[f->areas + p.area].ld);
}

CORE CallStep *part_product(MethodAt *f, Part a, Part b, Part c, ProductSize z, unsigned transpose,
                            double alpha, double beta)
{
    const Operand x = part_operand(f, a), y = part_operand(f, b);
    return add_product(f, x, y, part_operand(f, c), z, transpose, alpha, beta);
}

CORE bool stores_f64(const MethodAt *f)
{
    return f->b->program->array[f->call->out].type == (int)T_F64;
}

CORE double result_most(const MethodAt *f) { return stores_f64(f) ? DBL_MAX : (double)FLT_MAX; }

CORE void store_result(const MethodAt *f, CallStep *s)
{
    const ProgCall *c = f->call;
    s->c = whole_set(f, c->out);
    s->b = c->c >= 0 ? whole_set(f, c->c) : s->c;
    s->flags |= c->c < 0 ? 0u : c->c == c->out ? 3u : 1u;
}

/* ---- products ---- */
CORE CallStep *add_product_step(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z)
{
    CallStep *s = add_step(f, STEP_PRODUCT, t->mm, 0, 0, 0);
    s->type = t;
    s->flags = c->flags & (TRANS_A | TRANS_B | SYMMETRIC);
    s->alpha = c->alpha;
    s->beta = c->c >= 0 ? c->beta : 0;
    s->m = z.m;
    s->n = z.n;
    s->k = z.k;
    s->lda = at_least_1(z.ld[0]);
    s->ldb = at_least_1(z.ld[1]);
    s->ldc = at_least_1(z.ld[3]);
    return s;
}

static void use_kernel(MethodAt *f, CallStep *s, bool lower)
{
    s->kind = STEP_KERNEL;
    launch_fits(f, s, kernel_blocks(s->kernel, s->m, s->n, lower));
}

/* the addend is another array */
static bool is_apart(const ProgCall *c) { return c->c >= 0 && c->c != c->out; }

/* The operands of a product: the first one and the result begin `a` and `out` values on. */
static void put_operands(const MethodAt *f, const ProgCall *c, CallStep *s, int64_t a, int64_t out)
{
    s->a = offset_set(f, c->a, a);
    s->b = whole_set(f, c->b);
    s->c = offset_set(f, c->out, out);
    s->d = is_apart(c) ? offset_set(f, c->c, out) : -1;
}

/* The blocks on and below the diagonal, then the rows below the last whole block. */
static void add_triangle(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z,
                         int64_t rows)
{
    CallStep *s = add_product_step(f, t, c, z);
    int blocks = (int)(z.n / rows);
    int64_t left = z.n % rows, top = z.n - left;
    s->m = s->n = rows;
    int64_t down = rows * (c->flags & TRANS_A ? 1 : s->lda),
            across = rows * (c->flags & TRANS_B ? s->ldb : 1);
    s->a = block_set(f, c->a, blocks, down, 0);
    s->b = block_set(f, c->b, blocks, 0, across);
    s->c = block_set(f, c->out, blocks, rows * s->ldc, rows);
    s->d = is_apart(c) ? block_set(f, c->c, blocks, rows * s->ldc, rows) : -1;
    if (!left)
        return;
    s = add_product_step(f, t, c, z);
    s->m = left;
    put_operands(f, c, s, top * (c->flags & TRANS_A ? 1 : s->lda), top * s->ldc);
}

/* A copy of the addend, or a mirror. */
static CallStep *add_own(MethodAt *f, CallKernel kernel, const CallType *t, const ProgCall *c,
                         ProductShape z)
{
    CallStep *s = add_product_step(f, t, c, z);
    s->kernel = kernel;
    s->c = whole_set(f, c->out);
    s->a = s->b = kernel == t->over ? whole_set(f, c->c) : s->c;
    s->flags = t->cuda == CUDA_R_16BF ? VALUES_BF16 : 0;
    s->alpha = kernel == t->mirror ? c->diagonal : 0;
    s->beta = 0;
    use_kernel(f, s, false);
    return s;
}

/* ---- long sums ---- */
/* Results of few tiles and sums of very many terms, such as those over an embedding's rows, would
 * occupy few multiprocessors. Measured on an H200 for 50257 terms, 768 x 768: 18 tiles of a product
 * in f32 took 7.7 ms, 1.2 ms at the rate of other products; 21 blocks of a Gram matrix in f16 144
 * us, 63 us in parts. They are computed as sums of about SUM_PART terms each in the workspace, in
 * one call, and the mirror adds them up, or the copy. Parts of 16-bit products are f32. The number
 * of parts changes bits, so it follows from the shape alone. */
enum { LONG_SUM = 16384, SUM_PART = 4096, LONG_SUM_ROWS = 1024, LONG_SUM_BYTES = 32 << 20 };

/* of a value of a part */
static int part_bytes(const CallType *t) { return t->bytes == 2 ? 4 : t->bytes; }

/* Parts have a multiple of 8 terms, for which tensor cores need addresses at multiples of 16 bytes
 * (misaligned). This holds if each matrix of a tensor, and each part of a result, is such a
 * multiple long. Depends on the shape alone. */
static bool parts_aligned(const CallType *t, ProductShape z)
{
    return t->bytes > 2 || ((z.m * z.k | z.k * z.n) % 8 == 0 && z.m * z.n % 4 == 0);
}

/* 0: not in parts. Parts of more than LONG_SUM_BYTES would take the workspace of other products. */
CORE int sum_parts(const CallType *t, const ProgCall *c, ProductShape z)
{
    if (!z.m || !z.n || z.k < LONG_SUM || z.m > LONG_SUM_ROWS || z.n > LONG_SUM_ROWS ||
        t->compute == CUBLAS_COMPUTE_32F_FAST_TF32 || !parts_aligned(t, z))
        return 0;
    bool whole = c->flags & SYMMETRIC ? z.n % gram_block(t, z.n, z.k) == 0
                                      : z.ld[3] == z.n && !(c->flags & BLOCKED);
    return whole && z.k / SUM_PART * z.m * z.n * part_bytes(t) <= LONG_SUM_BYTES
               ? (int)(z.k / SUM_PART)
               : 0;
}

CORE int64_t product_record(const optc_binding *b, const ProgStage *s, Shape shape)
{
    const Program *p = b->program;
    const CallType *t = call_type(p, s->call);
    ProductShape z = product_shape(p, s->call, shape, shape.cols);
    return shape.slices && t
               ? (sum_parts(t, s->call, z) * z.m * z.n * part_bytes(t) + 255) / 256 * 256
               : 0;
}

/* k terms from `from` on, for each of `parts`, which are `length` terms apart; from > 0: added to
 * the first part */
static void add_part(MethodAt *f, int parts, int64_t length, int64_t from, int64_t k)
{
    const CallType *t = f->type;
    const ProgCall *c = f->call;
    const ProductShape z = f->z;
    CallStep *s = add_product_step(f, t, c, z);
    const bool symmetric = c->flags & SYMMETRIC, ta = c->flags & TRANS_A, tb = c->flags & TRANS_B;
    const int64_t rows = symmetric ? gram_block(t, z.n, z.k) : z.m, a_term = ta ? s->lda : 1,
                  b_term = tb ? 1 : s->ldb;
    PointerSet a = set_in(f, c->a), b = set_in(f, c->b), to = set_in(f, AREA(f->areas));
    s->m = rows;
    s->n = symmetric ? rows : z.n;
    s->k = k;
    s->ldc = z.n;
    s->beta = from ? 1 : 0;
    a.blocks = b.blocks = to.blocks = (int)(z.m / rows);
    a.parts = b.parts = to.parts = parts;
    a.down = rows * (ta ? 1 : s->lda);
    b.across = rows * (tb ? s->ldb : 1);
    to.down = rows * z.n, to.across = rows;
    a.offset = from * a_term, b.offset = from * b_term;
    a.apart = length * a_term, b.apart = length * b_term, to.apart = z.m * z.n;
    s->a = add_set(f, &a);
    s->b = add_set(f, &b);
    s->c = add_set(f, &to);
}

/* The library supports the lengths of the steps from `first` on. */
static optc_status product_built(const MethodAt *f, int first)
{
    const GpuCalls *x = f->x;
    for (int i = first; i < x->nstep && x->library; i++) {
        GpuGemm y = step_gemm(x, &x->step[i]);
        if (gemm_is_long(&y) && !x->blas.cublasGemmBatchedEx_64)
            return too_long(f, "lengths beyond 32 bits need cuBLAS 12.1 or newer");
    }
    return OPTC_OK;
}

/* Adds the steps of a long sum: copy the summand, multiply the parts, add them up, and mirror a
 * symmetric result. Parts are multiples of 8 terms, so that they start at aligned addresses; few
 * terms are left. */
CORE optc_status build_long_sum(MethodAt *f)
{
    GpuCalls *x = f->x;
    const ProgCall *c = f->call;
    const CallType *t = f->type;
    const ProductShape z = f->z;
    const int parts = f->parts, first = x->nstep;
    const int64_t record = product_record(f->b, f->stage, x->group[f->group].shape),
                  length = z.k / parts / 8 * 8;
    const Area area = {"parts", 0,   part_bytes(t),         0, record, parts * z.m * z.n,
                       z.n,     x->room_bytes / record};
    optc_status e = add_areas(f, &area, 1);
    if (e != OPTC_OK)
        return e;
    if (is_apart(c))
        add_own(f, t->over, t, c, z);
    add_part(f, parts, length, 0, length);
    if (z.k > parts * length)
        add_part(f, 1, length, parts * length, z.k - parts * length);
    CallStep *s = add_own(f, c->flags & SYMMETRIC ? t->mirror : t->over, t, c, z);
    s->k = parts;
    s->flags |= SUM_OF_PARTS;
    s->alpha = c->diagonal;
    s->beta = c->c >= 0 ? c->beta : 0;
    s->a = s->b = whole_set(f, AREA(f->areas));
    return product_built(f, first);
}

/* ---- calls ---- */
CORE GpuGemm step_gemm(const GpuCalls *x, const CallStep *s)
{
    const Area *to = area_of(x, x->set[s->c].array);
    GpuGemm y;
    memset(&y, 0, sizeof y);
    y.type = s->type;
    y.f32 = to && to->bytes != s->type->bytes;             /* a part of a long sum */
    y.trans_a = (s->flags & TRANS_A) != 0, y.trans_b = (s->flags & TRANS_B) != 0;
    y.m = s->m, y.n = s->n, y.k = s->k;
    y.lda = s->lda, y.ldb = s->ldb, y.ldc = s->ldc;
    y.alpha = s->alpha, y.beta = s->beta;
    return y;
}

/* With an array of pointers cuBLAS uses tensor cores without checking the alignment of matrices.
 * Its manual requires 16 bytes, and 4 if k is not a multiple of 8. So blocks of odd sizes, and
 * tensors whose slices are not aligned, use our own product. Arrays of ours are aligned; such
 * products do not read callers' arrays (segments.c). */
CORE bool misaligned(const optc_binding *b, const CallGroup *g, const ProgCall *c, int64_t k)
{
    const Program *p = b->program;
    const CallType *t = call_type(p, c);
    const int array[] = {c->a, c->b, c->out};
    int64_t by = k % 8 == 0 ? 16 : k % 2 == 0 ? 4 : 1;
    bool blocked = c->flags & BLOCKED, even = !blocked || b->tensor[g->tensor[0]].even;
    for (int i = 0; i < 3 && even && g->shape.slices > 1; i++) {
        Dom d = p->array[array[i]].dom;
        even = (blocked && d == ELEM) || dom_len_inside(d, g->shape) * t->bytes % by == 0;
    }
    return !even && (t->bytes == 2 || t->compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

/* Adds the steps: copy the summand, multiply, mirror and add the diagonal. own: by our kernels. */
static void product_steps(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z,
                          bool own)
{
    bool symmetric = c->flags & SYMMETRIC;
    int block = f->gpu->block;
    int64_t rows = !symmetric ? z.n : block && block < z.n ? block : gram_block(t, z.n, z.k);
    if (is_apart(c))
        add_own(f, t->over, t, c, z);
    if (symmetric && !own && rows < z.n) {
        add_triangle(f, t, c, z, rows);
    } else if (own || symmetric || !add_lower_product(f, t, c, z)) {
        CallStep *s = add_product_step(f, t, c, z);
        put_operands(f, c, s, 0, 0);
        if (own) {
            s->d = -1;
            use_kernel(f, s, symmetric);
        }
    }
    if (symmetric && (!(c->flags & LOWER) || c->diagonal != 0))
        add_own(f, t->mirror, t, c, z);
}

CORE optc_status build_product(MethodAt *f)
{
    const int first = f->x->nstep;
    product_steps(f, f->type, f->call, f->z, !f->library);
    return product_built(f, first);
}

CORE void symmetric_product(MethodAt *f, int a, int b, int out, int64_t n, int64_t terms,
                            double alpha, unsigned flags)
{
    const Area *area = f->x->area + f->areas;
    ProgCall c;
    ProductShape z;
    memset(&c, 0, sizeof c);
    memset(&z, 0, sizeof z);
    c.flags = SYMMETRIC | flags;
    c.a = AREA(f->areas + a);
    c.b = AREA(f->areas + b);
    c.c = -1;
    c.out = AREA(f->areas + out);
    c.alpha = alpha;
    z.slices = 1;
    z.m = z.n = n;
    z.k = terms;
    z.ld[0] = z.ld[1] = area[a].ld ? area[a].ld : n;
    z.ld[2] = z.ld[3] = area[out].ld ? area[out].ld : n;
    product_steps(f, f->work, &c, z, !f->x->library);
}

/* Builds the steps of a product on a GPU, and the sets of pointers that they use. */
#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets ---- */
CORE int add_set(GpuCalls *x, const PointerSet *want)
{
    CallGroup *g = &x->group[want->group];
    for (int i = g->sets; i >= 0; i = x->set[i].next) {
        const PointerSet *s = &x->set[i];
        if (s->array == want->array && s->blocks == want->blocks && s->offset == want->offset &&
            s->down == want->down && s->across == want->across && s->record == want->record &&
            s->parts == want->parts && s->apart == want->apart && s->base == want->base &&
            s->most == want->most && (s->array >= 0 || s->row_stride == want->row_stride))
            return i;
    }
    x->set[x->nset] = *want;
    x->set[x->nset].each = (want->blocks ? (int64_t)want->blocks * (want->blocks + 1) / 2 : 1) *
                           (want->parts ? want->parts : 1);
    x->set[x->nset].next = g->sets;
    return g->sets = x->nset++;
}

static PointerSet set_in(const GpuCalls *x, int array, int group)
{
    PointerSet s;
    memset(&s, 0, sizeof s);
    s.array = array;
    s.group = group;
    if (is_area(array)) {
        s.record = x->record;
        s.base = x->area[-1 - array];
        s.row_stride = x->area_ld[-1 - array];
        s.bytes = x->value_bytes;
    }
    return s;
}

CORE int whole_set(GpuCalls *x, int array, int group, int64_t offset)
{
    PointerSet s = set_in(x, array, group);
    s.offset = offset;
    return add_set(x, &s);
}

CORE int parts_set(GpuCalls *x, int array, int group, int64_t offset, int parts, int64_t apart)
{
    PointerSet s = set_in(x, array, group);
    s.offset = offset;
    s.blocks = 1;
    s.parts = parts;
    s.apart = apart;
    return add_set(x, &s);
}

static int block_set(GpuCalls *x, int array, int group, int blocks, int64_t down, int64_t across)
{
    PointerSet s = set_in(x, array, group);
    s.blocks = blocks;
    s.down = down;
    s.across = across;
    return add_set(x, &s);
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

CORE CallStep *add_step(GpuCalls *x, CallKernel kernel, const CallType *t, int group)
{
    CallStep *s = &x->step[x->nstep++];
    memset(s, 0, sizeof *s);
    s->kernel = kernel;
    s->type = t;
    s->group = group;
    s->d = s->reader = s->task = -1;
    return s;
}

static CallStep *product_step(GpuCalls *x, const CallType *t, const ProgCall *c, int group)
{
    CallStep *s = add_step(x, t->mm, t, group);
    s->flags = c->flags & (TRANS_A | TRANS_B | SYMMETRIC);
    s->alpha = c->alpha;
    s->beta = c->c >= 0 ? c->beta : 0;
    return s;
}

/* Thread blocks per matrix; 0: a launch over the whole group would exceed MOST_BLOCKS. */
static unsigned own_blocks(const GpuCalls *x, const CallStep *s, bool lower)
{
    const CallGroup *g = &x->group[s->group];
    int64_t n = kernel_blocks(s->kernel, s->m, s->n, lower);
    return dom_times(dom_times(n, g->shape.slices), g->n) > MOST_BLOCKS ? 0 : (unsigned)n;
}

static bool add_own(GpuCalls *x, CallStep *s, bool lower)
{
    s->own = true;
    s->blocks = own_blocks(x, s, lower);
    return s->blocks && s->m <= INT_MAX && s->n <= INT_MAX && s->k <= INT_MAX;
}

static void sizes_into(CallStep *s, ProductShape z)
{
    s->m = z.m;
    s->n = z.n;
    s->k = z.k;
    s->lda = at_least_1(z.ld[0]);
    s->ldb = at_least_1(z.ld[1]);
    s->ldc = at_least_1(z.ld[3]);
}

/* the addend is another array */
static bool is_apart(const ProgCall *c) { return c->c >= 0 && c->c != c->out; }

/* The blocks on and below the diagonal, then the rows below the last whole block. */
static void add_triangle(GpuCalls *x, const CallType *t, const ProgCall *c, int group,
                         ProductShape z, int64_t rows)
{
    CallStep *s = product_step(x, t, c, group);
    int blocks = (int)(z.n / rows);
    int64_t left = z.n % rows, top = z.n - left;
    sizes_into(s, z);
    s->m = s->n = rows;
    int64_t down = rows * (c->flags & TRANS_A ? 1 : s->lda),
            across = rows * (c->flags & TRANS_B ? s->ldb : 1);
    s->a = block_set(x, c->a, group, blocks, down, 0);
    s->b = block_set(x, c->b, group, blocks, 0, across);
    s->c = block_set(x, c->out, group, blocks, rows * s->ldc, rows);
    s->d = is_apart(c) ? block_set(x, c->c, group, blocks, rows * s->ldc, rows) : -1;
    if (!left)
        return;
    s = product_step(x, t, c, group);
    sizes_into(s, z);
    s->m = left;
    s->a = whole_set(x, c->a, group, top * (c->flags & TRANS_A ? 1 : s->lda));
    s->b = whole_set(x, c->b, group, 0);
    s->c = whole_set(x, c->out, group, top * s->ldc);
    s->d = is_apart(c) ? whole_set(x, c->c, group, top * s->ldc) : -1;
}

static bool add_ours(GpuCalls *x, CallKernel kernel, const CallType *t, const ProgCall *c,
                     int group, ProductShape z)
{
    CallStep *s = add_step(x, kernel, t, group);
    sizes_into(s, z);
    s->c = whole_set(x, c->out, group, 0);
    s->a = s->b = kernel == t->over ? whole_set(x, c->c, group, 0) : s->c;
    s->flags = t->cuda == CUDA_R_16BF ? VALUES_BF16 : 0;
    s->diagonal = kernel == t->mirror ? c->diagonal : 0;
    return add_own(x, s, false);
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

CORE void product_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps,
                       int *sets)
{
    /* a copy, blocks, remaining rows and a mirror, and their sets; or panels of a triangle */
    const bool panels = s->call->flags & (LOWER_A | LOWER_B);
    (void)b, (void)shape;
    *steps = panels ? STEPS_LOWER : 4;
    *sets = panels ? SETS_LOWER : 10;
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
static void add_part(GpuCalls *x, const CallType *t, const ProgCall *c, int group, ProductShape z,
                     int parts, int64_t length, int64_t from, int64_t k)
{
    CallStep *s = product_step(x, t, c, group);
    bool symmetric = c->flags & SYMMETRIC;
    int64_t rows = symmetric ? gram_block(t, z.n, z.k) : z.m, a_term, b_term;
    PointerSet a = set_in(x, c->a, group), b = set_in(x, c->b, group),
               to = set_in(x, AREA(0), group);
    sizes_into(s, z);
    s->m = rows;
    s->n = symmetric ? rows : z.n;
    s->k = k;
    s->ldc = z.n;
    s->f32 = t->bytes == 2;
    s->beta = from ? 1 : 0;
    a_term = c->flags & TRANS_A ? s->lda : 1, b_term = c->flags & TRANS_B ? 1 : s->ldb;
    a.blocks = b.blocks = to.blocks = (int)(z.m / rows);
    a.parts = b.parts = to.parts = parts;
    a.down = rows * (c->flags & TRANS_A ? 1 : s->lda);
    b.across = rows * (c->flags & TRANS_B ? s->ldb : 1);
    to.down = rows * z.n, to.across = rows;
    a.offset = from * a_term, b.offset = from * b_term;
    a.apart = length * a_term, b.apart = length * b_term, to.apart = z.m * z.n;
    s->a = add_set(x, &a);
    s->b = add_set(x, &b);
    s->c = add_set(x, &to);
}

static optc_status product_built(const MethodAt *f, int first, bool fits)
{
    const GpuCalls *x = f->x;
    const CallGroup *g = &x->group[f->group];
    for (int i = first; i < x->nstep && x->library; i++) {
        GpuGemm y = step_gemm(&x->step[i]);
        if (gemm_is_long(&y) && !x->blas.cublasGemmBatchedEx_64)
            return too_long(f->b, f->stage, g, "lengths beyond 32 bits need cuBLAS 12.1 or newer");
    }
    return steps_fit(f, fits);
}

/* Adds the steps of a long sum: copy the summand, multiply the parts, add them up, and mirror a
 * symmetric result. Parts are multiples of 8 terms, so that they start at aligned addresses; few
 * terms are left. */
CORE optc_status build_long_sum(const MethodAt *f)
{
    GpuCalls *x = f->x;
    const ProgCall *c = f->call;
    const CallType *t = f->type;
    const ProductShape z = f->z;
    const int parts = f->parts, group = f->group, first_of_all = x->nstep;
    int64_t record = product_record(f->b, f->stage, x->group[group].shape),
            length = z.k / parts / 8 * 8;
    bool ok = !is_apart(c) || add_ours(x, t->over, t, c, group, z);
    int first = x->nstep;
    x->record = record;
    x->value_bytes = part_bytes(t);
    x->area[0] = 0;
    x->area_ld[0] = z.n;
    add_part(x, t, c, group, z, parts, length, 0, length);
    if (z.k > parts * length)
        add_part(x, t, c, group, z, 1, length, parts * length, z.k - parts * length);
    CallStep *s = add_step(x, c->flags & SYMMETRIC ? t->mirror : t->over, t, group);
    sizes_into(s, z);
    s->k = parts;
    s->flags = SUM_OF_PARTS | (t->cuda == CUDA_R_16BF ? VALUES_BF16 : 0);
    s->diagonal = c->diagonal;
    s->beta = c->c >= 0 ? c->beta : 0;
    s->a = s->b = whole_set(x, AREA(0), group, 0);
    s->c = whole_set(x, c->out, group, 0);
    ok = add_own(x, s, false) && ok;
    x->record = 0;
    for (int i = first; i < x->nstep; i++)
        x->step[i].at_once = x->room_bytes / record;
    return product_built(f, first_of_all, ok);
}

/* ---- calls ---- */
static bool add_whole(GpuCalls *x, const CallType *t, const ProgCall *c, int group, ProductShape z,
                      bool own)
{
    CallStep *s = product_step(x, t, c, group);
    sizes_into(s, z);
    s->a = whole_set(x, c->a, group, 0);
    s->b = whole_set(x, c->b, group, 0);
    s->c = whole_set(x, c->out, group, 0);
    s->d = !own && is_apart(c) ? whole_set(x, c->c, group, 0) : -1;
    return !own || add_own(x, s, c->flags & SYMMETRIC);
}

CORE GpuGemm step_gemm(const CallStep *s)
{
    GpuGemm x;
    memset(&x, 0, sizeof x);
    x.type = s->type;
    x.f32 = s->f32;
    x.trans_a = (s->flags & TRANS_A) != 0, x.trans_b = (s->flags & TRANS_B) != 0;
    x.m = s->m, x.n = s->n, x.k = s->k;
    x.lda = s->lda, x.ldb = s->ldb, x.ldc = s->ldc;
    x.alpha = s->alpha, x.beta = s->beta;
    return x;
}

CORE optc_status too_long(const optc_binding *b, const ProgStage *s, const CallGroup *g,
                          const char *why)
{
    char what[400];
    call_label(b, s, g, what, sizeof what);
    return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: %s", what, why);
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

/* Adds the steps: copy the summand, multiply, mirror and add the diagonal. own: by our kernels.
 * false: a launch would have too many blocks. */
CORE bool product_steps(const optc_binding *b, GpuCalls *x, const CallType *t, const ProgCall *c,
                        int group, ProductShape z, bool own)
{
    bool symmetric = c->flags & SYMMETRIC, ok = true;
    int block = b->rule->engine->gpu->block;
    int64_t rows = !symmetric ? z.n : block && block < z.n ? block : gram_block(t, z.n, z.k);
    if (is_apart(c)) {
        ok = add_ours(x, t->over, t, c, group, z);
        x->step[x->nstep - 1].reader = x->nstep;
    }
    if (symmetric && !own && rows < z.n)
        add_triangle(x, t, c, group, z, rows);
    else if (own || symmetric || !add_lower_product(b, x, t, c, group, z))
        ok = add_whole(x, t, c, group, z, own) && ok;
    if (symmetric && (!(c->flags & LOWER) || c->diagonal != 0))
        ok = add_ours(x, t->mirror, t, c, group, z) && ok;
    return ok;
}

CORE optc_status build_product(const MethodAt *f)
{
    const int first = f->x->nstep;
    return product_built(f, first, product_steps(f->b, f->x, f->type, f->call, f->group, f->z,
                                                 !f->library));
}

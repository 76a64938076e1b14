/* Symmetric products of 16-bit values on Hopper by a kernel of ours (templates/symmetric_cuda.txt).
 * It computes the lower triangle, adds a matrix and a diagonal, and writes both halves. One launch
 * replaces the products of blocks by cuBLAS, the mirror and the copy of the addend.
 *
 * Measured on an H200, with one kernel for all layouts, f16, us: the full product by cuBLAS; its
 * blocks and the mirror; those with an addend and a diagonal; this kernel; this kernel with both
 *   32 x 2048 x 2048    720, 523, 671, 450, 470
 *   48 x 2048 x 2048   1090, 785, 1006, 735, 760
 * and shares of the full product's time with 12 to 48 matrices: 0.6 for 2048 rows, 0.8 for 1024,
 * 0.9 for 768, 1.0 to 1.4 for 512, where blocks of cuBLAS need 0.8 to 1.0.
 *
 * Measured on another H200, f16, us: results written after their tile, then during the next one
 * (2026-11-19). First after a pause of 30 ms, then over a quarter of a second without a pause,
 * where power limits the chip:
 *   32 x 2048 x 2048                             493, 463      544, 495
 *   32 x 2048 x 2048, addend and diagonal        531, 492      554, 522
 *   32 x 2048 x 8192, transposed                1804, 1602    2106, 1909
 *   16 x 1024 x 1024, addend and diagonal         86, 82        56, 53
 *   48 x 768 x 3072                              278, 230      251, 207
 * A tile of 2048 terms takes 35,600 cycles and its rounding 1,400; the tensor cores alone need
 * 32,800. With this kernel from 512 rows on, Muon on GPT-2 (768 rows) took 3.93 ms instead of 3.45
 * (2026-11-18, before this form). Clusters take tiles in a fixed order, so another kernel that
 * holds multiprocessors may double the time; this was not measured. */
#include "runtime/core/matrix/gpu_calls.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

enum { HOPPER = 90, SYMMETRIC_ROWS = 1024, SYMMETRIC_THREADS = 384 };
/* Shared memory contains the ring and the results; up to 1023 bytes before them align the ring. */
enum { SYMMETRIC_SHARED = 3 * (48 << 10) + 2 * (32 << 10) + 1024 };

/* Must match optc_symmetric_task and optc_symmetric of templates/symmetric_cuda.txt. */
typedef struct SymmetricTask {
    CUtensorMap map[3];
    unsigned long long base[3];
    int n, k;
    char unused[32];
} SymmetricTask;
typedef struct SymmetricArgs {
    CUdeviceptr a, b, c, d, task;
    int count;
    float alpha, beta, diagonal;
} SymmetricArgs;
static_assert(sizeof(SymmetricTask) == SYMMETRIC_TASK_BYTES,
              "tasks follow each other at multiples of 64 bytes");
static_assert(sizeof(SymmetricArgs) == sizeof(Args), "all launches are of one size");

/* ---- which products ---- */
/* The first address of an array over the tensors of a group. A map reaches 2^31 times 16 bytes;
 * false: a matrix is farther away than half of that. */
static bool within_reach(const optc_binding *b, const CallGroup *g, int array,
                         unsigned long long *base)
{
    unsigned long long first = ULLONG_MAX, last = 0;
    for (int i = 0; i < g->n; i++) {
        unsigned long long at = (unsigned long long)(uintptr_t)b->tensor[g->tensor[i]].mem[array];
        /* a state of the caller may move */
        if (at % 16 || state_caller_owned(b, g->tensor[i], array))
            return false;
        first = at < first ? at : first;
        last = at > last ? at : last;
    }
    *base = first;
    return last - first + 2 * (unsigned long long)dom_len(b->program->array[array].dom, g->shape) <
           1ull << 34;
}

/* The first address of each map's matrices: a, b, and the result with its addend d, which may be
 * -1. */
static bool all_bases(const optc_binding *b, const CallGroup *g, int a, int second, int c, int d,
                      unsigned long long base[3])
{
    unsigned long long addend;
    if (!within_reach(b, g, a, &base[0]) || !within_reach(b, g, second, &base[1]) ||
        !within_reach(b, g, c, &base[2]))
        return false;
    if (d < 0)
        return true;
    bool near = within_reach(b, g, d, &addend);
    unsigned long long apart = addend > base[2] ? addend - base[2] : base[2] - addend;
    base[2] = addend < base[2] ? addend : base[2];
    return near && apart < 1ull << 34;
}

static bool in_our_memory(const ProgArray *m, int array)
{
    return m[array].kind == MEM_TEMP || m[array].kind == MEM_STATE;
}

/* The choice changes bits, so it follows from the shape, the device and its code alone, except for
 * states of the caller and where memory is too far apart: a binding's arrays of more than 16 GB. A
 * cluster needs two multiprocessors. */
CORE bool symmetric_fits(const MethodAt *f)
{
    const optc_binding *b = f->b;
    const CallGroup *g = &f->x->group[f->group];
    const CallType *t = f->type;
    const ProgCall *c = f->call;
    const ProductShape z = f->z;
    const GpuEngine *e = b->rule->engine->gpu;
    const ProgArray *m = b->program->array;
    bool ta = c->flags & TRANS_A, tb = c->flags & TRANS_B;
    int64_t rows = e->symmetric_rows ? e->symmetric_rows : SYMMETRIC_ROWS;
    int64_t strips = count_up(z.n, 256), tiles = dom_times(strips, strips + 1);
    unsigned long long base[3];
    if (e->arch != HOPPER || e->sms < 2 || b->gpu->code->empty_symmetric || t->symmetric == t->mm ||
        e->block)
        return false;
    if (!(c->flags & SYMMETRIC) || c->flags & BLOCKED ||
        (ta && tb) || z.n < rows || z.k < 1 || z.k > INT_MAX || (z.n | z.k) % 8 ||
        dom_times(dom_times(tiles, g->shape.slices), g->n) > MOST_BLOCKS)
        return false;
    if (z.ld[0] != (ta ? z.n : z.k) || z.ld[1] != (tb ? z.k : z.n) || z.ld[3] != z.n ||
        (c->c >= 0 && z.ld[2] != z.n))
        return false;
    return in_our_memory(m, c->a) && in_our_memory(m, c->b) && in_our_memory(m, c->out) &&
           (c->c < 0 || in_our_memory(m, c->c)) && all_bases(b, g, c->a, c->b, c->out, c->c, base);
}

CORE optc_status build_symmetric(MethodAt *f)
{
    const ProgCall *c = f->call;
    int form = c->flags & TRANS_A ? 2 : c->flags & TRANS_B ? 1 : 0;
    CallStep *s = add_product_step(f, f->type, c, f->z);
    s->kind = STEP_SYMMETRIC;
    s->kernel = (CallKernel)(f->type->symmetric + form);
    s->diagonal = c->diagonal;
    s->a = whole_set(f, c->a);
    s->b = whole_set(f, c->b);
    s->c = whole_set(f, c->out);
    s->d = c->c >= 0 ? whole_set(f, c->c) : -1;
    s->task = f->x->ntask++;
    return OPTC_OK;
}

/* ---- tasks ---- */
/* A map of matrices with `lines` rows of `width` values, in boxes of 64 values in each of `rows`
 * rows. */
static int encode(const Driver *d, CUtensorMap *out, unsigned long long base, int64_t width,
                  int64_t lines, unsigned rows)
{
    const cuuint64_t size[] = {(cuuint64_t)width, 1ull << 31, (cuuint64_t)lines},
                     apart[] = {16, 2 * (cuuint64_t)width};
    const cuuint32_t box[] = {64, 1, rows}, step[] = {1, 1, 1};
    return d->cuTensorMapEncodeTiled(
        out, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, (void *)(uintptr_t)base, size, apart, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static int make_task(const optc_binding *b, const CallStep *s, SymmetricTask *t)
{
    const Driver *d = b->rule->engine->gpu->d;
    const GpuCalls *x = b->gpu->calls;
    bool ta = s->flags & TRANS_A, tb = s->flags & TRANS_B;
    memset(t, 0, sizeof *t);
    all_bases(b, step_group(x, s), x->set[s->a].array, x->set[s->b].array, x->set[s->c].array,
              s->d < 0 ? -1 : x->set[s->d].array, t->base);
    t->n = (int)s->n, t->k = (int)s->k;
    int rc = encode(d, &t->map[0], t->base[0], ta ? s->n : s->k, ta ? s->k : s->n, ta ? 64 : 128);
    if (!rc)
        rc = encode(d, &t->map[1], t->base[1], tb ? s->k : s->n, tb ? s->n : s->k, tb ? 128 : 64);
    return rc ? rc : encode(d, &t->map[2], t->base[2], s->n, s->n, 64);
}

CORE optc_status symmetric_bind(optc_binding *b, const GpuCalls *x)
{
    GpuEngine *g = b->rule->engine->gpu;
    /* the driver writes maps at multiples of 64 bytes */
    char room[sizeof(SymmetricTask) + 63];
    SymmetricTask *t = (SymmetricTask *)(void *)(((uintptr_t)room + 63) / 64 * 64);
    for (int i = 0; i < x->nstep; i++) {
        const CallStep *s = &x->step[i];
        if (s->kind != STEP_SYMMETRIC)
            continue;
        int rc = make_task(b, s, t);
        if (rc)
            return gpu_error(g, "cuTensorMapEncodeTiled", rc, "optc_bind");
        /* pageable memory: the driver has copied it when the call returns */
        TRY(g,
            cuMemcpyHtoDAsync_v2(x->tasks + SYMMETRIC_TASK_BYTES * (CUdeviceptr)s->task, t,
                                 sizeof *t, b->gpu->stream),
            "symmetric products");
    }
    return OPTC_OK;
}

CORE optc_status launch_symmetric(optc_binding *b, const GpuCall *c, const CallStep *s,
                                  Matrices of)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const GpuCalls *x = b->gpu->calls;
    CUfunction fn = b->gpu->code->call[s->kernel];
    SymmetricArgs a = {set_pointers(x, s->a, of.from),
                       set_pointers(x, s->b, of.from),
                       set_pointers(x, s->c, of.from),
                       s->d < 0 ? 0 : set_pointers(x, s->d, of.from),
                       x->tasks + SYMMETRIC_TASK_BYTES * (CUdeviceptr)s->task,
                       (int)of.n,
                       (float)s->alpha,
                       (float)s->beta,
                       (float)s->diagonal};
    void *args[] = {&a};
    int64_t strips = count_up(s->n, 256), all = strips * (strips + 1) * of.n;
    int64_t most = g->sms / 2 * 2;                 /* whole clusters */
    int rc = g->d->cuFuncSetAttribute(fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      SYMMETRIC_SHARED);
    if (rc)
        return step_failed(b, c, s, "cuFuncSetAttribute", rc);
    rc = g->d->cuLaunchKernel(fn, (unsigned)(all < most ? all : most), 1, 1, SYMMETRIC_THREADS, 1,
                              1, SYMMETRIC_SHARED, b->gpu->stream, args, NULL);
    return step_failed(b, c, s, "cuLaunchKernel", rc);
}

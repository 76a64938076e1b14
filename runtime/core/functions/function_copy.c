/* Copies matrices between the caller's memory, with its strides and storage type, and memory
 * without gaps in the type that functions compute in. On the way it looks for values that are not
 * finite and for matrices that are not symmetric. The CPU's loops and templates/copy_cuda.txt do
 * the same. */
#include "runtime/core/functions/function.h"

#include "runtime/core/base/conversions.h"
#include "runtime/core/cpu/cpu.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Entries that belong together may differ by 2^-bits of their size. */
static unsigned symmetric_bits(Type t) { return (unsigned)number_type[t].digits / 2; }

/* ---- the CPU ---- */
typedef struct CpuCopy {
    const FunctionSlot *s; Type t; unsigned flags; char *flat; unsigned *bad;
} CpuCopy;

/* Whether x is finite when it is stored as y. Types without infinities store their largest value
 * instead. */
static bool value_fits(double x, double y, int digits)
{
    return isfinite(y) &&
           !(fabs(y) > 1 && fabs(x) > fabs(y) * (1 + 1.0 / (double)((int64_t)1 << digits)));
}

#define COPY_OF(ID, C, LOAD, STORE, COMPUTE) \
    static double value_##ID(const C *m, const FunctionSlot *s, int64_t i, int64_t j) \
    { \
        return (double)LOAD(m[i * s->ld + j]); \
    } \
    static bool differs_##ID(const C *m, const FunctionSlot *s, int64_t i, int64_t j) \
    { \
        double p = value_##ID(m, s, i, j), q = value_##ID(m, s, j, i), \
               d = sqrt(fabs(value_##ID(m, s, i, i))) * sqrt(fabs(value_##ID(m, s, j, j))); \
        return fabs(p - q) * (double)(1 << symmetric_bits(T_##ID)) > fabs(p) + fabs(q) + d; \
    } \
    /* without changes of the order; simple loops: a branch per value took six times as long */ \
    static void rows_##ID(const CpuCopy *x, C *m, COMPUTE *f, int64_t nth) \
    { \
        const FunctionSlot *s = x->s; \
        int64_t outside = 0; \
        for (int64_t i = 0; i < s->rows; i++, m += s->ld, f += s->cols) \
            if ((x->flags & COPY_FITS) == COPY_FITS) { \
                for (int64_t j = 0; sizeof(C) == sizeof(COMPUTE) && j < s->cols; j++) \
                    outside += !isfinite((double)f[j]); \
                for (int64_t j = 0; sizeof(C) < sizeof(COMPUTE) && j < s->cols; j++) \
                    outside += !value_fits((double)f[j], (double)LOAD(STORE(f[j])), \
                                           number_type[T_##ID].digits); \
            } else if (x->flags & COPY_STORE) { \
                int64_t from = !(x->flags & COPY_UPPER) ? 0 : i < s->cols ? i : s->cols; \
                for (int64_t j = 0; j < from; j++) m[j] = STORE(0); \
                for (int64_t j = from; j < s->cols; j++) m[j] = STORE(f[j]); \
            } else { \
                for (int64_t j = 0; (x->flags & COPY_FINITE) && j < s->cols; j++) \
                    outside += !isfinite((double)LOAD(m[j])); \
                for (int64_t j = 0; !(x->flags & COPY_LOOK) && j < s->cols; j++) \
                    f[j] = LOAD(m[j]); \
            } \
        if (outside) x->bad[2 * nth] = 1; \
    } \
    static void copy_##ID(const CpuCopy *x, int64_t nth) \
    { \
        const FunctionSlot *s = x->s; \
        C *m = (C *)(void *)s->at + nth * s->next; \
        if (x->flags & COPY_RAW) { \
            const C *raw = (const C *)(const void *)x->flat + nth * s->rows * s->cols; \
            for (int64_t i = 0; i < s->rows; i++) \
                memcpy(m + i * s->ld, raw + i * s->cols, sizeof *m * (size_t)s->cols); \
            return; \
        } \
        COMPUTE *f = (COMPUTE *)(void *)x->flat + nth * s->rows * s->cols; \
        if (!(x->flags & (COPY_REVERSED | COPY_TRANSPOSED | COPY_LOWER | COPY_SYMMETRIC))) { \
            rows_##ID(x, m, f, nth); \
            return; \
        } \
        for (int64_t i = 0; i < s->rows; i++) \
            for (int64_t j = 0; j < s->cols; j++, f++) { \
                int64_t col = x->flags & COPY_REVERSED ? s->cols - 1 - j : j; \
                bool mirrors = (x->flags & COPY_LOWER) && j > i; \
                C *y = m + (mirrors != !!(x->flags & COPY_TRANSPOSED) ? j * s->ld + i \
                                                                      : i * s->ld + col); \
                if (x->flags & COPY_STORE) { \
                    *y = STORE((x->flags & COPY_UPPER) && j < i ? 0 : *f); \
                    continue; \
                } \
                if ((x->flags & COPY_FINITE) && !isfinite((double)LOAD(*y))) x->bad[2 * nth] = 1; \
                if ((x->flags & COPY_SYMMETRIC) && j < i && differs_##ID(m, s, i, j)) \
                    x->bad[2 * nth + 1] = 1; \
                if (!(x->flags & COPY_LOOK)) *f = LOAD(*y); \
            } \
    }
#define COMPUTE_F32 float
#define COMPUTE_F64 double
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, ...) \
    COPY_OF(ID, c, load, store, COMPUTE_##compute)
#define CODED(...)
#define DRAWN(...)
#define INTEGER(...)
#include "gen/abi/types.def"

CORE bool type_saturates(Type t)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, ...) \
    case T_##ID: return isfinite((double)load(store((COMPUTE_##compute)INFINITY)));
#define CODED(...)
#define DRAWN(...)
#define INTEGER(...)
#include "gen/abi/types.def"
    default: return false;
    }
}

static void copy_nth(void *with, int64_t nth)
{
    const CpuCopy *x = (const CpuCopy *)with;
    switch (x->t) {
#define TYPE(ID, ...) case T_##ID: copy_##ID(x, nth); return;
#define CODED(...)
#define DRAWN(...)
#define INTEGER(...)
#include "gen/abi/types.def"
    default: return;                                       /* the caller refuses other types */
    }
}

/* ---- a GPU ---- */
/* Must match optc_copy_of and optc_copies of templates/copy_cuda.txt. */
typedef struct CopyArgs {
    void *at, *flat;
    unsigned *bad;
    long long next, all;
    int rows, cols, ld, flags;
} CopyArgs;
typedef struct CopyPair { CopyArgs x[2]; long long split; } CopyPair;

enum { COPY_BLOCK = 4096, COPY_THREADS = 256 };

static optc_status copy_args(const FunctionForm *f, const CpuCopy *x, CopyArgs *out,
                             int64_t *blocks)
{
    const FunctionSlot *s = x->s;
    int64_t all = dom_times(dom_times(s->rows, s->cols), f->batch);
    *blocks = count_up(all, COPY_BLOCK);
    if (s->rows > INT_MAX || s->cols > INT_MAX || s->ld > INT_MAX || *blocks > INT_MAX / 2)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %s, %lld x %lld, batch = %lld, is too large for one launch", f->call,
                    s->label, (long long)s->rows, (long long)s->cols, (long long)f->batch);
    out->at = s->at, out->flat = x->flat, out->bad = x->bad, out->next = s->next, out->all = all;
    out->rows = (int)s->rows, out->cols = (int)s->cols, out->ld = (int)s->ld;
    bool fits = (x->flags & COPY_FITS) == COPY_FITS;
    out->flags =
        (int)(x->flags | (fits ? (unsigned)number_type[x->t].digits : symmetric_bits(x->t)) << 16);
    return OPTC_OK;
}

/* One launch, in the kernel for the type of the first copy. */
static optc_status copies_gpu(optc_engine *e, const FunctionForm *f, const CpuCopy *x, int n)
{
    CopyPair args;
    int64_t blocks[2] = {0, 0};
    memset(&args, 0, sizeof args);
    for (int i = 0; i < n; i++) {
        optc_status s = copy_args(f, &x[i], &args.x[i], &blocks[i]);
        if (s != OPTC_OK)
            return s;
    }
    args.split = blocks[0];
    void *params[] = {&args};
    TRY(e->gpu,
        cuLaunchKernel(e->functions->kit->copy[x->t], (unsigned)(blocks[0] + blocks[1]), 1, 1,
                       COPY_THREADS, 1, 1, 0, (CUstream)f->stream, params, NULL),
        f->call);
    return OPTC_OK;
}

static CpuCopy copy_of(const FunctionForm *f, const FunctionSlot *s, unsigned flags, char *flat,
                       unsigned *bad)
{
    CpuCopy x = {s, s->wide ? T_F64 : s->computed ? f->compute : f->type, flags, flat, bad};
    return x;
}

static bool is_empty(const FunctionForm *f, const FunctionSlot *s)
{
    return !s->rows || !s->cols || !f->batch;
}

CORE optc_status function_copy(optc_engine *e, const FunctionForm *f, const FunctionSlot *s,
                               unsigned flags, char *flat, unsigned *bad)
{
    enum { FEW_VALUES = 1 << 16 };
    CpuCopy x = copy_of(f, s, flags, flat, bad);
    if (is_empty(f, s))
        return OPTC_OK;
    if (e->gpu)
        return copies_gpu(e, f, &x, 1);
    double values = (double)s->rows * (double)s->cols * (double)f->batch;
    int64_t team = values < FEW_VALUES ? 1 : e->threads < f->batch ? e->threads : f->batch;
    parallel_for(threads_allowed((int)team), f->batch, copy_nth, &x);
    return OPTC_OK;
}

/* Two results may have different types. One of them is then f64 and has no gaps
 * (FunctionSlot.wide). */
CORE optc_status function_store(optc_engine *e, const FunctionForm *f, const FunctionSlot *s,
                                char *const *flat, int n)
{
    CpuCopy x[2];
    int all = 0;
    for (int i = 0; i < n; i++)
        if (s[i].at && !is_empty(f, &s[i]))
            x[all++] = copy_of(f, &s[i], s[i].flags | COPY_STORE, flat[i], NULL);
    if (all == 2 && x[1].t != x[0].t) {
        CpuCopy first = x[0];
        if (first.s->wide)
            x[0] = x[1], x[1] = first;
        x[1].flags |= COPY_WIDE;
    }
    if (e->gpu)
        return all ? copies_gpu(e, f, x, all) : OPTC_OK;
    for (int i = 0; i < all; i++)                          /* cannot fail */
        (void)function_copy(e, f, x[i].s, x[i].flags & ~(unsigned)COPY_WIDE, x[i].flat, NULL);
    return OPTC_OK;
}

/* Copies matrices between the caller's memory, with its strides and storage type, and memory
 * without gaps in the type that functions compute in. On the way it looks for values that are not
 * finite and for matrices that are not symmetric. The CPU's loops and templates/copy_cuda.txt do
 * the same. */
#include "runtime/core/functions/function.h"

#include "runtime/core/base/conversions.h"
#include "runtime/core/cpu/cpu.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows of values ---- */
#define LINE_F32 float
#define LINE_F64 double
CORE void line_load(Type t, const void *from, int64_t n, void *to)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, ...) \
    case T_##ID: \
        for (int64_t i = 0; i < n; i++) \
            ((LINE_##compute *)to)[i] = (LINE_##compute)load(((const c *)from)[i]); \
        return;
#define CODED(...)
#include "gen/abi/types.def"
    default: abort();                                      /* matrix_type refuses other types */
    }
}

CORE void line_store(Type t, void *to, int64_t by, int64_t n, const void *from)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, ...) \
    case T_##ID: \
        for (int64_t i = 0; i < n; i++) \
            ((c *)to)[i * by] = store(((const LINE_##compute *)from)[i]); \
        return;
#define CODED(...)
#include "gen/abi/types.def"
    default: abort();
    }
}

/* A copy of all matrices of s. */
typedef struct MatrixCopy { MatrixBatch s; unsigned flags; char *flat; unsigned *bad; } MatrixCopy;

static bool copy_fits(const MatrixCopy *x) { return (x->flags & COPY_FITS) == COPY_FITS; }

/* ---- the CPU ---- */
enum { CHUNK = 256 };                                      /* values of a row at a time */

/* n values of a compute type are finite. */
static bool line_finite(Type compute, const void *line, int64_t n)
{
    int64_t outside = 0;
    for (int64_t i = 0; compute == T_F64 && i < n; i++)
        outside += !isfinite(((const double *)line)[i]);
    for (int64_t i = 0; compute != T_F64 && i < n; i++)
        outside += !isfinite(((const float *)line)[i]);
    return !outside;
}

/* n values are finite when they are stored as t, of fewer than 32 bits. Types without infinities
 * store their largest value instead. */
static bool line_fits(Type t, const float *x, int64_t n)
{
    double stored[CHUNK], most = 1 + 1.0 / (double)((int64_t)1 << number_type[t].digits);
    float y[CHUNK];
    int64_t outside = 0;
    line_store(t, stored, 1, n, x);
    line_load(t, stored, n, y);
    for (int64_t i = 0; i < n; i++)
        outside += !isfinite(y[i]) ||
                   (fabsf(y[i]) > 1 && fabs((double)x[i]) > fabs((double)y[i]) * most);
    return !outside;
}

/* Copies values [from, end) of a row into f, or only looks at them, and whether they are all
 * finite. m: as stored */
static bool load_row(const MatrixCopy *x, char *m, char *f, int64_t from, int64_t end)
{
    double line[CHUNK];
    Type compute = number_type[x->s.type].compute;
    int64_t size = number_type[x->s.type].bytes, wide = number_type[compute].bytes, n;
    bool fits = copy_fits(x), look = x->flags & COPY_LOOK, ok = true;
    for (int64_t j = from; j < end; j += n) {
        n = end - j < CHUNK ? end - j : (int64_t)CHUNK;
        char *values = !look || fits          ? f + j * wide
                       : x->s.type == compute ? m + j * size
                                         : (char *)line;
        if (!fits && values != m + j * size)
            line_load(x->s.type, m + j * size, n, values);
        if (fits && x->s.type != compute)
            ok = line_fits(x->s.type, (const float *)(void *)values, n) && ok;
        else if (fits || x->flags & COPY_FINITE)
            ok = line_finite(compute, values, n) && ok;
    }
    return ok;
}

static void store_row(const MatrixCopy *x, int64_t i, char *m, const char *f)
{
    const NumberType *t = &number_type[x->s.type];
    const int64_t size = t->bytes, wide = number_type[t->compute].bytes, cols = x->s.cols;
    int64_t zeros = !(x->flags & COPY_UPPER) ? 0 : i < cols ? i : cols;
    if (x->flags & COPY_RAW) {
        memcpy(m, f, (size_t)(cols * size));
        return;
    }
    memset(m, 0, (size_t)(zeros * size));
    if (x->flags & COPY_REVERSED)
        line_store(x->s.type, m + (cols - 1) * size, -1, cols, f);
    else
        line_store(x->s.type, m + zeros * size, 1, cols - zeros, f + zeros * wide);
}

/* The flat copy of a square matrix: compares its triangles, or replaces the one that was not
 * read. */
#define SQUARE_OF(NAME, T) \
    static bool NAME(T *f, int64_t n, unsigned flags, double scale) \
    { \
        bool same = true; \
        for (int64_t i = 0; i < n; i++) { \
            double root = sqrt(fabs((double)f[i * n + i])); \
            for (int64_t j = 0; j < i; j++) { \
                T *low = f + i * n + j, *high = f + j * n + i; \
                double p = (double)*low, q = (double)*high; \
                if (flags & COPY_SYMMETRIC) \
                    same = !(fabs(p - q) * scale > \
                             fabs(p) + fabs(q) + root * sqrt(fabs((double)f[j * n + j]))) && same; \
                else if (flags & COPY_TRANSPOSED) \
                    *low = *high; \
                else \
                    *high = *low; \
            } \
        } \
        return same; \
    }
SQUARE_OF(settle_f32, float)
SQUARE_OF(settle_f64, double)

static bool settle_square(const MatrixCopy *x, char *f)
{
    /* entries that belong together may differ by 2^-bits of their size */
    double scale = (double)(1 << number_type[x->s.type].digits / 2);
    return number_type[x->s.type].compute == T_F64
               ? settle_f64((double *)(void *)f, x->s.rows, x->flags, scale)
               : settle_f32((float *)(void *)f, x->s.rows, x->flags, scale);
}

static void copy_nth(void *with, int64_t nth)
{
    const MatrixCopy *x = (const MatrixCopy *)with;
    const MatrixBatch *s = &x->s;
    const NumberType *t = &number_type[x->s.type];
    int64_t line = s->cols * (x->flags & COPY_RAW ? t->bytes : number_type[t->compute].bytes);
    char *first = x->flat + nth * s->rows * line;
    bool lower = x->flags & COPY_LOWER, upper = x->flags & COPY_TRANSPOSED, ok = true;
    for (int64_t i = 0; i < s->rows; i++) {
        char *m = s->at + (nth * s->next + i * s->ld) * t->bytes, *f = first + i * line;
        if (x->flags & COPY_STORE && !copy_fits(x))
            store_row(x, i, m, f);
        else
            ok = load_row(x, m, f, upper ? i : 0, lower && !upper ? i + 1 : s->cols) && ok;
    }
    if (!ok)
        x->bad[2 * nth] = 1;
    if (x->flags & (COPY_LOWER | COPY_SYMMETRIC) && !settle_square(x, first))
        x->bad[2 * nth + 1] = 1;
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

/* One launch, in the kernel for the type of a copy. If the other one has another type, that is f64
 * without gaps. */
static optc_status copies_gpu(optc_engine *e, const FunctionForm *f, const MatrixCopy *x, int n)
{
    enum { COPY_BLOCK = 4096, COPY_THREADS = 256 };
    CopyPair args;
    int64_t blocks[2] = {0, 0};
    const Type kernel = x[n - 1].s.type == T_F64 ? x->s.type : x[n - 1].s.type;
    memset(&args, 0, sizeof args);
    for (int i = 0; i < n; i++) {
        const MatrixBatch *s = &x[i].s;
        const int digits = number_type[s->type].digits;
        CopyArgs *to = &args.x[i];
        to->all = dom_times(dom_times(s->rows, s->cols), f->batch);
        blocks[i] = count_up(to->all, COPY_BLOCK);
        if (s->rows > INT_MAX || s->cols > INT_MAX || s->ld > INT_MAX || blocks[i] > INT_MAX / 2)
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: %s, %lld x %lld, batch = %lld, is too large for one launch", f->call,
                        s->label, (long long)s->rows, (long long)s->cols, (long long)f->batch);
        to->at = s->at, to->flat = x[i].flat, to->bad = x[i].bad, to->next = s->next;
        to->rows = (int)s->rows, to->cols = (int)s->cols, to->ld = (int)s->ld;
        to->flags = (int)(x[i].flags | (s->type != kernel ? COPY_WIDE : 0) |
                          (unsigned)(copy_fits(&x[i]) ? digits : digits / 2) << 16);
    }
    args.split = blocks[0];
    void *params[] = {&args};
    TRY(e->gpu,
        cuLaunchKernel(e->functions->kit.kernel[MATRIX_COPY][kernel],
                       (unsigned)(blocks[0] + blocks[1]), 1, 1, COPY_THREADS, 1, 1, 0,
                       (CUstream)f->stream, params, NULL),
        f->call);
    return OPTC_OK;
}

static bool is_empty(const FunctionForm *f, const MatrixBatch *x)
{
    return !x->at || !x->rows || !x->cols || !f->batch;
}

CORE optc_status function_copy(optc_engine *e, const FunctionForm *f, const MatrixBatch *s,
                               unsigned flags, char *flat, unsigned *bad)
{
    enum { FEW_VALUES = 1 << 16 };
    MatrixCopy x = {*s, flags, flat, bad};
    if (is_empty(f, s))
        return OPTC_OK;
    if (e->gpu)
        return copies_gpu(e, f, &x, 1);
    double values = (double)s->rows * (double)s->cols * (double)f->batch;
    int64_t team = values < FEW_VALUES ? 1 : e->threads < f->batch ? e->threads : f->batch;
    parallel_for(threads_allowed((int)team), f->batch, copy_nth, &x);
    return OPTC_OK;
}

CORE optc_status function_store(optc_engine *e, const FunctionForm *f, const MatrixBatch *s,
                                char *const *flat, int n)
{
    MatrixCopy x[2];
    int all = 0;
    for (int i = 0; i < n; i++) {
        MatrixCopy one = {s[i], s[i].flags | COPY_STORE, flat[i], NULL};
        if (!e->gpu)                                       /* cannot fail */
            (void)function_copy(e, f, &s[i], one.flags, flat[i], NULL);
        else if (!is_empty(f, &s[i]))
            x[all++] = one;
    }
    return all ? copies_gpu(e, f, x, all) : OPTC_OK;
}

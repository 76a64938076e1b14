/* Products without a rule on the CPU. The core's product (cpu_product.h) computes matrices of f32
 * and f64. This file adds what rules do not need: a batch with strides, types that are converted to
 * f32, and chains within a workspace. All cuts depend on sizes alone, so bits depend neither on
 * threads nor on the workspace. */
#include "runtime/core/functions/multiply.h"

#include "runtime/core/base/conversions.h"
#include "runtime/core/cpu/cpu.h"
#include "runtime/core/matrix/cpu_product.h"

#include <stdlib.h>
#include <string.h>

/* PACKED_: tile sizes of the result for types that are converted to f32; DEEP: along the sum.
 * CHAIN_: the part of a b that is between the two products of a chain, in f32 and f64. */
enum {
    PACKED_ROWS = 128, PACKED_COLS = 256, PACKED_DEEP = 512, CHAIN_ROWS = 1024, CHAIN_COLS = 512
};
enum { FEW_FLOPS = 1 << 20, FEW_VALUES = 1 << 16 };        /* less is not worth a second thread */

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static ProductOperand product_operand(const char *at, int64_t ld, bool transposed)
{
    ProductOperand x = {at, ld, transposed};
    return x;
}
static bool is_packed(const Multiply *x) { return number_type[x->type].compute != x->type; }

/* ---- types that are computed in f32 ---- */
static float packed_load(Type t, const void *p)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: { c v; memcpy(&v, p, sizeof v); return (float)load(v); }
#define CODED(...)
#include "gen/abi/types.def"
    default: abort();
    }
}

static void packed_store(Type t, void *p, float x)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: { c v = store(x); memcpy(p, &v, sizeof v); return; }
#define CODED(...)
#include "gen/abi/types.def"
    default: abort();
    }
}

/* Converts n values that are `by` values apart. */
static void packed_line(Type t, const char *from, int64_t by, int64_t n, float *to, int64_t to_by)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: \
        for (int64_t i = 0; i < n; i++) \
            to[i * to_by] = (float)load(((const c *)(const void *)from)[i * by]); \
        return;
#define CODED(...)
#include "gen/abi/types.def"
    default: abort();
    }
}

/* Converts rows x cols of an operand from (row, col) on to f32, row-major without gaps, in the
 * order of memory. */
static void widen(const Multiply *x, const Operand *o, int64_t nth, int64_t row, int64_t col,
                  int64_t rows, int64_t cols, float *to)
{
    const char *from = operand_at(o, nth, row, col, x->size);
    int64_t lines = o->transposed ? cols : rows, values = o->transposed ? rows : cols;
    for (int64_t i = 0; i < lines; i++)
        packed_line(x->type, from + i * o->ld * x->size, 1, values,
                    to + i * (o->transposed ? 1 : cols), o->transposed ? cols : 1);
}

enum {
    PACKED_FLOATS =
        PACKED_ROWS * PACKED_DEEP + PACKED_DEEP * PACKED_COLS + PACKED_ROWS * PACKED_COLS
};

/* Computes a tile of at most PACKED_ROWS x PACKED_COLS. Such a tile is one panel of the core's
 * product. */
static void packed_tile(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t col,
                        int64_t rows, int64_t cols, float *room)
{
    float *a = room, *b = a + PACKED_ROWS * PACKED_DEEP, *c = b + PACKED_DEEP * PACKED_COLS;
    for (int64_t at = 0; at < x->a.cols; at += PACKED_DEEP) {
        int64_t deep = less(x->a.cols - at, PACKED_DEEP);
        widen(x, &x->a, nth, row, at, rows, deep, a);
        widen(x, &x->b, nth, at, col, deep, cols, b);
        MatrixProduct g;
        memset(&g, 0, sizeof g);
        g.m = rows, g.n = cols, g.k = deep, g.alpha = 1, g.beta = at ? 1 : 0;
        g.a = product_operand((const char *)a, deep, false);
        g.b = product_operand((const char *)b, cols, false);
        g.c = (char *)c, g.ldc = cols;
        product_panel(blas, &g, product_cut(&g), 0);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            char *to = operand_at(&x->c, nth, row + i, col + j, x->size);
            float y = (float)x->scale * c[i * cols + j];
            packed_store(x->type, to,
                         x->add == 0 ? y : y + (float)x->add * packed_load(x->type, to));
        }
}

/* Copies what was computed below the diagonal of a Gram matrix to above it. */
static void packed_mirror(const Multiply *x, int64_t nth, int64_t row, int64_t rows, int64_t col,
                          int64_t cols)
{
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = col; j < col + cols && j < i; j++)
            memcpy(operand_at(&x->c, nth, j, i, x->size), operand_at(&x->c, nth, i, j, x->size),
                   (size_t)x->size);
}

/* Rows [row, row + rows) of a result, of a Gram matrix up to the diagonal. */
static void packed_rows(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t rows,
                        float *room)
{
    int64_t end = x->gram ? row + rows : x->c.cols;
    for (int64_t j = 0; j < end; j += PACKED_COLS)
        packed_tile(blas, x, nth, row, j, rows, less(end - j, PACKED_COLS), room);
    if (x->gram)
        packed_mirror(x, nth, row, rows, 0, end);
}

/* ---- jobs: each thread takes the next one ---- */
/* A matrix of f32 or f64 as the core's product. */
static MatrixProduct nth_product(const Multiply *x, int64_t nth)
{
    MatrixProduct y;
    memset(&y, 0, sizeof y);
    y.f64 = x->type == T_F64, y.symmetric = y.gram = x->gram, y.single = true;
    y.m = x->c.rows, y.n = x->c.cols, y.k = x->a.cols;
    y.a = product_operand(operand_at(&x->a, nth, 0, 0, x->size), x->a.ld, x->a.transposed);
    y.b = product_operand(operand_at(&x->b, nth, 0, 0, x->size), x->b.ld, x->b.transposed);
    y.c = operand_at(&x->c, nth, 0, 0, x->size), y.ldc = x->c.ld;
    y.alpha = x->scale, y.beta = x->add;
    return y;
}

/* The part of a b that a chain stores at a time. Packed types sum up in f32 over all of a row, so
 * it has whole rows. */
typedef struct ChainPart { int64_t rows, cols; } ChainPart;

static ChainPart chain_part(const Multiply *x)
{
    ChainPart t = {0, 0};
    if (!x->chain)
        return t;
    t.rows = less(x->c.rows, PACKED_ROWS), t.cols = x->b.cols;
    if (!is_packed(x)) {
        t.rows = less(
            panel_length(x->c.rows, x->c.rows <= CHAIN_ROWS ? CHAIN_ROWS / 2 : (int64_t)CHAIN_ROWS),
            x->c.rows);
        t.cols = less(panel_length(x->b.cols, CHAIN_COLS), x->b.cols);
    }
    return t;
}

static int64_t jobs_of(const Multiply *x)                  /* jobs of one matrix */
{
    if (x->chain || is_packed(x))
        return count_up(x->c.rows, x->chain ? chain_part(x).rows : (int64_t)PACKED_ROWS);
    MatrixProduct y = nth_product(x, 0);
    return product_cut(&y).count;
}

/* Bytes of scratch per thread. */
static int64_t room_of(const Multiply *x)
{
    ChainPart t = chain_part(x);
    return (is_packed(x) ? (int64_t)sizeof(float) * PACKED_FLOATS : 0) +
           count_up(dom_times(t.rows * x->size, t.cols), 64) * 64;
}

/* One call for all of it: a thread computes it alone, and each further panel would pack b again. */
static void whole_product(const Blas *blas, const MatrixProduct *x)
{
    Panels all = {x->m, x->n, 1, 1, 1};
    product_panel(blas, x, all, 0);
}

/* Rows [row, row + rows) of c = scale (a b) d + add c, over the columns of a b in order. */
static void chain_rows(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t rows,
                       char *room)
{
    ChainPart t = chain_part(x);
    for (int64_t at = 0; at < x->b.cols; at += t.cols) {
        int64_t cols = less(x->b.cols - at, t.cols);
        MatrixProduct first = nth_product(x, nth), second = first;
        first.m = second.m = rows, first.n = second.k = cols;
        first.a.at = operand_at(&x->a, nth, row, 0, x->size);
        first.b.at = operand_at(&x->b, nth, 0, at, x->size);
        first.c = room, first.ldc = cols, first.alpha = 1, first.beta = 0;
        second.a = product_operand(room, cols, false);
        second.b =
            product_operand(operand_at(&x->d, nth, at, 0, x->size), x->d.ld, x->d.transposed);
        second.c = operand_at(&x->c, nth, row, 0, x->size);
        second.beta = at ? 1 : x->add;
        whole_product(blas, &first);
        whole_product(blas, &second);
    }
}

static void packed_chain(const Blas *blas, const Multiply *x, int64_t nth, int64_t row,
                         int64_t rows, char *room)
{
    Multiply first = *x, second = *x;
    first.chain = second.chain = false;
    first.a.at = operand_at(&x->a, nth, row, 0, x->size);
    first.b.at = x->b.at + nth * x->b.next * x->size;
    first.c = second.a =
        operand_of(room + sizeof(float) * PACKED_FLOATS, rows, x->b.cols, x->b.cols, 0, false);
    first.scale = 1, first.add = 0;
    second.b = x->d;
    second.b.at = x->d.at + nth * x->d.next * x->size;
    second.c.at = operand_at(&x->c, nth, row, 0, x->size);
    packed_rows(blas, &first, 0, 0, rows, (float *)(void *)room);
    packed_rows(blas, &second, 0, 0, rows, (float *)(void *)room);
}

static void run_job(const Blas *blas, const Multiply *x, int64_t jobs, int64_t job, char *room)
{
    int64_t nth = job / jobs, at = job % jobs,
            each = x->chain ? chain_part(x).rows : (int64_t)PACKED_ROWS, row = at * each,
            rows = less(x->c.rows - row, each);
    if (x->chain)
        (is_packed(x) ? packed_chain : chain_rows)(blas, x, nth, row, rows, room);
    else if (is_packed(x))
        packed_rows(blas, x, nth, row, rows, (float *)(void *)room);
    else {
        MatrixProduct y = nth_product(x, nth);
        product_panel(blas, &y, product_cut(&y), at);
    }
}

/* A thread takes the next job until none is left. */
typedef struct Jobs {
    const Blas *blas; const Multiply *x; int64_t each, n, next, room; char *all;
} Jobs;

static void run_jobs(void *with, int64_t thread)
{
    Jobs *p = (Jobs *)with;
    for (int64_t i; (i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->n;)
        run_job(p->blas, p->x, p->each, i, p->all + thread * p->room);
}

CORE optc_status multiply_cpu(optc_engine *e, const Blas *blas, const Multiply *x)
{
    int64_t each = jobs_of(x), jobs = dom_times(each, x->batch), room = room_of(x);
    double flops =
        2.0 * (double)x->batch * (double)x->c.rows * (double)x->b.cols * (double)x->a.cols;
    if (room > x->limit)
        return too_little(x, room);
    int64_t team = flops < FEW_FLOPS ? 1 : less(e->threads, jobs);
    team = threads_allowed((int)(room ? less(team, x->limit / room) : team));
    int64_t bytes = room * team;
    void *all = NULL;
    optc_status s = bytes ? matrices_take(e, "optc_multiply", bytes, NULL, &all) : OPTC_OK;
    if (s != OPTC_OK)
        return s;
    Jobs p = {blas, x, each, jobs, 0, room, (char *)all};
    parallel_for((int)team, team, run_jobs, &p);
    matrices_give(e, all, bytes, NULL);
    return OPTC_OK;
}

/* ---- Kronecker products: every row of c comes from a row of a and a row of b ---- */
#define KRON_ROW(NAME, T) \
    static void NAME(const optc_kronecker *x, const T *__restrict a, const T *__restrict b, \
                     T *__restrict c) \
    { \
        for (int64_t k = 0; k < x->n; k++) { \
            const T y = a[k]; \
            for (int64_t l = 0; l < x->q; l++) c[k * x->q + l] = y * b[l]; \
        } \
    }
KRON_ROW(kron_f32, float)
KRON_ROW(kron_f64, double)

static void kron_row(const optc_kronecker *x, Type t, const char *a, const char *b, char *c)
{
    int64_t size = number_type[t].bytes;
    if (t == T_F32)
        kron_f32(x, (const float *)(const void *)a, (const float *)(const void *)b,
                 (float *)(void *)c);
    else if (t == T_F64)
        kron_f64(x, (const double *)(const void *)a, (const double *)(const void *)b,
                 (double *)(void *)c);
    else
        for (int64_t k = 0; k < x->n; k++)
            for (int64_t l = 0; l < x->q; l++, c += size)
                packed_store(t, c, packed_load(t, a + k * size) * packed_load(t, b + l * size));
}

typedef struct Kron { const optc_kronecker *x; Type t; } Kron;

static void kron_nth(void *with, int64_t r)
{
    const Kron *k = (const Kron *)with;
    const optc_kronecker *x = k->x;
    int64_t size = number_type[k->t].bytes, rows = x->m * x->p, nth = r / rows, i = r % rows / x->p,
            j = r % rows % x->p;
    kron_row(x, k->t, (const char *)x->a + (nth * x->next_a + i * x->n) * size,
             (const char *)x->b + (nth * x->next_b + j * x->q) * size,
             (char *)x->c + r * x->n * x->q * size);
}

CORE void kron_cpu(optc_engine *e, const optc_kronecker *x, Type t)
{
    int64_t wide = x->n * x->q, all = x->m * x->p * x->batch;
    Kron k = {x, t};
    parallel_for(
        (double)all * (double)wide < FEW_VALUES ? 1 : threads_allowed((int)less(e->threads, all)),
        all, kron_nth, &k);
}

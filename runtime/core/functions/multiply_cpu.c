/* Products without a rule on the CPU. The core's product (cpu_product.h) computes matrices of f32
 * and f64. This file adds what rules do not need: a batch with strides, types that are converted to
 * f32, and chains within a workspace. All cuts depend on sizes alone, so bits depend neither on
 * threads nor on the workspace. */
#include "runtime/core/functions/multiply.h"

#include "runtime/core/cpu/cpu.h"
#include "runtime/core/matrix/cpu_product.h"

#include <string.h>

/* PACKED_: tile sizes of the result for types that are converted to f32; DEEP: along the sum.
 * CHAIN_: the part of a b that is between the two products of a chain, in f32 and f64. */
enum {
    PACKED_ROWS = 128, PACKED_COLS = 256, PACKED_DEEP = 512, CHAIN_ROWS = 1024, CHAIN_COLS = 512,
    PACKED_FLOATS =
        PACKED_ROWS * PACKED_DEEP + PACKED_DEEP * PACKED_COLS + PACKED_ROWS * PACKED_COLS
};
enum { FEW_FLOPS = 1 << 20, FEW_VALUES = 1 << 16 };        /* less is not worth a second thread */

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static bool is_packed(const Multiply *x) { return number_type[x->type].compute != x->type; }

/* ---- types that are computed in f32 ---- */
/* Converts rows x cols of an operand from (row, col) on to f32, without gaps, in the order of
 * memory. */
static ProductOperand widen(const MatrixBatch *x, int64_t nth, int64_t row, int64_t col,
                            int64_t rows, int64_t cols, float *to)
{
    const char *from = operand_at(x, nth, row, col);
    int64_t lines = x->transposed ? cols : rows, values = x->transposed ? rows : cols;
    ProductOperand y = {(const char *)to, values, x->transposed};
    for (int64_t i = 0; i < lines; i++)
        line_load(x->type, from + i * x->ld * number_type[x->type].bytes, values, to + i * values);
    return y;
}

/* Computes a tile of at most PACKED_ROWS x PACKED_COLS. Such a tile is one panel of the core's
 * product. */
static void packed_tile(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t col,
                        int64_t rows, int64_t cols, float *room)
{
    float *a = room, *b = a + PACKED_ROWS * PACKED_DEEP, *c = b + PACKED_DEEP * PACKED_COLS,
          old[PACKED_COLS];
    MatrixProduct g;
    memset(&g, 0, sizeof g);
    g.m = rows, g.n = cols, g.c = (char *)c, g.ldc = cols, g.alpha = 1;
    for (int64_t at = 0; at < x->a.cols; at += PACKED_DEEP, g.beta = 1) {
        g.k = less(x->a.cols - at, PACKED_DEEP);
        g.a = widen(&x->a, nth, row, at, rows, g.k, a);
        g.b = widen(&x->b, nth, at, col, g.k, cols, b);
        product_panel(blas, &g, product_cut(&g), 0);
    }
    for (int64_t i = 0; i < rows; i++, c += cols) {
        char *to = operand_at(&x->c, nth, row + i, col);
        for (int64_t j = 0; j < cols; j++)
            c[j] = (float)x->scale * c[j];
        if (x->add != 0)
            line_load(x->type, to, cols, old);
        for (int64_t j = 0; j < cols && x->add != 0; j++)
            c[j] += (float)x->add * old[j];
        line_store(x->type, to, 1, cols, c);
    }
}

/* Rows [row, row + rows) of a result; of a Gram matrix up to the diagonal, which are then copied
 * to above it. */
static void packed_rows(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t rows,
                        float *room)
{
    int64_t end = x->gram ? row + rows : x->c.cols;
    for (int64_t j = 0; j < end; j += PACKED_COLS)
        packed_tile(blas, x, nth, row, j, rows, less(end - j, PACKED_COLS), room);
    for (int64_t i = row; x->gram && i < end; i++)
        for (int64_t j = 0; j < i; j++)
            memcpy(operand_at(&x->c, nth, j, i), operand_at(&x->c, nth, i, j),
                   (size_t)number_type[x->type].bytes);
}

/* ---- jobs: each thread takes the next one ---- */
/* A matrix of f32 or f64 as the core's product. */
static MatrixProduct nth_product(const Multiply *x, int64_t nth)
{
    const ProductOperand a = {operand_at(&x->a, nth, 0, 0), x->a.ld, x->a.transposed},
                         b = {operand_at(&x->b, nth, 0, 0), x->b.ld, x->b.transposed};
    MatrixProduct y;
    memset(&y, 0, sizeof y);
    y.f64 = x->type == T_F64, y.symmetric = y.gram = x->gram, y.single = true;
    y.m = x->c.rows, y.n = x->c.cols, y.k = x->a.cols;
    y.a = a, y.b = b, y.c = operand_at(&x->c, nth, 0, 0), y.ldc = x->c.ld;
    y.alpha = x->scale, y.beta = x->add;
    return y;
}

/* How a call is divided: jobs of one matrix, rows of a job, columns of a b that a chain stores at a
 * time, bytes of scratch per thread. Packed types sum up in f32 over all of a row, so a chain
 * stores whole rows of them. */
typedef struct ProductCut { int64_t jobs, rows, cols, room; Panels panels; } ProductCut;

static ProductCut cut_of(const Multiply *x)
{
    int64_t room = is_packed(x) ? (int64_t)sizeof(float) * PACKED_FLOATS : 0;
    ProductCut y = {0, PACKED_ROWS, x->b.cols, room, {0, 0, 0, 0, 0}};
    if (!is_packed(x) && !x->chain) {
        MatrixProduct p = nth_product(x, 0);
        y.panels = product_cut(&p), y.jobs = y.panels.count;
        return y;
    }
    if (!is_packed(x)) {
        y.rows = panel_length(x->c.rows,
                              x->c.rows <= CHAIN_ROWS ? CHAIN_ROWS / 2 : (int64_t)CHAIN_ROWS);
        y.cols = less(panel_length(x->b.cols, CHAIN_COLS), x->b.cols);
    }
    y.rows = less(x->c.rows, y.rows);
    y.jobs = count_up(x->c.rows, y.rows);
    if (x->chain)
        y.room += count_up(dom_times(y.rows * number_type[x->type].bytes, y.cols), 64) * 64;
    return y;
}

/* A product of one matrix by this thread alone. In f32 and f64 it is one panel: each further one
 * would pack b again. */
static void multiply_alone(const Blas *blas, const Multiply *x, char *room)
{
    if (is_packed(x)) {
        packed_rows(blas, x, 0, 0, x->c.rows, (float *)(void *)room);
        return;
    }
    MatrixProduct y = nth_product(x, 0);
    Panels all = {y.m, y.n, 1, 1, 1};
    product_panel(blas, &y, all, 0);
}

/* Rows [row, row + rows) of c = scale (a b) d + add c, over the columns of a b in order. room: of
 * packed products, then a part of a b */
static void chain_rows(const Blas *blas, const Multiply *x, const ProductCut *cut, int64_t nth,
                       int64_t row, int64_t rows, char *room)
{
    char *between = room + (is_packed(x) ? sizeof(float) * PACKED_FLOATS : 0);
    for (int64_t at = 0; at < x->b.cols; at += cut->cols) {
        Multiply first = *x, second;
        first.chain = false;
        first.a.rows = first.c.rows = rows;
        first.a.at = operand_at(&x->a, nth, row, 0);
        first.b.at = operand_at(&x->b, nth, 0, at);
        first.b.cols = less(x->b.cols - at, cut->cols);
        second = first;
        first.c = second.a = operand_of("", between, x->type, rows, first.b.cols, first.b.cols, 0);
        first.scale = 1, first.add = 0;
        second.b = x->d;
        second.b.at = operand_at(&x->d, nth, at, 0);
        second.c.at = operand_at(&x->c, nth, row, 0);
        second.add = at ? 1 : x->add;
        multiply_alone(blas, &first, room);
        multiply_alone(blas, &second, room);
    }
}

/* A thread takes the next job until none is left. */
typedef struct Jobs {
    const Blas *blas; const Multiply *x; ProductCut cut; int64_t n, next; char *room;
} Jobs;

static void run_jobs(void *with, int64_t thread)
{
    Jobs *p = (Jobs *)with;
    const Multiply *x = p->x;
    char *room = p->room + thread * p->cut.room;
    for (int64_t i; (i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->n;) {
        int64_t nth = i / p->cut.jobs, job = i % p->cut.jobs, row = job * p->cut.rows,
                rows = less(x->c.rows - row, p->cut.rows);
        if (x->chain) {
            chain_rows(p->blas, x, &p->cut, nth, row, rows, room);
        } else if (is_packed(x)) {
            packed_rows(p->blas, x, nth, row, rows, (float *)(void *)room);
        } else {
            MatrixProduct y = nth_product(x, nth);
            product_panel(p->blas, &y, p->cut.panels, job);
        }
    }
}

static optc_status open_cpu_blas(optc_engine *e, const char *call)
{
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    optc_status s = m->kit.has_blas ? OPTC_OK : blas_open(&m->kit.blas, call);
    m->kit.has_blas = s == OPTC_OK;
    pthread_mutex_unlock(&m->lock);
    return s;
}

CORE optc_status multiply_cpu(optc_engine *e, const Multiply *x)
{
    Jobs p = {&e->functions->kit.blas, x, cut_of(x), 0, 0, NULL};
    double flops =
        2.0 * (double)x->batch * (double)x->c.rows * (double)x->b.cols * (double)x->a.cols;
    int64_t room = p.cut.room;
    p.n = dom_times(p.cut.jobs, x->batch);
    if (room > x->limit)
        return too_little(x, room);
    int64_t team = flops < FEW_FLOPS ? 1 : less(e->threads, p.n);
    team = threads_allowed((int)(room ? less(team, x->limit / room) : team));
    void *all = NULL;
    optc_status s = open_cpu_blas(e, x->call);
    if (s == OPTC_OK && room)
        s = matrices_take(e, x->call, room * team, NULL, &all);
    if (s != OPTC_OK)
        return s;
    p.room = (char *)all;
    parallel_for((int)team, team, run_jobs, &p);
    matrices_give(e, all, room * team, NULL);
    return OPTC_OK;
}

/* ---- Kronecker products: every row of c comes from a row of a and a row of b ---- */
#define KRON_ROW(NAME, T) \
    static void NAME(const Multiply *x, const T *__restrict a, const T *__restrict b, \
                     T *__restrict c) \
    { \
        for (int64_t k = 0; k < x->a.cols; k++, c += x->b.cols) { \
            const T y = a[k]; \
            for (int64_t l = 0; l < x->b.cols; l++) c[l] = y * b[l]; \
        } \
    }
KRON_ROW(kron_f32, float)
KRON_ROW(kron_f64, double)

static void kron_packed(const Multiply *x, const char *a, const char *b, char *c)
{
    float right[PACKED_COLS], y[PACKED_COLS];
    const int64_t size = number_type[x->type].bytes;
    for (int64_t l = 0; l < x->b.cols; l += PACKED_COLS) {
        int64_t n = less(x->b.cols - l, PACKED_COLS);
        line_load(x->type, b + l * size, n, right);
        for (int64_t k = 0; k < x->a.cols; k++) {
            float left = (float)type_load((int)x->type, a, k);
            for (int64_t i = 0; i < n; i++)
                y[i] = left * right[i];
            line_store(x->type, c + (k * x->b.cols + l) * size, 1, n, y);
        }
    }
}

static void kron_line(void *with, int64_t line)
{
    const Multiply *x = (const Multiply *)with;
    int64_t nth = line / x->c.rows, i = line % x->c.rows;
    void *a = operand_at(&x->a, nth, i / x->b.rows, 0),
         *b = operand_at(&x->b, nth, i % x->b.rows, 0), *c = operand_at(&x->c, nth, i, 0);
    if (x->type == T_F32)
        kron_f32(x, (const float *)a, (const float *)b, (float *)c);
    else if (x->type == T_F64)
        kron_f64(x, (const double *)a, (const double *)b, (double *)c);
    else
        kron_packed(x, (const char *)a, (const char *)b, (char *)c);
}

CORE optc_status kron_cpu(optc_engine *e, const Multiply *x)
{
    int64_t all = x->c.rows * x->batch;
    bool few = (double)all * (double)x->c.cols < FEW_VALUES;
    Multiply with = *x;
    parallel_for(few ? 1 : threads_allowed((int)less(e->threads, all)), all, kron_line, &with);
    return OPTC_OK;
}

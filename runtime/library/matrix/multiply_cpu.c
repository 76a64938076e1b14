/* Products without a rule on the CPU. The result is cut into tiles by its shape alone. Threads take tiles in any order,
 * and a BLAS (one thread per call) or gemm_fallback computes each. So bits depend neither on threads nor on the
 * workspace. */
#include "runtime/library/matrix/multiply.h"

#include "runtime/core/cpu/conversions.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* TILE: rows and columns of the result per call. PACKED_: tile sizes for types that are converted to f32; DEEP: along
 * the sum. CHAIN: rows of a b between the two products of a chain. */
enum { TILE = 256, PACKED_ROWS = 128, PACKED_COLS = 256, PACKED_DEEP = 512, CHAIN = 64 };
enum { FEW_FLOPS = 1 << 20, FEW_VALUES = 1 << 16 };        /* less is not worth a second thread */

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static bool packed(const Multiply *x) { return type_info[x->type].compute != x->type; }

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

/* Converts rows x cols of an operand from (row, col) on to f32, row-major without gaps. */
static void widen(const Multiply *x, const Operand *o, int64_t nth, int64_t row, int64_t col, int64_t rows,
                  int64_t cols, float *to)
{
    const char *from = operand_at(o, nth, row, col, x->size);
    int64_t down = (o->transposed ? 1 : o->ld) * x->size, across = (o->transposed ? o->ld : 1) * x->size;
    if (o->transposed)
        for (int64_t j = 0; j < cols; j++)                  /* in memory order */
            for (int64_t i = 0; i < rows; i++)
                to[i * cols + j] = packed_load(x->type, from + i * down + j * across);
    else
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                to[i * cols + j] = packed_load(x->type, from + i * down + j * across);
}

enum { PACKED_FLOATS = PACKED_ROWS * PACKED_DEEP + PACKED_DEEP * PACKED_COLS + PACKED_ROWS * PACKED_COLS };

/* Computes a tile of at most PACKED_ROWS x PACKED_COLS. */
static void packed_tile(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t col, int64_t rows,
                      int64_t cols, float *room)
{
    float *a = room, *b = a + PACKED_ROWS * PACKED_DEEP, *c = b + PACKED_DEEP * PACKED_COLS;
    for (int64_t at = 0; at < x->a.cols; at += PACKED_DEEP) {
        int64_t deep = less(x->a.cols - at, PACKED_DEEP);
        widen(x, &x->a, nth, row, at, rows, deep, a);
        widen(x, &x->b, nth, at, col, deep, cols, b);
        Gemm g = {.m = rows, .n = cols, .k = deep, .lda = deep, .ldb = cols, .ldc = cols, .alpha = 1,
                  .beta = at ? 1 : 0, .a = a, .b = b, .c = c};
        blas_gemm(blas, &g);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            char *to = operand_at(&x->c, nth, row + i, col + j, x->size);
            float y = (float)x->scale * c[i * cols + j];
            packed_store(x->type, to, x->add == 0 ? y : y + (float)x->add * packed_load(x->type, to));
        }
}

/* ---- tiles ---- */
static void full_tile(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t col, int64_t rows,
                      int64_t cols)
{
    Gemm g = {.f64 = x->type == T_F64, .trans_a = x->a.transposed, .trans_b = x->b.transposed, .m = rows, .n = cols,
              .k = x->a.cols,
              .lda = x->a.ld, .ldb = x->b.ld, .ldc = x->c.ld, .alpha = x->scale, .beta = x->add,
              .a = operand_at(&x->a, nth, row, 0, x->size), .b = operand_at(&x->b, nth, 0, col, x->size),
              .c = operand_at(&x->c, nth, row, col, x->size)};
    int64_t most = g.lda > g.ldb ? g.lda : g.ldb;
    most = g.ldc > most ? g.ldc : most;
    most = g.k > most ? g.k : most;
    if (most > INT_MAX && !blas->wide)                     /* more than its integers hold */
        gemm_fallback(&g);
    else
        blas_gemm(blas, &g);
}

/* Computes any rectangle of the result, tile by tile. */
static void rectangle(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, int64_t rows, int64_t col,
                      int64_t cols, float *room)
{
    int64_t down = packed(x) ? PACKED_ROWS : TILE, across = packed(x) ? PACKED_COLS : TILE;
    for (int64_t i = 0; i < rows; i += down)
        for (int64_t j = 0; j < cols; j += across) {
            int64_t r = less(rows - i, down), c = less(cols - j, across);
            if (packed(x))
                packed_tile(blas, x, nth, row + i, col + j, r, c, room);
            else
                full_tile(blas, x, nth, row + i, col + j, r, c);
        }
}

/* Gram matrices: copies what was computed below the diagonal to above it. */
static void mirror(const Multiply *x, int64_t nth, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = col; j < col + cols && j < i; j++)
            memcpy(operand_at(&x->c, nth, j, i, x->size), operand_at(&x->c, nth, i, j, x->size), (size_t)x->size);
}

/* ---- jobs: each thread takes the next one ---- */
typedef struct Cut { int64_t down, across, count; } Cut;   /* jobs of one matrix */

static Cut cut_of(const Multiply *x)
{
    Cut c = {count_up(x->c.rows, x->chain ? CHAIN : TILE), x->chain ? 1 : count_up(x->c.cols, TILE), 0};
    c.count = x->gram ? c.down * (c.down + 1) / 2 : c.down * c.across;
    return c;
}

/* Bytes of scratch per thread. */
static int64_t room_of(const Multiply *x)
{
    int64_t between = x->chain ? dom_times(CHAIN * x->size, x->b.cols) : 0;
    return (packed(x) ? (int64_t)sizeof(float) * PACKED_FLOATS : 0) + count_up(between, 64) * 64;
}

static void chain_job(const Blas *blas, const Multiply *x, int64_t nth, int64_t row, char *room)
{
    char *between = room + (packed(x) ? sizeof(float) * PACKED_FLOATS : 0);
    int64_t rows = less(x->c.rows - row, CHAIN);
    Multiply first = *x, second = *x;
    first.a.at = operand_at(&x->a, nth, row, 0, x->size);
    first.b.at = x->b.at + nth * x->b.next * x->size;
    first.c = second.a = (Operand){between, rows, x->b.cols, x->b.cols, 0, false};
    first.scale = 1, first.add = 0;
    second.b = x->d;
    second.b.at = x->d.at + nth * x->d.next * x->size;
    second.c.at = operand_at(&x->c, nth, row, 0, x->size);
    rectangle(blas, &first, 0, 0, rows, 0, x->b.cols, (float *)(void *)room);
    rectangle(blas, &second, 0, 0, rows, 0, x->c.cols, (float *)(void *)room);
}

static void run_job(const Blas *blas, const Multiply *x, Cut cut, int64_t job, char *room)
{
    int64_t nth = job / cut.count, at = job % cut.count, i = 0, j = at;
    if (x->chain) {
        chain_job(blas, x, nth, at * CHAIN, room);
        return;
    }
    for (; x->gram && j > i; i++)
        j -= i + 1;
    if (!x->gram)
        i = at / cut.across, j = at % cut.across;
    int64_t row = i * TILE, col = j * TILE, rows = less(x->c.rows - row, TILE), cols = less(x->c.cols - col, TILE);
    rectangle(blas, x, nth, row, rows, col, cols, (float *)(void *)room);
    if (x->gram)
        mirror(x, nth, row, rows, col, cols);
}

/* A thread takes the next job until none is left. */
typedef struct Jobs { const Blas *blas; const Multiply *x; Cut cut; int64_t n, next, room; char *all; } Jobs;

static void run_jobs(void *with, int64_t thread)
{
    Jobs *p = with;
    for (int64_t i; (i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->n;)
        run_job(p->blas, p->x, p->cut, i, p->all + thread * p->room);
}

optc_status multiply_cpu(optc_engine *e, const Blas *blas, const Multiply *x)
{
    Cut cut = cut_of(x);
    int64_t jobs = dom_times(cut.count, x->batch), room = room_of(x);
    double flops = 2.0 * (double)x->batch * (double)x->c.rows * (double)x->b.cols * (double)x->a.cols;
    if (room > x->limit)
        return too_little(room, x->limit);
    int64_t team = flops < FEW_FLOPS ? 1 : less(e->threads, jobs);
    team = threads_allowed((int)(room ? less(team, x->limit / room) : team));
    size_t bytes = (size_t)(room * team);
    char *all = !bytes             ? NULL
                : e->memory.alloc ? e->memory.alloc(e->memory.context, bytes, NULL)
                                  : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (bytes && !all)
        return fail(OPTC_ERROR_MEMORY, "optc_multiply: out of memory: %zu bytes of workspace", bytes);
    memory_account(e, (int64_t)bytes);
    Jobs p = {.blas = blas, .x = x, .cut = cut, .n = jobs, .room = room, .all = all};
    parallel_for((int)team, team, run_jobs, &p);
    if (bytes && e->memory.alloc)
        e->memory.release(e->memory.context, all, bytes, NULL);
    else
        free(all);
    memory_account(e, -(int64_t)bytes);
    return OPTC_OK;
}

/* ---- Kronecker products: every row of c comes from a row of a and a row of b ---- */
#define KRON_ROW(NAME, T)                                                                                 \
    static void NAME(const optc_kronecker *x, const T *restrict a, const T *restrict b, T *restrict c)    \
    {                                                                                                     \
        for (int64_t k = 0; k < x->n; k++) {                                                              \
            const T y = a[k];                                                                             \
            _Pragma("omp simd") for (int64_t l = 0; l < x->q; l++)                                        \
                c[k * x->q + l] = y * b[l];                                                               \
        }                                                                                                 \
    }
KRON_ROW(kron_f32, float)
KRON_ROW(kron_f64, double)

static void kron_row(const optc_kronecker *x, Type t, const char *a, const char *b, char *c)
{
    int64_t size = type_info[t].bytes;
    if (t == T_F32)
        kron_f32(x, (const float *)(const void *)a, (const float *)(const void *)b, (float *)(void *)c);
    else if (t == T_F64)
        kron_f64(x, (const double *)(const void *)a, (const double *)(const void *)b, (double *)(void *)c);
    else
        for (int64_t k = 0; k < x->n; k++)
            for (int64_t l = 0; l < x->q; l++, c += size)
                packed_store(t, c, packed_load(t, a + k * size) * packed_load(t, b + l * size));
}

typedef struct Kron { const optc_kronecker *x; Type t; } Kron;

static void kron_nth(void *with, int64_t r)
{
    const Kron *k = with;
    const optc_kronecker *x = k->x;
    int64_t size = type_info[k->t].bytes, rows = x->m * x->p, nth = r / rows, i = r % rows / x->p, j = r % rows % x->p;
    kron_row(x, k->t, (const char *)x->a + (nth * x->next_a + i * x->n) * size,
             (const char *)x->b + (nth * x->next_b + j * x->q) * size, (char *)x->c + r * x->n * x->q * size);
}

void kron_cpu(optc_engine *e, const optc_kronecker *x, Type t)
{
    int64_t wide = x->n * x->q, all = x->m * x->p * x->batch;
    Kron k = {x, t};
    parallel_for((double)all * (double)wide < FEW_VALUES ? 1 : threads_allowed((int)less(e->threads, all)), all,
                 kron_nth, &k);
}

/* Sorting (indices by value) and gathering of rows and columns by index, on the CPU. Nothing is
 * rounded: all targets give the same bits. */
#include "runtime/core/matrix/cpu_calls.h"

#include <math.h>
#include <string.h>

static bool along_one(Dom d) { return !dom_wide(d) && !dom_square(d); }

CORE optc_status order_check(const Program *p, const ProgStage *s)
{
    const ProgCall *c = s->call;
    bool take = c->callee == CALL_TAKE, blocked = (c->flags & BLOCKED) != 0;
    if (c->a < 0 || c->out < 0 || c->a == c->out || (c->b >= 0) != take ||
        (take && c->b == c->out) || c->c >= 0)
        return bad_call(p, s,
                        "the call lacks an operand, has one too many, or would overwrite one");
    Dom a = p->array[c->a].dom, out = p->array[c->out].dom, by = take ? p->array[c->b].dom : a;
    bool fits = take ? take_fits(c->flags, a, out) : sort_fits(c->flags, a, out);
    if (!fits || p->array[c->a].type != p->array[c->out].type || !along_one(by) ||
        (take && (dom_matrix(by, false).down !=
                      dom_matrix(out, dom_square(out) && c->flags & OF_COLS).down ||
                  p->array[c->b].type != p->array[c->a].type)))
        return bad_call(p, s, "the operands do not fit");
    if ((a != ELEM && dom_of_block(a) != blocked) || dom_of_block(by) != blocked)
        return bad_call(p, s, "the call mixes blocks and whole matrices");
    return OPTC_OK;
}

/* Indices are stored as numbers of the values' type. */
CORE optc_status order_exact(const optc_binding *b, const ProgStage *s, int tensor)
{
    const Program *p = b->program;
    int64_t n = dom_len_inside(p->array[s->call->a].dom, b->tensor[tensor].shape);
    char stage[200], label[96];
    if (s->call->callee != CALL_SORT || p->array[s->call->a].type == T_F64 || n <= 1 << 24)
        return OPTC_OK;
    stage_label(p, s, stage, sizeof stage);
    return fail(
        OPTC_ERROR_ARGUMENT,
        "optc_bind: %s: cannot sort %lld values of %s: indices in f32 are exact up to 16777216",
        stage, (long long)n, tensor_label(b, b->tensor[tensor].of, label));
}

/* ---- sort ---- */
CORE int64_t sort_jobs(const Program *p, const ProgCall *c, Shape s)
{
    return dom_len_inside(p->array[c->a].dom, s) ? s.slices : 0;
}

/* values, and indices twice */
CORE int64_t sort_scratch(const Program *p, const ProgCall *c, Shape s)
{
    int64_t n = dom_times(3, dom_len_inside(p->array[c->a].dom, s));
    return dom_times((n + 7) / 8 * 8, (int64_t)sizeof(double));
}

/* Whether the second value sorts before the first: it is larger, or the first is NaN and it is
 * not. */
static bool sorts_before(double first, double second)
{
    return second > first || (first != first && second == second);
}

/* Stable merge sort with runs of doubling length. to, other: n indices each; returns the one that
 * holds the result. */
static int64_t *sort_indices(const double *x, int64_t n, int64_t *to, int64_t *other)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t from = 0; from < n; from += 2 * run) {
            int64_t mid = from + run < n ? from + run : n, end = mid + run < n ? mid + run : n,
                    i = from, j = mid;
            for (int64_t k = from; k < end; k++)
                other[k] =
                    j == end || (i < mid && !sorts_before(x[to[i]], x[to[j]])) ? to[i++] : to[j++];
        }
        int64_t *was = to;
        to = other;
        other = was;
    }
    return to;
}

CORE bool sort_run(const CpuJob *j)
{
    const optc_binding *b = j->b;
    const ProgCall *c = j->c;
    const Tensor *t = j->t;
    MatrixView a = matrix_view(b, t, c->a, j->job), out = matrix_view(b, t, c->out, j->job);
    double *x = call_scratch(b, j->thread);
    int64_t *indices = (int64_t *)(x + a.rows), *sorted;
    matrix_view_load(x, &a);
    sorted = sort_indices(x, a.rows, indices, indices + a.rows);
    for (int64_t i = 0; i < out.rows; i++)
        x[i] = (double)sorted[i];
    matrix_view_store(&out, x);
    return true;
}

/* ---- take ---- */
enum { TAKE_ROWS = 64 };

CORE int64_t take_jobs(const Program *p, const ProgCall *c, Shape s)
{
    MatrixAxes m = dom_matrix(p->array[c->out].dom, false);
    return axis_len(m.across, s) ? s.slices * count_up(axis_len(m.down, s), TAKE_ROWS) : 0;
}

static int64_t index_at(const MatrixView *order, int64_t i, int64_t n)       /* -1: not an index */
{
    double x = order->f64 ? ((const double *)order->at)[i] : (double)((const float *)order->at)[i];
    return x >= 0 && x < (double)n && x == floor(x) ? (int64_t)x : -1;
}

static void take_one(const MatrixView *out, int64_t i, int64_t j, const MatrixView *a, int64_t k,
                     int64_t l)
{
    int64_t to = i * out->row_stride + j, from = k < 0 || l < 0 ? -1 : k * a->row_stride + l;
    if (out->f64)
        ((double *)out->at)[to] = from < 0 ? (double)NAN : ((const double *)a->at)[from];
    else
        ((float *)out->at)[to] = from < 0 ? (float)NAN : ((const float *)a->at)[from];
}

CORE bool take_run(const CpuJob *j)
{
    const optc_binding *b = j->b;
    const ProgCall *c = j->c;
    const Tensor *t = j->t;
    MatrixAxes m = dom_matrix(b->program->array[c->out].dom, false);
    int64_t jobs = count_up(axis_len(m.down, t->shape), TAKE_ROWS), nth = j->job / jobs;
    int64_t from = j->job % jobs * TAKE_ROWS;
    MatrixView a = matrix_view(b, t, c->a, nth), out = matrix_view(b, t, c->out, nth),
        order = matrix_view(b, t, c->b, nth);
    int64_t end = from + TAKE_ROWS < out.rows ? from + TAKE_ROWS : out.rows;
    bool cols = (c->flags & OF_COLS) != 0;
    size_t size = a.f64 ? sizeof(double) : sizeof(float);
    for (int64_t i = from; i < end; i++) {
        int64_t k = cols ? i : index_at(&order, i, a.rows);
        if (!cols && k >= 0)
            memcpy(out.at + (size_t)(i * out.row_stride) * size,
                   a.at + (size_t)(k * a.row_stride) * size, (size_t)a.cols * size);
        for (int64_t l = 0; l < out.cols && (cols || k < 0); l++)
            take_one(&out, i, l, &a, k, cols ? index_at(&order, l, a.cols) : l);
    }
    return true;
}

/* SORT and TAKE of the evaluator, by insertion sort. With bounds: if the order of some values is
 * not certain, each of their indices may be any of these indices. */
#include "gen/eval/eval_internal.h"

/* the second must come before the first */
static bool goes_before(double first, double second)
{
    return second > first || (isnan(first) && !isnan(second));
}

static Iv at_lay(const Vals *in, const MatrixLayout *x, int64_t i)
{
    return val_at(in, x->first + i * x->step[0]);
}

/* For all values within their bounds, the first k + 1 in the order come before the others. */
static bool sure_behind(const Vals *in, const MatrixLayout *x, const int64_t *place, int64_t k)
{
    double low = INFINITY, high = -INFINITY;
    bool exact = true;
    for (int64_t i = 0; i < x->down; i++) {
        Iv v = at_lay(in, x, place[i]);
        if (isnan(v.v) || isnan(v.lo) || isnan(v.hi))
            return false;
        low = i <= k ? fmin(low, v.lo) : low;
        high = i > k ? fmax(high, v.hi) : high;
    }
    for (int64_t i = 0; i < x->down; i++) {
        Iv v = at_lay(in, x, place[i]);
        exact = exact && (v.lo == v.hi || (i <= k ? v.lo > high : v.hi < low));
    }
    return low > high || (low == high && exact);
}

/* x, to: the layouts of the operand and of the result, which may be shorter. */
static void sort_one(const Vals *in, Vals *out, const MatrixLayout *x, const MatrixLayout *to,
                     int64_t *place)
{
    int64_t n = x->down;
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i;
        for (; j > 0 && goes_before(at_lay(in, x, place[j - 1]).v, at_lay(in, x, i).v); j--)
            place[j] = place[j - 1];
        place[j] = i;
    }
    for (int64_t from = 0, end; from < n; from = end) {
        double lo = (double)place[from], hi = lo;
        for (end = from + 1; out->lo && end < n && !sure_behind(in, x, place, end - 1); end++) {
            lo = fmin(lo, (double)place[end]);
            hi = fmax(hi, (double)place[end]);
        }
        for (int64_t i = from; i < end && i < to->down; i++)
            val_put(out, to->first + i * to->step[0], (Iv){lo, (double)place[i], hi});
    }
}

/* Entry (i, j) of a matrix; NaN if i is not the number of a row. */
static Iv row_at(const Vals *in, const MatrixLayout *x, double i, int64_t j)
{
    bool there = i >= 0 && i < (double)x->down && i == floor(i);
    return there ? val_at(in, x->first + (int64_t)i * x->step[0] + j * x->step[1]) : anything(NAN);
}

/* x, to, by: the layouts of the operand, the result and the indices. */
static void take_one(const Vals *in, const Vals *order, Vals *out, const MatrixLayout *x,
                     const MatrixLayout *to, const MatrixLayout *by)
{
    for (int64_t i = 0; i < to->down; i++) {
        Iv o = at_lay(order, by, i);
        for (int64_t j = 0; j < to->across; j++) {
            Iv y = row_at(in, x, o.v, j);
            for (double k = ceil(o.lo); out->lo && o.lo != o.hi && k <= o.hi && k < (double)x->down;
                 k++) {
                Iv other = row_at(in, x, k, j);
                y.lo = fmin(y.lo, other.lo);
                y.hi = fmax(y.hi, other.hi);
            }
            bool whole =
                o.lo == floor(o.lo) && o.hi == floor(o.hi) && o.lo >= 0 && o.hi < (double)x->down;
            val_put(out, to->first + i * to->step[0] + j * to->step[1], whole ? y : anything(y.v));
        }
    }
}

bool eval_sort_take(Ev *e, Ref r, int i, Shape s)
{
    const Node *n = &e->g->n[r];
    bool take = n->op == OP_TAKE, cols = n->sym & OF_COLS, ok = true;
    Dom d = (Dom)n->dom, over = n->sym & BLOCKED ? BLOCK : SLICE,
        by = take ? (Dom)e->g->n[n->arg[1]].dom : d, from = (Dom)e->g->n[n->arg[0]].dom;
    const Vals *in = slot(e, n->arg[0], i), *order = take ? slot(e, n->arg[1], i) : NULL;
    Vals *out = slot(e, r, i);
    int64_t before[3] = {0}, parts = eval_parts(e, over, s);
    for (int64_t q = 0; q < parts && ok; q++) {
        Part p = eval_part(e, over, s, q);
        for (int64_t m = 0; m < p.s.slices && ok; m++) {
            MatrixLayout x = layout_of_part(d, cols, &p, s, before[0], m),
                o = layout_of_part(by, false, &p, s, before[1], m),
                a = layout_of_part(from, cols, &p, s, before[2], m);
            int64_t *place = take ? NULL : malloc(sizeof *place * (size_t)(a.down + 1));
            ok = take || place;
            if (take)
                take_one(in, order, out, &a, &x, &o);
            else if (ok)
                sort_one(in, out, &a, &x, place);
            free(place);
        }
        before[0] += part_length(d, p);
        before[1] += part_length(by, p);
        before[2] += part_length(from, p);
    }
    return ok;
}

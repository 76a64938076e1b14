/* Sort and take on a GPU: one launch each. */
#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>

static int64_t length_of(const MethodAt *f, int array)
{
    return dom_len_inside(f->b->program->array[array].dom, f->x->group[f->group].shape);
}

/* A launch over the result of m x n values. */
static CallStep *add_order(MethodAt *f, CallKernel kernel, int b, int64_t m, int64_t n)
{
    const int from = whole_set(f, f->call->a), by = b < 0 ? from : whole_set(f, b);
    return add_launch(f, kernel, from, by, whole_set(f, f->call->out), m, n);
}

CORE optc_status build_sort(MethodAt *f)
{
    const int64_t m = length_of(f, f->call->out);
    optc_status s = m ? order_exact(f->b, f->stage, f->x->group[f->group].tensor[0]) : OPTC_OK;
    if (m && s == OPTC_OK)
        add_order(f, KERNEL_SORT, -1, 1, length_of(f, f->call->a))->k = m;
    return s;
}

CORE optc_status build_take(MethodAt *f)
{
    const Shape shape = f->x->group[f->group].shape;
    const ProgCall *c = f->call;
    Dom d = f->b->program->array[c->out].dom, from = f->b->program->array[c->a].dom;
    bool vector = !dom_square(d) && d != ELEM, cols = c->flags & OF_COLS && !vector;
    MatrixAxes out = dom_matrix(d, false);
    int64_t m = vector ? length_of(f, c->out) : axis_len(out.down, shape),
            n = vector ? 1 : axis_len(out.across, shape);
    if (!m || !n)
        return OPTC_OK;
    CallStep *s = add_order(f, KERNEL_TAKE, c->b, m, n);
    s->flags = cols;
    s->k = vector ? length_of(f, c->a) : axis_len(dom_matrix(from, cols).down, shape);
    f->fits = f->fits && s->k <= INT_MAX;
    return OPTC_OK;
}

/* Sort and take on a GPU: one launch each. */
#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>

/* A launch over the result of m x n values. fits: cleared if it would be too large. */
static CallStep *order_step(const MethodAt *f, CallKernel kernel, int64_t m, int64_t n, bool *fits)
{
    GpuCalls *x = f->x;
    CallStep *s = add_step(x, kernel, call_type_f64(), f->group);
    const CallGroup *g = &x->group[f->group];
    int64_t blocks = kernel_blocks(kernel, m, n, false);
    s->a = s->b = whole_set(x, f->call->a, f->group, 0);
    s->c = whole_set(x, f->call->out, f->group, 0);
    s->m = m;
    s->n = n;
    s->own = true;
    s->blocks = (unsigned)blocks;
    *fits = dom_times(blocks, dom_times(g->n, g->shape.slices)) <= MOST_BLOCKS && m <= INT_MAX &&
            n <= INT_MAX;
    return s;
}

static int64_t length_of(const MethodAt *f, int array)
{
    return dom_len_inside(f->b->program->array[array].dom, f->x->group[f->group].shape);
}

CORE optc_status build_sort(const MethodAt *f)
{
    const int64_t m = length_of(f, f->call->out);
    bool fits = true;
    optc_status s = m ? order_exact(f->b, f->stage, f->x->group[f->group].tensor[0]) : OPTC_OK;
    if (m && s == OPTC_OK)
        order_step(f, KERNEL_SORT, 1, length_of(f, f->call->a), &fits)->k = m;
    return s == OPTC_OK ? steps_fit(f, fits) : s;
}

CORE optc_status build_take(const MethodAt *f)
{
    const Shape shape = f->x->group[f->group].shape;
    const ProgCall *c = f->call;
    Dom d = f->b->program->array[c->out].dom, from = f->b->program->array[c->a].dom;
    bool vector = !dom_square(d) && d != ELEM, fits;
    MatrixAxes out = dom_matrix(d, false);
    int64_t m = vector ? length_of(f, c->out) : axis_len(out.down, shape),
            n = vector ? 1 : axis_len(out.across, shape);
    if (!m || !n)
        return OPTC_OK;
    CallStep *s = order_step(f, KERNEL_TAKE, m, n, &fits);
    s->b = whole_set(f->x, c->b, f->group, 0);
    s->flags = c->flags & OF_COLS && !vector ? 1 : 0;
    s->k = vector ? length_of(f, c->a)
                  : axis_len(dom_matrix(from, s->flags == 1).down, shape);
    return steps_fit(f, fits && s->k <= INT_MAX);
}

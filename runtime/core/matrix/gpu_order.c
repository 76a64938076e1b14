/* Sort and take on a GPU: one launch each. */
#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>

CORE bool is_order(const ProgStage *s)
{
    return stage_takes(s, FOR_SORT | FOR_TAKE);
}

/* a: the set that is read; to: the set of the result, m x n values. fits: cleared if a launch would
 * be too large. */
static CallStep *order_step(GpuCalls *x, CallKernel kernel, int group, int a, int to, int64_t m,
                            int64_t n, bool *fits)
{
    CallStep *s = add_step(x, kernel, call_type_f64(), group);
    const CallGroup *g = &x->group[group];
    int64_t blocks = kernel_blocks(kernel, m, n, false);
    s->a = s->b = a;
    s->c = to;
    s->m = m;
    s->n = n;
    s->own = true;
    s->blocks = (unsigned)blocks;
    *fits = dom_times(blocks, dom_times(g->n, g->shape.slices)) <= MOST_BLOCKS && m <= INT_MAX &&
            n <= INT_MAX;
    return s;
}

CORE optc_status add_order(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group)
{
    const Program *p = b->program;
    const ProgCall *c = stage->call;
    const CallGroup *g = &x->group[group];
    Dom d = p->array[c->out].dom, from = p->array[c->a].dom;
    bool vector = !dom_square(d) && d != ELEM, fits;
    MatrixAxes out = dom_matrix(d, false);
    int64_t m = vector ? dom_len_inside(d, g->shape) : axis_len(out.down, g->shape),
            n = vector ? 1 : axis_len(out.across, g->shape);
    if (!m || !n || !g->shape.slices)
        return OPTC_OK;
    optc_status exact = order_exact(b, stage, g->tensor[0]);
    if (exact != OPTC_OK)
        return exact;
    int a = whole_set(x, c->a, group, 0), to = whole_set(x, c->out, group, 0);
    if (c->callee == CALL_SORT) {
        order_step(x, KERNEL_SORT, group, a, to, 1, dom_len_inside(from, g->shape), &fits)->k = m;
    } else {
        CallStep *s = order_step(x, KERNEL_TAKE, group, a, to, m, n, &fits);
        s->b = whole_set(x, c->b, group, 0);
        s->flags = c->flags & OF_COLS && !vector ? 1 : 0;
        s->k = vector ? dom_len_inside(from, g->shape)
                      : axis_len(dom_matrix(from, s->flags == 1).down, g->shape);
        fits = fits && s->k <= INT_MAX;
    }
    return fits ? OPTC_OK
                : too_long(b, stage, g,
                           "more than 2^31 - 1 blocks, or rows; bind fewer tensors at a time");
}

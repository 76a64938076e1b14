/* Reductions, in the order that gen/plan/plan.h fixes. */
#include "tools/verify/verify.h"

Term side_finished(PlanSide *s, Access f, int64_t index)
{
    (void)f, (void)index;
    s->missing = "a reduction";
    return term_const(&s->c->v->pool, s->real, 0);
}

Term side_partial(PlanSide *s, Access f, int64_t index)
{
    (void)f, (void)index;
    s->missing = "a reduction";
    return term_const(&s->c->v->pool, s->real, 0);
}

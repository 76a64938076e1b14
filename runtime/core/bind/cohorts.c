/* Groups and cohorts as devices see them: their views, and copies of the groups' states.
 * step_cohorts.c arranges them. */
#include "runtime/core/bind/bind.h"

#include <string.h>

CORE bool tensor_out(const Tensor *t, unsigned mask)
{
    return !t->mem[1] && t->needs_grad && (mask >> t->variant & 1);
}

CORE bool cohort_owns(const ProgArray *m)
{
    return m->dom == GROUP && (m->kind == MEM_STATE || m->kind == MEM_TEMP);
}

static void fill_cohort_view(optc_binding *b, Group *g)
{
    memset(&g->view, 0, sizeof g->view);
    g->view.mem = g->mem;
    g->view.hyper = g->hyper;
    g->view.n = g->idle ? -1 : 1;
    g->view.slices = g->view.rows = g->view.cols = 1;
    g->view.id = g->of;
    g->view.ntensors = g->view.present = b->ntensor;
    g->view.total = b->elems;
}

CORE void cohorts_place(optc_binding *b)
{
    for (int i = 0; i < b->ncohort; i++)
        fill_cohort_view(b, &b->group[i]);
}

CORE optc_status cohorts_copy_states(optc_binding *b,
                                     optc_status (*copy)(optc_binding *b, void *to,
                                                         const void *from, size_t n))
{
    const Program *p = b->program;
    optc_status s = OPTC_OK;
    for (int r = b->ngroup; b->group_states && r < b->ncohort; r++)
        for (int k = 0; k < p->narray && !b->group[r].idle && s == OPTC_OK; k++)
            if (cohort_owns(&p->array[k]) && p->array[k].kind == MEM_STATE && !p->array[k].report)
                s = copy(b, b->group[r].mem[k], b->group[b->group[r].of].mem[k],
                         (size_t)p->type[p->array[k].type].bytes);
    return s;
}

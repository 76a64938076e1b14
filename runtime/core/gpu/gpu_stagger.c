/* Staggered stages on a GPU. For stages with ProgStage.stagger the host builds a work list at every step, which
 * contains only the scheduled units, and sends it; the lists are short. So such a step is not run as a graph of
 * the core. For calls it sends the addresses of the scheduled matrices (gpu_calls.c).
 *
 * In a caller's graph the host does not know which step it is: there such stages cover all units, and the device
 * finds that the others have nothing to change. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

static bool listed(const ProgStage *s) { return s && s->stagger && s->kind != S_CALL; }

/* Stages of one launch list that cover the same units share a work list. */
static bool same_list(const LaunchItem *a, const LaunchItem *b)
{
    return listed(a->stage) && listed(b->stage) && a->stage->kind == b->stage->kind && a->batch == b->batch &&
           a->stage->variant == b->stage->variant && a->stage->stagger == b->stage->stagger;
}

static const LaunchItem *first_alike(const LaunchList *p, int i)
{
    int k = 0;
    while (!same_list(&p->item[k], &p->item[i]))
        k++;
    return &p->item[k];
}

/* Upper bound on the length of all work lists of a launch list: all units are scheduled. */
static int64_t launch_units(const LaunchList *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        if (listed(p->item[i].stage) && first_alike(p, i) == &p->item[i])
            n += p->item[i].args.count;
    return n;
}

CORE bool gpu_stagger_any(const LaunchList *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->item[i].stage && p->item[i].stage->stagger)
            return true;
    return false;
}

CORE optc_status gpu_stagger_bind(optc_binding *b)
{
    GpuTables *t = b->gpu;
    for (int i = 0; b->nslots && i < b->program->nentry * t->nphase; i++) {
        int64_t n = launch_units(&t->launch_list[i]);
        t->stagger_most = n > t->stagger_most ? n : t->stagger_most;
    }
    return t->stagger_most ? gpu_alloc(b->rule->engine, sizeof(Unit) * (size_t)t->stagger_most, t->stream,
                                       "lists of staggered work", &t->stagger_units)
                           : OPTC_OK;
}

CORE void gpu_stagger_unbind(optc_binding *b)
{
    GpuTables *t = b->gpu;
    if (t->stagger_units)
        gpu_give(b->rule->engine, t->stagger_units, sizeof(Unit) * (size_t)t->stagger_most, t->stream);
}

/* Lists the units of a stage that are scheduled; for views of blocks, matrix by matrix. */
static int64_t list_units(const optc_binding *b, const LaunchItem *x, Unit *to)
{
    const ProgStage *s = x->stage;
    const Units *u = stage_tensors(b, s, x->batch);
    int64_t n = 0;
    for (int i = 0; i < u->n; i++) {
        const Tensor *y = &b->tensor[u->tensor[i]];
        int64_t all = u->prefix[s->kind][i + 1] - u->prefix[s->kind][i], each = all;
        if (stagger_matrix(s, y, 0) >= 0 && y->shape.slices)
            each = all / y->shape.slices;
        for (int64_t k = 0; k < all && y->view.n >= 0; k += each)
            for (int64_t q = stagger_active(b, &b->stagger, s->stagger, y, stagger_matrix(s, y, k)) ? k : k + each;
                 q < k + each;
                 q++) {
                to[n].tensor = u->tensor[i];
                to[n++].unit = (int)q;
            }
    }
    return n;
}

/* Fills the work lists of this step and stores their addresses and lengths in the items. */
static int64_t fill_lists(optc_binding *b, LaunchList *p, Unit *host)
{
    int64_t at = 0;
    for (int i = 0; i < p->n; i++) {
        LaunchItem *x = &p->item[i];
        const LaunchItem *first = listed(x->stage) ? first_alike(p, i) : NULL;
        if (!first)
            continue;
        x->stagger_at = first == x ? b->gpu->stagger_units + sizeof(Unit) * (size_t)at : first->stagger_at;
        x->stagger_count = first == x ? list_units(b, x, host + at) : first->stagger_count;
        at += first == x ? x->stagger_count : 0;
    }
    return at;
}

CORE optc_status gpu_stagger_send(optc_binding *b, LaunchList *p)
{
    GpuTables *t = b->gpu;
    Unit *host = (Unit *)malloc(sizeof *host * (size_t)(t->stagger_most + 1));
    if (!host)
        return no_memory("optc_run");
    int64_t n = fill_lists(b, p, host);
    /* pageable: copied before it returns */
    const Driver *d = b->rule->engine->gpu->d;
    int rc = n ? d->cuMemcpyHtoDAsync_v2(t->stagger_units, host, sizeof *host * (size_t)n, t->stream) : 0;
    free(host);
    return rc ? gpu_error(b->rule->engine->gpu, "cuMemcpyHtoDAsync", rc, "lists of staggered work")
              : calls_restagger(b);
}

CORE LaunchItem gpu_stagger_item(const optc_binding *b, const LaunchItem *x)
{
    const ProgStage *s = x->stage;
    const Launch *l = &b->gpu->code->launch[s->fn];
    LaunchItem y = *x;
    y.args.units = x->stagger_at;
    y.args.count = x->stagger_count;
    memset(&y.args.brief, 0, sizeof y.args.brief);
    y.blocks = (unsigned)count_blocks(s->form, l, y.args.count, y.args.brief,
                                      stage_tensors(b, s, x->batch)->longest[s->kind], b->rule->engine->gpu->sms);
    return y;
}

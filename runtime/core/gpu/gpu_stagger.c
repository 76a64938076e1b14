/* Turns on a GPU. Of stages that are for those alone who have their turn (ProgStage.turns), the host lists the units of
 * work of those at every step and sends the lists: they are short. So such a step is no graph of ours. Of calls it sends
 * where the matrices of those lie (gpu_calls.c).
 *
 * In a graph of the caller's nobody tells the host which step it is: there such stages go over all units, and each finds
 * on the device that it has nothing to change. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

static bool listed(const ProgStage *s) { return s && s->turns && s->kind != S_CALL; }

/* Stages of one play over the same units have one list. */
static bool same_list(const Shot *a, const Shot *b)
{
    return listed(a->stage) && listed(b->stage) && a->stage->kind == b->stage->kind && a->batch == b->batch &&
           a->stage->variant == b->stage->variant && a->stage->turns == b->stage->turns;
}

static const Shot *first_alike(const Play *p, int i)
{
    int k = 0;
    while (!same_list(&p->shot[k], &p->shot[i]))
        k++;
    return &p->shot[k];
}

/* Units of all lists of a play, if everybody had its turn. */
static int64_t play_units(const Play *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        if (listed(p->shot[i].stage) && first_alike(p, i) == &p->shot[i])
            n += p->shot[i].args.count;
    return n;
}

CORE bool turns_any(const Play *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->shot[i].stage && p->shot[i].stage->turns)
            return true;
    return false;
}

CORE optc_status turns_bind(optc_binding *b)
{
    GpuTables *t = b->gpu;
    for (int i = 0; b->nslots && i < b->rule->program->nentry * t->nphase; i++) {
        int64_t n = play_units(&t->play[i]);
        t->turn_most = n > t->turn_most ? n : t->turn_most;
    }
    return t->turn_most ? gpu_alloc(b->rule->engine, sizeof(Unit) * (size_t)t->turn_most, t->stream, "turns",
                                    &t->turn_units)
                        : OPTC_OK;
}

CORE void turns_unbind(optc_binding *b)
{
    GpuTables *t = b->gpu;
    if (t->turn_units)
        gpu_give(b->rule->engine, t->turn_units, sizeof(Unit) * (size_t)t->turn_most, t->stream);
}

/* Units of a stage in which somebody has its turn; a matrix of blocks at a time. */
static int64_t list_units(const optc_binding *b, const Shot *x, Unit *to)
{
    const ProgStage *s = x->stage;
    const Units *u = stage_tensors(b, s, x->batch);
    int64_t n = 0;
    for (int i = 0; i < u->n; i++) {
        const Tensor *y = &b->tensor[u->tensor[i]];
        int64_t all = u->prefix[s->kind][i + 1] - u->prefix[s->kind][i], each = all;
        if (turns_matrix(s, y, 0) >= 0 && y->shape.slices)
            each = all / y->shape.slices;
        for (int64_t k = 0; k < all && y->view.n >= 0; k += each)
            for (int64_t q = turns_have(b, &b->turns, s->turns, y, turns_matrix(s, y, k)) ? k : k + each; q < k + each;
                 q++) {
                to[n].tensor = u->tensor[i];
                to[n++].unit = (int)q;
            }
    }
    return n;
}

/* Where the lists of this step lie, and how long they are. */
static int64_t fill_lists(optc_binding *b, Play *p, Unit *host)
{
    int64_t at = 0;
    for (int i = 0; i < p->n; i++) {
        Shot *x = &p->shot[i];
        const Shot *first = listed(x->stage) ? first_alike(p, i) : NULL;
        if (!first)
            continue;
        x->turn_at = first == x ? b->gpu->turn_units + sizeof(Unit) * (size_t)at : first->turn_at;
        x->turn_count = first == x ? list_units(b, x, host + at) : first->turn_count;
        at += first == x ? x->turn_count : 0;
    }
    return at;
}

CORE optc_status turns_send(optc_binding *b, Play *p)
{
    GpuTables *t = b->gpu;
    Unit *host = (Unit *)malloc(sizeof *host * (size_t)(t->turn_most + 1));
    if (!host)
        return no_memory("optc_run");
    int64_t n = fill_lists(b, p, host);
    /* pageable: copied before it returns */
    int rc = n ? b->rule->engine->gpu->d->cuMemcpyHtoDAsync_v2(t->turn_units, host, sizeof *host * (size_t)n, t->stream)
               : 0;
    free(host);
    return rc ? gpu_error(b->rule->engine->gpu, "cuMemcpyHtoDAsync", rc, "whose turn it is") : calls_turn(b);
}

CORE Shot turns_shot(const optc_binding *b, const Shot *x)
{
    const ProgStage *s = x->stage;
    const Launch *l = &b->gpu->code->launch[s->fn];
    Shot y = *x;
    y.args.units = x->turn_at;
    y.args.count = x->turn_count;
    memset(&y.args.brief, 0, sizeof y.args.brief);
    y.blocks = (unsigned)count_blocks(s->form, l, y.args.count, y.args.brief,
                                      stage_tensors(b, s, x->batch)->longest[s->kind], b->rule->engine->gpu->sms);
    return y;
}

/* Staggered calls on a GPU over the scheduled matrices only. Each combination of slots has its own
 * array of pointers, so that a graph of its launches stays valid: the sets of staggered groups have
 * no place among the binding's own pointers. Before launches of a combination its numbers of
 * matrices and its places are copied into the tables. */
#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

CORE void calls_slots_count(const optc_binding *b, int *sets, int *groups)
{
    const GpuCalls *x = b->gpu->calls;
    *sets = x ? x->nset : 0;
    *groups = x ? x->ngroup : 0;
}

static bool set_staggered(const GpuCalls *x, const PointerSet *s)
{
    return x->group[s->group].stagger != 0;
}

CORE size_t calls_slots_bytes(optc_binding *b, CallSlots *s)
{
    GpuCalls *x = b->gpu->calls;
    for (int i = 0; x && i < x->ngroup; i++)
        if (x->group[i].stagger) {
            calls_count_now(b, &x->group[i]);
            s->now[i] = x->group[i].most = x->group[i].now;
        }
    for (int i = 0; x && i < x->nset; i++)
        if (set_staggered(x, &x->set[i])) {
            s->npointer += x->set[i].row_stride ? 1 : 0;
            s->at[i] = x->set[i].at = s->npointer;
            s->npointer += set_length(x, &x->set[i]);
        }
    return (size_t)s->npointer * (sizeof(MatrixAddress) + sizeof(void *));
}

CORE optc_status calls_slots_send(optc_binding *b, CallSlots *s, CUdeviceptr memory)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuCalls *x = b->gpu->calls;
    size_t bytes = sizeof(MatrixAddress) * (size_t)s->npointer;
    if (!bytes)
        return OPTC_OK;
    MatrixAddress *all = (MatrixAddress *)calloc(1, bytes);
    if (!all)
        return no_memory("optc_run");
    s->addresses = memory;
    s->pointers = memory + bytes;
    s->moves = x->nmoved;
    fill_addresses(b, x, all, true);
    /* pageable memory: the driver has copied it when the call returns */
    int rc = g->d->cuMemcpyHtoDAsync_v2(s->addresses, all, bytes, b->gpu->stream);
    free(all);
    return rc ? gpu_error(g, "cuMemcpyHtoDAsync", rc, "addresses of matrices")
              : calls_gather(b, s->addresses, s->pointers, s->npointer);
}

CORE void calls_slots_select(optc_binding *b, const CallSlots *s)
{
    GpuCalls *x = b->gpu->calls;
    for (int i = 0; x && i < x->ngroup; i++)
        if (x->group[i].stagger)
            x->group[i].now = x->group[i].most = s->now[i];
    for (int i = 0; x && i < x->nset; i++)
        if (set_staggered(x, &x->set[i]))
            x->set[i].at = s->at[i];
    if (x)
        x->slot_pointers = s->pointers;
}

CORE optc_status calls_slots_update(optc_binding *b, CallSlots *s)
{
    const GpuCalls *x = b->gpu->calls;
    if (!x || s->moves == x->nmoved)
        return OPTC_OK;
    optc_status r = calls_gather(b, s->addresses, s->pointers, s->npointer);
    s->moves = r == OPTC_OK ? x->nmoved : s->moves;
    return r;
}

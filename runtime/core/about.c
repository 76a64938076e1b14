/* What a binding holds: its groups and tensors, as they were handed in. */
#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int optc_tensors(const optc_binding *b) { return b ? b->ntensor : 0; }
int optc_groups(const optc_binding *b) { return b ? b->ngroup : 0; }

optc_status optc_group_tensors(const optc_binding *b, int group, int *first, int *count)
{
    if (!b || !first || !count || group < 0 || group >= b->ngroup)
        return !b || !first || !count ? fail(OPTC_ERROR_ARGUMENT, "optc_group_tensors: NULL")
                                      : fail(OPTC_ERROR_ARGUMENT, "optc_group_tensors: there is no group %d", group);
    *first = b->group[group].first;
    *count = b->group[group].count;
    return OPTC_OK;
}

int optc_find_tensor(const optc_binding *b, const char *name)
{
    for (int i = 0; b && name && i < b->ntensor; i++)
        if (b->tensor[i].name && !strcmp(b->tensor[i].name, name))
            return i;
    return -1;
}

optc_status optc_tensor_about_sized(const optc_binding *b, int tensor, optc_tensor_info *out, size_t size)
{
    optc_tensor_info x;
    if (!b || !out || tensor < 0 || tensor >= b->ntensor)
        return !b || !out ? fail(OPTC_ERROR_ARGUMENT, "optc_tensor_about: NULL")
                          : fail(OPTC_ERROR_ARGUMENT, "optc_tensor_about: there is no tensor %d", tensor);
    const Tensor *t = &b->tensor[tensor];
    memset(&x, 0, sizeof x);
    x.name = t->name;
    x.group = t->group;
    x.rank = t->rank;
    x.shape = t->dim;
    x.count = t->shape.n;
    x.param = t->mem[0];
    x.grad = t->mem[1];
    x.variant = b->rule->program->variant[t->variant].name;
    memset(out, 0, size);                          /* as long as the caller's header has it */
    memcpy(out, &x, size < sizeof x ? size : sizeof x);
    return OPTC_OK;
}

optc_status optc_binding_held_sized(const optc_binding *b, optc_held *out, size_t size)
{
    optc_held x;
    if (!b || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_binding_held: NULL");
    memset(&x, 0, sizeof x);
    x.states = b->state_bytes;
    x.workspace = b->pool_bytes;
    x.temporaries = (int64_t)b->block_bytes - x.states - x.workspace;
    x.workspace += b->call_more;
    x.states += b->given_bytes;
    x.batches = b->nbatch;
    memset(out, 0, size);
    memcpy(out, &x, size < sizeof x ? size : sizeof x);
    return OPTC_OK;
}

/* ---- factors ---- */
static void add_said(optc_factors *x, const FactorSaid *s)
{
    double off = s->off == s->off ? s->off : (double)INFINITY;
    x->computed += (int64_t)s->computed;
    x->refused += (int64_t)s->refused;
    x->residual = off > x->residual ? off : x->residual;
}

optc_status optc_factors_about_sized(const optc_binding *b, int tensor, optc_factors *out, size_t size)
{
    optc_factors x;
    if (!b || !out || tensor < -1 || tensor >= b->ntensor)
        return !b || !out ? fail(OPTC_ERROR_ARGUMENT, "optc_factors_about: NULL")
                          : fail(OPTC_ERROR_ARGUMENT, "optc_factors_about: there is no tensor %d", tensor);
    size_t bytes = sizeof(FactorSaid) * (size_t)said_all(b);
    FactorSaid *all = (FactorSaid *)malloc(bytes + 1);
    if (!all)
        return no_memory("optc_factors_about");
    optc_status s = bytes ? b->rule->device->read(b, all, b->said, bytes, "optc_factors_about") : OPTC_OK;
    memset(&x, 0, sizeof x);
    for (int64_t i = 0; s == OPTC_OK && i < (int64_t)b->nfactor * b->nall; i++)
        for (int64_t k = b->said_at[i]; k < b->said_at[i + 1]; k++)
            if (tensor < 0 || b->tensor[i % b->nall].of == tensor)
                add_said(&x, &all[k]);
    free(all);
    if (s != OPTC_OK)
        return s;
    memset(out, 0, size);
    memcpy(out, &x, size < sizeof x ? size : sizeof x);
    return OPTC_OK;
}

/* Queries: the groups, tensors and memory of a binding; factor statistics; the warning about stacks
 * of matrices. Nothing here changes state. */
#include "runtime/core/api/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups and tensors ---- */
static optc_status no_pointer(const char *call, const optc_binding *b)
{
    return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call,
                !b ? "the binding" : "the result pointer");
}

int optc_tensors(const optc_binding *b) { return b ? b->ntensor : 0; }
int optc_groups(const optc_binding *b) { return b ? b->ngroup : 0; }

optc_status optc_group_tensors(const optc_binding *b, int group, int *first, int *count)
{
    if (!b || !first || !count || group < 0 || group >= b->ngroup)
        return !b || !first || !count
                   ? no_pointer("optc_group_tensors", b)
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

optc_status optc_tensor_about_sized(const optc_binding *b, int tensor, optc_tensor_info *out,
                                    size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_tensor_about_sized", optc_tensor_info, "optc_tensor_about", variant);
    optc_tensor_info x;
    if (!b || !out || tensor < 0 || tensor >= b->ntensor)
        return !b || !out
                   ? no_pointer("optc_tensor_about", b)
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
    x.variant = b->program->variant[t->variant].name;
    return struct_write(&as, out, size, &x);
}

optc_status optc_binding_held_sized(const optc_binding *b, optc_held *out, size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_binding_held_sized", optc_held, "optc_binding_held", batches);
    optc_held x;
    if (!b || !out)
        return no_pointer("optc_binding_held", b);
    memset(&x, 0, sizeof x);
    x.states = b->state_bytes;
    x.workspace = b->pool_bytes;
    x.temporaries = (int64_t)b->storage_bytes - x.states - x.workspace;
    x.workspace += b->call_more;
    x.states += b->caller_bytes;
    x.batches = b->nbatch;
    x.graphs = b->graph_bytes;
    return struct_write(&as, out, size, &x);
}

/* ---- factors ---- */
static void add_stats(optc_factors *x, const FactorStats *s)
{
    double off = s->off == s->off ? s->off : (double)INFINITY;
    x->computed += (int64_t)s->computed;
    x->refused += (int64_t)s->refused;
    x->residual = off > x->residual ? off : x->residual;
}

optc_status optc_factors_about_sized(const optc_binding *b, int tensor, optc_factors *out,
                                     size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_factors_about_sized", optc_factors, "optc_factors_about", residual);
    optc_factors x;
    if (!b || !out || tensor < -1 || tensor >= b->ntensor)
        return !b || !out
                   ? no_pointer("optc_factors_about", b)
                   : fail(OPTC_ERROR_ARGUMENT, "optc_factors_about: there is no tensor %d", tensor);
    size_t bytes = sizeof(FactorStats) * (size_t)factor_stats_count(b);
    FactorStats *all = (FactorStats *)malloc(bytes + 1);
    if (!all)
        return no_memory("optc_factors_about");
    optc_status s =
        bytes ? b->rule->device->read(b, all, b->stats, bytes, "optc_factors_about") : OPTC_OK;
    memset(&x, 0, sizeof x);
    for (int64_t i = 0; s == OPTC_OK && i < (int64_t)b->nfactor * b->nall; i++)
        for (int64_t k = b->stats_at[i]; k < b->stats_at[i + 1]; k++)
            if (tensor < 0 || b->tensor[b->tensor[i % b->nall].of].source == tensor)
                add_stats(&x, &all[k]);
    free(all);
    return s == OPTC_OK ? struct_write(&as, out, size, &x) : s;
}

/* ---- the warning about stacks of matrices ---- */
static bool variant_multiplies(const Program *p, int variant)
{
    for (int i = 0; i < p->nstage; i++)
        if (p->stage[i].kind == S_CALL && p->stage[i].variant == variant)
            return true;
    return false;
}

/* The rule sees one matrix, or `split` ranges of its rows, but the user may mean a stack of
 * matrices in the last two dimensions. A convolution's weight has its kernel after dimension 1:
 * seldom 16 long, and if it is (image patches), shorter than dimension 0. */
static bool looks_stacked(const optc_binding *b, const Tensor *t)
{
    int64_t last = t->rank > 2 ? t->dim[t->rank - 1] : 0;
    return last >= 16 && (t->rank == 3 || t->dim[0] < last) && t->shape.cols > last &&
           t->dim[t->rank - 2] > 1 && variant_multiplies(b->program, t->variant);
}

CORE void warn_stacks(optc_binding *b)
{
    const Tensor *first = NULL;
    int n = 0;
    for (int i = 0; i < b->ntensor; i++)
        if (looks_stacked(b, &b->tensor[i])) {
            first = first ? first : &b->tensor[i];
            n++;
        }
    if (!n)
        return;
    char label[96], others[40] = "", count[32] = "one matrix";
    int64_t cols = first->dim[first->rank - 1],
            stack = first->shape.n / (cols * first->dim[first->rank - 2]);
    if (n > 1)
        snprintf(others, sizeof others, " and %d more like it", n - 1);
    if (first->shape.slices > 1)
        snprintf(count, sizeof count, "%lld matrices", (long long)first->shape.slices);
    snprintf(
        b->warning, sizeof b->warning,
        "%s of %d dimensions%s: rule '%.60s' steps it as %s of %lld x %lld. If it is a stack of "
        "matrices, "
        "bind it as a matrix of %lld x %lld with split = %lld, or use a spec with view = \"last\"",
        tensor_label(b, (int)(first - b->tensor), label), first->rank, others, b->program->name,
        count, (long long)first->shape.rows, (long long)first->shape.cols,
        (long long)(first->shape.n / cols), (long long)cols, (long long)stack);
}

const char *optc_binding_warning(const optc_binding *b) { return b ? b->warning : ""; }

/* Alias checks: a step writes parameters and states, so no other bound array may overlap one.
 * Compiled loops rely on that (OPTC_EACH). Parameters are sorted by address, so that a check is a
 * binary search for any number of tensors. States are in the binding's block or caller-owned
 * (caller_states.c). */
#include "runtime/core/api/api.h"

#include <stdlib.h>
#include <string.h>

static Span param_span(const optc_binding *b, int i, const void *param)
{
    Span s;
    s.lo = (uintptr_t)param;
    s.hi =
        s.lo + (uintptr_t)b->tensor[i].shape.n * (uintptr_t)b->program->type[b->program->p].bytes;
    s.tensor = i;
    return s;
}

/* Sorts the spans and refuses overlaps. */
static optc_status sort_spans(const optc_binding *b, Span *s, int n, const char *call)
{
    qsort(s, (size_t)n, sizeof *s, span_order);
    for (int i = 1; i < n; i++)
        if (s[i].lo < s[i - 1].hi) {
            char x[96], y[96];
            return fail(OPTC_ERROR_ARGUMENT, "%s: the parameters of %s and %s overlap in memory",
                        call, tensor_label(b, s[i - 1].tensor, x), tensor_label(b, s[i].tensor, y));
        }
    return OPTC_OK;
}

CORE optc_status check_params_apart(optc_binding *b)
{
    Span *s = b->span = TAKE(b, Span, b->ntensor);
    if (!s)
        return no_memory("optc_bind");
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].shape.n)
            s[b->nspan++] = param_span(b, i, b->tensor[i].mem[0]);
    return sort_spans(b, s, b->nspan, "optc_bind");
}

static optc_status check_moved(const optc_binding *b, int i, const void *param)
{
    const Program *p = b->program;
    const Span s = param_span(b, i, param);
    uintptr_t block = (uintptr_t)b->block;
    char label[96];
    if (!param && b->tensor[i].shape.n)
        return fail(OPTC_ERROR_ARGUMENT, "optc_set_params: %s: its parameter pointer is NULL",
                    tensor_label(b, i, label));
    if (s.lo % (uintptr_t)p->type[p->p].bytes)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_set_params: %s: its parameter is not aligned to its element",
                    tensor_label(b, i, label));
    if (caller_state_at(b, s.lo, s.hi) >= 0 ||
        (s.hi > s.lo && block && s.lo < block + b->storage_bytes && block < s.hi))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_set_params: the parameter of %s overlaps the memory of this binding's "
                    "states; give it its own memory",
                    tensor_label(b, i, label));
    return OPTC_OK;
}

/* Gradients and inputs, which a step reads, must not overlap the new parameters. */
static optc_status check_read_apart(const optc_binding *b)
{
    const Program *p = b->program;
    optc_status s = OPTC_OK;
    for (int k = 1; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        bool caller = m->kind == MEM_G || (m->kind == MEM_INPUT && m->dom != GROUP);
        for (int i = 0; caller && i < b->ntensor && s == OPTC_OK; i++)
            s = check_overlap(b, i, b->tensor[i].mem[k],
                              dom_len(m->dom, b->tensor[i].shape) * p->type[m->type].bytes,
                              k == 1 ? "optc_set_params: the gradient"
                                     : "optc_set_params: an input");
    }
    return s;
}

/* Replaces the spans first, because the checks use them; restores them on failure. */
static optc_status move_spans(optc_binding *b, void *const *params)
{
    size_t bytes = sizeof(Span) * (size_t)b->nspan;
    Span *was = (Span *)malloc(bytes + 1);
    int n = 0;
    if (!was)
        return no_memory("optc_set_params");
    memcpy(was, b->span, bytes);
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].shape.n)
            b->span[n++] = param_span(b, i, params[i]);
    optc_status s = sort_spans(b, b->span, n, "optc_set_params");
    if (s == OPTC_OK)
        s = check_read_apart(b);
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++)
        s = b->rule->device->use_pointer(b, i, b->tensor[i].mem[0], params[i],
                                         "optc_set_params: the parameter");
    if (s != OPTC_OK)
        memcpy(b->span, was, bytes);
    free(was);
    return s;
}

optc_status optc_set_params(optc_binding *b, void *const *params, int n)
{
    optc_status s = OPTC_OK;
    if (!b || !params || n != b->ntensor)
        return !b || !params ? fail(OPTC_ERROR_ARGUMENT, "optc_set_params: %s is NULL",
                                    !b ? "the binding" : "the list")
                             : fail(OPTC_ERROR_ARGUMENT,
                                    "optc_set_params: the binding has %d tensors, but n is %d",
                                    b->ntensor, n);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = check_moved(b, i, params[i]);
    if (s == OPTC_OK)
        s = move_spans(b, params);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        if (b->tensor[i].mem[0] != params[i]) {
            b->tensor[i].mem[0] = params[i];
            blocks_moved(b, i, 0);
            shards_moved(b, i, 0);
        }
    return s;
}

CORE optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes,
                               const char *what)
{
    uintptr_t lo = (uintptr_t)data, hi = lo + (uintptr_t)bytes;
    int from = 0, to = b->nspan;
    /* the first parameter that ends after lo; spans do not overlap */
    while (from < to) {
        int mid = (from + to) / 2;
        if (b->span[mid].hi <= lo)
            from = mid + 1;
        else
            to = mid;
    }
    char x[96], y[96];
    uintptr_t block = (uintptr_t)b->block;
    if (data && bytes &&
        ((block && lo < block + b->storage_bytes && block < hi) || caller_state_at(b, lo, hi) >= 0))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s of %s overlaps the memory of this binding's states; give it its own "
                    "memory",
                    what, tensor_label(b, tensor, x));
    if (!data || !bytes || from == b->nspan || b->span[from].lo >= hi)
        return OPTC_OK;
    return fail(OPTC_ERROR_ARGUMENT, "%s of %s overlaps the parameter of %s in memory", what,
                tensor_label(b, tensor, x), tensor_label(b, b->span[from].tensor, y));
}

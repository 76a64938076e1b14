/* Caller-owned states (optc_tensor.states): a binding uses their values and does not initialise
 * them. A caller can bind tensors again, in other groups or with other tensors, without copying
 * their states. They are sorted by address for the alias checks (alias_check.c). */
#include "runtime/core/api/api.h"

#include <stdlib.h>
#include <string.h>

static int64_t caller_bytes(const optc_binding *b, const Tensor *t, int k)
{
    const ProgArray *m = &b->program->array[k];
    return stored_bytes(b->program->type, m->type, dom_len(m->dom, t->shape), t->whole.n);
}

static optc_status check_caller_states(const optc_binding *b, int i, const ProgArray *m,
                                       const void *at)
{
    char label[96];
    if (m->dom == GROUP)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: state '%s' belongs to the group, so optc_tensor.states "
                    "cannot supply it; leave its entry NULL",
                    tensor_label(b, i, label), m->name);
    if ((uintptr_t)at % 64)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: the memory for state '%s' is not aligned to 64 bytes",
                    tensor_label(b, i, label), m->name);
    return OPTC_OK;
}

/* Needs the tensor's variant. Ignores entries for states that this variant does not have. */
CORE optc_status bind_caller_states(optc_binding *b, int i, void *const *states)
{
    const Program *p = b->program;
    Tensor *t = &b->tensor[i];
    optc_status s = OPTC_OK;
    t->of = i;
    if (!states)
        return OPTC_OK;
    if (!(t->caller_owned = TAKE(b, bool, p->narray)))
        return no_memory("optc_bind");
    for (int k = 0, n = 0; k < p->narray && s == OPTC_OK; k++) {
        void *at = array_visible(&p->array[k], false) ? states[n++] : NULL;
        if (!at || !(p->array[k].held_by >> t->variant & 1))
            continue;
        s = check_caller_states(b, i, &p->array[k], at);
        t->caller_owned[k] = true;
        t->mem[k] = at;
        b->ncaller_span++;
    }
    return s;
}

static int list_caller_states(optc_binding *b, Span *s)
{
    int n = 0;
    for (int i = 0; i < b->ntensor; i++)
        for (int k = 0; b->tensor[i].caller_owned && k < b->program->narray; k++) {
            int64_t bytes = b->tensor[i].caller_owned[k] ? caller_bytes(b, &b->tensor[i], k) : 0;
            if (!bytes)
                continue;
            s[n].lo = (uintptr_t)b->tensor[i].mem[k];
            s[n].hi = s[n].lo + (uintptr_t)bytes;
            s[n++].tensor = i;
            b->caller_bytes += bytes;
        }
    return n;
}

CORE optc_status check_states_apart(optc_binding *b)
{
    Span *s = b->ncaller_span ? TAKE(b, Span, b->ncaller_span) : NULL;
    optc_status rc = OPTC_OK;
    char x[96], y[96];
    if (b->ncaller_span && !s)
        return no_memory("optc_bind");
    int n = b->ncaller_span ? list_caller_states(b, s) : 0;
    b->ncaller_span = 0;
    if (n)
        qsort(s, (size_t)n, sizeof *s, span_order);
    for (int i = 0; i < n && rc == OPTC_OK; i++) {
        if (i && s[i].lo < s[i - 1].hi)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: the states that the caller supplies for %s and %s overlap "
                        "in memory; give each its own memory",
                        tensor_label(b, s[i - 1].tensor, x), tensor_label(b, s[i].tensor, y));
        rc = check_overlap(b, s[i].tensor, (const void *)s[i].lo, (int64_t)(s[i].hi - s[i].lo),
                           "optc_bind: a state");
    }
    b->caller_span = s;
    b->ncaller_span = n;
    return rc;
}

CORE int caller_state_at(const optc_binding *b, uintptr_t lo, uintptr_t hi)
{
    int from = 0, to = b->ncaller_span;
    /* the first state that ends after lo; spans do not overlap */
    while (from < to) {
        int mid = (from + to) / 2;
        if (b->caller_span[mid].hi <= lo)
            from = mid + 1;
        else
            to = mid;
    }
    return lo < hi && from < b->ncaller_span && b->caller_span[from].lo < hi
               ? b->caller_span[from].tensor
               : -1;
}

CORE int span_order(const void *a, const void *b)
{
    uintptr_t x = ((const Span *)a)->lo, y = ((const Span *)b)->lo;
    return x < y ? -1 : x > y;
}

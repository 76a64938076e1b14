/* States that lie in the caller's memory (optc_tensor.states): a binding takes them as they are and begins none of them.
 * So tensors are bound anew, among others than before, without a second copy of their states. They are kept sorted by
 * address: nothing that is read may lie in one (alias_check.c). */
#include "runtime/core/api/core.h"

#include <stdlib.h>
#include <string.h>

CORE bool state_given(const optc_binding *b, int tensor, int array)
{
    const Tensor *t = &b->tensor[b->tensor[tensor].of];
    return t->given && t->given[array];
}

static int64_t given_bytes(const optc_binding *b, const Tensor *t, int k)
{
    const ProgArray *m = &b->rule->program->array[k];
    return dom_len(m->dom, t->shape) * b->rule->program->type[m->type].bytes;
}

static optc_status check_given(const optc_binding *b, int i, const ProgArray *m, const void *at)
{
    char label[96];
    if (m->dom == GROUP)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: state '%s' is the group's, and not to be given by tensor",
                    tensor_label(b, i, label), m->name);
    if ((uintptr_t)at % 64)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: the memory for state '%s' is not aligned to 64 bytes",
                    tensor_label(b, i, label), m->name);
    return OPTC_OK;
}

/* Once its variant is known; what that does not keep is not looked at. */
CORE optc_status take_states(optc_binding *b, int i, void *const *states)
{
    const Program *p = b->rule->program;
    Tensor *t = &b->tensor[i];
    optc_status s = OPTC_OK;
    t->of = i;
    if (!states)
        return OPTC_OK;
    if (!(t->given = TAKE(b, bool, p->narray)))
        return no_memory("optc_bind");
    for (int k = 0, n = 0; k < p->narray && s == OPTC_OK; k++) {
        void *at = array_told(&p->array[k], false) ? states[n++] : NULL;
        if (!at || !(p->array[k].kept >> t->variant & 1))
            continue;
        s = check_given(b, i, &p->array[k], at);
        t->given[k] = true;
        t->mem[k] = at;
        b->ngiven++;
    }
    return s;
}

static int list_given(optc_binding *b, Span *s)
{
    int n = 0;
    for (int i = 0; i < b->ntensor; i++)
        for (int k = 0; b->tensor[i].given && k < b->rule->program->narray; k++) {
            int64_t bytes = b->tensor[i].given[k] ? given_bytes(b, &b->tensor[i], k) : 0;
            if (!bytes)
                continue;
            s[n].lo = (uintptr_t)b->tensor[i].mem[k];
            s[n].hi = s[n].lo + (uintptr_t)bytes;
            s[n++].tensor = i;
            b->given_bytes += bytes;
        }
    return n;
}

CORE optc_status check_states_apart(optc_binding *b)
{
    Span *s = b->ngiven ? TAKE(b, Span, b->ngiven) : NULL;
    optc_status rc = OPTC_OK;
    char x[96], y[96];
    if (b->ngiven && !s)
        return no_memory("optc_bind");
    int n = b->ngiven ? list_given(b, s) : 0;
    b->ngiven = 0;
    if (n)
        qsort(s, (size_t)n, sizeof *s, span_order);
    for (int i = 0; i < n && rc == OPTC_OK; i++) {
        if (i && s[i].lo < s[i - 1].hi)
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: given states of %s and %s overlap in memory",
                        tensor_label(b, s[i - 1].tensor, x), tensor_label(b, s[i].tensor, y));
        rc = check_overlap(b, s[i].tensor, (const void *)s[i].lo, (int64_t)(s[i].hi - s[i].lo), "optc_bind: a state");
    }
    b->given_span = s;
    b->ngiven = n;
    return rc;
}

CORE int given_holds(const optc_binding *b, uintptr_t lo, uintptr_t hi)
{
    int from = 0, to = b->ngiven;
    while (from < to) {                           /* the first that ends behind lo: they are apart */
        int mid = (from + to) / 2;
        if (b->given_span[mid].hi <= lo)
            from = mid + 1;
        else
            to = mid;
    }
    return lo < hi && from < b->ngiven && b->given_span[from].lo < hi ? b->given_span[from].tensor : -1;
}

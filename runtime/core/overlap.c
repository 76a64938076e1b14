/* What may lie where: parameters and states are written, so nothing else that is bound may lie in one; compiled loops
 * rest on it (OPTC_EACH). Parameters are kept sorted by address; asking for one range takes a binary search, however
 * many tensors there are. States lie in the binding's block. */
#include "core.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b)
{
    uintptr_t x = ((const Span *)a)->lo, y = ((const Span *)b)->lo;
    return x < y ? -1 : x > y;
}

static Span param_span(const optc_binding *b, int i)
{
    Span s;
    s.lo = (uintptr_t)b->tensor[i].mem[0];
    s.hi = s.lo + (uintptr_t)b->tensor[i].shape.n * (uintptr_t)b->rule->program->type[b->rule->program->p].bytes;
    s.tensor = i;
    return s;
}

CORE optc_status check_params_apart(optc_binding *b)
{
    Span *s = b->span = TAKE(b, Span, b->ntensor);
    if (!s)
        return no_memory("optc_bind");
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].shape.n)
            s[b->nspan++] = param_span(b, i);
    qsort(s, (size_t)b->nspan, sizeof *s, by_start);
    for (int i = 1; i < b->nspan; i++)
        if (s[i].lo < s[i - 1].hi) {
            char x[96], y[96];
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: the parameters of %s and %s overlap in memory",
                        tensor_label(b, s[i - 1].tensor, x), tensor_label(b, s[i].tensor, y));
        }
    return OPTC_OK;
}

CORE optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes, const char *what)
{
    uintptr_t lo = (uintptr_t)data, hi = lo + (uintptr_t)bytes;
    int from = 0, to = b->nspan;
    while (from < to) {                           /* the first parameter that ends behind lo: they are apart */
        int mid = (from + to) / 2;
        if (b->span[mid].hi <= lo)
            from = mid + 1;
        else
            to = mid;
    }
    char x[96], y[96];
    uintptr_t block = (uintptr_t)b->block;
    if (data && bytes && block && lo < block + b->block_bytes && block < hi)
        return fail(OPTC_ERROR_ARGUMENT, "%s of %s lies in memory that holds this binding's states, which are written",
                    what, tensor_label(b, tensor, x));
    if (!data || !bytes || from == b->nspan || b->span[from].lo >= hi)
        return OPTC_OK;
    return fail(OPTC_ERROR_ARGUMENT, "%s of %s overlaps the parameter of %s in memory", what,
                tensor_label(b, tensor, x), tensor_label(b, b->span[from].tensor, y));
}

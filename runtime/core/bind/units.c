/* Units of work of a list of tensors. */
#include "runtime/core/bind/bind.h"

/* Counts, for each kind of stage, the units ahead of each tensor; also short units and longest
 * lists. */
CORE optc_status units_count(optc_binding *b, Units *u)
{
    if (!(u->shorter = TAKE(b, int64_t, BRIEF)))
        return no_memory("optc_bind");
    for (int i = 0, length; i < u->n; i++) {
        u->elems += b->tensor[u->tensor[i]].shape.n;
        if ((length = brief_length(b->tensor[u->tensor[i]].shape)))
            u->shorter[length]++;
    }
    for (int i = 1; i <= BRIEF; i++)
        u->shorter[i] += u->shorter[i - 1];
    for (int k = 0; k < NSTAGEKIND; k++) {
        if (!(u->prefix[k] = TAKE(b, int64_t, u->n)))
            return no_memory("optc_bind");
        for (int i = 0; i < u->n; i++) {
            Shape s = b->tensor[u->tensor[i]].shape;
            u->prefix[k][i + 1] = u->prefix[k][i] + stage_units((StageKind)k, s) -
                                  (k == S_FLAT ? b->tensor[u->tensor[i]].first_unit : 0);
            u->longest[k] = list_length((StageKind)k, s) > u->longest[k]
                                ? list_length((StageKind)k, s)
                                : u->longest[k];
        }
    }
    return OPTC_OK;
}

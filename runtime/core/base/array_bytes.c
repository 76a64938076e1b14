/* Bytes of a binding's arrays: of one owner, of all, and which of them share memory. */
#include "runtime/core/base/lifetimes.h"

CORE bool array_temporary(const ProgArray *m) { return m->kind == MEM_TEMP || m->kind == MEM_PART; }

static int64_t up64(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

CORE int array_owners(const optc_binding *b, const ProgArray *m)
{
    return m->dom != GROUP ? b->nheld : m->kind == MEM_PART && b->ntensor ? 1 : b->ncohort;
}

static int64_t bytes_of(const optc_binding *b, const ProgArray *m, int owner)
{
    const Program *p = b->program;
    if (m->dom == GROUP)
        return m->kind == MEM_PART && b->ntensor ? (int64_t)8 * b->ntensor : p->type[m->type].bytes;
    const Tensor *t = &b->tensor[owner];
    if (!(m->held_by >> t->variant & 1) || (t->caller_owned && t->caller_owned[m - p->array]))
        return 0;
    return stored_bytes(p->type, m->type, array_length(m, t->shape, t->whole, b->ntensor),
                        t->whole.n);
}

CORE int64_t array_owned(const optc_binding *b, const ProgArray *m, int owner)
{
    return up64(bytes_of(b, m, owner));
}

CORE bool in_pool(const optc_binding *b, int array, int tensor)
{
    return b->batched[array] >> b->tensor[tensor].variant & 1;
}

CORE int64_t array_bytes(const optc_binding *b, int array, bool all)
{
    const ProgArray *m = &b->program->array[array];
    int64_t sum = 0;
    for (int i = 0; i < array_owners(b, m); i++)
        if (!all && b->batched[array] && in_pool(b, array, i))
            continue;
        else if (__builtin_add_overflow(sum, array_owned(b, m, i), &sum) || sum > (int64_t)1 << 60)
            return -1;
    return sum;
}

CORE bool temporaries_overlap(const optc_binding *b, int x, int y)
{
    const ProgArray *m = b->program->array;
    int first = b->at[x] < b->at[y] ? x : y, last = first == x ? y : x;
    return array_temporary(&m[x]) && array_temporary(&m[y]) &&
           b->at[last] < b->at[first] + array_bytes(b, first, false);
}

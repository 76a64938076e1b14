/* Overwrites copies of states that other ranks hold (WorldCase.forgets). In its own file: other
 * headers of the harness define some names of the core differently. */
#include "runtime/core/shard/shard.h"

#include <math.h>

void forget_states(const optc_binding *b);

void forget_states(const optc_binding *b)
{
    for (int i = 0; i < b->ntensor; i++)
        for (int k = 0; b->shards->cut[i].how == CLASS_ROWS && k < b->program->narray; k++) {
            const ProgArray *m = &b->program->array[k];
            const Cut *c = &b->shards->cut[i];
            const Tensor *all = &b->tensor[c->entry[ENTRY_ALL]];
            int64_t n = dom_len(m->dom, all->shape), cols = all->whole.cols,
                    rank = b->shards->comm.rank;
            if (m->kind != MEM_STATE || m->type != T_F32 || (m->dom != ROW && m->dom != COL) ||
                !all->mem[k])
                continue;
            for (int64_t x = 0; x < n; x++)
                if (m->dom == COL ? c->owner != rank
                                  : x < c->first[rank] / cols || x >= c->end[rank] / cols)
                    ((float *)all->mem[k])[x] = NAN;
        }
}

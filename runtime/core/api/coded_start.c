/* States in block codes that start at another number than 0, such as Adagrad's sum. Devices fill
 * the bytes of such states with zeros; this file writes the codes and scales of the number behind
 * that. */
#include "runtime/core/api/api.h"

#include <stdlib.h>

static optc_status start_one(optc_binding *b, int array, Tensor *t)
{
    const Program *p = b->program;
    const ProgArray *m = &p->array[array];
    const int64_t n = dom_len(m->dom, t->shape);
    const size_t bytes = (size_t)stored_bytes(p->type, m->type, n, t->whole.n);
    char *host = (char *)calloc(bytes, 1);
    if (!host)
        return no_memory("optc_bind");
    number_store(stored_type(p->type, m->type, t->whole.n), host, n, state_start(b, m, t->group));
    optc_status s = b->rule->device->write(b, t->mem[array], host, bytes, true, "optc_bind");
    free(host);
    return s;
}

CORE optc_status coded_states_start(optc_binding *b)
{
    const Program *p = b->program;
    optc_status s = OPTC_OK;
    for (int k = 0; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        for (int i = 0;
             m->kind == MEM_STATE && m->hyper && p->type[m->type].block > 1 && i < b->nheld; i++) {
            Tensor *t = &b->tensor[i];
            const bool ours = state_starts(b, i, k) && dom_len(m->dom, t->shape);
            if (ours && state_start(b, m, t->group) != 0 && s == OPTC_OK)
                s = start_one(b, k, t);
        }
    }
    return s;
}

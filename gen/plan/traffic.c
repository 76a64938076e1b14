/* Counts partials and bytes moved by the stages of a plan, for a tensor of a given shape. */
#include "gen/plan/plan.h"

int64_t part_len(const Mem *m, Shape s, int64_t ntensors)
{
    int64_t n = 0;
    if (!dom_of_block(m->from) || !s.block)
        return count_parts(m->from, m->dom, m->by, s, ntensors);
    for (int k = 0; k < BLOCK_SIZES; k++)
        n += count_parts(m->from, m->dom, m->by, block_size(s, k).shape, ntensors);
    return n;
}

static double mem_traffic(const Plan *p, int mem, Shape s)
{
    const Mem *m = &p->mem[mem];
    if (m->kind != MEM_PART)
        return (double)stored_bytes(program_types, (int)m->type, dom_len(m->dom, s), s.n);
    return m->from == TENSOR ? 8 : (double)part_len(m, s, 1) * type_info[m->type].bytes;
}

static bool reads_half(const Plan *p, const Stage *st, Access a)
{
    return st->half && !is_called(st->kind) && !a.transposed &&
           p->mem[a.mem].dom == stage_info[st->kind].dom;
}

/* Loads, stores and partials. */
Traffic stage_traffic(const Plan *p, const Stage *st, Shape s)
{
    Traffic t = {0, 0};
    for (int i = 0; i < st->nload; i++)
        t.read += mem_traffic(p, st->load[i].mem, s) * (reads_half(p, st, st->load[i]) ? 0.5 : 1);
    for (int i = 0; i < st->nfin; i++)
        t.read += mem_traffic(p, st->fin[i].mem, s);
    for (int i = 0; i < st->nstore; i++)
        t.written += mem_traffic(p, st->store[i].mem, s);
    for (int i = 0; i < st->nfold; i++)
        t.written += mem_traffic(p, st->fold[i].mem, s);
    return t;
}

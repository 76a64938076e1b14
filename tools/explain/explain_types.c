/* What `optc explain` says about storage types of states: the types as stored, block codes and the
 * pass they add. */
#include "tools/explain/explain.h"

#include <string.h>

static bool shown(const Plan *p, int state)
{
    return plan_keeps(p, state) && !p->rule->state[state].report;
}
static const Mem *mem_of(const Plan *p, int state) { return &p->mem[plan_mem_of_state(p, state)]; }

/* "states f32", or each type with its states if elementwise states differ from the type for all: "m
 * q8, v q8u". */
const char *explain_types(Arena *a, const Spec *s)
{
    const Plan *p = s->gen.plan;
    Buf b = {.arena = a};
    bool differ = false;
    for (int i = 0; i < p->rule->nstate; i++)
        differ = differ ||
                 (shown(p, i) && mem_of(p, i)->dom == ELEM && mem_of(p, i)->type != s->types.state);
    if (!differ && !p->rule->types)
        return arena_printf(a, "states %s", type_info[s->types.state].name);
    for (int i = 0; i < p->rule->nstate; i++)
        if (shown(p, i))
            buf_printf(&b, "%s %s %s", b.len ? "," : "states", mem_of(p, i)->name,
                       type_info[mem_of(p, i)->type].name);
    return b.len ? buf_text(&b) : "no states";
}

/* "" if the rule has no state in block codes */
const char *explain_codes(Arena *a, const Plan *p)
{
    Type code = T_F32;
    Buf names = {.arena = a};
    for (int t = 0; t < NTYPES; t++)
        for (int i = 0; i < p->rule->nstate; i++)
            if (shown(p, i) && mem_of(p, i)->type == (Type)t && type_coded((Type)t)) {
                code = (Type)t;
                buf_printf(&names, "%s%s", names.len ? ", " : "", type_info[t].name);
                break;
            }
    return code == T_F32
               ? ""
               : arena_printf(
                     a,
                     "%s: %s bytes per element, which is a byte per value and an f32 scale per "
                     "%d values; tensors of fewer than %d elements store f32",
                     buf_text(&names), explain_amount(a, explain_bytes(code)),
                     type_info[code].block, OPTC_LEAST_CODED);
}

double explain_bytes(Type t)
{
    return type_info[t].bytes + (type_coded(t) ? 4.0 / type_info[t].block : 0);
}

const char *explain_amount(Arena *a, double bytes)
{
    return bytes == (double)(int64_t)bytes ? arena_printf(a, "%.0f", bytes)
                                           : arena_printf(a, "%.2f", bytes);
}

const Stage *explain_code_pass(const Phase *ph, int variant)
{
    const Stage *flat = NULL;
    bool tiled = false;
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant) || !is_elem(st->kind))
            continue;
        tiled = tiled || is_tiled(st->kind);
        flat = st->for_codes ? st : flat;
    }
    return tiled ? flat : NULL;
}

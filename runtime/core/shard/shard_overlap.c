/* Overlap of exchanges with computation: finds the sections of a phase in which the exchanges of
 * one group of tensors can run beside the owners' stages of another group.
 * schedule/from_program.c orders the ops of a section, gpu_overlap.c runs them.
 *
 * A section begins with exchanges of operands to owners, one per group. Stages follow, and then
 * exchanges of results, one per group. An exchange of a group may run beside a stage if the stage
 * does not touch the same tensors' arrays:
 *
 *   - stages of owners run batch by batch: a batch has tensors of one group, and waits for that
 *     group's operands
 *   - all other stages: by variant, class and array. A stage on pieces may read an array that is
 *     being sent
 *
 * Variants follow each other (Muon: tall and wide matrices), with stages of other tensors and of
 * the group in between. Those run first, where they depend on no stage of an owner. Then the
 * owners' stages run group by group.
 *
 * Memory: all arrays that such exchanges and stages use are live during the whole section, so that
 * none of them shares memory with another. All exchanges of a section are in one stream, in order,
 * so they share the buffers. */
#include "runtime/core/memory/layout.h"
#include "runtime/core/shard/shard.h"

#include <string.h>

/* ---- conflicts ---- */
static const Exchange *exchange_at(const optc_binding *b, const ProgPhase *ph, int i)
{
    return i < ph->naction && ph->action[i].kind == ACT_EXCHANGE
               ? &b->shards->exchange[ph->action[i].stage]
               : NULL;
}

static CutClass role_class(Role r)
{
    return r == ROLE_WHOLE || r == ROLE_IDLE ? CLASS_WHOLE
           : r < ROLE_ROWS                   ? CLASS_PIECES
                                             : CLASS_ROWS;
}

static bool owner_role(Role r) { return r == ROLE_OWNED || r == ROLE_WHOLE; }

/* The action must not run while the exchange does. */
static bool action_conflicts(const optc_binding *b, const ProgAction *a, const Exchange *e)
{
    const ProgStage *s = a->kind == ACT_LAUNCH ? &b->program->stage[a->stage] : NULL;
    const Role role = s ? b->shards->role_of[s->variant] : ROLE_BOUND;
    for (int i = 0; i < e->nitem; i++) {
        const Item *it = &e->item[i];
        if (!s || s->kind == S_GROUP || b->shards->variant_of[s->variant] != it->variant ||
            role_class(role) != it->how)
            continue;
        bool reads = it->kind == ITEM_FROM_OWNER || owner_role(role);
        if (in_list(s->writes, s->nwrites, it->array) ||
            (reads && in_list(s->reads, s->nreads, it->array)))
            return true;
    }
    return a->kind == ACT_EXCHANGE;
}

/* ---- sections ---- */
/* Exchanges of groups 0, 1, … of elements, all of this kind, from action i on: their number. */
static int group_exchanges(const optc_binding *b, const ProgPhase *ph, int i, ItemKind kind)
{
    int n = 0;
    for (const Exchange *e; (e = exchange_at(b, ph, i + n)) && e->nitem && e->item[0].group == n;
         n++)
        for (int k = 0; k < e->nitem; k++)
            if (e->item[k].kind != kind || e->item[k].group != n)
                return 0;
    return n == b->shards->ngroups && n > 1 ? n : 0;
}

CORE bool runs_in_groups(const optc_binding *b, const ProgAction *a)
{
    const ProgStage *s = a->kind == ACT_LAUNCH ? &b->program->stage[a->stage] : NULL;
    return s && s->kind != S_GROUP && b->shards->called >> s->variant & 1 &&
           owner_role(b->shards->role_of[s->variant]);
}

/* x can run ahead of y, a stage of owners that is ahead of it: it is a stage of other tensors, or a
 * stage of the group that neither reads what y writes nor writes what y uses. */
static bool passes(const optc_binding *b, const ProgStage *x, const ProgStage *y)
{
    const Shards *h = b->shards;
    bool apart = x->kind == S_GROUP;
    for (int k = 0; k < x->nwrites && apart; k++)
        apart = !stage_uses(y, x->writes[k]);
    for (int k = 0; k < y->nwrites && apart; k++)
        apart = !stage_uses(x, y->writes[k]);
    if (x->kind == S_GROUP)
        return apart;
    return h->variant_of[x->variant] != h->variant_of[y->variant] ||
           role_class(h->role_of[x->variant]) != role_class(h->role_of[y->variant]);
}

/* The action can run ahead of all stages in [from, i) that run in groups. */
static bool runs_ahead(const optc_binding *b, const ProgPhase *ph, int from, int i)
{
    const ProgStage *stage = b->program->stage;
    bool ahead = true;
    for (int k = from; k < i && ahead; k++)
        ahead = !runs_in_groups(b, &ph->action[k]) ||
                (ph->action[i].kind == ACT_LAUNCH &&
                 passes(b, &stage[ph->action[i].stage], &stage[ph->action[k].stage]));
    return ahead;
}

static bool stages_conflict(const optc_binding *b, const ProgPhase *ph, int from, int to,
                            const Exchange *e)
{
    bool any = false;
    for (int i = from; i < to && !any; i++)
        any = action_conflicts(b, &ph->action[i], e);
    return any;
}

/* A section whose operands' exchanges begin at action i; false: there is none. */
static bool find_section(const optc_binding *b, const ProgPhase *ph, int i, Overlap *o)
{
    memset(o, 0, sizeof *o);
    o->groups = group_exchanges(b, ph, i, ITEM_TO_OWNER);
    if (!o->groups)
        return false;
    o->operands = i;
    o->stages = o->stages_end = i + o->groups;
    bool ahead = true;
    for (; o->stages_end < ph->naction && !exchange_at(b, ph, o->stages_end); o->stages_end++) {
        const ProgAction *a = &ph->action[o->stages_end];
        if (!runs_in_groups(b, a))
            ahead = ahead && !action_conflicts(b, a, exchange_at(b, ph, i)) &&
                    runs_ahead(b, ph, o->stages, o->stages_end);
        else if (ahead)
            o->grouped = o->stages_end + 1;
    }
    if (!o->grouped)
        return false;
    /* behind them the phase may send something else first */
    const Exchange *e = exchange_at(b, ph, o->stages_end);
    o->results = o->stages_end + (e && e->nitem && e->item[0].group < 0);
    o->ends_early =
        group_exchanges(b, ph, o->results, ITEM_FROM_OWNER) == o->groups &&
        !stages_conflict(b, ph, o->grouped, o->stages_end, exchange_at(b, ph, o->results));
    o->end = o->ends_early ? o->results + o->groups : o->stages_end;
    return true;
}

CORE optc_status overlaps_make(optc_binding *b)
{
    const Program *p = b->program;
    Shards *x = b->shards;
    int room = 0;
    x->called = variants_called(p);
    for (int m = 0; m < p->nentry * program_phases(p); m++)
        for (int i = 0; i < phase_at(p, m)->naction; i++) {
            Overlap o;
            if (!find_section(b, phase_at(p, m), i, &o))
                continue;
            x->overlap = (Overlap *)list_room(b, x->overlap, x->noverlap, &room, sizeof o);
            if (!x->overlap)
                return no_memory("optc_bind_sharded");
            o.phase = m;
            x->overlap[x->noverlap++] = o;
            i = o.end - 1;
        }
    return OPTC_OK;
}

static bool overlapping(const optc_binding *b) { return b->shards && b->rule->device->overlaps; }

CORE const Overlap *overlap_at(const optc_binding *b, int phase, int action)
{
    for (int i = 0; overlapping(b) && i < b->shards->noverlap; i++)
        if (b->shards->overlap[i].phase == phase && b->shards->overlap[i].operands == action)
            return &b->shards->overlap[i];
    return NULL;
}

CORE int shards_group(const optc_binding *b, int entry)
{
    return overlapping(b) && b->shards->noverlap && owner_role(entry_role(b, entry))
               ? b->shards->cut[b->tensor[entry].source].group
               : 0;
}

/* ---- memory ---- */
static void cover_stage(const optc_binding *b, const ProgAction *a, LiveRanges *l, int phase,
                        LiveRange all)
{
    const ProgStage *s = &b->program->stage[a->stage];
    for (int k = 0; k < s->nreads + s->nwrites; k++)
        live_range_cover(l, stage_array(s, k), phase, all);
}

static void cover_exchange(const Exchange *e, LiveRanges *l, int phase, LiveRange all)
{
    for (int k = 0; e && k < e->nitem; k++)
        live_range_cover(l, e->item[k].array, phase, all);
}

CORE void overlaps_cover(const optc_binding *b, LiveRanges *l)
{
    for (int i = 0; overlapping(b) && i < b->shards->noverlap; i++) {
        const Overlap *o = &b->shards->overlap[i];
        const ProgPhase *ph = phase_at(b->program, o->phase);
        const LiveRange all = {o->operands, o->end - 1};
        cover_exchange(exchange_at(b, ph, o->operands), l, o->phase, all);
        if (o->ends_early)
            cover_exchange(exchange_at(b, ph, o->results), l, o->phase, all);
        for (int a = o->stages; a < o->grouped; a++)
            if (ph->action[a].kind == ACT_LAUNCH)
                cover_stage(b, &ph->action[a], l, o->phase, all);
    }
}

/* Places: where each stage of the rule runs in a sharded binding.
 *
 *   AT_PIECES   over the elements of every rank's piece
 *   AT_ALL      values per tensor or matrix, which all ranks compute from the same partials
 *   AT_OWNER    over the whole tensor on its owner's rank: calls, and stages that see rows or
 *               columns
 *
 * Elementwise stages ahead of a variant's first stage at the owner and behind its last one stay
 * with the pieces, so that only what they hand over is sent. A stage in between (its operands come
 * from the owner in the same run, and the owner needs its results) runs at the owner, and so does
 * every other writer of an array that the owner writes. */
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

CORE bool stage_folds(const Program *p, const ProgStage *s)
{
    for (int k = 0; k < s->nwrites; k++)
        if (p->array[s->writes[k]].kind == MEM_PART)
            return s->kind == S_FLAT;
    return false;
}

static bool computes_single(const ProgStage *s)
{
    return s->kind == S_TENSOR || s->kind == S_SLICE;
}

/* A stage can run on a piece: elements, one value per tensor, matrix or group, and partials of the
 * tensor. */
static bool fits_pieces(const Program *p, const ProgStage *s)
{
    bool fits = s->kind == S_FLAT || computes_single(s);
    for (int k = 0; k < s->nreads + s->nwrites && fits; k++) {
        const ProgArray *m = &p->array[stage_array(s, k)];
        bool small =
            m->dom == TENSOR || m->dom == GROUP || (m->dom == SLICE && m->kind != MEM_PART);
        bool folded = m->kind != MEM_PART || m->from == ELEM || m->from == TENSOR;
        fits = small ? folded : m->dom == ELEM && s->kind == S_FLAT;
    }
    return fits;
}

/* ---- stages in between ---- */
/* by array; by action of a phase: whether it is behind the owner, and ahead of it */
typedef struct Marks { bool *array, *behind, *ahead; } Marks;

static bool any_marked(const Marks *x, const int *list, int n)
{
    bool any = false;
    for (int k = 0; k < n && !any; k++)
        any = x->array[list[k]];
    return any;
}

static void mark(const Marks *x, const int *list, int n, bool as)
{
    for (int k = 0; k < n; k++)
        x->array[list[k]] = as;
}

/* Marks the actions whose operands come from the owner in this run; direct: without a stage in
 * between. */
static void mark_behind(const optc_binding *b, const ProgPhase *ph, int variant, const Marks *x,
                        bool direct)
{
    const Program *p = b->rule->program;
    memset(x->array, 0, sizeof *x->array * (size_t)p->narray);
    for (int i = 0; i < ph->naction; i++) {
        const ProgAction *a = &ph->action[i];
        const ProgStage *s = stage_at(p, a, variant);
        x->behind[i] = s && any_marked(x, s->reads, s->nreads);
        if (s)
            mark(x, s->writes, s->nwrites,
                 b->shards->place[a->stage] == AT_OWNER || (x->behind[i] && !direct));
    }
}

/* Marks the actions whose results the owner needs later in this run. */
static void mark_ahead(const optc_binding *b, const ProgPhase *ph, int variant, const Marks *x)
{
    const Program *p = b->rule->program;
    memset(x->array, 0, sizeof *x->array * (size_t)p->narray);
    for (int i = ph->naction - 1; i >= 0; i--) {
        const ProgAction *a = &ph->action[i];
        const ProgStage *s = stage_at(p, a, variant);
        x->ahead[i] = s && any_marked(x, s->writes, s->nwrites);
        if (!s)
            continue;
        mark(x, s->writes, s->nwrites, false);
        if (b->shards->place[a->stage] == AT_OWNER || x->ahead[i])
            mark(x, s->reads, s->nreads, true);
    }
}

static bool to_owner(const optc_binding *b, int stage)     /* its place changes */
{
    const bool moves = b->shards->place[stage] != AT_OWNER;
    b->shards->place[stage] = AT_OWNER;
    return moves;
}

/* Returns whether a place changed. */
static bool move_between(const optc_binding *b, const ProgPhase *ph, int variant, const Marks *x)
{
    const Program *p = b->rule->program;
    bool changed = false;
    mark_ahead(b, ph, variant, x);
    for (int direct = 0; direct < 2; direct++) {
        mark_behind(b, ph, variant, x, direct);
        for (int i = 0; i < ph->naction; i++) {
            const ProgStage *s = stage_at(p, &ph->action[i], variant);
            if (s && x->behind[i] && (direct ? computes_single(s) : x->ahead[i]))
                changed = to_owner(b, ph->action[i].stage) || changed;
        }
    }
    return changed;
}

/* Notes the arrays of a variant that stages at the owner write. They have no other writer, except
 * the parameter. Returns whether a place changed. */
static bool move_writers(const optc_binding *b, int variant)
{
    const Program *p = b->rule->program;
    bool *writes = b->shards->owner_writes + variant * p->narray, changed = false;
    for (int note = 1; note >= 0; note--)
        for (int i = 0; i < p->nstage; i++) {
            const ProgStage *s = &p->stage[i];
            for (int k = 0; s->kind != S_GROUP && s->variant == variant && k < s->nwrites; k++)
                if (note)
                    writes[s->writes[k]] |= b->shards->place[i] == AT_OWNER;
                else if (p->array[s->writes[k]].kind != MEM_P &&
                         p->array[s->writes[k]].dom != GROUP &&
                         owner_writes(b, variant, s->writes[k]))
                    changed = to_owner(b, i) || changed;
        }
    return changed;
}

CORE optc_status places_make(optc_binding *b)
{
    const Program *p = b->rule->program;
    unsigned char *place = b->shards->place = TAKE(b, unsigned char, p->nstage);
    b->shards->owner_writes = TAKE(b, bool, p->nvariant * p->narray);
    int most = 0;
    for (int m = 0; m < p->nentry * program_phases(p); m++) {
        int n = phase_at(p, m)->naction;
        most = n > most ? n : most;
    }
    bool *room = (bool *)calloc((size_t)p->narray + 2 * (size_t)most + 1, sizeof *room);
    bool ok = place && room && b->shards->owner_writes;
    Marks x = {room, room + p->narray, room + p->narray + most};
    for (int i = 0; ok && i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        place[i] = s->kind == S_GROUP      ? AT_ALL
                   : !fits_pieces(p, s)    ? AT_OWNER
                   : computes_single(s)    ? AT_ALL
                                           : AT_PIECES;
    }
    for (int v = 0; ok && v < p->nvariant; v++)
        for (bool changed = true; changed;) {
            changed = move_writers(b, v);
            for (int m = 0; m < p->nentry * program_phases(p); m++)
                changed = move_between(b, phase_at(p, m), v, &x) || changed;
        }
    free(room);
    return ok ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* ---- questions ---- */
static bool any_stage(const optc_binding *b, int variant, StagePlace place, bool folds)
{
    const Program *p = b->rule->program;
    for (int i = 0; i < p->nstage; i++)
        if (p->stage[i].kind != S_GROUP && p->stage[i].variant == variant &&
            b->shards->place[i] == place && (!folds || stage_folds(p, &p->stage[i])))
            return true;
    return false;
}

CORE bool variant_folds(const optc_binding *b, int variant)
{
    return any_stage(b, variant, AT_PIECES, true);
}
CORE bool variant_owned(const optc_binding *b, int variant)
{
    return any_stage(b, variant, AT_OWNER, false);
}

CORE bool variant_slices(const optc_binding *b, int variant)
{
    const Program *p = b->rule->program;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].dom == SLICE && role_uses(b, variant, ROLE_BOUND, k))
            return true;
    return false;
}

CORE bool owner_writes(const optc_binding *b, int variant, int array)
{
    /* stages write the first of a ring, wherever it is */
    int ring = b->rule->program->array[array].ring;
    array -= ring ? ring - 1 : 0;
    return b->shards->owner_writes[variant * b->rule->program->narray + array];
}

/* Blocks, slots and draws along the rank axis are numbered through the whole tensor. A fold's parts
 * of a piece do not know their matrix. */
CORE bool variant_apart(const optc_binding *b, int variant)
{
    const Program *p = b->rule->program;
    bool apart = !p->block && !p->rank;
    for (int k = 0; k < p->narray && apart; k++)
        apart = !p->array[k].slots.every &&
                !(!dom_inside(p->array[k].dom) && owner_writes(b, variant, k)) &&
                !(p->array[k].dom == SLICE && role_uses(b, variant, ROLE_PART, k));
    return apart;
}

static bool runs_in(const optc_binding *b, int stage, Role role)
{
    StagePlace at = (StagePlace)b->shards->place[stage];
    switch (role) {
    case ROLE_BOUND: return at != AT_OWNER;
    case ROLE_PART: case ROLE_GHOST:
        return at == AT_PIECES && stage_folds(b->rule->program, &b->rule->program->stage[stage]);
    case ROLE_OWNED: return at == AT_OWNER;
    case ROLE_WHOLE: return true;
    default: return rows_role(b->rule->program, &b->rule->program->stage[stage]) == role;
    }
}

CORE bool role_uses(const optc_binding *b, int variant, Role role, int array)
{
    const Program *p = b->rule->program;
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        if (s->kind != S_GROUP && s->variant == variant && runs_in(b, i, role) &&
            stage_uses(s, array))
            return true;
    }
    return false;
}

/* Values per tensor that no stage at the owner writes are the same on all ranks: the owner's entry
 * uses the memory of the bound tensor. */
CORE bool role_holds(const optc_binding *b, int variant, Role role, int array)
{
    const ProgArray *m = &b->rule->program->array[array];
    bool slots = m->slots.every != 0, uses = role_uses(b, variant, role, array);
    switch (role) {
    case ROLE_BOUND: return slots ? uses : uses || !owner_writes(b, variant, array);
    case ROLE_GHOST: return uses && m->dom == ELEM;
    case ROLE_OWNED: return uses && (slots || m->dom == ELEM || owner_writes(b, variant, array));
    default: return role == ROLE_WHOLE || rows_holds(m, role);
    }
}

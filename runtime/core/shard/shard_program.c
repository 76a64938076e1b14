/* The program of a sharded binding, derived from the rule's: roles are its variants, stages run in
 * roles, and exchanges stand where a stage needs what another rank has.
 *
 * Within a phase every action has a round: the number of exchanges ahead of it. An action's round
 * is the lowest at which its operands have arrived, and not lower than that of the action ahead of
 * it in its variant. A stage of the group and a copy wait for all actions ahead of them. All that
 * is to be sent between two rounds is one exchange, for all variants and tensors together. */
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

/* ---- rounds ---- */
enum { ON_PIECES = 1, ON_OWNER = 2 };          /* bits: where an array's current values are */

/* An array of the tensors of one variant and class. round: in which it was written; partial:
 * partials of the own piece only. CLASS_ROWS: which of its values a rank has, if not all; copied:
 * the rounds in which ghosts got copies; -1 */
typedef enum { HAS_ALL, HAS_ROWS, HAS_COLS, HAS_OWNER } Has;
typedef struct Flow { int valid, round; bool partial; Has has; int copied[3]; } Flow;

typedef struct Placed { ProgAction action; int round; } Placed;

typedef struct Builder {
    optc_binding *b;
    const StageCopies *copies;
    Flow *flow;                                /* by class, variant, array */
    /* by array: the round in which an owner left tensors' partials; -1 */
    int *written;
    int now[MOST_VARIANTS][NCUTCLASS];         /* by variant and class: round of the last action */
    Placed *placed; int n, room;
    Item *item; int *item_round; int nitem, item_room;
    bool ok;
} Builder;

static Flow *flow_of(const Builder *x, CutClass how, int variant, int array)
{
    const Program *p = x->b->rule->program;
    return &x->flow[((int)how * p->nvariant + variant) * p->narray + array];
}

static void *grow(Builder *x, void *p, int n, int *room, size_t size)
{
    if (n < *room)
        return p;
    int more = *room ? 2 * *room : 64;
    void *q = realloc(p, size * (size_t)more);
    x->ok = x->ok && q;
    *room = q ? more : *room;
    return q ? q : p;
}

static void place_action(Builder *x, ProgAction a, int round)
{
    x->placed = (Placed *)grow(x, x->placed, x->n, &x->room, sizeof *x->placed);
    if (!x->ok)
        return;
    x->placed[x->n].action = a;
    x->placed[x->n++].round = round;
}

/* The item is part of the exchange ahead of this round. */
static void need_item(Builder *x, ItemKind kind, int array, int variant, CutClass how, int round)
{
    for (int i = 0; i < x->nitem; i++) {
        const Item *y = &x->item[i];
        if (x->item_round[i] == round && y->kind == kind && y->array == array &&
            y->variant == variant && y->how == how)
            return;
    }
    if (x->nitem == x->item_room) {
        int room = x->item_room;
        x->item = (Item *)grow(x, x->item, x->nitem, &room, sizeof *x->item);
        room = x->item_room;
        x->item_round = (int *)grow(x, x->item_round, x->nitem, &room, sizeof *x->item_round);
        x->item_room = x->ok ? room : x->item_room;
    }
    if (!x->ok)
        return;
    Item it = {kind, array, variant, how, -1};
    x->item[x->nitem] = it;
    x->item_round[x->nitem++] = round;
}

static int larger(int a, int b) { return a > b ? a : b; }

/* Values per group, and the memory that all tensors share, are the same everywhere. */
static bool of_tensor(const ProgArray *m) { return m->dom != GROUP; }

static void begin_phase(Builder *x)
{
    const optc_binding *b = x->b;
    const Program *p = b->rule->program;
    for (int c = 0; c < (int)NCUTCLASS; c++)
        for (int v = 0; v < p->nvariant; v++) {
            x->now[v][c] = 0;
            for (int k = 0; k < p->narray; k++) {
                const ProgArray *m = &p->array[k];
                Flow *f = flow_of(x, (CutClass)c, v, k);
                bool callers = m->kind == MEM_P || m->kind == MEM_G || m->kind == MEM_INPUT;
                bool owners = !callers && (c == CLASS_WHOLE || owner_writes(b, v, k));
                f->valid = owners ? ON_OWNER : ON_PIECES;
                if (m->slots.every || (callers && m->dom != ELEM) ||
                    (c == CLASS_PIECES && !owners && m->dom != ELEM))
                    f->valid = ON_PIECES | ON_OWNER;
                f->round = f->copied[0] = f->copied[1] = f->copied[2] = -1;
                f->partial = false;
                f->has = m->kind != MEM_STATE ? HAS_ALL
                         : m->dom == ROW      ? HAS_ROWS
                         : m->dom == COL      ? HAS_OWNER
                                              : HAS_ALL;
            }
        }
    for (int k = 0; k < p->narray; k++)
        x->written[k] = -1;
}

/* Brings an array to where a stage reads it. Returns the lowest round in which the stage can
 * run. */
static int bring(Builder *x, CutClass how, int variant, int array, int to, int round)
{
    Flow *f = flow_of(x, how, variant, array);
    if (f->partial) {
        f->round = larger(round, f->round + 1);
        need_item(x, ITEM_PARTIALS, array, variant, how, f->round);
        f->partial = false;
    }
    if (!(f->valid & to)) {
        f->round = larger(round, f->round + 1);
        need_item(x, to == ON_OWNER ? ITEM_TO_OWNER : ITEM_FROM_OWNER, array, variant, how,
                  f->round);
        f->valid |= to;
    }
    return larger(round, f->round);
}

/* Operands of a fold over pieces: the ghosts of cut segments need copies of what the stage
 * reads. */
static int bring_ghosts(Builder *x, const ProgStage *s, int variant, int round)
{
    const Program *p = x->b->rule->program;
    for (int k = 0; k < s->nreads; k++)
        if (p->array[s->reads[k]].dom == ELEM)
            round = larger(round, flow_of(x, CLASS_PIECES, variant, s->reads[k])->round + 1);
    for (int k = 0; k < s->nreads; k++)
        if (p->array[s->reads[k]].dom == ELEM)
            need_item(x, ITEM_GHOST, s->reads[k], variant, CLASS_PIECES, round);
    return round;
}

static void wrote(Builder *x, const ProgStage *s, CutClass how, int variant, StagePlace place,
                  int round)
{
    const Program *p = x->b->rule->program;
    for (int k = 0; k < s->nwrites; k++) {
        const ProgArray *m = &p->array[s->writes[k]];
        Flow *f = flow_of(x, how, variant, s->writes[k]);
        f->round = round;
        f->valid = place == AT_OWNER ? ON_OWNER : m->dom == ELEM ? ON_PIECES : ON_PIECES | ON_OWNER;
        f->partial = place == AT_PIECES && m->kind == MEM_PART;
        if (place == AT_OWNER && m->kind == MEM_PART && m->dom == GROUP)
            x->written[s->writes[k]] = larger(x->written[s->writes[k]], round);
    }
}

/* A stage of a variant, for its tensors of CLASS_PIECES or CLASS_WHOLE. */
static void place_stage(Builder *x, const ProgAction *a, CutClass how)
{
    const Program *p = x->b->rule->program;
    const ProgStage *s = &p->stage[a->stage];
    StagePlace place = how == CLASS_WHOLE ? AT_OWNER : (StagePlace)x->b->shards->place[a->stage];
    int v = s->variant, round = x->now[v][how];
    bool folds = place == AT_PIECES && stage_folds(p, s);
    ProgAction act = *a;
    for (int k = 0; k < s->nreads; k++)
        if (of_tensor(&p->array[s->reads[k]]))
            round = bring(x, how, v, s->reads[k], place == AT_OWNER ? ON_OWNER : ON_PIECES, round);
    for (int k = 0; k < s->nwrites && place == AT_OWNER; k++)      /* absent tensors get it back */
        if (s->writes[k] == 0)
            round = bring(x, how, v, 0, ON_OWNER, round);
    if (folds)
        round = bring_ghosts(x, s, v, round);
    wrote(x, s, how, v, place, round);
    x->now[v][how] = round;
    act.stage = how == CLASS_WHOLE ? x->copies[a->stage].whole : a->stage;
    place_action(x, act, round);
    if (folds) {
        act.stage = x->copies[a->stage].ghost;
        place_action(x, act, round);
    }
}

/* ---- matrices that are cut between rows ---- */
/* The lowest round in which all ranks have the array, or (a stage over columns) the own columns of
 * it. */
static int bring_rows(Builder *x, int variant, int array, bool own_cols, int round)
{
    /* by Has */
    static const ItemKind by[] = {ITEM_PARTIALS, ITEM_ROWS, ITEM_COLS, ITEM_FROM_OWNER};
    Flow *f = flow_of(x, CLASS_ROWS, variant, array);
    while (f->partial || !(f->has == HAS_ALL || (f->has == HAS_COLS && own_cols))) {
        f->round = larger(round, f->round + 1);
        need_item(x, by[f->has], array, variant, CLASS_ROWS, f->round);
        f->partial = false;
        f->has = f->has == HAS_OWNER ? HAS_COLS : HAS_ALL;
    }
    return larger(round, f->round);
}

/* Copies for ghosts, unless they have them since an earlier round. */
static int bring_rows_ghosts(Builder *x, const ProgStage *s, int round)
{
    static const ItemKind by[] = {ITEM_GHOST, ITEM_TILE_GHOST, ITEM_BAND_GHOST};
    const int tiles = s->kind == S_FLAT ? 0 : s->kind == S_TILE ? 1 : 2;
    const Program *p = x->b->rule->program;
    for (int k = 0; k < s->nreads; k++) {
        Flow *f = flow_of(x, CLASS_ROWS, s->variant, s->reads[k]);
        if (p->array[s->reads[k]].dom == ELEM && f->copied[tiles] < 0)
            round = larger(round, f->round + 1);
    }
    for (int k = 0; k < s->nreads; k++) {
        Flow *f = flow_of(x, CLASS_ROWS, s->variant, s->reads[k]);
        if (p->array[s->reads[k]].dom != ELEM || f->copied[tiles] >= 0)
            continue;
        need_item(x, by[tiles], s->reads[k], s->variant, CLASS_ROWS, round);
        f->copied[tiles] = round;
    }
    return round;
}

static void place_rows_stage(Builder *x, const ProgAction *a)
{
    const Program *p = x->b->rule->program;
    const ProgStage *s = &p->stage[a->stage];
    const Role role = rows_role(p, s);
    int v = s->variant, round = x->now[v][CLASS_ROWS];
    ProgAction act = *a;
    /* states can be sent at any time: with the partials */
    for (int states = 0; states < 2; states++)
        for (int k = 0; k < s->nreads; k++)
            if (of_tensor(&p->array[s->reads[k]]) &&
                states == (p->array[s->reads[k]].kind == MEM_STATE))
                round = bring_rows(x, v, s->reads[k], role == ROLE_COLS, round);
    if (x->copies[a->stage].rows_ghost >= 0)
        round = bring_rows_ghosts(x, s, round);
    for (int k = 0; k < s->nwrites; k++) {
        const ProgArray *m = &p->array[s->writes[k]];
        Flow *f = flow_of(x, CLASS_ROWS, v, s->writes[k]);
        f->round = round;
        f->partial = m->kind == MEM_PART && m->dom != GROUP && role != ROLE_ALL;
        f->has = role == ROLE_COLS && m->kind != MEM_PART ? HAS_COLS : HAS_ALL;
        f->copied[0] = f->copied[1] = f->copied[2] = -1;
    }
    x->now[v][CLASS_ROWS] = round;
    act.stage = x->copies[a->stage].rows;
    place_action(x, act, round);
    if (x->copies[a->stage].rows_ghost >= 0) {
        act.stage = x->copies[a->stage].rows_ghost;
        place_action(x, act, round);
    }
}

/* Waits for all actions so far. */
static int place_barrier(Builder *x, int at_least)
{
    const Program *p = x->b->rule->program;
    int round = at_least;
    for (int v = 0; v < p->nvariant; v++)
        for (int c = 0; c < (int)NCUTCLASS; c++)
            round = larger(round, x->now[v][c]);
    for (int v = 0; v < p->nvariant; v++)
        for (int c = 0; c < (int)NCUTCLASS; c++)
            x->now[v][c] = round;
    return round;
}

static void place_group_stage(Builder *x, const ProgAction *a)
{
    const ProgStage *s = &x->b->rule->program->stage[a->stage];
    int round = place_barrier(x, 0);
    for (int k = 0; k < s->nreads; k++)
        if (x->written[s->reads[k]] >= 0)
            round = larger(round, x->written[s->reads[k]] + 1);
    for (int k = 0; k < s->nreads; k++)
        if (x->written[s->reads[k]] >= 0) {
            need_item(x, ITEM_TENSOR_PARTIALS, s->reads[k], 0, CLASS_PIECES, round);
            x->written[s->reads[k]] = -1;
        }
    place_action(x, *a, place_barrier(x, round));
}

/* The parameter ends where the caller has it, and states per column where their owner has them. */
static void end_phase(Builder *x)
{
    const Program *p = x->b->rule->program;
    for (int c = 0; c < 2; c++)
        for (int v = 0; v < p->nvariant; v++)
            (void)bring(x, (CutClass)c, v, 0, ON_PIECES, 0);
    for (int v = 0; v < p->nvariant; v++)
        for (int k = 0; k < p->narray; k++)
            if (p->array[k].kind == MEM_STATE && flow_of(x, CLASS_ROWS, v, k)->has == HAS_COLS)
                (void)bring_rows(x, v, k, false, 0);
}

/* ---- phases ---- */
/* All elements of a tensor go to its owner or come from there. */
static bool moves_elements(const Builder *x, const Item *it)
{
    return (it->kind == ITEM_TO_OWNER || it->kind == ITEM_FROM_OWNER) && it->how != CLASS_ROWS &&
           x->b->rule->program->array[it->array].dom == ELEM;
}

/* The exchange ahead of a round, for the elements of one group of tensors. Group -1: all else that
 * is sent; if there is only one group, both are one exchange. */
static optc_status exchange_of(Builder *x, int round, int group, int *number)
{
    Shards *s = x->b->shards;
    int n = 0;
    Item *item = TAKE(x->b, Item, x->nitem);
    if (!item)
        return no_memory("optc_bind_sharded");
    for (int i = 0; i < x->nitem; i++) {
        bool elements = moves_elements(x, &x->item[i]);
        if (x->item_round[i] != round || (s->ngroups > 1 && elements != (group >= 0)))
            continue;
        item[n] = x->item[i];
        item[n++].group = elements ? group : -1;
    }
    *number = -1;
    for (int i = 0; i < s->nexchange && *number < 0; i++)
        if (s->exchange[i].nitem == n &&
            !memcmp(s->exchange[i].item, item, sizeof *item * (size_t)n))
            *number = i;
    if (*number >= 0 || !n)
        return OPTC_OK;
    if (s->nexchange == s->most_exchange) {
        int room = s->most_exchange ? 2 * s->most_exchange : 8;
        Exchange *more = TAKE(x->b, Exchange, room);
        if (!more)
            return no_memory("optc_bind_sharded");
        if (s->nexchange)
            memcpy(more, s->exchange, sizeof *more * (size_t)s->nexchange);
        s->exchange = more;
        s->most_exchange = room;
    }
    *number = s->nexchange++;
    s->exchange[*number].item = item;
    s->exchange[*number].nitem = n;
    return OPTC_OK;
}

static optc_status write_phase(Builder *x, ProgPhase *to)
{
    int last = 0, n = 0;
    for (int i = 0; i < x->n; i++)
        last = larger(last, x->placed[i].round);
    for (int i = 0; i < x->nitem; i++)
        last = larger(last, x->item_round[i]);
    ProgAction *a = TAKE(x->b, ProgAction, x->n + (last + 1) * (x->b->shards->ngroups + 1));
    if (!a)
        return no_memory("optc_bind_sharded");
    for (int round = 0; round <= last; round++) {
        /* the step counter advances ahead of everything */
        for (int i = 0; i < x->n; i++)
            if (!round && x->placed[i].action.kind == ACT_ADVANCE_T)
                a[n++] = x->placed[i].action;
        for (int k = x->b->shards->ngroups > 1 ? -1 : 0; k < x->b->shards->ngroups; k++) {
            int number = -1;
            optc_status s = exchange_of(x, round, k, &number);
            if (s != OPTC_OK)
                return s;
            if (number < 0)
                continue;
            memset(&a[n], 0, sizeof a[n]);
            a[n].kind = ACT_EXCHANGE;
            a[n++].stage = number;
        }
        for (int i = 0; i < x->n; i++)
            if (x->placed[i].round == round && x->placed[i].action.kind != ACT_ADVANCE_T)
                a[n++] = x->placed[i].action;
    }
    to->action = a;
    to->naction = n;
    return OPTC_OK;
}

static optc_status derive_phase(Builder *x, const ProgPhase *from, ProgPhase *to)
{
    const Program *p = x->b->rule->program;
    x->n = x->nitem = 0;
    begin_phase(x);
    for (int i = 0; i < from->naction; i++) {
        const ProgAction *a = &from->action[i];
        const ProgStage *s = a->kind == ACT_LAUNCH ? &p->stage[a->stage] : NULL;
        if (s && s->kind == S_GROUP) {
            place_group_stage(x, a);
        } else if (s) {
            if (any_of_class(x->b, s->variant, CLASS_PIECES))
                place_stage(x, a, CLASS_PIECES);
            if (x->copies[a->stage].whole >= 0)
                place_stage(x, a, CLASS_WHOLE);
            if (x->copies[a->stage].rows >= 0)
                place_rows_stage(x, a);
        } else {
            place_action(x, *a, 0);
        }
    }
    end_phase(x);
    /* an exchange names its arrays, and stages select those */
    for (int i = 0; i < x->nitem; i++)
        if (p->array[x->item[i].array].ring)
            return fail(OPTC_ERROR_ARGUMENT,
                        "rule '%s' uses the ring of '%s' on several ranks, which exchanges do not "
                        "support; bind whole tensors on each rank, or use a rule without a ring",
                        p->name, p->array[x->item[i].array].name);
    return x->ok ? write_phase(x, to) : no_memory("optc_bind_sharded");
}

static optc_status derive_phases(Builder *x)
{
    const Program *p = x->b->rule->program;
    int phases = program_phases(p);
    ProgEntry *entry = TAKE(x->b, ProgEntry, p->nentry);
    optc_status s = entry ? OPTC_OK : no_memory("optc_bind_sharded");
    for (int e = 0; e < p->nentry && s == OPTC_OK; e++) {
        ProgPhase *to = TAKE(x->b, ProgPhase, phases);
        entry[e].name = p->entry[e].name;
        entry[e].phase = to;
        entry[e].shares = p->entry[e].shares;
        s = to ? OPTC_OK : no_memory("optc_bind_sharded");
        for (int m = 0; m < phases && s == OPTC_OK; m++)
            s = derive_phase(x, &p->entry[e].phase[m], &to[m]);
    }
    x->b->shards->program.entry = entry;
    return s;
}

/* States that start as a copy of p need it at the owner when they are filled. */
static optc_status params_exchange(Builder *x)
{
    const Program *p = x->b->rule->program;
    x->nitem = 0;
    Shards *s = x->b->shards;
    for (int k = 0; k < p->narray; k++)
        for (int v = 0; v < p->nvariant; v++) {
            bool copies = p->array[k].kind == MEM_STATE && p->array[k].copies_p &&
                          p->array[k].held_by >> v & 1;
            if (copies && x->b->shards->role[v][ROLE_WHOLE] >= 0)
                need_item(x, ITEM_TO_OWNER, 0, v, CLASS_WHOLE, 0);
            if (copies && owner_writes(x->b, v, k))
                need_item(x, ITEM_TO_OWNER, 0, v, CLASS_PIECES, 0);
        }
    if (!x->ok || !(s->params = TAKE(x->b, int, s->ngroups)))
        return no_memory("optc_bind_sharded");
    optc_status made = OPTC_OK;
    for (int k = 0; k < s->ngroups && x->nitem && made == OPTC_OK; k++) {
        int number = -1;
        made = exchange_of(x, 0, k, &number);
        if (number >= 0)
            s->params[s->nparams++] = number;
    }
    return made;
}

CORE optc_status shard_program_make(optc_binding *b)
{
    const Program *p = b->rule->program;
    Builder x;
    /* the ranks would number them by piece */
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].normal && (p->array[k].dom == ROW || p->array[k].dom == COL))
            return fail(OPTC_ERROR_ARGUMENT,
                        "the state '%s' of rule '%s' starts as random draws per %s, which sharded "
                        "bindings do not "
                        "support; use draws per element or per tensor",
                        p->array[k].name, p->name, dom_info[p->array[k].dom].name);
    memset(&x, 0, sizeof x);
    StageCopies *copies = (StageCopies *)calloc((size_t)p->nstage + 1, sizeof *copies);
    x.b = b;
    x.copies = copies;
    x.flow = (Flow *)calloc((size_t)p->nvariant * NCUTCLASS * (size_t)p->narray, sizeof *x.flow);
    x.written = (int *)calloc((size_t)p->narray, sizeof *x.written);
    x.ok = copies && x.flow && x.written;
    int roles = b->shards->program.nvariant;
    b->shards->program = *p;
    b->shards->program.nvariant = roles;
    optc_status s = x.ok ? roles_copy_variants(b) : no_memory("optc_bind_sharded");
    if (s == OPTC_OK)
        s = roles_copy_arrays_held(b);
    if (s == OPTC_OK)
        s = roles_copy_stages(b, copies);
    if (s == OPTC_OK)
        s = derive_phases(&x);
    if (s == OPTC_OK)
        s = params_exchange(&x);
    free(copies);
    free(x.flow);
    free(x.written);
    free(x.placed);
    free(x.item);
    free(x.item_round);
    return s;
}

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
/* Bits: where an array's current values are. By rows: a rank has the values of its own rows, or of
 * the columns that it finishes, or one rank holds those of all columns; or all ranks have all. */
enum { ON_PIECES = 1, ON_OWNER = 2, ON_ROWS = 4, ON_COLS = 8, ON_HOLDER = 16, ON_ALL = 32 };
/* what is sent if the values are here, and where they are then */
static const struct { int from; ItemKind kind; int to; } item_rows[] = {
    {ON_PIECES, ITEM_TO_OWNER, ON_OWNER}, {ON_OWNER, ITEM_FROM_OWNER, ON_PIECES},
    {ON_ROWS, ITEM_ROWS, ON_ALL},         {ON_COLS, ITEM_COLS, ON_ALL},
    {ON_HOLDER, ITEM_FROM_OWNER, ON_COLS}};

/* An array of the tensors of one variant and class. round: in which it was written; partial:
 * partials of the own piece only; copied: the rounds in which ghosts got copies (CLASS_ROWS); -1 */
typedef struct Flow { int valid, round; bool partial; int copied[NFOLD]; } Flow;

typedef struct Placed { ProgAction action; int round; } Placed;
typedef struct Needed { Item item; int round; } Needed;

typedef struct Builder {
    optc_binding *b;
    const StageCopies *copies;
    Flow *flow;                                /* by class, variant, array */
    /* by array: the round in which an owner left tensors' partials; -1 */
    int *written;
    int now[MOST_VARIANTS][NCUTCLASS];         /* by variant and class: round of the last action */
    Placed *placed; int n, room;
    Needed *item; int nitem, item_room;
    bool ok;
} Builder;

static Flow *flow_of(const Builder *x, CutClass how, int variant, int array)
{
    const Program *p = x->b->rule->program;
    return &x->flow[((int)how * p->nvariant + variant) * p->narray + array];
}

static void place_action(Builder *x, ProgAction a, int round)
{
    x->placed = (Placed *)list_room(x->b, x->placed, x->n, &x->room, sizeof *x->placed);
    x->ok = x->ok && x->placed;
    if (!x->ok)
        return;
    x->placed[x->n].action = a;
    x->placed[x->n++].round = round;
}

/* The item is part of the exchange ahead of this round. */
static void need_item(Builder *x, ItemKind kind, int array, int variant, CutClass how, int round)
{
    const Item it = {kind, array, variant, how, -1};
    for (int i = 0; x->ok && i < x->nitem; i++)
        if (x->item[i].round == round && !memcmp(&x->item[i].item, &it, sizeof it))
            return;
    x->item = (Needed *)list_room(x->b, x->item, x->nitem, &x->item_room, sizeof *x->item);
    x->ok = x->ok && x->item;
    if (!x->ok)
        return;
    x->item[x->nitem].item = it;
    x->item[x->nitem++].round = round;
}

static int larger(int a, int b) { return a > b ? a : b; }

/* Values per group, and the memory that all tensors share, are the same everywhere. */
static bool of_tensor(const ProgArray *m) { return m->dom != GROUP; }

/* Where an array is between steps. */
static int starts_on(const optc_binding *b, CutClass how, int variant, int array)
{
    const ProgArray *m = &b->rule->program->array[array];
    const bool callers = m->kind == MEM_P || m->kind == MEM_G || m->kind == MEM_INPUT;
    const bool owners = !callers && (how == CLASS_WHOLE || owner_writes(b, variant, array));
    if (how == CLASS_ROWS)
        return m->kind != MEM_STATE ? ON_ALL
               : m->dom == ROW      ? ON_ROWS
               : m->dom == COL      ? ON_HOLDER
                                    : ON_ALL;
    if (m->slots.every || (m->dom != ELEM && (callers || (how == CLASS_PIECES && !owners))))
        return ON_PIECES | ON_OWNER;
    return owners ? ON_OWNER : ON_PIECES;
}

static void begin_phase(Builder *x)
{
    const Program *p = x->b->rule->program;
    memset(x->now, 0, sizeof x->now);
    for (int c = 0; c < (int)NCUTCLASS; c++)
        for (int v = 0; v < p->nvariant; v++)
            for (int k = 0; k < p->narray; k++) {
                Flow *f = flow_of(x, (CutClass)c, v, k);
                memset(f, -1, sizeof *f);
                f->valid = starts_on(x->b, (CutClass)c, v, k);
                f->partial = false;
            }
    for (int k = 0; k < p->narray; k++)
        x->written[k] = -1;
}

/* Brings an array to where a stage reads it. Returns the lowest round in which the stage can
 * run. */
static int bring(Builder *x, CutClass how, int variant, int array, int to, int round)
{
    Flow *f = flow_of(x, how, variant, array);
    while (f->partial || !(f->valid & to)) {
        int i = 0;
        while (!f->partial && (!(f->valid & item_rows[i].from) || f->valid & item_rows[i].to))
            i++;
        f->round = larger(round, f->round + 1);
        need_item(x, f->partial ? ITEM_PARTIALS : item_rows[i].kind, array, variant, how, f->round);
        f->valid |= f->partial ? 0 : item_rows[i].to;
        f->partial = false;
    }
    return larger(round, f->round);
}

/* Operands of a fold: the ghosts of cut segments and tiles need copies of what the stage reads. By
 * rows, they may have them since an earlier round. */
static int bring_ghosts(Builder *x, const ProgStage *s, CutClass how, int round)
{
    static const ItemKind by[] = {ITEM_GHOST, ITEM_TILE_GHOST, ITEM_BAND_GHOST};
    const FoldKind kind = fold_kind(s);
    for (int place = 0; place < 2; place++)
        for (int k = 0; k < s->nreads; k++) {
            Flow *f = flow_of(x, how, s->variant, s->reads[k]);
            if (x->b->rule->program->array[s->reads[k]].dom != ELEM ||
                (how == CLASS_ROWS && f->copied[kind] >= 0))
                continue;
            if (!place)
                round = larger(round, f->round + 1);
            else
                need_item(x, by[kind], s->reads[k], s->variant, how, f->copied[kind] = round);
        }
    return round;
}

/* by rows: of CLASS_ROWS, in this role; else in this place */
typedef struct Placing { CutClass how; bool rows; Role role; StagePlace place; } Placing;

static void wrote(Builder *x, const ProgStage *s, Placing at, int round)
{
    for (int k = 0; k < s->nwrites; k++) {
        const ProgArray *m = &x->b->rule->program->array[s->writes[k]];
        const bool part = m->kind == MEM_PART, owner = !at.rows && at.place == AT_OWNER;
        Flow *f = flow_of(x, at.how, s->variant, s->writes[k]);
        memset(f, -1, sizeof *f);
        f->round = round;
        f->valid = at.rows          ? at.role == ROLE_COLS && !part ? ON_COLS : ON_ALL
                   : owner          ? ON_OWNER
                   : m->dom == ELEM ? ON_PIECES
                                    : ON_PIECES | ON_OWNER;
        f->partial = part && (at.rows ? m->dom != GROUP && at.role != ROLE_ALL
                                      : at.place == AT_PIECES);
        if (owner && part && m->dom == GROUP)
            x->written[s->writes[k]] = larger(x->written[s->writes[k]], round);
    }
}

/* A stage of a variant, for its tensors of one class, and for their ghosts. */
static void place_stage(Builder *x, const ProgAction *a, CutClass how)
{
    const Program *p = x->b->rule->program;
    const ProgStage *s = &p->stage[a->stage];
    const bool rows = how == CLASS_ROWS;
    const Placing at = {how, rows, rows_role(p, s),
                        how == CLASS_WHOLE ? AT_OWNER : (StagePlace)x->b->shards->place[a->stage]};
    const int v = s->variant, to = !rows ? at.place == AT_OWNER ? ON_OWNER : ON_PIECES
                                   : at.role == ROLE_COLS ? ON_ALL | ON_COLS
                                                          : ON_ALL;
    int round = x->now[v][how];
    ProgAction act = *a;
    /* by rows, states can be sent at any time: with the partials */
    for (int pass = 0; pass <= (int)rows; pass++)
        for (int k = 0; k < s->nreads; k++) {
            const ProgArray *m = &p->array[s->reads[k]];
            if (of_tensor(m) && (!rows || pass == (m->kind == MEM_STATE)))
                round = bring(x, how, v, s->reads[k], to, round);
        }
    /* absent tensors get it back */
    if (to == ON_OWNER && in_list(s->writes, s->nwrites, 0))
        round = bring(x, how, v, 0, ON_OWNER, round);
    if (rows ? stage_needs_ghost(p, s) : at.place == AT_PIECES && stage_folds(p, s))
        round = bring_ghosts(x, s, how, round);
    wrote(x, s, at, round);
    x->now[v][how] = round;
    for (int i = 0; i < 2; i++)
        if ((act.stage = x->copies[a->stage].of[how][i]) >= 0)
            place_action(x, act, round);
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
            if (p->array[k].kind == MEM_STATE && flow_of(x, CLASS_ROWS, v, k)->valid & ON_COLS)
                (void)bring(x, CLASS_ROWS, v, k, ON_ALL, 0);
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
        bool elements = moves_elements(x, &x->item[i].item);
        if (x->item[i].round != round || (s->ngroups > 1 && elements != (group >= 0)))
            continue;
        item[n] = x->item[i].item;
        item[n++].group = elements ? group : -1;
    }
    *number = -1;
    for (int i = 0; i < s->nexchange && *number < 0; i++)
        if (s->exchange[i].nitem == n &&
            !memcmp(s->exchange[i].item, item, sizeof *item * (size_t)n))
            *number = i;
    if (*number >= 0 || !n)
        return OPTC_OK;
    Exchange *all = (Exchange *)list_room(x->b, s->exchange, s->nexchange, &s->most_exchange,
                                          sizeof *all);
    if (!all)
        return no_memory("optc_bind_sharded");
    s->exchange = all;
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
        last = larger(last, x->item[i].round);
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
            for (int c = 0; c < (int)NCUTCLASS; c++)
                if (x->copies[a->stage].of[c][0] >= 0)
                    place_stage(x, a, (CutClass)c);
        } else {
            place_action(x, *a, 0);
        }
    }
    end_phase(x);
    /* an exchange names its arrays, and stages select those */
    for (int i = 0; x->ok && i < x->nitem; i++)
        if (p->array[x->item[i].item.array].ring)
            return fail(OPTC_ERROR_ARGUMENT,
                        "rule '%s' uses the ring of '%s' on several ranks, which exchanges do not "
                        "support; bind whole tensors on each rank, or use a rule without a ring",
                        p->name, p->array[x->item[i].item.array].name);
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
    return s;
}

/* The program of a sharded binding, derived from the rule's: roles are its variants, stages run in roles, and exchanges
 * stand where a stage needs what another rank has.
 *
 * Within a phase every action has a round: the number of exchanges ahead of it. An action's round is the lowest at
 * which its operands have arrived, and not lower than that of the action ahead of it in its variant. A stage of the
 * group and a copy wait for all actions ahead of them. All that is to be sent between two rounds is one exchange, for
 * all variants and tensors together. */
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */
static bool any_as_whole(const optc_binding *b, int variant)
{
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].variant == variant && b->shards->cut[i].as_whole)
            return true;
    return false;
}

static optc_status number_roles(optc_binding *b)
{
    Shards *x = b->shards;
    int next = b->rule->program->nvariant;
    for (int v = 0; v < b->rule->program->nvariant; v++)
        for (int r = 0; r < NROLE; r++) {
            bool has = r == ROLE_PART || r == ROLE_GHOST   ? variant_folds(b, v)
                       : r == ROLE_OWNED                    ? variant_owned(b, v)
                       : r == ROLE_WHOLE || r == ROLE_IDLE ? any_as_whole(b, v)
                                                            : true;
            x->role[v][r] = r == ROLE_BOUND ? v : has ? next++ : -1;
        }
    x->program.nvariant = next;
    return next <= MOST_ROLES ? OPTC_OK
                              : fail(OPTC_ERROR_ARGUMENT,
                                     "optc_bind_sharded: rule '%s' has too many variants (%d roles; at most %d)",
                                     b->rule->program->name, next, (int)MOST_ROLES);
}

static optc_status copy_variants(optc_binding *b)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    Variant *to = TAKE(b, Variant, x->program.nvariant);
    for (int v = 0; to && v < p->nvariant; v++)
        for (int r = 0; r < NROLE; r++)
            if (x->role[v][r] >= 0)
                to[x->role[v][r]] = p->variant[v];
    x->program.variant = to;
    return to ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* Caller-owned arrays (p, g, inputs) of extra entries are not here: shard_entries.c. */
static optc_status copy_arrays_held(optc_binding *b)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    ProgArray *to = TAKE(b, ProgArray, p->narray);
    for (int k = 0; to && k < p->narray; k++) {
        to[k] = p->array[k];
        to[k].held_by = 0;
        for (int v = 0; v < p->nvariant; v++)
            for (int r = 0; r < NROLE; r++)
                if (p->array[k].held_by >> v & 1 && x->role[v][r] >= 0 && r != ROLE_PART && r != ROLE_IDLE &&
                    role_holds(b, v, (Role)r, k))
                    to[k].held_by |= 1u << x->role[v][r];
    }
    x->program.array = to;
    return to ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* ---- stages ---- */
/* A stage of the rule keeps its number. ghost, whole: numbers of its copies; -1: none. */
typedef struct Copies { int ghost, whole; } Copies;

static optc_status copy_stages(optc_binding *b, Copies *copies)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    int n = p->nstage;
    ProgStage *to = TAKE(b, ProgStage, 3 * p->nstage);
    for (int i = 0; to && i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        const int *role = x->role[s->variant];
        to[i] = *s;
        copies[i].ghost = copies[i].whole = -1;
        if (s->kind == S_GROUP)
            continue;
        bool folds = x->place[i] == AT_PIECES && stage_folds(p, s);
        to[i].variant = x->place[i] == AT_OWNER ? role[ROLE_OWNED] : folds ? role[ROLE_PART] : s->variant;
        if (folds) {
            copies[i].ghost = n;
            to[n] = *s;
            to[n++].variant = role[ROLE_GHOST];
        }
        if (role[ROLE_WHOLE] >= 0) {
            copies[i].whole = n;
            to[n] = *s;
            to[n++].variant = role[ROLE_WHOLE];
        }
    }
    x->program.stage = to;
    x->program.nstage = n;
    return to ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* ---- rounds ---- */
enum { ON_PIECES = 1, ON_OWNER = 2 };          /* bits: where an array's current values are */

/* An array of the tensors of one variant and class (as_whole or not). round: in which it was written; partial: partials
 * of the own piece only */
typedef struct Flow { int valid, round; bool partial; } Flow;

typedef struct Placed { ProgAction action; int round; } Placed;

typedef struct Builder {
    optc_binding *b;
    const Copies *copies;
    Flow *flow;                                /* by class, variant, array */
    int *written;                              /* by array: the round in which an owner left tensors' partials; -1 */
    int now[MOST_VARIANTS][2];                 /* by variant and class: round of the last action */
    Placed *placed; int n, room;
    Item *item; int *item_round; int nitem, item_room;
    bool ok;
} Builder;

static Flow *flow_of(const Builder *x, bool as_whole, int variant, int array)
{
    const Program *p = x->b->rule->program;
    return &x->flow[((as_whole ? p->nvariant : 0) + variant) * p->narray + array];
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
static void need_item(Builder *x, ItemKind kind, int array, int variant, bool as_whole, int round)
{
    for (int i = 0; i < x->nitem; i++) {
        const Item *y = &x->item[i];
        if (x->item_round[i] == round && y->kind == kind && y->array == array && y->variant == variant &&
            y->as_whole == as_whole)
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
    Item it = {kind, array, variant, as_whole};
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
    for (int c = 0; c < 2; c++)
        for (int v = 0; v < p->nvariant; v++) {
            x->now[v][c] = 0;
            for (int k = 0; k < p->narray; k++) {
                const ProgArray *m = &p->array[k];
                Flow *f = flow_of(x, c, v, k);
                bool callers = m->kind == MEM_P || m->kind == MEM_G || m->kind == MEM_INPUT;
                bool owners = c ? !callers : !callers && owner_writes(b, v, k);
                f->valid = owners ? ON_OWNER : ON_PIECES;
                if (m->slots.every || (callers && m->dom != ELEM) || (!c && !owners && m->dom != ELEM))
                    f->valid = ON_PIECES | ON_OWNER;
                f->round = -1;
                f->partial = false;
            }
        }
    for (int k = 0; k < p->narray; k++)
        x->written[k] = -1;
}

/* Brings an array to where a stage reads it. Returns the lowest round in which the stage can run. */
static int bring(Builder *x, bool as_whole, int variant, int array, int to, int round)
{
    Flow *f = flow_of(x, as_whole, variant, array);
    if (f->partial) {
        f->round = larger(round, f->round + 1);
        need_item(x, ITEM_PARTIALS, array, variant, as_whole, f->round);
        f->partial = false;
    }
    if (!(f->valid & to)) {
        f->round = larger(round, f->round + 1);
        need_item(x, to == ON_OWNER ? ITEM_TO_OWNER : ITEM_FROM_OWNER, array, variant, as_whole, f->round);
        f->valid |= to;
    }
    return larger(round, f->round);
}

/* Operands of a fold over pieces: the ghosts of cut segments need copies of what the stage reads. */
static int bring_ghosts(Builder *x, const ProgStage *s, int variant, int round)
{
    const Program *p = x->b->rule->program;
    for (int k = 0; k < s->nreads; k++)
        if (p->array[s->reads[k]].dom == ELEM)
            round = larger(round, flow_of(x, false, variant, s->reads[k])->round + 1);
    for (int k = 0; k < s->nreads; k++)
        if (p->array[s->reads[k]].dom == ELEM)
            need_item(x, ITEM_GHOST, s->reads[k], variant, false, round);
    return round;
}

static void wrote(Builder *x, const ProgStage *s, bool as_whole, int variant, Place place, int round)
{
    const Program *p = x->b->rule->program;
    for (int k = 0; k < s->nwrites; k++) {
        const ProgArray *m = &p->array[s->writes[k]];
        Flow *f = flow_of(x, as_whole, variant, s->writes[k]);
        f->round = round;
        f->valid = place == AT_OWNER ? ON_OWNER : m->dom == ELEM ? ON_PIECES : ON_PIECES | ON_OWNER;
        f->partial = place == AT_PIECES && m->kind == MEM_PART;
        if (place == AT_OWNER && m->kind == MEM_PART && m->dom == GROUP)
            x->written[s->writes[k]] = larger(x->written[s->writes[k]], round);
    }
}

/* A stage of a variant, for one class of its tensors. */
static void place_stage(Builder *x, const ProgAction *a, bool as_whole)
{
    const Program *p = x->b->rule->program;
    const ProgStage *s = &p->stage[a->stage];
    Place place = as_whole ? AT_OWNER : (Place)x->b->shards->place[a->stage];
    int v = s->variant, round = x->now[v][as_whole];
    bool folds = place == AT_PIECES && stage_folds(p, s);
    ProgAction act = *a;
    for (int k = 0; k < s->nreads; k++)
        if (of_tensor(&p->array[s->reads[k]]))
            round = bring(x, as_whole, v, s->reads[k], place == AT_OWNER ? ON_OWNER : ON_PIECES, round);
    for (int k = 0; k < s->nwrites && place == AT_OWNER; k++)      /* absent tensors get it back */
        if (s->writes[k] == 0)
            round = bring(x, as_whole, v, 0, ON_OWNER, round);
    if (folds)
        round = bring_ghosts(x, s, v, round);
    wrote(x, s, as_whole, v, place, round);
    x->now[v][as_whole] = round;
    act.stage = as_whole ? x->copies[a->stage].whole : a->stage;
    place_action(x, act, round);
    if (folds) {
        act.stage = x->copies[a->stage].ghost;
        place_action(x, act, round);
    }
}

/* Waits for all actions so far. */
static int place_barrier(Builder *x, int at_least)
{
    const Program *p = x->b->rule->program;
    int round = at_least;
    for (int v = 0; v < p->nvariant; v++)
        round = larger(round, larger(x->now[v][0], x->now[v][1]));
    for (int v = 0; v < p->nvariant; v++)
        x->now[v][0] = x->now[v][1] = round;
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
            need_item(x, ITEM_TENSOR_PARTIALS, s->reads[k], 0, false, round);
            x->written[s->reads[k]] = -1;
        }
    place_action(x, *a, place_barrier(x, round));
}

/* A copy runs wherever both arrays have memory. */
static void place_copy(Builder *x, const ProgAction *a)
{
    const Program *p = x->b->rule->program;
    int round = place_barrier(x, 0);
    for (int c = 0; c < 2 && of_tensor(&p->array[a->to]); c++)
        for (int v = 0; v < p->nvariant; v++) {
            Flow *f = flow_of(x, c, v, a->to);
            bool owners = c ? p->array[a->to].kind != MEM_P : owner_writes(x->b, v, a->to);
            if (!(p->array[a->to].held_by >> v & 1) && p->array[a->to].kind != MEM_P)
                continue;
            round = bring(x, c, v, a->from, owners ? ON_OWNER : ON_PIECES, round);
            f->valid = owners ? ON_OWNER : p->array[a->to].dom == ELEM ? ON_PIECES : ON_PIECES | ON_OWNER;
        }
    round = place_barrier(x, round);
    for (int c = 0; c < 2 && of_tensor(&p->array[a->to]); c++)
        for (int v = 0; v < p->nvariant; v++)
            flow_of(x, c, v, a->to)->round = round;
    place_action(x, *a, round);
}

/* The parameter ends where the caller has it. */
static void end_phase(Builder *x)
{
    const Program *p = x->b->rule->program;
    for (int c = 0; c < 2; c++)
        for (int v = 0; v < p->nvariant; v++)
            (void)bring(x, c, v, 0, ON_PIECES, 0);
}

/* ---- phases ---- */
static optc_status exchange_of(Builder *x, int round, int *number)
{
    Shards *s = x->b->shards;
    int n = 0;
    Item *item = TAKE(x->b, Item, x->nitem);
    if (!item)
        return no_memory("optc_bind_sharded");
    for (int i = 0; i < x->nitem; i++)
        if (x->item_round[i] == round)
            item[n++] = x->item[i];
    *number = -1;
    for (int i = 0; i < s->nexchange && *number < 0; i++)
        if (s->exchange[i].nitem == n && !memcmp(s->exchange[i].item, item, sizeof *item * (size_t)n))
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
    ProgAction *a = TAKE(x->b, ProgAction, x->n + last + 1);
    if (!a)
        return no_memory("optc_bind_sharded");
    for (int round = 0; round <= last; round++) {
        int number = -1;
        for (int i = 0; i < x->n; i++)             /* the step counter advances ahead of everything */
            if (!round && x->placed[i].action.kind == ACT_ADVANCE_T)
                a[n++] = x->placed[i].action;
        optc_status s = exchange_of(x, round, &number);
        if (s != OPTC_OK)
            return s;
        if (number >= 0) {
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
            place_stage(x, a, false);
            if (x->copies[a->stage].whole >= 0)
                place_stage(x, a, true);
        } else if (a->kind == ACT_COPY) {
            place_copy(x, a);
        } else {
            place_action(x, *a, 0);
        }
    }
    end_phase(x);
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
    x->b->shards->params = -1;
    for (int k = 0; k < p->narray; k++)
        for (int v = 0; v < p->nvariant; v++) {
            bool copies = p->array[k].kind == MEM_STATE && p->array[k].copies_p && p->array[k].held_by >> v & 1;
            if (copies && x->b->shards->role[v][ROLE_WHOLE] >= 0)
                need_item(x, ITEM_TO_OWNER, 0, v, true, 0);
            if (copies && owner_writes(x->b, v, k))
                need_item(x, ITEM_TO_OWNER, 0, v, false, 0);
        }
    return !x->ok ? no_memory("optc_bind_sharded") : x->nitem ? exchange_of(x, 0, &x->b->shards->params) : OPTC_OK;
}

CORE optc_status shard_program_make(optc_binding *b)
{
    const Program *p = b->rule->program;
    Builder x;
    memset(&x, 0, sizeof x);
    Copies *copies = (Copies *)calloc((size_t)p->nstage + 1, sizeof *copies);
    x.b = b;
    x.copies = copies;
    x.flow = (Flow *)calloc((size_t)p->nvariant * 2 * (size_t)p->narray, sizeof *x.flow);
    x.written = (int *)calloc((size_t)p->narray, sizeof *x.written);
    x.ok = copies && x.flow && x.written;
    b->shards->program = *p;
    optc_status s = x.ok ? number_roles(b) : no_memory("optc_bind_sharded");
    if (s == OPTC_OK)
        s = copy_variants(b);
    if (s == OPTC_OK)
        s = copy_arrays_held(b);
    if (s == OPTC_OK)
        s = copy_stages(b, copies);
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

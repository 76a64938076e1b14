/* Divides a phase with calls into segments.
 *
 *   segment 0   values that are known before any call
 *   calls 0     calls whose operands are known by then, or are results of such calls, in order of
 *               level
 *   segment 1   values that need their results, and so on
 *
 * The rest of the planner treats each segment as a phase: a graph of the values computed in it, in
 * which values of earlier segments are CARRIED leaves, and its writes: states and carried values.
 * The segment of a value may differ between variants. It is the first possible one, unless only
 * later segments need the value and computing it there costs no more than storing it.
 *
 * A state is written when no later stage reads its old value. A value that a state holds unrounded
 * is loaded from there. */
#include "gen/plan/segments.h"

#include <string.h>

typedef struct Seg {
    Graph g;
    Body *body;                  /* by variant */
    Ref *back;                   /* by value of g: the phase's value */
    int nback, back_cap;
    /* by variant and the phase's value: g's value; a hash table */
    struct Own { int variant; Ref of, own; } *own;
    int nown, own_cap;
} Seg;

/* ---- values that are carried between segments ---- */
static int carry_of(Cutter *c, Ref r, Type type)
{
    Planner *p = c->p;
    Dom d = dom_fixed((Dom)c->g->n[r].dom) ? GROUP : (Dom)c->g->n[r].dom;
    for (int k = 0; k < p->ncarry; k++)
        if (p->carry[k].val == r && p->carry[k].type == type)
            return k;
    int mem = new_array(p, (Mem){.kind = MEM_TEMP, .dom = d, .from = d, .type = type});
    PUSH(p->arena, p->carry, p->ncarry, p->carry_cap) = (Carry){r, d, type, mem};
    return p->ncarry - 1;
}

/* val: the phase's value; fill_segment replaces it by the segment's */
static void add_write(Cutter *c, int k, int v, int state, Ref val)
{
    Body *b = &c->s[k].body[v];
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == state)
            return;
    PUSH(c->p->arena, b->w, b->n, b->cap) = (Write){state, val};
}

static int result_of(Cutter *c, Ref r)
{
    if (c->result[r] == UNPLACED) {
        Dom d = (Dom)c->g->n[r].dom;
        c->result[r] = new_array(
            c->p, (Mem){.kind = MEM_TEMP, .dom = d, .from = d, .type = operand_type(c, r, -1)});
    }
    return c->result[r];
}

/* The entry of a value in a segment's hash table; an empty one if it has none. */
static struct Own *own_at(Seg *s, int v, Ref r)
{
    int32_t key[2] = {v, r};
    uint64_t h = hash64(11, key, sizeof key), mask = (uint64_t)(s->own_cap - 1);
    while (s->own[h & mask].variant &&
           (s->own[h & mask].variant != v + 1 || s->own[h & mask].of != r))
        h++;
    return &s->own[h & mask];
}

static void own_put(Arena *a, Seg *s, int v, Ref r, Ref own)
{
    if (s->nown * 2 >= s->own_cap) {
        struct Own *was = s->own;
        int n = s->own_cap;
        s->own_cap = n ? 2 * n : 64;
        s->own = NEWS(a, struct Own, s->own_cap);
        for (int i = 0; i < n; i++)
            if (was[i].variant)
                *own_at(s, was[i].variant - 1, was[i].of) = was[i];
    }
    *own_at(s, v, r) = (struct Own){v + 1, r, own};
    s->nown++;
}

/* Stages select the array of a ring by t. A call cannot, and tensor cores need arrays of known
 * alignment. */
static bool call_can_read(const Plan *p, const Node *call, int state)
{
    return state == TO_P ? !call_needs_alignment(p, call) : !p->rule->state[state].rotates;
}

/* The array that holds a value of an earlier segment or call in the given type when segment
 * `before` begins. If there is none, the value becomes a carried value. call: the call that reads
 * the array; NULL: a stage. */
static int value_array(Cutter *c, int v, Ref r, Type type, int before, const Node *call)
{
    const Body *b = &c->p->ph->body[v];
    if (is_call(&c->g->n[r]) && operand_type(c, r, -1) == type)
        return result_of(c, r);
    for (int i = 0; i < b->n; i++) {
        int mem = plan_mem_of_state(c->p->plan, b->w[i].state);
        const Mem *m = &c->p->plan->mem[mem];
        if (b->w[i].val == r && c->when[v][i] >= 0 && c->when[v][i] < before && m->type == type &&
            m->dom == (Dom)c->g->n[r].dom &&
            (!call || call_can_read(c->p->plan, call, b->w[i].state)))
            return mem;
    }
    int k = carry_of(c, r, type), from = everywhere(&c->g->n[r]) ? 0 : ready(c, v, r);
    add_write(c, from, v, c->p->plan->rule->nstate + k, r);
    return c->p->carry[k].mem;
}

/* p or the state was overwritten before segment k begins. */
static bool gone(const Cutter *c, int v, const Node *n, int k)
{
    const Body *b = &c->p->ph->body[v];
    for (int i = 0; i < b->n; i++)
        if (leaf_of(n, b->w[i].state) &&
            (c->when[v][i] < 0 ? c->seg[v][b->w[i].val] : c->when[v][i]) < k)
            return true;
    return false;
}

/* Segment k computes the value or has it as a leaf. Truth values are computed again: only those of
 * groups have an array. */
static bool made_in(const Cutter *c, int k, int v, Ref r)
{
    const Node *n = &c->g->n[r];
    return everywhere(n) ? !gone(c, v, n, k)
                         : !is_call(n) && ((n->ty == BOOL && n->dom != GROUP) || c->free[r] ||
                                           c->seg[v][r] == k);
}

/* A value of a group is common to all variants: it has one CARRIED leaf, as one stage reads it.
 * NONE: no leaf yet. */
static Ref carried_already(const Cutter *c, Seg *s, int v, Ref r)
{
    for (int u = 0; u < v && for_all(&c->g->n[r]) && s->own_cap; u++) {
        const struct Own *o = own_at(s, u, r);
        if (o->variant && s->g.n[o->own].op == OP_CARRIED)
            return o->own;
    }
    return NONE;
}

/* Adds a value of the phase to a segment's graph, computed or as a CARRIED leaf. Its operands were
 * added before. */
static void bring(Cutter *c, int k, int v, Ref r)
{
    Planner *p = c->p;
    Seg *s = &c->s[k];
    Node n = c->g->n[r];
    Ref arg[MAX_ARGS];
    if (made_in(c, k, v, r)) {
        for (int i = 0; i < n.nargs; i++)
            arg[i] = own_at(s, is_global(&n) ? i : v, n.arg[i])->own;
        n.arg = arg;
    } else {
        Dom d = dom_fixed((Dom)n.dom) ? GROUP : (Dom)n.dom;
        int mem =
            is_call(&n) ? result_of(c, r) : value_array(c, v, r, mem_type_of(p->plan, d), k, NULL);
        Ref known = carried_already(c, s, v, r);
        if (known != NONE) {
            own_put(p->arena, s, v, r, known);
            return;
        }
        PUSH(p->arena, p->carried, p->ncarried, p->carried_cap) = mem;
        n = (Node){.op = OP_CARRIED,
                   .dom = d,
                   .ty = n.ty,
                   .sym = p->ncarried - 1,
                   .file = n.file,
                   .line = n.line,
                   .name = n.name};
    }
    Ref own = graph_add(&s->g, n);
    while (s->nback <= own)
        PUSH(p->arena, s->back, s->nback, s->back_cap) = NONE;
    s->back[own] = r;
    own_put(p->arena, s, v, r, own);
}

/* ---- calls ---- */
static int operand(Cutter *c, int v, Ref call, int k)
{
    Ref r = c->g->n[call].arg[k];
    if (call_reads(c, call, k))
        return leaf_mem(c->p, &c->g->n[r]);
    return value_array(c, v, r, operand_type(c, call, k), c->seg[v][call] + 1, &c->g->n[call]);
}

static Draft make_call(Cutter *c, int v, Ref r)
{
    Draft d = {.s = {.kind = S_CALL, .variant = v, .level = c->level[v][r]}};
    for (int k = 0; k < c->g->n[r].nargs; k++)
        list_add(c->p->arena, &d.load, c->g->n[r].arg[k], operand(c, v, r, k));
    list_add(c->p->arena, &d.store, r, result_of(c, r));
    PUSH(c->p->arena, d.body, d.nbody, d.cap) = r;
    return d;
}

typedef struct { Draft *v; int n, cap; } Drafts;

static void make_calls(Cutter *c, int k, Drafts *out)
{
    int most = 0;
    for (int l = 0; l <= most; l++)
        for (int v = 0; v < c->nv; v++)
            for (Ref r = 0; r < c->g->len; r++)
                if (is_call(&c->g->n[r]) && c->in[v][r] && c->seg[v][r] == k) {
                    most = c->level[v][r] > most ? c->level[v][r] : most;
                    if (c->level[v][r] == l)
                        PUSH(c->p->arena, out->v, out->n, out->cap) = make_call(c, v, r);
                }
}

/* ---- segments ---- */
/* Extends want (by variant and value) to the operands that segment k needs. Users come after
 * operands, so one walk backwards finds all; fill_segment adds them in a walk forwards and clears
 * want. */
static void find_wanted(const Cutter *c, int k, bool *const *want)
{
    for (Ref r = c->g->len - 1; r >= 0; r--) {
        const Node *n = &c->g->n[r];
        bool any = false;
        for (int v = 0; v < c->nv; v++)
            any = any || want[v][r];
        for (int v = 0; v < c->nv && any; v++)
            for (int i = 0; i < n->nargs; i++)
                if (is_global(n) ? i == v && made_in(c, k, v, r)
                                 : want[v][r] && made_in(c, k, v, r))
                    want[v][n->arg[i]] = true;
    }
}

static void fill_segment(Cutter *c, int k, bool *const *want)
{
    for (int v = 0; v < c->nv; v++) {
        const Body *b = &c->p->ph->body[v], *own = &c->s[k].body[v];
        for (int i = 0; i < b->n; i++)
            if (c->when[v][i] == k)
                add_write(c, k, v, b->w[i].state, b->w[i].val);
        for (int i = 0; i < own->n; i++)
            want[v][own->w[i].val] = true;
    }
    find_wanted(c, k, want);
    for (Ref r = 0; r < c->g->len; r++)
        for (int v = 0; v < c->nv; v++) {
            if (want[v][r])
                bring(c, k, v, r);
            want[v][r] = false;
        }
    for (int v = 0; v < c->nv; v++)
        for (int i = 0; i < c->s[k].body[v].n; i++)
            c->s[k].body[v].w[i].val = own_at(&c->s[k], v, c->s[k].body[v].w[i].val)->own;
}

static void begin_segments(Cutter *c)
{
    Arena *a = c->p->arena;
    c->s = NEWS(a, Seg, c->nseg + 1);
    for (int k = 0; k <= c->nseg; k++) {
        Seg *s = &c->s[k];
        s->g = (Graph){.arena = a};
        s->body = NEWS(a, Body, c->nv);
    }
}

static void name_in_phase(List *l, const Ref *back)
{
    for (int i = 0; i < l->n; i++)
        l->v[i].val = back[l->v[i].val];
}

/* Plans a segment like a phase and appends its drafts: with the numbers of the phase's values, and
 * `time` added. */
static void plan_segment(Cutter *c, int k, int time, Drafts *all, int *passes)
{
    Planner *p = c->p, own = *p;
    Phase ph = {.g = &c->s[k].g, .body = c->s[k].body};
    own.ph = &ph;
    own.g = ph.g;
    own.temp = NEWS(p->arena, int, ph.g->len + 1);
    memset(own.temp, -1, sizeof(int) * (size_t)(ph.g->len + 1));
    place_reductions(&own);
    make_drafts(&own);
    for (int i = 0; i < own.ndraft; i++) {
        Draft d = own.draft[i];
        List *lists[] = {&d.load, &d.store, &d.fold, &d.fin};
        for (int j = 0; j < 4; j++)
            name_in_phase(lists[j], c->s[k].back);
        for (int j = 0; j < d.nbody; j++)
            d.body[j] = c->s[k].back[d.body[j]];
        d.s.time += time;
        PUSH(p->arena, all->v, all->n, all->cap) = d;
    }
    p->array = own.array, p->narray = own.narray, p->array_cap = own.array_cap;
    p->ph->cheaper = p->ph->cheaper || ph.cheaper;
    p->spent = p->spent || own.spent;
    *passes = own.npass;
}

static Cutter *cut(Planner *p)
{
    Cutter *c = NEW(p->arena, Cutter);
    *c = (Cutter){.p = p, .g = p->g, .nv = p->nvariant, .nseg = 1};
    segment_times(c);
    begin_segments(c);
    return c;
}

void plan_segments(Planner *p)
{
    Cutter *c = cut(p);
    Drafts all = {NULL, 0, 0}, *call = NEWS(p->arena, Drafts, c->nseg + 1);
    p->plan->work += (int64_t)c->nseg * c->nv * p->g->len;
    bool **want = NEWS(p->arena, bool *, c->nv);
    for (int v = 0; v < c->nv; v++)
        want[v] = NEWS(p->arena, bool, p->g->len + 1);
    /* later segments add writes to earlier ones */
    for (int k = c->nseg - 1; k >= 0; k--) {
        make_calls(c, k, &call[k]);
        fill_segment(c, k, want);
    }
    for (int k = 0, time = 0, passes; k < c->nseg; k++) {
        plan_segment(c, k, time, &all, &passes);
        time += passes + 1;
        for (int i = 0; i < call[k].n; i++) {
            call[k].v[i].s.time = time;
            PUSH(p->arena, all.v, all.n, all.cap) = call[k].v[i];
        }
        time += call[k].n > 0;
    }
    p->draft = all.v;
    p->ndraft = all.n;
}

/* Verifies a plan independently of the planner. It simulates the stages of each phase on a memory
 * in which every array holds the number of a value, and checks that each stage finds the values it
 * expects. Needs well-formed phases (ir_verify.c). A plan that it refuses is a bug of the planner.
 *
 * Each variant has its own copy of the arrays of tensors, since a tensor has one variant; arrays of
 * groups are common to all variants. A stage reads before it writes. Stages of the same time and
 * level have no order among them. */
#include "gen/ir/rule_passes.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* Contents of an array other than values: nothing; what it held before the step. */
enum { EMPTY = -1, AT_ENTRY = -2 };

typedef struct Check {
    const Plan *plan;
    const PlanEntry *entry;
    const Phase *ph;
    int mask, nvariant;
    /* the stage being checked, and its index */
    const Stage *s; int at;
    /* by variant * nmem + mem: the value; the last stage that wrote it and its run; torn: only the
     * lower triangle is stored */
    Ref *holds;
    int *writer, *level_of;
    /* counts runs: stages of the same time and level */
    int run;
    bool *torn;
    const bool *symmetric;                                 /* by value */
    /* have[value] == now: the stage has it in a register */
    int *have, now;
    /* by variant and write: how often it was stored */
    int **done;
    Diag *diag;
    bool ok;
} Check;

static void wrong(Check *c, Ref r, int mem, const char *what)
{
    char value[160] = "", array[160] = "", phase[32] = "";
    if (!c->ok)
        return;
    if (r >= 0 && r < c->ph->g->len) {
        const Node *n = &c->ph->g->n[r];
        const char *name = n->name ? n->name : "";
        snprintf(value, sizeof value, ", value %%%d (%s%s%.40s)", r, op_info[n->op].name,
                 *name ? " " : "", name);
    }
    if (mem >= 0 && mem < c->plan->nmem)
        snprintf(array, sizeof array, ", array %d%s%.40s", mem, *c->plan->mem[mem].name ? " " : "",
                 c->plan->mem[mem].name);
    if (c->plan->nperiod)
        snprintf(phase, sizeof phase, " in phase %d", c->mask);
    const char *where = c->s ? stage_info[c->s->kind].name : "end";
    diag_set(c->diag, NULL, 0, NULL,
             "internal error: the plan of %s, entry %s%s, stage %d (%s)%s%s: %s",
             c->plan->rule->name, c->entry->name, phase, c->at, where, value, array, what);
    c->ok = false;
}

/* ---- contents of arrays ---- */
static Dom own_dom(const Node *n) { return dom_fixed((Dom)n->dom) ? GROUP : (Dom)n->dom; }
static bool written_out(const Node *n)
{
    return n->op == OP_CONST || n->op == OP_HYPER || n->op == OP_STEP || n->op == OP_SLOT ||
           n->op == OP_COUNT;
}

/* The array may be an operand or a result of calls, in their storage type. */
static bool of_calls(const Check *c, const Mem *m)
{
    const Plan *p = c->plan;
    return m->kind == MEM_TEMP &&
           (m->type == p->product || m->type == p->real || m->type == p->factor);
}

static bool below(Dom a, Dom b) { return dom_join(a, b) == b; }

static Dom stage_domain(StageKind k) { return stage_info[k].dom; }

/* The index of a variant's copy of an array. Partials of a reduction over all tensors belong to the
 * group, but each variant writes its own. */
static int slot(const Check *c, int variant, int mem)
{
    const Mem *m = &c->plan->mem[mem];
    return (m->dom == GROUP && m->kind != MEM_PART ? 0 : variant) * c->plan->nmem + mem;
}

static bool is_leaf_of(const Check *c, const Node *n, const Mem *m)
{
    switch (m->kind) {
    case MEM_P: return n->op == OP_P;
    case MEM_G: return n->op == OP_G;
    case MEM_INPUT: return n->op == OP_INPUT && n->sym == m->sym;
    case MEM_STATE:
        return n->op == OP_STATE && n->sym == m->sym && n->dom == c->plan->rule->state[m->sym].dom;
    default: return false;
    }
}

static bool known(Check *c, Access a)
{
    if (a.val < 0 || a.val >= c->ph->g->len)
        wrong(c, NONE, a.mem, "there is no value of this number");
    else if (a.mem < 0 || a.mem >= c->plan->nmem)
        wrong(c, a.val, NONE, "there is no array of this number");
    return c->ok;
}

static bool at_hand(const Check *c, Ref r)
{
    return written_out(&c->ph->g->n[r]) || c->have[r] == c->now;
}
static Ref operand(const Node *n, int variant) { return n->arg[is_global(n) ? variant : 0]; }

/* ---- one stage ---- */
static bool operand_of_call(const Check *c, Access a, int k)
{
    Ref r = c->s->body[0];
    if (r < 0 || r >= c->ph->g->len || !is_call(&c->ph->g->n[r]))
        return true;                                       /* check_operation reports it */
    const Node *n = &c->ph->g->n[r];
    return k < n->nargs && n->arg[k] == a.val &&
           c->plan->mem[a.mem].type == type_of_call(c->plan, c->ph->g, n, k);
}

/* Tensor cores need aligned matrices, and arrays of the caller may have any alignment. */
static bool alignment_unknown(const Check *c, const Mem *m)
{
    Ref r = c->s->body[0];
    bool callers = m->kind == MEM_P || m->kind == MEM_G || m->kind == MEM_INPUT;
    return callers && r >= 0 && r < c->ph->g->len && call_needs_alignment(c->plan, &c->ph->g->n[r]);
}

/* A call has the number of its array, and only stages compute the number of a ring's array from
 * t. */
static void check_call_array(Check *c, Access a)
{
    const Mem *m = &c->plan->mem[a.mem];
    if (m->kind == MEM_STATE && c->plan->rule->state[m->sym].rotates)
        wrong(c, a.val, a.mem, "a call would use a fixed array of a ring that rotates");
}

static void check_load(Check *c, Access a, int k)
{
    if (!known(c, a))
        return;
    bool transposed = a.transposed && c->ph->g->n[a.val].op == OP_TRANSPOSE;
    Ref of = transposed ? c->ph->g->n[a.val].arg[0] : a.val;
    const Node *n = &c->ph->g->n[of];
    const Mem *m = &c->plan->mem[a.mem];
    Ref holds = c->holds[slot(c, c->s->variant, a.mem)];
    bool called = is_called(c->s->kind);
    if (is_leaf_of(c, n, m)) {
        if (holds != AT_ENTRY)
            wrong(c, a.val, a.mem, "it is loaded after it was overwritten");
    } else if (holds != of) {
        wrong(c, a.val, a.mem, holds == EMPTY ? "it is loaded before anything was stored there"
                                              : "the array holds another value");
    } else if (m->kind != MEM_TEMP && !called && !is_call(n) &&
               m->type != mem_type_of(c->plan, own_dom(n))) {
        wrong(c, a.val, a.mem, "it is loaded from an array that rounded it");
    }
    if (c->torn[slot(c, c->s->variant, a.mem)] && (called || transposed || !c->s->half))
        wrong(c, a.val, a.mem, "its upper triangle was not stored");
    if (m->kind == MEM_PART || m->dom != own_dom(n))
        wrong(c, a.val, a.mem, "the array has another domain than the value");
    if (m->kind == MEM_TEMP && m->type != mem_type_of(c->plan, m->dom) &&
        !(of_calls(c, m) && (called || is_call(n))))
        wrong(c, a.val, a.mem, "the temporary has another type than the value is computed in");
    if (called && !operand_of_call(c, a, k))
        wrong(c, a.val, a.mem,
              "the call takes this operand in another type, or takes another operand");
    if (called)
        check_call_array(c, a);
    if (called && alignment_unknown(c, m))
        wrong(c, a.val, a.mem,
              "tensor cores would read an array of the caller, which may be misaligned");
    if (!called && dom_find(stage_domain(c->s->kind),
                            transposed ? dom_transposed(m->dom) : m->dom) == INDEX_NONE)
        wrong(c, a.val, a.mem, "the axes of the stage give no index into the array");
    if (c->have[a.val] == c->now && !called)
        wrong(c, a.val, a.mem, "it is loaded twice");
    if (c->s->kind == S_FLAT && m->dom != ELEM && dom_inside(m->dom) && !c->s->uses_rows)
        wrong(c, a.val, a.mem, "a pass that does not walk by rows reads a value of rows");
    c->have[a.val] = c->now;
}

static void check_part(Check *c, const Node *n, Access a)
{
    const Mem *m = &c->plan->mem[a.mem];
    if (!is_red(n))
        wrong(c, a.val, a.mem, "it is no reduction");
    else if (m->kind != MEM_PART || m->dom != n->dom || m->from != n->from
             || m->type != part_type_of(c->plan, n))
        wrong(c, a.val, a.mem, "the partials have the layout of another reduction");
}

static void check_finish(Check *c, Access a)
{
    if (!known(c, a))
        return;
    const Node *n = &c->ph->g->n[a.val];
    const Mem *m = &c->plan->mem[a.mem];
    if (is_red(n) && m->kind != MEM_PART) {                /* it folds the operand's array */
        Ref of = n->arg[0], holds = c->holds[slot(c, c->s->variant, a.mem)];
        bool there = is_leaf_of(c, &c->ph->g->n[of], m) ? holds == AT_ENTRY : holds == of;
        if (!there || m->dom != n->from || !dom_square(m->dom) || dom_wide((Dom)n->dom) ||
            n->from == ELEM)
            wrong(c, a.val, a.mem, "the array does not hold the operand of the fold");
        if (c->ok && c->torn[slot(c, c->s->variant, a.mem)])
            wrong(c, a.val, a.mem, "the upper triangle of the folded array was not stored");
        if (c->ok && n->dom != stage_domain(c->s->kind))
            wrong(c, a.val, a.mem, "it is folded in a stage of another domain");
        if (c->ok && c->have[a.val] == c->now)
            wrong(c, a.val, a.mem, "it is folded twice");
        c->have[a.val] = c->now;
        return;
    }
    check_part(c, n, a);
    if (c->ok && n->dom != stage_domain(c->s->kind))
        wrong(c, a.val, a.mem, "it is finished in a stage of another domain");
    for (int v = 0; c->ok && v < c->nvariant; v++)
        if ((is_global(n) || v == c->s->variant) && c->holds[slot(c, v, a.mem)] != a.val)
            wrong(c, a.val, a.mem, "it is finished from partials that no stage folded for it");
    if (c->ok && c->have[a.val] == c->now)
        wrong(c, a.val, a.mem, "it is finished twice");
    if (c->ok)
        c->have[a.val] = c->now;
}

static void check_operation(Check *c, Ref r)
{
    if (r < 0 || r >= c->ph->g->len) {
        wrong(c, NONE, NONE, "there is no operation of this number");
        return;
    }
    const Node *n = &c->ph->g->n[r];
    bool draw = n->op == OP_RANDOM || n->op == OP_NORMAL || n->op == OP_DOWN || n->op == OP_ACROSS,
         called = is_called(c->s->kind);
    if (is_red(n) || (is_leaf(n) && !draw) || is_call(n) != called || n->op == OP_TRANSPOSE)
        wrong(c, r, NONE, "this kind of stage cannot compute it");
    if (!called && own_dom(n) != stage_domain(c->s->kind))
        wrong(c, r, NONE, "the stage computes in another domain");
    for (int k = 0; c->ok && k < n->nargs; k++)
        if (!at_hand(c, n->arg[k]))
            wrong(c, r, NONE, "an operand was neither loaded nor computed");
    if (c->have[r] == c->now)
        wrong(c, r, NONE, "it is computed twice, or loaded and computed");
    c->have[r] = c->now;
}

static bool can_fold(StageKind k, Dom to)
{
    if (!dom_folds(stage_domain(k), to))
        return false;
    return k == S_BAND ? dom_info[to].axis[1] == AXIS_ONE : k == S_FLAT ? !dom_inside(to) : true;
}

static void check_fold(Check *c, Access a)
{
    if (!known(c, a))
        return;
    const Node *n = &c->ph->g->n[a.val];
    check_part(c, n, a);
    if (!c->ok)
        return;
    if (n->from != stage_domain(c->s->kind) || !can_fold(c->s->kind, (Dom)n->dom))
        wrong(c, a.val, a.mem, "this kind of stage cannot fold it");
    else if (c->plan->mem[a.mem].by != c->s->kind)
        wrong(c, a.val, a.mem, "the partials have the layout of another kind of stage");
    else if (is_global(n) && c->s->variant >= n->nargs)
        wrong(c, a.val, a.mem, "the reduction has no operand for this variant");
    else if (!at_hand(c, operand(n, c->s->variant)) ||
             c->ph->g->n[operand(n, c->s->variant)].dom != n->from)
        wrong(c, a.val, a.mem, "the operand of the fold was neither loaded nor computed");
}

/* Counts the write of the body that a store does; false: none. States of groups are written once
 * for all variants. */
static bool check_write(Check *c, int state, Ref val)
{
    bool any = false;
    for (int v = 0; v < c->nvariant; v++)
        for (int i = 0; (c->s->kind == S_GROUP || v == c->s->variant) && i < c->ph->body[v].n; i++)
            if (c->ph->body[v].w[i].state == state && c->ph->body[v].w[i].val == val) {
                c->done[v][i]++;
                any = true;
            }
    return any;
}

static void check_store(Check *c, Access a)
{
    if (!known(c, a))
        return;
    const Node *n = &c->ph->g->n[a.val];
    const Mem *m = &c->plan->mem[a.mem];
    bool ours = m->kind == MEM_P || m->kind == MEM_STATE;
    if (!at_hand(c, a.val))
        wrong(c, a.val, a.mem, "the stored value was neither loaded nor computed");
    else if (!ours && m->kind != MEM_TEMP)
        wrong(c, a.val, a.mem, "a stage must not store to this array");
    else if (is_called(c->s->kind)
                 ? m->dom != own_dom(n) ||
                       (is_call(n) && m->type != type_of_call(c->plan, c->ph->g, n, -1))
                 : m->dom != stage_domain(c->s->kind) || !below(own_dom(n), m->dom))
        wrong(c, a.val, a.mem,
              "the array has another domain than the stage, or another type than its call");
    else if (m->kind == MEM_TEMP &&
             (m->dom != own_dom(n) || (m->type != mem_type_of(c->plan, m->dom) && !of_calls(c, m))))
        wrong(c, a.val, a.mem, "the temporary has another domain or type than the value");
    else if (ours && !check_write(c, m->kind == MEM_P ? TO_P : m->sym, a.val))
        wrong(c, a.val, a.mem, "the entry does not write this value there");
    if (is_called(c->s->kind))
        check_call_array(c, a);
}

/* ---- stages without an order ---- */
/* Records what a stage writes. No other stage of the same time and level may write it. */
static void note_writes(Check *c, const Access *v, int n)
{
    for (int i = 0; i < n && c->ok; i++) {
        if (!known(c, v[i]))
            return;
        int at = slot(c, c->s->variant, v[i].mem);
        if (c->level_of[at] == c->run)
            wrong(c, v[i].val, v[i].mem,
                  c->writer[at] == c->at ? "it is stored to twice"
                                         : "two stages without an order store to it");
        c->level_of[at] = c->run;
        c->writer[at] = c->at;
    }
}

static void check_reads(Check *c, const Access *v, int n)
{
    for (int i = 0; i < n && c->ok; i++)
        for (int u = 0; u < c->nvariant && known(c, v[i]); u++) {
            bool seen = u == c->s->variant || c->plan->mem[v[i].mem].dom == GROUP;
            int at = slot(c, u, v[i].mem);
            if (seen && c->level_of[at] == c->run && c->writer[at] != c->at)
                wrong(c, v[i].val, v[i].mem, "a stage without an order to this one stores to it");
        }
}

static void look_at(Check *c, int i)
{
    c->at = i;
    c->s = &c->ph->stage[i];
}

/* Stage.half is correct: all stored values are symmetric, and the stage is a list over two equal
 * axes without folds, or a call whose result is a temporary. */
static bool may_halve(const Check *c, const Stage *s)
{
    Dom own = stage_domain(s->kind);
    for (int i = 0; i < s->nstore; i++)
        if (s->store[i].val < 0 || s->store[i].val >= c->ph->g->len ||
            !c->symmetric[s->store[i].val])
            return false;
    if (is_called(s->kind))
        return c->plan->mem[s->store[0].mem].kind == MEM_TEMP;
    return is_list(s->kind) && dom_square(own) && dom_transposed(own) == own && !s->nfold &&
           !s->nfin;
}

/* Stages of one fn must be marked as shared. merged_unequal compares them later, when their lists
 * are known to be valid. */
static bool is_its_own(const Check *c, const Stage *s)
{
    StageAt at = plan_at(c->plan, s->fn);
    return at.stage && (at.stage == s || (at.stage->shared && s->shared && at.entry == c->entry));
}

static void check_shape(Check *c)
{
    const Stage *s = c->s;
    if (s->kind >= NSTAGEKIND || s->variant < 0 || s->variant >= c->nvariant ||
        (s->kind == S_GROUP && s->variant))
        wrong(c, NONE, NONE, "there is no such kind of stage or variant");
    else if (is_called(s->kind)
                 ? s->fn != -1 || s->nbody != 1 || s->nstore != 1 || s->nfold || s->nfin
                 : s->fn < 0 || s->fn >= c->plan->nfn || !is_its_own(c, s))
        wrong(c, NONE, NONE, "its function number is not valid for it");
    else if (!s->nstore && !s->nfold)
        wrong(c, NONE, NONE, "it stores and folds nothing");
    else if (s->half && !may_halve(c, s))
        wrong(c, NONE, NONE, "it computes one triangle of a result that is not symmetric");
    else if (c->at > 0) {
        const Stage *was = s - 1;
        if (was->time > s->time || (was->time == s->time && was->level > s->level))
            wrong(c, NONE, NONE, "it comes after a stage of a later time or level");
    }
}

static void put_in(Check *c, Access a, bool torn)
{
    int at = slot(c, c->s->variant, a.mem);
    c->holds[at] = a.val;
    c->torn[at] = torn;
}

static void check_stage(Check *c, int i)
{
    look_at(c, i);
    const Stage *s = c->s;
    c->now++;
    for (int k = 0; k < s->nload && c->ok; k++)
        check_load(c, s->load[k], k);
    for (int k = 0; k < s->nfin && c->ok; k++)
        check_finish(c, s->fin[k]);
    for (int k = 0; k < s->nbody && c->ok; k++)
        check_operation(c, s->body[k]);
    for (int k = 0; k < s->nfold && c->ok; k++)
        check_fold(c, s->fold[k]);
    for (int k = 0; k < s->nstore && c->ok; k++)
        check_store(c, s->store[k]);
    for (int k = 0; k < s->nfold && c->ok; k++)
        put_in(c, s->fold[k], false);
    for (int k = 0; k < s->nstore && c->ok; k++)
        put_in(c, s->store[k], s->half && is_called(s->kind));
}

/* ---- a phase ---- */
static void check_done(Check *c)
{
    c->s = NULL;
    c->at = c->ph->nstage;
    for (int v = 0; v < c->nvariant; v++)
        for (int i = 0; i < c->ph->body[v].n && c->ok; i++) {
            Write w = c->ph->body[v].w[i];
            if (c->done[v][i] != 1)
                wrong(c, w.val, plan_mem_of_state(c->plan, w.state),
                      c->done[v][i] ? "it is written more than once" : "it is never written");
        }
}

static void check_phase(Check *c, Arena *scratch)
{
    int nmem = c->plan->nmem, len = c->ph->g->len;
    for (int v = 0; v < c->nvariant; v++) {
        for (int m = 0; m < nmem; m++) {
            MemKind kind = c->plan->mem[m].kind;
            c->torn[v * nmem + m] = false;
            c->holds[v * nmem + m] = kind == MEM_TEMP || kind == MEM_PART ? EMPTY : AT_ENTRY;
        }
        c->done[v] = NEWS(scratch, int, c->ph->body[v].n);
    }
    c->have = NEWS(scratch, int, len + 1);
    bool *symmetric = NEWS(scratch, bool, len + 1);
    for (Ref r = 0; r < len; r++)
        symmetric[r] = graph_symmetric(c->ph->g, symmetric, r);
    c->symmetric = symmetric;
    c->now = 0;
    for (int i = 0, end; i < c->ph->nstage && c->ok; i = end) {
        c->run++;
        for (end = i;
             c->ok && end < c->ph->nstage && stages_abreast(&c->ph->stage[i], &c->ph->stage[end]);
             end++) {
            look_at(c, end);
            check_shape(c);
            if (c->ok) {
                note_writes(c, c->s->store, c->s->nstore);
                note_writes(c, c->s->fold, c->s->nfold);
            }
        }
        for (int k = i; k < end && c->ok; k++) {
            look_at(c, k);
            check_reads(c, c->s->load, c->s->nload);
            check_reads(c, c->s->fin, c->s->nfin);
        }
        for (int k = i; k < end && c->ok; k++)
            check_stage(c, k);
    }
    int i = c->ok ? merged_unequal(c->plan, c->ph, scratch) : -1;
    if (i >= 0) {
        look_at(c, i);
        wrong(c, NONE, NONE, "its function is of a stage that differs");
    }
    i = c->ok ? stagger_wrong(c->plan, c->ph, scratch) : -1;
    if (i >= 0) {
        look_at(c, i);
        wrong(c, NONE, NONE,
              "a tensor or block that needs it is left out, or it reads a value that was left out");
    }
    if (c->ok)
        check_done(c);
}

static void check_all(void *ctx, Arena *scratch)
{
    Check *c = ctx;
    size_t n = (size_t)c->nvariant * (size_t)c->plan->nmem;
    c->holds = NEWS(scratch, Ref, n);
    c->torn = NEWS(scratch, bool, n);
    c->writer = NEWS(scratch, int, n);
    c->level_of = NEWS(scratch, int, n);
    c->done = NEWS(scratch, int *, c->nvariant);
    for (int e = 0; e < c->plan->nentry; e++)
        for (int m = 0; m < c->plan->entry[e].nphase && c->ok; m++) {
            c->entry = &c->plan->entry[e];
            c->ph = &c->entry->phase[m];
            c->mask = m;
            check_phase(c, scratch);
        }
}

bool plan_verify(const Plan *p, Diag *d)
{
    Check c = {.plan = p, .nvariant = p->rule->nvariant, .diag = d, .ok = true};
    arena_scratch(p->arena, check_all, &c);
    return c.ok;
}

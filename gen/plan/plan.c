/* Divides the phases of a rule into stages. Needs a verified rule after constant folding, and its
 * phases. plan.h describes the result. This file assigns the numbers of arrays and plans one phase
 * after the other. */
#include "gen/plan/planner.h"

#include "gen/abi/methods.h"
#include "gen/base/digest.h"
#include "gen/ir/lower_values.h"
#include "gen/plan/value_names.h"

#include <stdio.h>
#include <string.h>

/* ---- memory ---- */
/* Temporaries and partials of the same kind, domains and type. A Mem is free again after the last
 * stage that reads it. */
/* bits: variants that use it now; that used it in this phase */
typedef struct { unsigned now, before; } Holders;
typedef struct {
    Mem like;
    int *all, n, cap, *free, nfree, free_cap;
    Holders *by; int nby, by_cap;              /* by index in all */
} Pool;
/* apart: the phase has calls. The runtime then assigns the memory of a batch by live ranges
 * (runtime/core/memory/lifetime_alloc.c), and an array that is used twice blocks its memory in
 * between. So a variant does not reuse an array in the phase, until a pool has APART arrays.
 * Different variants share arrays. */
typedef struct Pools { Arena *arena; Pool *v; int n, cap; bool apart; } Pools;
enum { APART = 64 };

static Pool *pool_of(Pools *ps, const Mem *m)
{
    for (int i = 0; i < ps->n; i++) {
        const Mem *x = &ps->v[i].like;
        if (x->kind == m->kind && x->dom == m->dom && x->from == m->from && x->type == m->type &&
            x->by == m->by)
            return &ps->v[i];
    }
    PUSH(ps->arena, ps->v, ps->n, ps->cap) = (Pool){.like = *m};
    return &ps->v[ps->n - 1];
}

static bool is_apart(const Pools *ps, const Mem *m)
{
    return ps->apart && m->kind == MEM_TEMP && dom_inside(m->dom);
}

static void pool_give(Pools *ps, const Mem *like, int mem, unsigned variants)
{
    Pool *q = pool_of(ps, like);
    if (!is_apart(ps, like)) {
        PUSH(ps->arena, q->free, q->nfree, q->free_cap) = mem;
        return;
    }
    for (int i = 0; i < q->n; i++)
        if (q->all[i] == mem)
            q->by[i].now &= ~variants;
}

/* The first array that none of the variants uses now, nor used before in this phase unless the pool
 * is large; -1: none. */
static int first_apart(const Pool *q, unsigned variants)
{
    for (int again = 0; again < 1 + (q->n >= APART); again++)
        for (int i = 0; i < q->n; i++)
            if (!(q->by[i].now & variants) && (again || !(q->by[i].before & variants)))
                return i;
    return -1;
}

static int pool_take(Pools *ps, Plan *pl, Mem m, unsigned variants)
{
    Pool *q = pool_of(ps, &m);
    bool apart = is_apart(ps, &m);
    int i = apart ? first_apart(q, variants) : -1;
    if (!apart && q->nfree)
        return q->free[--q->nfree];
    if (i < 0) {
        m.sym = pl->nmem;
        /* value_names.c names it by the values that it holds */
        m.name = "";
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = m;
        PUSH(ps->arena, q->all, q->n, q->cap) = pl->nmem - 1;
        PUSH(ps->arena, q->by, q->nby, q->by_cap) = (Holders){0, 0};
        i = q->n - 1;
    }
    if (apart) {
        q->by[i].now |= variants;
        q->by[i].before |= variants;
    }
    return q->all[i];
}

/* At the start of a phase all arrays are free; the first ones are taken first. */
static void pools_begin(Pools *ps, bool apart)
{
    ps->apart = apart;
    for (int i = 0; i < ps->n; i++) {
        Pool *q = &ps->v[i];
        q->nfree = 0;
        memset(q->by, 0, sizeof *q->by * (size_t)q->nby);
        for (int k = q->n - 1; k >= 0; k--)
            PUSH(ps->arena, q->free, q->nfree, q->free_cap) = q->all[k];
    }
}

int new_array(Planner *p, Mem m)
{
    PUSH(p->arena, p->array, p->narray, p->array_cap) = m;
    return UNPLACED - p->narray;
}

static int array_of(int code) { return UNPLACED - 1 - code; }

/* ArrayUse names the last draft that uses an array. Its bits are the variants that use the
 * array. */
typedef struct { int last; unsigned variants; } ArrayUse;

static void note_use(List *l, ArrayUse *use, int draft, int variant)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].mem < UNPLACED) {
            ArrayUse *u = &use[array_of(l->v[i].mem)];
            u->last = draft;
            u->variants |= 1u << variant;
        }
}

static void put_mems(Planner *p, List *l, const ArrayUse *use, int *mem)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].mem < UNPLACED) {
            int k = array_of(l->v[i].mem);
            if (mem[k] < 0)
                mem[k] = pool_take(p->pools, p->plan, p->array[k], use[k].variants);
            l->v[i].mem = mem[k];
        }
}

/* Stages of the same time and level have no order among them: an array that one of them reads last
 * is free only after all of them. */
static void place_arrays(Planner *p)
{
    ArrayUse *use = NEWS(p->arena, ArrayUse, p->narray);
    int *mem = NEWS(p->arena, int, p->narray), *next = NEWS(p->arena, int, p->narray);
    /* linked lists, by draft: the arrays that it uses last, + 1; 0: end */
    int *ending = NEWS(p->arena, int, p->ndraft);
    for (int i = 0; i < p->ndraft; i++) {
        Draft *d = &p->draft[i];
        List *all[] = {&d->load, &d->fin, &d->fold, &d->store};
        for (int k = 0; k < 4; k++)
            note_use(all[k], use, i, d->s.variant);
    }
    for (int k = p->narray - 1; k >= 0; k--) {
        mem[k] = -1;
        next[k] = ending[use[k].last];
        ending[use[k].last] = k + 1;
    }
    for (int i = 0, end; i < p->ndraft; i = end) {
        for (end = i; end < p->ndraft && stages_abreast(&p->draft[i].s, &p->draft[end].s); end++) {
            Draft *d = &p->draft[end];
            List *all[] = {&d->load, &d->fin, &d->fold, &d->store};
            for (int k = 0; k < 4; k++)
                put_mems(p, all[k], use, mem);
        }
        for (int k = i; k < end; k++)
            for (int a = ending[k]; a; a = next[a - 1])
                if (mem[a - 1] >= 0)
                    pool_give(p->pools, &p->array[a - 1], mem[a - 1], use[a - 1].variants);
    }
}

Type mem_type_of(const Plan *p, Dom d) { return dom_wide(d) ? T_F64 : p->real; }
Type part_type_of(const Plan *p, const Node *n)
{
    return is_norm(n) ? T_F64 : mem_type_of(p, (Dom)n->from);
}

/* The arrays of a rule in order: p, g, inputs, states. */
int plan_mem_of_state(const Plan *pl, int state)
{
    return state == TO_P ? 0 : 2 + pl->rule->ninput + state;
}

const Mem *mem_at(const Planner *p, int mem)
{
    return mem >= 0 ? &p->plan->mem[mem] : &p->array[array_of(mem)];
}

int target_mem(const Planner *p, int state)
{
    int k = state - p->plan->rule->nstate;
    return k < 0 ? plan_mem_of_state(p->plan, state) : p->carry[k].mem;
}

int leaf_mem(const Planner *p, const Node *n)
{
    const Plan *pl = p->plan;
    switch (n->op) {
    case OP_CARRIED: return p->carried[n->sym];
    case OP_P: return 0;
    case OP_G: return 1;
    case OP_INPUT: return 2 + n->sym;
    case OP_STATE: return plan_mem_of_state(pl, n->sym);
    default: return -1;
    }
}

bool plan_keeps(const Plan *p, int state)
{
    for (int v = 0; v < p->rule->nvariant; v++)
        if (p->state_used[v * p->rule->nstate + state])
            return true;
    return false;
}

void plan_types_key(const Plan *p, char out[TYPES_KEY])
{
    const char *beside = p->rule->types;
    char hex[DIGEST_HEX] = "";
    if (beside)
        digest_hex(beside, strlen(beside), hex);
    snprintf(out, TYPES_KEY, "%s,%s,%s%s%.8s", type_info[p->p].name, type_info[p->g].name,
             type_info[p->state].name, beside ? "+" : "", hex);
}

static void fixed_mems(Plan *pl)
{
    const Rule *r = pl->rule;
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_P, 0, ELEM, ELEM, 0, pl->p, "p"};
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_G, 0, ELEM, ELEM, 0, pl->g, "g"};
    for (int i = 0; i < r->ninput; i++) {
        Dom d = r->input[i].dom;
        Type t = d == ELEM ? pl->g : mem_type_of(pl, d);
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) =
            (Mem){MEM_INPUT, i, d, d, 0, t, r->input[i].name};
    }
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        Type t = type_of_state(s, pl->p, pl->state);
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) =
            (Mem){MEM_STATE, i, s->dom, s->dom, 0, t, s->name};
    }
}

int temp_of(Planner *p, Ref r)
{
    if (p->temp[r] == UNPLACED) {
        Dom d = pdom(p, r);
        p->temp[r] = new_array(
            p, (Mem){.kind = MEM_TEMP, .dom = d, .from = d, .type = mem_type_of(p->plan, d)});
    }
    return p->temp[r];
}

/* ---- phases ---- */
/* again 3: two or three passes may each compute everything again */
const PlanLimits plan_limits = {
    .work = 24 * 1000 * 1000, .reach = 8 * 1000, .again = 3, .stages = 4000, .calls = 1000};

/* left: phases still to plan, including this one */
typedef struct { Plan *plan; Phase *ph; Pools *pools; int left; } Making;

static void plan_one(void *ctx, Arena *scratch)
{
    Making *m = ctx;
    Plan *pl = m->plan;
    int n = m->ph->g->len, all = pl->nentry << pl->nperiod;
    Planner p = {.plan = pl, .ph = m->ph, .g = m->ph->g, .arena = scratch, .pools = m->pools};
    p.nvariant = pl->rule->nvariant;
    p.limit = pl->work + (pl->limits.work > pl->work ? (pl->limits.work - pl->work) / m->left : 0);
    p.reach = pl->limits.reach / all + pl->limits.again * n;
    p.temp = NEWS(scratch, int, n + 1);
    memset(p.temp, -1, sizeof(int) * (size_t)(n + 1));
    jmp_buf *out = m->pools->arena->out;
    /* out of memory in either arena leaves through the same jump */
    m->pools->arena->out = scratch->out;
    pools_begin(m->pools, graph_calls(p.g) > 0);
    if (graph_calls(p.g)) {
        plan_segments(&p);
    } else {
        place_reductions(&p);
        make_drafts(&p);
    }
    place_arrays(&p);
    finish_stages(&p);
    m->pools->arena->out = out;
    m->ph->cheaper = m->ph->cheaper || p.spent;
    size_t bytes = arena_bytes(scratch);
    if (bytes > pl->scratch)
        pl->scratch = bytes;
}

static void note_state(Plan *pl, int variant, int mem)
{
    const State *s = pl->mem[mem].kind == MEM_STATE ? &pl->rule->state[pl->mem[mem].sym] : NULL;
    int first = s && s->rotates ? pl->mem[mem].sym - s->age : pl->mem[mem].sym;
    for (int k = 0; s && k < (s->rotates ? s->ring : 1); k++)              /* a ring as a whole */
        pl->state_used[variant * pl->rule->nstate + first + k] = true;
}

static void note_stages(Plan *pl, const Phase *ph)
{
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *s = &ph->stage[i];
        for (int v = 0; v < pl->rule->nvariant; v++) {
            if (s->kind != S_GROUP && s->variant != v)
                continue;
            for (int j = 0; j < s->nload; j++)
                note_state(pl, v, s->load[j].mem);
            for (int j = 0; j < s->nfin; j++)              /* a fold of the array of a state */
                note_state(pl, v, s->fin[j].mem);
            for (int j = 0; j < s->nstore; j++)
                note_state(pl, v, s->store[j].mem);
        }
    }
}

/* Element passes that the other entries of a call run before this one: those that share values with
 * other bindings (shared_reductions.c). */
static int passes_before(const Plan *pl, int entry, int phase)
{
    int shares = rule_shares(pl->rule, entry), n = 0;
    for (int i = 0; i < pl->nentry; i++) {
        if (rule_shares(pl->rule, i) != (shares ? shares : entry + 1) || (shares && i >= entry))
            continue;
        const Phase *ph = &pl->entry[i].phase[phase];
        int most = 0;
        for (int k = 0; k < ph->nstage; k++)
            if (is_elem(ph->stage[k].kind) && ph->stage[k].time >= most)
                most = ph->stage[k].time + 1;
        n += most;
    }
    return n;
}

/* Every second pass walks backwards. */
static void alternate_passes(Plan *pl)
{
    for (int e = 0; e < pl->nentry; e++)
        for (int m = 0; m < pl->entry[e].nphase; m++) {
            Phase *ph = &pl->entry[e].phase[m];
            int before = passes_before(pl, e, m);
            for (int i = 0; i < ph->nstage; i++)
                ph->stage[i].back = (before + ph->stage[i].time) % 2;
        }
}

static void plan_all(void *ctx, Arena *scratch)
{
    Plan *pl = ctx;
    Pools pools = {.arena = scratch};
    int left = pl->nentry << pl->nperiod;
    for (int e = 0; e < pl->nentry; e++)
        for (int m = 0; m < pl->entry[e].nphase; m++, left--) {
            Making make = {pl, &pl->entry[e].phase[m], &pools, left};
            arena_scratch(pl->arena, plan_one, &make);
            plan_stagger(pl, make.ph, scratch);
            if (pl->target->gpu)
                plan_symmetric_half(pl, make.ph, scratch);
            note_stages(pl, make.ph);
        }
    pl->nstage = pl->nfn;
    alternate_passes(pl);
    merge_equal_stages(pl, scratch);
}

static void number_stages(Plan *pl)
{
    pl->at = NEWS(pl->arena, StageAt, pl->nfn + 1);
    for (int e = 0; e < pl->nentry; e++)
        for (int m = 0; m < pl->entry[e].nphase; m++)
            for (int i = 0; i < pl->entry[e].phase[m].nstage; i++) {
                const Stage *s = &pl->entry[e].phase[m].stage[i];
                if (!is_called(s->kind) && !pl->at[s->fn].stage)
                    pl->at[s->fn] = (StageAt){&pl->entry[e], m, s};
            }
}

Type type_of_call(const Plan *p, const Graph *g, const Node *n, int k)
{
    if (k >= 0 && dom_wide((Dom)g->n[n->arg[k]].dom))
        return mem_type_of(p, SLICE);
    return n->op != OP_MM ? p->factor : n->sym & IN_F64 ? T_F64 : p->product;
}

/* Factors of a rule with 16-bit or tf32 products are treated as its products are. */
bool call_needs_alignment(const Plan *p, const Node *n)
{
    Product in = n->op == OP_MM ? product_of_call(p, n) : p->precision;
    return p->target->gpu && in != PRODUCT_F64 &&
           (type_info[p->product].compute != p->product || in == PRODUCT_TF32);
}

Plan *plan_make(Arena *a, Rule *r, const Phases *phases, PlanTypes t, const PlanLimits *limits)
{
    Plan *pl = NEW(a, Plan);
    *pl = (Plan){.arena = a,
                 .rule = r,
                 .p = t.p,
                 .g = t.g,
                 .state = t.state,
                 .precision = t.precision,
                 .target = t.target,
                 .limits = *limits};
    pl->real = type_info[t.p].compute;
    pl->product = target_product(t.target, t.precision);
    pl->factor = rule_factor_type(r, pl->product, pl->real);
    pl->nperiod = phases->nperiod;
    memcpy(pl->period, phases->period, sizeof pl->period);
    pl->entry = NEWS(a, PlanEntry, r->nentry);
    pl->nentry = r->nentry;
    pl->state_used = NEWS(a, bool, r->nvariant * r->nstate + 1);
    pl->lower_state = rule_lower_states(a, r);
    fixed_mems(pl);
    for (int e = 0; e < r->nentry; e++) {
        PlanEntry *pe = &pl->entry[e];
        *pe = (PlanEntry){r->entry[e].name, NEWS(a, Phase, phases->nphase), phases->nphase};
        for (int m = 0; m < pe->nphase; m++) {
            const PhaseRule *from = &phases->phase[e * phases->nphase + m];
            pe->phase[m] = (Phase){.g = from->g, .body = from->body};
        }
    }
    arena_scratch(a, plan_all, pl);
    number_stages(pl);
    plan_name_arrays(pl);
    return pl;
}

bool plan_calls(const Plan *p)
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++)
                if (is_called(p->entry[e].phase[m].stage[i].kind))
                    return true;
    return false;
}

/* Operands of a product that are lower triangles. Symmetric products already compute half of their
 * blocks, and leaving out zeros too gained nothing (H200, 768 x 768); matrices block by block are
 * small. */
static unsigned lower_operands(const Plan *p, const Graph *g, const Node *n)
{
    if (n->op != OP_MM || n->sym & (SYMMETRIC | BLOCKED))
        return 0;
    bool *lower = NEWS(p->arena, bool, g->len + 1);
    graph_lower(g, p->lower_state, lower);
    return (lower[n->arg[0]] ? LOWER_A : 0) | (lower[n->arg[1]] ? LOWER_B : 0);
}

/* The eigenvalues are made of the product of the matrix and its eigenvectors (matrix_eigh). */
static bool uses_values(const Graph *g, const Node *eigh)
{
    for (int i = 0; i < g->len; i++) {
        const Node *n = &g->n[i];
        if (n->op == OP_MM && &g->n[n->arg[1]] == eigh && n->arg[0] == eigh->arg[0])
            return true;
    }
    return false;
}

unsigned plan_call_flags(const Plan *p, const Graph *g, const Stage *s)
{
    const Node *n = &g->n[s->body[0]];
    bool exact = facts_of(n)->traits & EXPONENT && p->mem[s->store[0].mem].type == T_F64;
    return (unsigned)n->sym | (s->half ? LOWER : 0) | (exact ? EXACT : 0) |
           lower_operands(p, g, n) | (n->op == OP_EIGH && uses_values(g, n) ? WITH_VALUES : 0);
}

static unsigned stage_kernels(const Plan *p, const Graph *g, const Stage *s)
{
    const Node *n = &g->n[s->body[0]];
    return callee_kernels(callee_of(n), n->imm, n->beta, plan_call_flags(p, g, s));
}

static const char *joined(Arena *a, const char *text, bool takes, const char *name)
{
    return takes ? arena_printf(a, "%s%s%s", text, *text ? " or " : "", name) : text;
}

const char *plan_call_methods(Arena *a, const Plan *p, const Graph *g, const Stage *s)
{
    const Node *n = &g->n[s->body[0]];
    const ProgCall call = {callee_of(n), plan_call_flags(p, g, s), 0, 0, 0, 0, n->imm, n->beta,
                           0},
                   *c = &call;
    unsigned rows = callee_methods(c->callee, c->alpha, call_low(c), c->flags);
    const char *text = "";
    if (p->target->gpu) {
#define GPU_METHOD(ID, name, ...) \
    text = joined(a, text, rows & 1, name); \
    rows /= 2;
#include "gen/abi/methods.def"
    } else {
#define CPU_METHOD(ID, name, fits, run) \
    text = joined(a, text, c->callee == CALL_##ID && (fits), name);
#include "gen/abi/methods.def"
    }
    return text;
}

CallNeeds plan_needs(const Plan *p)
{
    CallNeeds needs = {.f64 = p->factor == T_F64};
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            for (int i = 0; i < ph->nstage; i++)
                if (is_called(ph->stage[i].kind)) {
                    const Node *n = &ph->g->n[ph->stage[i].body[0]];
                    needs.sets |= FOR_ANY | stage_kernels(p, ph->g, &ph->stage[i]);
                    if (n->op == OP_MM)
                        needs.products |= 1u << product_of_type(product_of_call(p, n),
                                                                (int)type_of_call(p, ph->g, n, -1));
                }
        }
    if (!needs.products)
        needs.products = 1u << product_of_type(p->precision, (int)p->factor);
    return needs;
}

bool plan_uses_t(const Plan *p)
{
    for (int i = 0; i < p->rule->nstate; i++)
        if (p->rule->state[i].rotates)
            return true;
    for (Ref r = 0; r < p->rule->g.len; r++) {
        Op op = (Op)p->rule->g.n[r].op;
        if (op == OP_STEP || op == OP_SLOT || op == OP_RANDOM || op == OP_NORMAL || op == OP_EVERY)
            return true;
    }
    for (int k = 0; k < p->nmem; k++)
        /* rounded by element and step */
        if (type_coded(p->mem[k].type) || type_draws(p->mem[k].type))
            return true;
    return false;
}

StageAt plan_at(const Plan *p, int fn)
{
    return fn >= 0 && fn < p->nfn ? p->at[fn] : (StageAt){NULL, 0, NULL};
}

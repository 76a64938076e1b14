/* Cuts a rule into stages. Needs: a verified, folded rule. plan.h describes the result; this file owns the memory numbers and makes
 * one phase for each combination of periods, place.c and stages.c plan it. */
#include "planner.h"

#include "gen.h"

#include <math.h>
#include <string.h>

/* ---- memory ---- */
int new_mem(P *p, Mem m)
{
    Plan *pl = p->plan;
    for (int i = 0; i < pl->nmem && (m.kind == MEM_TEMP || m.kind == MEM_PART); i++) {
        const Mem *x = &pl->mem[i];
        if (!p->taken[i] && x->kind == m.kind && x->dom == m.dom && x->from == m.from && x->type == m.type && x->by == m.by) {
            p->taken[i] = true;
            return i;
        }
    }
    m.sym = pl->nmem;
    m.name = arena_printf(pl->arena, "%s%d", m.kind == MEM_PART ? "part" : "tmp", pl->nmem);
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = m;
    p->taken[pl->nmem - 1] = true;
    return pl->nmem - 1;
}

Type mem_type_of(const Plan *p, Dom d) { return dom_wide(d) ? T_F64 : p->real; }

int leaf_mem(const Plan *pl, const Node *n)
{
    for (int i = 0; i < pl->nmem; i++) {
        const Mem *m = &pl->mem[i];
        if ((n->op == OP_P && m->kind == MEM_P) || (n->op == OP_G && m->kind == MEM_G)
            || (n->op == OP_STATE && m->kind == MEM_STATE && m->sym == n->sym)
            || (n->op == OP_INPUT && m->kind == MEM_INPUT && m->sym == n->sym))
            return i;
    }
    return -1;
}

int plan_mem_of_state(const Plan *pl, int state)
{
    Node n = {.op = state == TO_P ? OP_P : OP_STATE, .sym = state};
    return leaf_mem(pl, &n);
}

bool plan_keeps(const Plan *p, int state)
{
    for (int v = 0; v < p->rule->nvariant; v++)
        if (p->state_used[v * p->rule->nstate + state])
            return true;
    return false;
}

int temp_of(P *p, Ref r)
{
    if (p->temp[r] < 0) {
        Dom d = pdom(p, r);
        p->ntemp++;
        p->temp[r] = new_mem(p, (Mem){.kind = MEM_TEMP, .dom = d, .from = d, .type = mem_type_of(p->plan, d)});
    }
    return p->temp[r];
}

/* ---- one phase ---- */
static void plan_phase_stages(Plan *pl, Phase *ph)
{
    int n = ph->g->len;
    P p = {.plan = pl, .ph = ph, .g = ph->g, .arena = pl->arena, .nvariant = pl->rule->nvariant};
    p.time = NEWS(p.arena, int, n + 1);
    p.late = NEWS(p.arena, int, n + 1);
    p.lev = NEWS(p.arena, int, n + 1);
    p.temp = NEWS(p.arena, int, n + 1);
    p.taken = NEWS(p.arena, bool, 4 * n + pl->nmem + 64);
    for (int v = 0; v < p.nvariant; v++)
        p.put[v] = NEWS(p.arena, int, ph->body[v].n + 1), p.at[v] = NEWS(p.arena, int, n + 1);
    for (int i = 0; i < n; i++)
        p.temp[i] = -1;
    place_work(&p);
    Pass *pass = NEWS(p.arena, Pass, p.nvariant * (p.npass + 1));
    place_loads(&p, pass);
    make_stages(&p, pass);
}

/* ---- phases ---- */
typedef struct { const Plan *plan; int mask; } PhaseOf;

static Ref fix_every(Graph *g, Node n, void *ctx)
{
    const PhaseOf *c = ctx;
    if (n.op != OP_EVERY)
        return graph_add(g, n);
    int i = 0;
    while (i < c->plan->nperiod && c->plan->period[i] != (int)n.imm)
        i++;
    Node k = {.op = OP_CONST, .dom = CONST_, .ty = BOOL, .imm = c->mask >> i & 1};
    return graph_add(g, k);
}

static bool unchanged(const Graph *g, Write w)
{
    const Node *n = &g->n[w.val];
    return w.state == TO_P ? n->op == OP_P : n->op == OP_STATE && n->sym == w.state;
}

/* The entry as it is when exactly the periods of `mask` divide t. A small state that takes another's value as it stands gets it
 * through an operation, so that stores can be ordered. */
static void make_phase(Plan *pl, const Entry *e, int mask, Phase *ph)
{
    Rule r = *pl->rule;
    Entry one = {.name = e->name, .body = NEWS(pl->arena, Body, r.nvariant)};
    ph->body = one.body;
    for (int v = 0; v < r.nvariant; v++) {
        one.body[v].n = e->body[v].n;
        one.body[v].w = NEWS(pl->arena, Write, e->body[v].n + 1);
        if (e->body[v].n)
            memcpy(one.body[v].w, e->body[v].w, sizeof(Write) * (size_t)e->body[v].n);
    }
    r.entry = &one;
    r.nentry = 1;
    PhaseOf ctx = {pl, mask};
    rule_rewrite(&r, fix_every, &ctx);
    pass_fold(&r, NULL);
    for (int v = 0; v < r.nvariant; v++) {
        Body *b = &one.body[v];
        int n = 0;
        for (int i = 0; i < b->n; i++)
            if (!unchanged(&r.g, b->w[i]))
                b->w[n++] = b->w[i];
        b->n = n;
        for (int i = 0; i < n; i++) {
            Dom d = b->w[i].state == TO_P ? ELEM : r.state[b->w[i].state].dom;
            const Node *x = &r.g.n[b->w[i].val];
            if (d != ELEM && in_memory(x)) {
                Node c = {.op = OP_COPY, .dom = x->dom, .ty = NUM, .nargs = 1, .arg = &b->w[i].val, .file = x->file, .line = x->line};
                b->w[i].val = graph_add(&r.g, c);
            }
        }
    }
    rule_rewrite(&r, NULL, NULL);
    ph->g = NEW(pl->arena, Graph);
    *ph->g = r.g;
    plan_phase_stages(pl, ph);
}

static void find_periods(Plan *pl)
{
    for (Ref i = 0; i < pl->rule->g.len; i++) {
        const Node *n = &pl->rule->g.n[i];
        bool seen = n->op != OP_EVERY;
        for (int j = 0; j < pl->nperiod; j++)
            seen = seen || pl->period[j] == (int)n->imm;
        if (!seen && pl->nperiod < 8)
            pl->period[pl->nperiod++] = (int)n->imm;
    }
}

int plan_phase(const Plan *p, double t)
{
    int mask = 0;
    for (int i = 0; i < p->nperiod; i++)
        mask |= (fmod(t, p->period[i]) == 0) << i;
    return mask;
}

bool plan_uses_t(const Plan *p)
{
    for (Ref r = 0; r < p->rule->g.len; r++) {
        Op op = (Op)p->rule->g.n[r].op;
        if (op == OP_STEP || op == OP_RANDOM || op == OP_NORMAL || op == OP_EVERY)
            return true;
    }
    return false;
}

static void fixed_mems(Plan *pl)
{
    const Rule *r = pl->rule;
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_P, 0, ELEM, ELEM, false, pl->p, "p"};
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_G, 0, ELEM, ELEM, false, pl->g, "g"};
    for (int i = 0; i < r->ninput; i++)
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) =
            (Mem){MEM_INPUT, i, r->input[i].dom, r->input[i].dom, false, r->input[i].dom == ELEM ? pl->g : mem_type_of(pl, r->input[i].dom), r->input[i].name};
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        Type t = dom_wide(s->dom) ? T_F64 : s->type >= 0 ? (Type)s->type : s->dom == ELEM ? pl->state : pl->real;
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_STATE, i, s->dom, s->dom, false, t, s->name};
    }
}

static void note_state(Plan *pl, int variant, int mem)
{
    if (pl->mem[mem].kind == MEM_STATE)
        pl->state_used[variant * pl->rule->nstate + pl->mem[mem].sym] = true;
}

Plan *plan_make(Arena *a, Rule *r, Type p, Type g, Type state)
{
    Plan *pl = NEW(a, Plan);
    *pl = (Plan){.arena = a, .rule = r, .p = p, .g = g, .state = state, .real = type_info[p].compute};
    pl->entry = NEWS(a, PlanEntry, r->nentry);
    pl->nentry = r->nentry;
    pl->state_used = NEWS(a, bool, r->nvariant * r->nstate + 1);
    find_periods(pl);
    fixed_mems(pl);
    for (int e = 0; e < r->nentry; e++) {
        PlanEntry *pe = &pl->entry[e];
        pe->name = r->entry[e].name;
        pe->nphase = 1 << pl->nperiod;
        pe->phase = NEWS(a, Phase, pe->nphase);
        for (int m = 0; m < pe->nphase; m++) {
            make_phase(pl, &r->entry[e], m, &pe->phase[m]);
            for (int i = 0; i < pe->phase[m].nstage; i++) {
                const Stage *s = &pe->phase[m].stage[i];
                for (int v = 0; v < r->nvariant; v++) {
                    if (s->kind != S_GROUP && s->variant != v)
                        continue;
                    for (int j = 0; j < s->nload; j++)
                        note_state(pl, v, s->load[j].mem);
                    for (int j = 0; j < s->nstore; j++)
                        note_state(pl, v, s->store[j].mem);
                }
            }
        }
    }
    return pl;
}

StageAt plan_at(const Plan *p, int fn)
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++)
                if (p->entry[e].phase[m].stage[i].fn == fn)
                    return (StageAt){&p->entry[e], m, &p->entry[e].phase[m].stage[i]};
    return (StageAt){NULL, 0, NULL};
}

/* Cuts a rule's phases into stages. Needs: a verified, folded rule and its phases. plan.h describes the result; this file owns the
 * memory numbers and plans one phase after the other, place.c and its neighbours do it. */
#include "planner.h"

#include <math.h>
#include <string.h>

/* ---- memory ---- */
/* Temporaries and partials that look alike. A phase takes those of other phases before it makes new ones. */
typedef struct { Mem like; int *mem, n, cap, used; } Pool;
typedef struct Pools { Arena *arena; Pool *v; int n, cap; } Pools;

static Pool *pool_of(Pools *ps, const Mem *m)
{
    for (int i = 0; i < ps->n; i++) {
        const Mem *x = &ps->v[i].like;
        if (x->kind == m->kind && x->dom == m->dom && x->from == m->from && x->type == m->type && x->by == m->by)
            return &ps->v[i];
    }
    PUSH(ps->arena, ps->v, ps->n, ps->cap) = (Pool){.like = *m};
    return &ps->v[ps->n - 1];
}

int new_mem(Planner *p, Mem m)
{
    Plan *pl = p->plan;
    Pool *q = pool_of(p->pools, &m);
    if (q->used == q->n) {
        m.sym = pl->nmem;
        m.name = arena_printf(pl->arena, "%s%d", m.kind == MEM_PART ? "part" : "tmp", pl->nmem);
        PUSH(p->pools->arena, q->mem, q->n, q->cap) = pl->nmem;
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = m;
    }
    return q->mem[q->used++];
}

Type mem_type_of(const Plan *p, Dom d) { return dom_wide(d) ? T_F64 : p->real; }

/* The arrays of a rule in order: p, g, inputs, states. */
int plan_mem_of_state(const Plan *pl, int state) { return state == TO_P ? 0 : 2 + pl->rule->ninput + state; }

int leaf_mem(const Plan *pl, const Node *n)
{
    switch (n->op) {
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

static void fixed_mems(Plan *pl)
{
    const Rule *r = pl->rule;
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_P, 0, ELEM, ELEM, 0, pl->p, "p"};
    PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_G, 0, ELEM, ELEM, 0, pl->g, "g"};
    for (int i = 0; i < r->ninput; i++) {
        Dom d = r->input[i].dom;
        Type t = d == ELEM ? pl->g : mem_type_of(pl, d);
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_INPUT, i, d, d, 0, t, r->input[i].name};
    }
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        Type t = dom_wide(s->dom) ? T_F64 : s->type >= 0 ? (Type)s->type : s->dom == ELEM ? pl->state : pl->real;
        PUSH(pl->arena, pl->mem, pl->nmem, pl->mem_cap) = (Mem){MEM_STATE, i, s->dom, s->dom, 0, t, s->name};
    }
}

int temp_of(Planner *p, Ref r)
{
    if (p->temp[r] < 0) {
        Dom d = pdom(p, r);
        p->temp[r] = new_mem(p, (Mem){.kind = MEM_TEMP, .dom = d, .from = d, .type = mem_type_of(p->plan, d)});
    }
    return p->temp[r];
}

/* ---- phases ---- */
typedef struct { Plan *plan; Phase *ph; Pools *pools; int left; } Making;      /* left: phases still to plan, this one too */

static void plan_one(void *ctx, Arena *scratch)
{
    Making *m = ctx;
    Plan *pl = m->plan;
    int n = m->ph->g->len, all = pl->nentry << pl->nperiod;
    Planner p = {.plan = pl, .ph = m->ph, .g = m->ph->g, .arena = scratch, .pools = m->pools, .nvariant = pl->rule->nvariant};
    p.limit = pl->work + (MOST_WORK > pl->work ? (MOST_WORK - pl->work) / m->left : 0);
    p.reach = MOST_REACH / all + 3 * n;                    /* two or three passes may each compute everything again */
    p.temp = NEWS(scratch, int, n + 1);
    memset(p.temp, -1, sizeof(int) * (size_t)(n + 1));
    for (int i = 0; i < m->pools->n; i++)
        m->pools->v[i].used = 0;
    place_work(&p);
    make_stages(&p);
    m->ph->cheaper = m->ph->cheaper || p.spent;
    if (scratch->bytes > pl->scratch)
        pl->scratch = scratch->bytes;
}

static void note_state(Plan *pl, int variant, int mem)
{
    if (pl->mem[mem].kind == MEM_STATE)
        pl->state_used[variant * pl->rule->nstate + pl->mem[mem].sym] = true;
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
            for (int j = 0; j < s->nstore; j++)
                note_state(pl, v, s->store[j].mem);
        }
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
            note_stages(pl, make.ph);
        }
}

static void number_stages(Plan *pl)
{
    pl->at = NEWS(pl->arena, StageAt, pl->nfn + 1);
    for (int e = 0; e < pl->nentry; e++)
        for (int m = 0; m < pl->entry[e].nphase; m++)
            for (int i = 0; i < pl->entry[e].phase[m].nstage; i++) {
                const Stage *s = &pl->entry[e].phase[m].stage[i];
                pl->at[s->fn] = (StageAt){&pl->entry[e], m, s};
            }
}

Plan *plan_make(Arena *a, Rule *r, const Phases *phases, Type p, Type g, Type state)
{
    Plan *pl = NEW(a, Plan);
    *pl = (Plan){.arena = a, .rule = r, .p = p, .g = g, .state = state, .real = type_info[p].compute, .nperiod = phases->nperiod};
    memcpy(pl->period, phases->period, sizeof pl->period);
    pl->entry = NEWS(a, PlanEntry, r->nentry);
    pl->nentry = r->nentry;
    pl->state_used = NEWS(a, bool, r->nvariant * r->nstate + 1);
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
    return pl;
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

StageAt plan_at(const Plan *p, int fn) { return fn >= 0 && fn < p->nfn ? p->at[fn] : (StageAt){NULL, 0, NULL}; }

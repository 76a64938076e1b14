/* Makes the phases of a rule. Needs a verified rule after constant folding, which it does not
 * change. Each phase gets its own graph, in which the periods are constants and constants are
 * folded again. */
#include "gen/ir/rule_passes.h"
#include "gen/plan/plan.h"

#include <string.h>

typedef struct { const Phases *phases; int mask; } PhaseOf;

static bool is_period(const Period *p, const Node *n)
{
    return p->every == (int)n->imm && p->offset == n->sym;
}

static Ref fix_every(Graph *g, Node n, void *ctx)
{
    const PhaseOf *c = ctx;
    if (n.op != OP_EVERY)
        return graph_add(g, n);
    int i = 0;
    while (i < c->phases->nperiod && !is_period(&c->phases->period[i], &n))
        i++;
    Node k = {.op = OP_CONST, .dom = CONST_, .ty = BOOL, .imm = c->mask >> i & 1};
    return graph_add(g, k);
}

static bool unchanged(const Graph *g, Write w)
{
    const Node *n = &g->n[w.val];
    return w.state == TO_P ? n->op == OP_P : n->op == OP_STATE && n->sym == w.state;
}

static bool is_memory(const Node *n)
{
    return n->op == OP_P || n->op == OP_G || n->op == OP_STATE || n->op == OP_INPUT;
}

/* Removes writes that change nothing. A small state that takes another state's value unchanged gets
 * a COPY node, so that stores can be ordered. Returns true if the body changed. */
static bool tidy_body(Rule *r, Body *b)
{
    int n = 0, was = b->n;
    bool copies = false;
    for (int i = 0; i < b->n; i++)
        if (!unchanged(&r->g, b->w[i]))
            b->w[n++] = b->w[i];
    b->n = n;
    for (int i = 0; i < n; i++) {
        Dom d = b->w[i].state == TO_P ? ELEM : r->state[b->w[i].state].dom;
        Node x = r->g.n[b->w[i].val];
        if (d != ELEM && is_memory(&x)) {
            Node c = {.op = OP_COPY, .dom = x.dom, .ty = NUM, .nargs = 1, .arg = &b->w[i].val};
            c.file = x.file;
            c.line = x.line;
            b->w[i].val = graph_add(&r->g, c);
            copies = true;
        }
    }
    return copies || n < was;
}

/* A copy of the graph without its hash table, which only construction needs. */
static Graph *graph_kept(Arena *a, const Graph *from)
{
    Graph *g = NEW(a, Graph);
    int nargs = 0;
    for (Ref r = 0; r < from->len; r++)
        nargs += from->n[r].nargs;
    Node *n = NEWS(a, Node, from->len);
    Ref *arg = NEWS(a, Ref, nargs);
    for (Ref r = 0; r < from->len; r++) {
        n[r] = from->n[r];
        n[r].arg = arg;
        for (int k = 0; k < n[r].nargs; k++)
            *arg++ = from->n[r].arg[k];
    }
    *g = (Graph){.n = n, .own = n, .len = from->len, .cap = from->len, .arena = a};
    return g;
}

typedef struct {
    Arena *keep; const Rule *rule; const Entry *entry; PhaseOf of; PhaseRule *out;
} Making;

static void make_phase(void *ctx, Arena *scratch)
{
    Making *m = ctx;
    Rule r = *m->rule;
    Body *body = NEWS(m->keep, Body, r.nvariant);
    Entry one = {.name = m->entry->name, .body = body};
    r.arena = scratch;
    r.entry = &one;
    r.nentry = 1;
    for (int v = 0; v < r.nvariant; v++) {
        const Body *b = &m->entry->body[v];
        body[v] = (Body){.w = NEWS(m->keep, Write, b->n), .n = b->n, .cap = b->n};
        if (b->n)
            memcpy(body[v].w, b->w, sizeof(Write) * (size_t)b->n);
    }
    rule_rewrite(&r, fix_every, &m->of);
    if (m->of.phases->nperiod)
        pass_constant_fold(&r, NULL);
    bool other = false;
    for (int v = 0; v < r.nvariant; v++)
        other = tidy_body(&r, &body[v]) || other;
    if (other)
        /* drops values that only the removed writes needed */
        rule_rewrite(&r, NULL, NULL);
    *m->out = (PhaseRule){graph_kept(m->keep, &r.g), body};
}

static void find_periods(Phases *ph, const Rule *r)
{
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        bool seen = n->op != OP_EVERY;
        for (int j = 0; j < ph->nperiod; j++)
            seen = seen || is_period(&ph->period[j], n);
        if (!seen && ph->nperiod < MAX_PERIODS)
            ph->period[ph->nperiod++] = (Period){(int)n->imm, n->sym};
    }
}

Phases *phases_make(Arena *a, const Rule *r, Diag *d)
{
    Phases *ph = NEW(a, Phases);
    int64_t values = 0;
    find_periods(ph, r);
    ph->nphase = 1 << ph->nperiod;
    ph->phase = NEWS(a, PhaseRule, ph->nphase * r->nentry);
    for (int e = 0; e < r->nentry; e++)
        for (int m = 0; m < ph->nphase; m++) {
            PhaseRule *out = &ph->phase[e * ph->nphase + m];
            Making make = {a, r, &r->entry[e], {ph, m}, out};
            arena_scratch(a, make_phase, &make);
            values += out->g->len;
            if (values > MAX_PHASE_NODES) {
                diag_set(d, NULL, 0, NULL,
                         "rule %s: its entries have over %d values together, with a copy for "
                         "each of the %d combinations of periods in 'every'; use fewer different "
                         "periods",
                         r->name, MAX_PHASE_NODES, ph->nphase);
                return NULL;
            }
        }
    return ph;
}

/* Prints a plan as text, for `optc explain` and `optc dump`. */
#include "gen/ir/rule_passes.h"
#include "gen/plan/plan.h"

#include <string.h>

static void put_names(Buf *b, const Access *v, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%s", i ? " " : what, v[i].name);
}

/* A factor: "power(a, -0.25), eigenvalues at least x, rows x rows". */
static void put_factor(Buf *b, const Node *n, const Stage *s)
{
    buf_printf(b, " %s(%s%s", op_info[n->op].name, s->load[0].name, n->sym & TRANS_A ? ".T" : "");
    if (op_info[n->op].arity > 1)
        buf_printf(b, ", %s%s", s->load[1].name, n->sym & OF_COLS ? ", \"cols\"" : "");
    if (n->op == OP_POWER) {
        buf_puts(b, ", ");
        buf_double(b, n->imm);
    }
    buf_printf(b, ")%s", n->sym & FROM_RIGHT ? " from the right" : "");
    if (n->sym & FLOORED)
        buf_printf(b, ", eigenvalues at least %s", s->load[call_operand(n, 1)].name);
    if (n->sym & KEEP_LAST)
        buf_printf(b, ", else %s", s->load[call_operand(n, 2)].name);
    MatrixAxes m = dom_matrix((Dom)n->dom, false);
    buf_printf(b, ", %s x %s%s", axis_name(m.down), axis_name(m.across),
               n->sym & BLOCKED ? ", block by block" : "");
}

/* A factor, or a product: "mm(a, b.T), rows x cols x rows in bf16, symmetric". */
static void put_call(Buf *b, const Plan *p, const Graph *g, const Stage *s)
{
    const Node *n = &g->n[s->body[0]];
    if (n->op != OP_MM) {
        put_factor(b, n, s);
        return;
    }
    MatrixAxes x = dom_matrix((Dom)g->n[n->arg[0]].dom, n->sym & TRANS_A),
               y = dom_matrix((Dom)g->n[n->arg[1]].dom, n->sym & TRANS_B);
    buf_puts(b, " ");
    if (n->imm != 1) {
        buf_double(b, n->imm);
        buf_puts(b, " * ");
    }
    buf_printf(b, "%s(%s%s, %s%s)", op_info[n->op].name, s->load[0].name,
               n->sym & TRANS_A ? ".T" : "", s->load[1].name, n->sym & TRANS_B ? ".T" : "");
    if (n->nargs > 2) {
        buf_puts(b, " + ");
        buf_double(b, n->beta);
        buf_printf(b, " * %s", s->load[2].name);
    }
    if (n->diagonal != 0) {
        buf_puts(b, " + ");
        buf_double(b, n->diagonal);
        buf_puts(b, " * I");
    }
    /* stored in f32 */
    bool tf32 = p->target->gpu && product_of_call(p, n) == PRODUCT_TF32;
    buf_printf(b, ", %s x %s x %s in %s%s", axis_name(x.down), axis_name(x.across),
               axis_name(y.across),
               tf32 ? product_info[PRODUCT_TF32].name : type_info[p->product].name,
               n->sym & SYMMETRIC ? ", symmetric" : "");
    if (n->sym & BLOCKED)
        buf_puts(b, ", block by block");
    if (s->half)
        buf_puts(b, ", its lower triangle");
}

void plan_stagger_text(Buf *b, const Rule *r, unsigned stagger)
{
    const char *before = ", of one in ";
    for (int i = 0, nth = 0; i < r->nstate; i++)
        if (r->state[i].slots.every && stagger >> nth++ & 1) {
            buf_printf(b, "%s%d %s", before, r->state[i].slots.every,
                       r->state[i].dom == BLOCK ? "blocks" : "tensors");
            before = " or ";
        }
    if (stagger)
        buf_puts(b, " a step");
}

static void put_stage(Buf *b, const Plan *p, const Graph *g, const Stage *s, int i)
{
    buf_printf(b, "  %2d %-6s %-6s", i, stage_info[s->kind].name,
               p->rule->nvariant > 1 && s->kind != S_GROUP ? p->rule->variant[s->variant].name
                                                           : "");
    if (is_called(s->kind))
        put_call(b, p, g, s);
    else
        buf_printf(b, " %3d B read %3d B written %4d ops per %s", s->bytes_read, s->bytes_written,
                   s->cost, dom_info[stage_info[s->kind].dom].per);
    if (s->half && !is_called(s->kind))
        buf_puts(b, ", of a half");
    StageAt at = plan_at(p, s->fn);
    if (s->shared && at.stage != s)
        buf_printf(b, ", as %d", (int)(at.stage - at.entry->phase[at.phase].stage));
    if (s->shared && at.stage != s && at.entry->phase[at.phase].g != g)
        buf_printf(b, " of phase %d", at.phase);
    plan_stagger_text(b, p->rule, s->stagger);
    put_names(b, s->load, s->nload, "\n      reads    ");
    put_names(b, s->fin, s->nfin, "\n      finishes ");
    put_names(b, s->fold, s->nfold, "\n      folds    ");
    put_names(b, s->store, s->nstore, "\n      writes   ");
    buf_puts(b, "\n");
}

void plan_period(Buf *b, const Period *p, const char *before, bool yes)
{
    const char *is = yes ? "==" : "!=";
    if (p->every == MAX_PERIOD)
        buf_printf(b, "%s t %s %d", before, is, p->offset ? p->offset : p->every);
    else
        buf_printf(b, "%s t %% %d %s %d", before, p->every, is, p->offset);
}

static void put_phase_name(Buf *b, const Plan *p, int mask)
{
    for (int i = 0; i < p->nperiod; i++)
        plan_period(b, &p->period[i], i ? " and" : ",", mask >> i & 1);
}

/* The states of a variant's tensors, or with `report` its reports, if it has any. */
static void put_states(Buf *b, const Plan *p, int v, bool report)
{
    const Rule *r = p->rule;
    const char *what = report ? "value" : "state";
    bool any = false;
    for (int i = 0; i < r->nstate; i++) {
        const Mem *m = &p->mem[plan_mem_of_state(p, i)];
        if (!p->state_used[v * r->nstate + i] || r->state[i].report != report)
            continue;
        if (!any)
            buf_printf(b, r->nvariant > 1 ? "%s of %s:" : "%s:", what,
                       variant_tensors(&r->variant[v]));
        buf_printf(b, "%s %s (%s, %s)", any ? "," : "", m->name, dom_info[m->dom].name,
                   type_info[m->type].name);
        any = true;
    }
    if (!any && !report)
        buf_printf(b, r->nvariant > 1 ? "%s of %s: none" : "%s: none", what,
                   variant_tensors(&r->variant[v]));
    if (any || !report)
        buf_puts(b, "\n");
}

void plan_print(Buf *b, const Plan *p, bool terse)
{
    const Rule *r = p->rule;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            int bytes[MAX_VARIANTS] = {0}, elem = 0;
            for (int i = 0; i < ph->nstage; i++)
                if (is_elem(ph->stage[i].kind)) {
                    bytes[ph->stage[i].variant] +=
                        ph->stage[i].bytes_read + ph->stage[i].bytes_written;
                    elem++;
                }
            buf_printf(b, "%s", p->entry[e].name);
            put_phase_name(b, p, m);
            buf_printf(b, ": %d stage%s, %d pass%s over the elements, %d bytes per element",
                       ph->nstage, ph->nstage == 1 ? "" : "s", elem, elem == 1 ? "" : "es",
                       bytes[0]);
            if (r->nvariant > 1)
                buf_printf(b, " (%s)", variant_tensors(&r->variant[0]));
            for (int v = 1; v < r->nvariant; v++)
                buf_printf(b, ", %d (%s)", bytes[v], variant_tensors(&r->variant[v]));
            buf_puts(b, "\n");
            if (ph->cheaper)
                buf_printf(b, "  planned with a cheaper search: over %lld steps of work\n",
                           (long long)p->limits.work);
            for (int i = 0; i < ph->nstage && !terse; i++)
                put_stage(b, p, ph->g, &ph->stage[i], i);
        }
    for (int v = 0; v < r->nvariant; v++) {
        put_states(b, p, v, false);
        put_states(b, p, v, true);
    }
}

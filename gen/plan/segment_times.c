/* In which segment of a phase with calls each value is computed and each state is written:
 * segments.c describes the result. */
#include "gen/plan/segments.h"

#include <string.h>

/* ---- the segment of each value ---- */
static bool large(const Node *n) { return n->dom == ELEM || dom_square((Dom)n->dom); }

/* Operand k of a call is the result of another call in the type that it needs: no pass between
 * them. */
static bool follows(const Cutter *c, Ref call, int k)
{
    Ref r = c->g->n[call].arg[k];
    return is_call(&c->g->n[call]) && is_call(&c->g->n[r]) &&
           operand_type(c, r, -1) == operand_type(c, call, k);
}

static void find_needs(Cutter *c)
{
    const Phase *ph = c->p->ph;
    for (int v = 0; v < c->nv; v++)
        for (int i = 0; i < ph->body[v].n; i++)
            c->in[v][ph->body[v].w[i].val] = true;
    for (Ref r = c->g->len - 1; r >= 0; r--) {
        const Node *n = &c->g->n[r];
        bool any = false;
        for (int v = 0; v < c->nv; v++)
            any = any || c->in[v][r];
        for (int v = 0; v < c->nv; v++)
            for (int k = 0; k < n->nargs; k++)
                if (is_global(n) ? any && k == v : c->in[v][r])
                    c->in[v][n->arg[k]] = true;
    }
}

/* A value that only due owners need (staggered) and whose operand all owners need is computed in a
 * later segment than the operand: in separate passes, which skip the other owners. */
static bool apart(const Cutter *c, int v, Ref r, Ref a)
{
    const Node *n = &c->g->n[r], *x = &c->g->n[a];
    bool both = large(n) && large(x) && !is_call(n) && !is_leaf(x);
    return both && c->want[v][r] != ALL_OWNERS && c->want[v][a] == ALL_OWNERS;
}

/* The first possible segment of each value. Values of groups are computed once for all variants. */
static void find_first(Cutter *c)
{
    for (Ref r = 0; r < c->g->len; r++) {
        const Node *n = &c->g->n[r];
        bool call = is_call(n);
        int all = 0;
        for (int v = 0; v < c->nv; v++) {
            int s = 0, l = 0;
            for (int k = 0; k < n->nargs; k++) {
                int from = ready(c, v, n->arg[k]) - follows(c, r, k) + apart(c, v, r, n->arg[k]);
                if ((!is_global(n) || k == v) && c->in[v][n->arg[k]] && from > s)
                    s = from;
            }
            for (int k = 0; k < n->nargs && call; k++)
                if (follows(c, r, k) && c->seg[v][n->arg[k]] == s && c->level[v][n->arg[k]] >= l)
                    l = c->level[v][n->arg[k]] + 1;
            c->seg[v][r] = s;
            c->level[v][r] = l;
            all = s > all ? s : all;
        }
        for (int v = 0; v < c->nv && for_all(n); v++)
            c->seg[v][r] = all;
    }
}

static void find_free(Cutter *c)
{
    for (Ref r = 0; r < c->g->len; r++) {
        const Node *n = &c->g->n[r];
        for (int k = 0; k < n->nargs && is_call(n); k++)
            c->kept[n->arg[k]] =
                operand_type(c, r, k) == mem_type_of(c->p->plan, (Dom)c->g->n[n->arg[k]].dom);
        bool free = large(n) && !in_memory(n) && !is_call(n) && !is_red(n) && n->op != OP_TRANSPOSE;
        for (int k = 0; k < n->nargs; k++)
            free = free && (!large(&c->g->n[n->arg[k]]) || c->free[n->arg[k]]);
        c->free[r] = free;
    }
}

/* ---- values that are better computed later ---- */
/* The operands, direct and indirect, that must be computed together with a value, down to leaves in
 * memory. */
typedef struct Cone { Ref v[64]; int n, leaves; } Cone;

static bool in_cone(const Cone *x, Ref r)
{
    for (int i = 0; i < x->n; i++)
        if (x->v[i] == r)
            return true;
    return false;
}

static bool overwritten(const Cutter *c, int v, const Node *n, int before)
{
    const Body *b = &c->p->ph->body[v];
    for (int i = 0; i < b->n && (n->op == OP_STATE || n->op == OP_P); i++)
        if (b->w[i].state == (n->op == OP_P ? TO_P : n->sym) && c->seg[v][b->w[i].val] < before)
            return true;
    return false;
}

static bool add_cone(const Cutter *c, int v, Ref r, int to, Cone *x)
{
    const Node *n = &c->g->n[r];
    if (!large(n) || in_cone(x, r))
        return true;
    bool stored = in_memory(n) || is_call(n) || (c->kept[r] && x->n);
    if (x->n == 64 || is_red(n) || n->op == OP_TRANSPOSE)
        return false;
    x->v[x->n++] = r;
    if (stored) {
        x->leaves++;
        return x->leaves <= 2 && !overwritten(c, v, n, to);
    }
    for (int k = 0; k < n->nargs; k++)
        if (!add_cone(c, v, n->arg[k], to, x))
            return false;
    return true;
}

/* Moves values to the first segment that needs them (first[], by value), if their cone has at most
 * two leaves in memory that are still there. */
static void make_later(Cutter *c, int v, int *first)
{
    const Body *b = &c->p->ph->body[v];
    for (Ref r = 0; r < c->g->len; r++)
        first[r] = c->nseg;
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state != TO_P && c->seg[v][b->w[i].val] < first[b->w[i].val])
            first[b->w[i].val] = c->seg[v][b->w[i].val];
    for (Ref r = c->g->len - 1; r >= 0; r--) {
        const Node *n = &c->g->n[r];
        if (!c->in[v][r])
            continue;
        Cone x = {.n = 0};
        bool may = large(n) && !is_leaf(n) && !is_call(n) && first[r] > c->seg[v][r] &&
                   first[r] < c->nseg && add_cone(c, v, r, first[r], &x);
        if (may)
            c->seg[v][r] = first[r];
        for (int k = 0; k < n->nargs; k++)
            if ((!is_global(n) || k == v) && c->seg[v][r] < first[n->arg[k]])
                first[n->arg[k]] = c->seg[v][r];
    }
}

/* ---- when states are written ---- */
/* Tensor cores need aligned matrices. Arrays of the caller (p, g, inputs) may have any
 * alignment. */
static bool is_aligned(const Plan *p, const Node *call, const Node *n)
{
    return n->op == OP_STATE || n->op == OP_CARRIED || !call_needs_alignment(p, call);
}

bool call_reads(const Cutter *c, Ref call, int k)
{
    const Node *n = &c->g->n[c->g->n[call].arg[k]];
    /* stages select its array */
    bool rotates = n->op == OP_STATE && c->p->plan->rule->state[n->sym].rotates;
    return in_memory(n) && is_aligned(c->p->plan, &c->g->n[call], n) && n->dom != GROUP &&
           !rotates && mem_at(c->p, leaf_mem(c->p, n))->type == operand_type(c, call, k);
}

/* The last segment that reads the old value of a state; -1: none. Does not count operand 2 of the
 * call `adds`, which the call adds to or leaves in place. */
static int last_read(const Cutter *c, int v, int state, Ref adds)
{
    int last = -1;
    for (Ref r = 0; r < c->g->len; r++)
        for (int k = 0; k < c->g->n[r].nargs && c->in[v][r]; k++) {
            const Node *n = &c->g->n[r];
            Ref a = n->arg[k];
            if ((is_global(n) && k != v) || !leaf_of(&c->g->n[a], state) ||
                (r == adds && k == call_operand(n, 2)))
                continue;
            int s = !is_call(n) ? c->seg[v][r] : call_reads(c, r, k) ? c->seg[v][r] + 1 : 0;
            last = s > last ? s : last;
        }
    /* one state takes the old value of another */
    for (int i = 0; i < c->p->ph->body[v].n; i++)
        if (leaf_of(&c->g->n[c->p->ph->body[v].w[i].val], state))
            last = last > 0 ? last : 0;
    return last;
}

/* A call stores its result directly in a state if the types match and no later stage reads the
 * state's old value. */
static bool straight(const Cutter *c, int v, Write w)
{
    const Plan *pl = c->p->plan;
    Ref r = w.val;
    if (!is_call(&c->g->n[r]) || c->result[r] != UNPLACED || w.state == TO_P ||
        pl->rule->state[w.state].rotates)
        return false;
    const Mem *m = &pl->mem[plan_mem_of_state(pl, w.state)];
    if (m->dom != (Dom)c->g->n[r].dom || m->type != operand_type(c, r, -1) ||
        last_read(c, v, w.state, r) > c->seg[v][r])
        return false;
    /* in all variants this state is its first target */
    for (int u = 0; u < c->nv; u++) {
        const Body *b = &c->p->ph->body[u];
        int i = 0;
        while (i < b->n && b->w[i].val != r)
            i++;
        if (c->in[u][r] && (i == b->n || b->w[i].state != w.state))
            return false;
    }
    return true;
}

static void time_writes(Cutter *c)
{
    for (int v = 0; v < c->nv; v++) {
        const Body *b = &c->p->ph->body[v];
        c->when[v] = NEWS(c->p->arena, int, b->n + 1);
        for (int i = 0; i < b->n; i++) {
            int last = last_read(c, v, b->w[i].state, NONE), s = ready(c, v, b->w[i].val);
            c->when[v][i] = last > s ? last : s;
            if (straight(c, v, b->w[i]))
                c->when[v][i] = -1;
            if (c->when[v][i] >= c->nseg)
                c->nseg = c->when[v][i] + 1;
        }
    }
    /* after all decisions: straight() reads result */
    for (int v = 0; v < c->nv; v++)
        for (int i = 0; i < c->p->ph->body[v].n; i++)
            if (c->when[v][i] == -1)
                c->result[c->p->ph->body[v].w[i].val] =
                    plan_mem_of_state(c->p->plan, c->p->ph->body[v].w[i].state);
}

void segment_times(Cutter *c)
{
    Planner *p = c->p;
    int n = p->g->len + 1;
    c->in = NEWS(p->arena, bool *, c->nv);
    c->seg = NEWS(p->arena, int *, c->nv);
    c->level = NEWS(p->arena, int *, c->nv);
    c->when = NEWS(p->arena, int *, c->nv);
    c->result = NEWS(p->arena, int, n);
    memset(c->result, -1, sizeof(int) * (size_t)n);
    for (int v = 0; v < c->nv; v++) {
        c->in[v] = NEWS(p->arena, bool, n);
        c->seg[v] = NEWS(p->arena, int, n);
        c->level[v] = NEWS(p->arena, int, n);
    }
    c->free = NEWS(p->arena, bool, n);
    c->kept = NEWS(p->arena, bool, n);
    c->want = stagger_wanted(p->arena, p->plan, p->ph);
    find_needs(c);
    find_first(c);
    find_free(c);
    for (int v = 0; v < c->nv; v++)
        for (Ref r = 0; r < p->g->len; r++)
            if (c->in[v][r] && ready(c, v, r) >= c->nseg)
                c->nseg = ready(c, v, r) + 1;
    int *first = NEWS(p->arena, int, n);
    for (int v = 0; v < c->nv; v++)
        make_later(c, v, first);
    time_writes(c);
}

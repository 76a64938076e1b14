/* Which pass over the elements does what: in which one each reduction is folded and each state is stored, and what a later
 * pass loads: an input, a state already stored, a temporary, or the makings to compute it again. Decided by the bytes moved: the loads of one
 * pass are a minimum cut (cut.c), the choice of passes a local search over it. */
#include "planner.h"

#include "cut.h"

/* ---- times ---- */
static void find_times(P *p)
{
    p->npass = 0;
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        int t = 0;
        for (int k = 0; k < n->nargs; k++)
            if (p->time[n->arg[k]] > t)
                t = p->time[n->arg[k]];
        if (elem_fold(p, r)) {
            int last = t;
            for (int v = 0; v < p->nvariant; v++) {
                if (p->at[v][r] < t)
                    p->at[v][r] = t;
                if (p->in[v][r] && p->at[v][r] > last)
                    last = p->at[v][r];
            }
            t = last + 1;
        }
        p->time[r] = t;
        if (t > p->npass)
            p->npass = t;
    }
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            Write w = p->ph->body[v].w[i];
            Dom d = w.state == TO_P ? ELEM : p->plan->rule->state[w.state].dom;
            if (d == ELEM && p->time[w.val] + 1 > p->npass)
                p->npass = p->time[w.val] + 1;
        }
}

/* The last time each value may become known without delaying anything. */
static void find_late(P *p)
{
    for (Ref r = 0; r < p->g->len; r++)
        p->late[r] = p->npass;
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            Ref r = p->ph->body[v].w[i].val;
            if (p->put[v][i] >= 0 && p->late[r] > p->put[v][i])
                p->late[r] = p->put[v][i];
        }
    for (Ref r = p->g->len - 1; r >= 0; r--)
        for (int k = 0; k < p->g->n[r].nargs; k++) {
            Ref a = p->g->n[r].arg[k];
            int l = p->late[r];
            for (int v = 0; v < p->nvariant && elem_fold(p, r); v++)
                if (p->in[v][r] && p->at[v][r] < l)
                    l = p->at[v][r];
            if (l < p->late[a])
                p->late[a] = l;
        }
}

/* Which values each variant needs. A global reduction needed by one is fed by both. Users come after operands, so one walk
 * backwards sees every user first. */
static void find_needed(P *p)
{
    for (int v = 0; v < p->nvariant; v++) {
        p->in[v] = NEWS(p->arena, bool, p->g->len + 1);
        for (int i = 0; i < p->ph->body[v].n; i++)
            p->in[v][p->ph->body[v].w[i].val] = true;
    }
    for (Ref r = p->g->len - 1; r >= 0; r--) {
        const Node *n = &p->g->n[r];
        bool any = false;
        for (int v = 0; v < p->nvariant; v++)
            any = any || p->in[v][r];
        for (int v = 0; v < p->nvariant; v++)
            for (int k = 0; k < n->nargs; k++)
                if (is_global(n) ? any && k == v : p->in[v][r])
                    p->in[v][n->arg[k]] = true;
    }
}

/* ---- elem passes ---- */
static void list_add(Arena *a, List *l, Ref val, int mem)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].val == val && l->v[i].mem == mem)
            return;
    PUSH(a, l->v, l->n, l->cap) = (Access){val, mem};
}

static int store_pass(const P *p, int v, const Node *leaf)      /* the pass that overwrites an input, or npass */
{
    for (int i = 0; i < p->ph->body[v].n; i++) {
        Write w = p->ph->body[v].w[i];
        if ((leaf->op == OP_P && w.state == TO_P) || (leaf->op == OP_STATE && w.state == leaf->sym))
            return p->put[v][i];
    }
    return p->npass;
}

/* The Mem in which an elem value already lies, unrounded, when pass k begins; -1: none. */
static int stored_before(const P *p, int v, Ref r, int k)
{
    for (int i = 0; i < p->ph->body[v].n; i++) {
        Write w = p->ph->body[v].w[i];
        if (w.val != r || p->put[v][i] < 0 || p->put[v][i] >= k)
            continue;
        int m = plan_mem_of_state(p->plan, w.state);
        if (p->plan->mem[m].type == p->plan->real)
            return m;
    }
    return -1;
}

/* The elem values that what is already in `seen` is made of. */
static void cone(const P *p, bool *seen)
{
    for (Ref r = p->g->len - 1; r >= 0; r--)
        for (int k = 0; k < p->g->n[r].nargs && seen[r]; k++) {
            Ref a = p->g->n[r].arg[k];
            if (p->g->n[a].dom == ELEM)
                seen[a] = true;
        }
}

/* Chooses the loads of pass k. Weights are bytes * 16, with one more for a temporary so that computing again wins a tie. */
static int solve_pass(P *p, int v, int k, const List *roots, List *loads, List *keeps)
{
    Arena scratch = {.out = p->arena->out};
    Cut c;
    cut_init(&c, &scratch, p->g->len);
    bool *seen = NEWS(&scratch, bool, p->g->len + 1), *chosen = NEWS(&scratch, bool, p->g->len + 1);
    for (int i = 0; i < roots->n; i++)
        seen[roots->v[i].val] = c.sink[roots->v[i].val] = p->g->n[roots->v[i].val].dom == ELEM;
    cone(p, seen);
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        if (!seen[r])
            continue;
        if (in_memory(n)) {
            c.source[r] = true;
            c.weight[r] = store_pass(p, v, n) < k ? CUT_INF : 16 * bytes_of(p, leaf_mem(p->plan, n));
            continue;
        }
        int m = stored_before(p, v, r, k);
        c.weight[r] = m >= 0 ? 16 * bytes_of(p, m) : p->time[r] < k ? 2 * 16 * type_info[p->plan->real].bytes + 1 : CUT_INF;
        if (n->ty == BOOL)
            c.weight[r] = CUT_INF;
        for (int j = 0; j < n->nargs; j++)
            if (seen[n->arg[j]])
                cut_edge(&c, n->arg[j], r);
    }
    int cost = cut_solve(&c, chosen);
    for (Ref r = 0; r < p->g->len; r++) {
        if (!chosen[r] || !seen[r])
            continue;
        const Node *n = &p->g->n[r];
        int m = in_memory(n) ? leaf_mem(p->plan, n) : stored_before(p, v, r, k);
        if (m < 0) {
            list_add(p->arena, keeps, r, -1);
            m = -1;
        }
        list_add(p->arena, loads, r, m);
    }
    arena_free(&scratch);
    return cost;
}

/* All elem passes of one variant, last to first, since a later pass may want a temporary of an earlier one. Returns the
 * bytes moved per element times 16, CUT_INF if the order is impossible. */
static int solve_variant(P *p, int v, Pass *pass)
{
    int total = 0;
    List *roots = NEWS(p->arena, List, p->npass + 1);
    for (int k = p->npass - 1; k >= 0; k--) {
        Pass q = {0};
        for (int i = 0; i < p->ph->body[v].n; i++)
            if (p->put[v][i] == k) {
                Write w = p->ph->body[v].w[i];
                if (p->time[w.val] > k)
                    return CUT_INF;
                int m = plan_mem_of_state(p->plan, w.state);
                list_add(p->arena, &roots[k], w.val, -1);
                list_add(p->arena, &q.store, w.val, m);
                total += 16 * bytes_of(p, m);
            }
        for (Ref r = 0; r < p->g->len; r++)
            if (p->in[v][r] && elem_fold(p, r) && p->at[v][r] == k) {
                list_add(p->arena, &roots[k], p->g->n[r].arg[0], -1);
                list_add(p->arena, &q.fold, r, -1);
                q.tile = q.tile || p->g->n[r].dom != TENSOR;
                q.cols = q.cols || p->g->n[r].dom == COL;
            }
        /* Between equal bytes, a fold to the tensor goes to a pass without tiles: there it costs no sums of rows. */
        for (int i = 0; i < q.fold.n; i++)
            total += q.tile && p->g->n[q.fold.v[i].val].dom == TENSOR;
        total += q.fold.n || q.store.n;                    /* and fewer passes before more */
        for (int i = 0; i < roots[k].n; i++)
            if (roots[k].v[i].mem == -2)
                list_add(p->arena, &q.store, roots[k].v[i].val, -1);
        List keeps = {0};
        int cost = solve_pass(p, v, k, &roots[k], &q.load, &keeps);
        if (cost >= CUT_INF)
            return CUT_INF;
        total += cost;
        for (int i = 0; i < keeps.n; i++)
            list_add(p->arena, &roots[p->time[keeps.v[i].val]], keeps.v[i].val, -2);
        if (pass)
            pass[k] = q;
    }
    return total;
}

int place_loads(P *p, Pass *pass)
{
    int total = 0;
    for (int v = 0; v < p->nvariant; v++) {
        int c = solve_variant(p, v, pass ? pass + v * (p->npass + 1) : NULL);
        if (c >= CUT_INF)
            return CUT_INF;
        total += c;
    }
    return total;
}

/* Start with every store in the last pass, which is always possible, and every fold as early as it can be; move one at a time
 * while that saves bytes, or costs none and stores earlier (two stores may only pay once both have moved). */
void place_work(P *p)
{
    find_needed(p);
    find_times(p);
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            int s = p->ph->body[v].w[i].state;
            bool elem = s == TO_P || p->plan->rule->state[s].dom == ELEM;
            p->put[v][i] = elem ? p->npass - 1 : -1;
        }
    if (p->npass <= 1 || p->g->len > 1500)
        return;
    int best = place_loads(p, NULL);
    for (bool better = true; better;) {
        better = false;
        for (int v = 0; v < p->nvariant; v++)
            for (int i = 0; i < p->ph->body[v].n; i++)
                for (int k = p->time[p->ph->body[v].w[i].val]; p->put[v][i] >= 0 && k < p->npass; k++) {
                    int was = p->put[v][i];
                    p->put[v][i] = k;
                    int c = place_loads(p, NULL);
                    if (c < best || (c == best && k < was))
                        best = c, better = true;
                    else
                        p->put[v][i] = was;
                }
        find_late(p);
        for (int v = 0; v < p->nvariant; v++)
            for (Ref r = 0; r < p->g->len; r++)
                for (int k = p->at[v][r] + 1; elem_fold(p, r) && p->in[v][r] && k < p->late[r] && k < p->npass; k++) {
                    int was = p->at[v][r], passes = p->npass;
                    p->at[v][r] = k;
                    find_times(p);
                    int c = p->npass == passes ? place_loads(p, NULL) : CUT_INF;
                    if (c < best)
                        best = c, better = true;
                    else
                        p->at[v][r] = was;
                    find_times(p);
                    find_late(p);
                }
    }
}

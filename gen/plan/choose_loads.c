/* Chooses what each element pass loads: an input, a state already stored, a temporary, or operands
 * from which it computes a value again. The loads of one pass are a minimum cut by bytes. A later
 * pass may load a temporary of an earlier one, so passes are solved from last to first.
 *
 * A pass is solved again only when it is dirty: a store or fold was moved into or out of it, a
 * state that it may load is overwritten or stored at another time, or later passes load other
 * temporaries of it. The previous solution is stored until the search accepts or rejects the new
 * one.
 *
 * Cost. A pass must compute the values that are not known before it begins; the cut only decides
 * about their operands. A cut considers `reach` values and a bounded number of arcs. Beyond that
 * the pass is coarse: it loads the values that the cut did not consider. */
#include "gen/plan/planner.h"

#include <stdlib.h>
#include <string.h>

/* Values of p->mark - p->now: the pass must compute it; it is a vertex of the cut; it is in a
 * list. */
enum { NEAR = 1, VERTEX, LISTED };
/* the smallest reach of a pass; arcs per value within the reach */
enum { LEAST_REACH = 8, ARCS_A_VALUE = 64 };

static int by_value(const void *a, const void *b)
{
    const Access *x = a, *y = b;
    return x->val != y->val ? (x->val > y->val) - (x->val < y->val)
                            : (x->mem > y->mem) - (x->mem < y->mem);
}

void list_sort(List *l)
{
    bool sorted = true;
    for (int i = 1; i < l->n && sorted; i++)
        sorted = l->v[i - 1].val <= l->v[i].val;
    if (!sorted)
        qsort(l->v, (size_t)l->n, sizeof *l->v, by_value);
}

/* ---- arrays of values ---- */
/* The pass that overwrites p or a state; npass: none. */
static int store_pass(const Planner *p, const Route *t, const Node *leaf)
{
    int i = leaf->op == OP_P ? t->target[0] : leaf->op == OP_STATE ? t->target[leaf->sym + 1] : -1;
    return i < 0 ? p->npass : t->put[i];
}

/* The Mem that holds an elem value, unrounded, when pass k begins; UNPLACED: none. */
static int stored_before(const Planner *p, const Route *t, Ref r, int k)
{
    for (int i = t->first[r]; i >= 0; i = t->next[i]) {
        int m = target_mem(p, t->body->w[i].state);
        if (t->put[i] >= 0 && t->put[i] < k && mem_at(p, m)->type == p->plan->real)
            return m;
    }
    return UNPLACED;
}

/* Bytes * 16 to load a value. A temporary costs one more, so that computing again wins a tie. Truth
 * values are computed again, unless the cut is coarse. CUT_INF: it cannot be loaded. */
static int weight_of(const Planner *p, const Route *t, int k, Ref r, bool coarse)
{
    const Node *n = &p->g->n[r];
    if (in_memory(n))
        return store_pass(p, t, n) < k ? CUT_INF : 16 * bytes_of(p, leaf_mem(p, n));
    int m = stored_before(p, t, r, k);
    if (m != UNPLACED)
        return 16 * bytes_of(p, m);
    return p->time[r] < k && (coarse || n->ty == NUM) ? 2 * 16 * type_info[p->plan->real].bytes + 1
                                                      : CUT_INF;
}

static void touch(const Route *t, ElemPass *q, const Node *n, Ref r)
{
    int i = n->op == OP_P ? t->target[0] : n->op == OP_STATE ? t->target[n->sym + 1] : -1;
    if (i >= 0)
        q->touches[i >> 6 & 1] |= (uint64_t)1 << (i & 63);
    for (i = t->first[r]; i >= 0; i = t->next[i])
        q->touches[i >> 6 & 1] |= (uint64_t)1 << (i & 63);
}

/* ---- one cut ---- */
typedef struct {
    Planner *p; Route *t; ElemPass *q; int k; bool coarse; int nnear, nvertex, nwide; bool lost;
} Solve;

static void add_vertex(Solve *s, Ref r)
{
    s->p->mark[r] = s->p->now + VERTEX;
    s->p->local[r] = s->nvertex;
    s->p->vertex[s->nvertex++] = r;
    touch(s->t, s->q, &s->p->g->n[r], r);
}

/* The pass needs the value: it becomes a vertex of the cut, or is computed in the pass if it cannot
 * be loaded. */
static void come_near(Solve *s, Ref r)
{
    Planner *p = s->p;
    if (p->g->n[r].dom != ELEM || p->mark[r] > p->now)
        return;
    if (weight_of(p, s->t, s->k, r, s->coarse) < CUT_INF) {
        add_vertex(s, r);
        return;
    }
    p->mark[r] = p->now + NEAR;
    p->near[s->nnear++] = r;
    s->nwide += p->time[r] < s->k;
    s->lost = s->lost || in_memory(&p->g->n[r]);           /* overwritten by then */
    touch(s->t, s->q, &p->g->n[r], r);
}

/* Collects the values that the pass must compute, then vertices of the cut, walking to operands
 * until `reach` values were seen. Returns the number of leading vertices whose operands are
 * vertices too. */
static int look_around(Solve *s, const List *roots, int reach, int *nsink)
{
    Planner *p = s->p;
    p->now += 4;
    s->nnear = s->nvertex = s->nwide = 0;
    s->lost = false;
    memset(s->q->touches, 0, sizeof s->q->touches);
    for (int i = 0; i < roots->n; i++)
        come_near(s, roots->v[i].val);
    for (int i = 0; i < s->nnear && (s->coarse || s->nwide <= reach); i++)
        for (int k = 0; k < p->g->n[p->near[i]].nargs; k++)
            come_near(s, p->g->n[p->near[i]].arg[k]);
    *nsink = s->nvertex;
    int seen = 0;
    for (; seen < s->nvertex && s->nvertex + s->nwide <= reach + *nsink; seen++) {
        const Node *n = &p->g->n[p->vertex[seen]];
        for (int k = 0; k < n->nargs; k++)
            if (p->g->n[n->arg[k]].dom == ELEM && p->mark[n->arg[k]] <= p->now)
                add_vertex(s, n->arg[k]);
    }
    p->plan->work += 2 * (s->nnear + s->nvertex);
    return seen;
}

/* Sources of the cut are leaves and, in a coarse cut, vertices whose operands were not considered.
 * A source that is also a sink must be loaded: it is chosen and, with weight 0, not part of the
 * network. Returns the bytes * 16 of all loads; -1: too much work. */
static int choose(Solve *s, int seen, int nsink, int64_t most)
{
    Planner *p = s->p;
    Cut *c = &p->cut;
    int cost = 0, forced = 0, open = 0;
    cut_begin(c, s->nvertex);
    for (int i = 0; i < s->nvertex; i++) {
        int weight = weight_of(p, s->t, s->k, p->vertex[i], s->coarse);
        bool source = i >= seen || in_memory(&p->g->n[p->vertex[i]]), sink = i < nsink;
        forced += source && sink ? weight : 0;
        open += sink && !source;
        c->vertex[i] = source && sink ? (CutVertex){0} : (CutVertex){weight, source, sink, false};
    }
    for (int i = 0; i < seen && open; i++) {
        const Node *n = &p->g->n[p->vertex[i]];
        for (int k = 0; k < n->nargs; k++)
            if (p->mark[n->arg[k]] == p->now + VERTEX && c->vertex[p->local[n->arg[k]]].weight)
                cut_edge(c, p->local[n->arg[k]], i);
    }
    if (open) {
        int64_t before = c->work;
        cost = cut_solve(c, most);
        p->plan->work += c->work - before;
    }
    for (int i = 0; i < nsink; i++)
        c->vertex[i].chosen = c->vertex[i].chosen || !c->vertex[i].weight;
    return cost < 0 ? -1 : forced + cost;
}

static void note_loads(Solve *s)
{
    Planner *p = s->p;
    for (int i = 0; i < s->nvertex; i++) {
        Ref r = p->vertex[i];
        if (!p->cut.vertex[i].chosen)
            continue;
        const Node *n = &p->g->n[r];
        int m = in_memory(n) ? leaf_mem(p, n) : stored_before(p, s->t, r, s->k);
        list_add(p->arena, &s->q->load, r, m);
        if (m == UNPLACED)
            list_add(p->arena, &s->q->keep, r, -1);
    }
    list_sort(&s->q->load);
    list_sort(&s->q->keep);
}

/* Chooses the loads of a pass. Returns their bytes * 16. */
static int solve_loads(Solve *s, const List *roots, int reach)
{
    for (;; reach = reach / 8 > LEAST_REACH ? reach / 8 : LEAST_REACH) {
        int nsink, seen = look_around(s, roots, reach, &nsink);
        if (!s->coarse && (seen < s->nvertex || s->nwide > reach)) {
            s->coarse = true;
            seen = look_around(s, roots, reach, &nsink);
        }
        s->q->coarse = s->coarse;
        if (s->lost)
            return CUT_INF;
        int cost =
            choose(s, seen, nsink,
                   reach > LEAST_REACH ? (int64_t)ARCS_A_VALUE * (reach + 64) : INT64_MAX / 2);
        if (cost >= 0) {
            if (cost < CUT_INF)
                note_loads(s);
            return cost;
        }
        s->coarse = true;
    }
}

/* ---- one pass ---- */
/* Removes values from the list of temporaries of pass k that no later pass loads any more, that are
 * known at another time now, or that are listed twice. Other functions only append to the list. */
static void tidy_wants(Planner *p, Route *t, int k)
{
    List *l = &t->want[k];
    int n = 0;
    p->now += 4;
    for (int i = 0; i < l->n; i++) {
        Ref r = l->v[i].val;
        if (t->nloaders[r] > 0 && p->time[r] == k && p->mark[r] != p->now + LISTED) {
            p->mark[r] = p->now + LISTED;
            l->v[n++] = l->v[i];
        }
    }
    l->n = n;
    list_sort(l);
}

static bool solve_pass(Planner *p, Route *t, int k, ElemPass *q)
{
    List *roots = &p->roots;
    for (int i = t->fold_from[k]; i < t->fold_from[k + 1]; i++) {
        const Node *n = &p->g->n[t->fold[i]];
        list_add(p->arena, &q->fold, t->fold[i], -1);
        q->tile = q->tile || dom_inside((Dom)n->dom);
        q->cols = q->cols || dom_info[n->dom].axis[1] != AXIS_ONE;
    }
    for (int i = 0; i < t->body->n; i++)
        if (t->put[i] == k) {
            int m = target_mem(p, t->body->w[i].state);
            if (p->time[t->body->w[i].val] > k || (q->tile && type_coded(mem_at(p, m)->type)))
                return false;
            list_add(p->arena, &q->store, t->body->w[i].val, m);
            q->bytes += 16 * bytes_of(p, m);
        }
    /* For equal bytes, a fold to the tensor belongs in a pass without tiles, where it needs no sums
     * of rows. */
    for (int i = 0; i < q->fold.n; i++)
        q->bytes += q->tile && !dom_inside((Dom)p->g->n[q->fold.v[i].val].dom);
    /* for equal bytes, fewer passes are better */
    q->bytes += q->fold.n || q->store.n;
    tidy_wants(p, t, k);
    for (int i = 0; i < t->want[k].n; i++)
        list_add(p->arena, &q->store, t->want[k].v[i].val, -1);
    roots->n = 0;
    for (int i = 0; i < q->store.n; i++)
        list_add(p->arena, roots, q->store.v[i].val, -1);
    for (int i = 0; i < q->fold.n; i++)
        list_add(p->arena, roots, p->g->n[q->fold.v[i].val].arg[0], -1);
    Solve s = {.p = p, .t = t, .q = q, .k = k};
    int cost = solve_loads(&s, roots, t->reach[k]);
    q->bytes += cost;
    return cost < CUT_INF;
}

static ElemPass *pass_take(Planner *p)
{
    if (!p->nspare)
        return NEW(p->arena, ElemPass);
    ElemPass *q = p->spare[--p->nspare];
    q->load.n = q->store.n = q->fold.n = q->keep.n = 0;
    q->tile = q->cols = q->coarse = false;
    q->bytes = 0;
    return q;
}

static void pass_leave(Planner *p, ElemPass *q)
{
    PUSH(p->arena, p->spare, p->nspare, p->spare_cap) = q;
}

/* ---- temporaries between passes ---- */
static void want(Planner *p, Route *t, Ref r)
{
    if (t->nloaders[r]++ == 0)
        list_add(p->arena, &t->want[p->time[r]], r, -1);
}

void loads_dirty(Route *t, int k)
{
    t->ndirty += !t->dirty[k];
    t->dirty[k] = true;
    t->top = t->top > k ? t->top : k;
}

void loads_moved(Planner *p, Ref r, int from)
{
    for (int v = 0; v < p->nvariant; v++) {
        Route *t = &p->route[v];
        if (!t->nloaders[r])
            continue;
        list_add(p->arena, &t->want[p->time[r]], r, -1);
        loads_dirty(t, p->time[r]);
        loads_dirty(t, from);
    }
}

/* Replaces the temporaries that a pass loads. With `spread`, earlier passes that gain or lose a
 * store become dirty. */
static void swap_keeps(Planner *p, Route *t, const List *was, const List *is, bool spread)
{
    for (int i = 0; i < is->n; i++)
        want(p, t, is->v[i].val);
    for (int i = 0; i < was->n; i++)
        t->nloaders[was->v[i].val]--;
    for (int i = 0; spread && i < was->n; i++)
        if (!t->nloaders[was->v[i].val])
            loads_dirty(t, p->time[was->v[i].val]);
    for (int i = 0, j = 0; spread && i < is->n; i++) {
        while (j < was->n && was->v[j].val < is->v[i].val)
            j++;
        bool both = j < was->n && was->v[j].val == is->v[i].val;
        if (!both && t->nloaders[is->v[i].val] == 1)
            loads_dirty(t, p->time[is->v[i].val]);
    }
}

/* ---- all passes ---- */
static bool settle_route(Planner *p, Route *t)
{
    static const List none;
    for (int k = t->top; k >= 0 && t->ndirty; k--) {
        p->plan->work++;
        t->top = k;
        if (!t->dirty[k])
            continue;
        t->dirty[k] = false;
        t->ndirty--;
        ElemPass *was = t->pass[k], *is = pass_take(p);
        PUSH(p->arena, p->undo, p->nundo, p->undo_cap) = (Undo){t, k, was};
        t->pass[k] = is;
        bool ok = solve_pass(p, t, k, is);
        if (!ok)
            is->keep.n = 0;
        swap_keeps(p, t, was ? &was->keep : &none, &is->keep, true);
        p->total += is->bytes - (was ? was->bytes : 0);
        p->spent = p->spent || p->plan->work > p->limit;
        if (!ok || p->spent)
            return false;
    }
    return true;
}

bool loads_settle(Planner *p)
{
    for (int v = 0; v < p->nvariant; v++)
        if (!settle_route(p, &p->route[v]))
            return false;
    return true;
}

void loads_keep(Planner *p)
{
    while (p->nundo)
        if (p->undo[--p->nundo].was)
            pass_leave(p, p->undo[p->nundo].was);
}

void loads_undo(Planner *p, int64_t total)
{
    while (p->nundo) {
        Undo u = p->undo[--p->nundo];
        swap_keeps(p, u.route, &u.route->pass[u.k]->keep, &u.was->keep, false);
        pass_leave(p, u.route->pass[u.k]);
        u.route->pass[u.k] = u.was;
    }
    for (int v = 0; v < p->nvariant; v++)
        if (p->route[v].ndirty) {
            memset(p->route[v].dirty, 0, sizeof(bool) * (size_t)p->npass);
            p->route[v].ndirty = 0;
        }
    p->total = total;
}

void loads_begin(Planner *p)
{
    int n = p->g->len;
    p->mark = NEWS(p->arena, int, n + 1);
    p->local = NEWS(p->arena, int, n + 1);
    p->near = NEWS(p->arena, Ref, n + 1);
    p->vertex = NEWS(p->arena, Ref, n + 1);
    p->cut.arena = p->arena;
    for (int v = 0; v < p->nvariant; v++) {
        Route *t = &p->route[v];
        t->pass = NEWS(p->arena, ElemPass *, p->npass + 1);
        t->reach = NEWS(p->arena, int, p->npass + 1);
        t->want = NEWS(p->arena, List, p->npass + 1);
        t->nloaders = NEWS(p->arena, int, n + 1);
        t->dirty = NEWS(p->arena, bool, p->npass + 1);
        for (int k = 0; k < p->npass; k++) {
            t->reach[k] = p->reach / p->npass > LEAST_REACH ? p->reach / p->npass : LEAST_REACH;
            loads_dirty(t, k);
        }
    }
    loads_settle(p);
    loads_keep(p);
}

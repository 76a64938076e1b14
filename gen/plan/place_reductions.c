/* Decides in which element pass each reduction is folded and each state is stored. A local search
 * minimises the bytes moved, as choose_loads.c computes them for each choice. It ends when no
 * single move helps, or when it has used its share of the work; then the best result so far is
 * used. Work is counted in steps, not in time, so that a plan never depends on the machine. */
#include "gen/plan/planner.h"

#include <string.h>

/* ---- times ---- */
/* Only flat passes own whole blocks of codes (templates/codes.h). A phase that stores codes and
 * folds rows or columns has one pass more at its end, which folds nothing; if no store stays there,
 * it vanishes. */
static bool needs_flat_pass(const Planner *p)
{
    bool codes = false, tiles = false;
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++)
            codes = codes || type_coded(mem_at(p, target_mem(p, p->ph->body[v].w[i].state))->type);
    for (Ref r = 0; codes && r < p->g->len; r++)
        tiles = tiles || (elem_fold(p, r) && dom_inside((Dom)p->g->n[r].dom));
    return tiles;
}

static void find_times(Planner *p)
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
                Route *to = &p->route[v];
                if (to->at[r] < t)
                    to->at[r] = t;
                if (to->in[r] && to->at[r] > last)
                    last = to->at[r];
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
            if (target_dom(p, w.state) == ELEM && p->time[w.val] + 1 > p->npass)
                p->npass = p->time[w.val] + 1;
        }
    p->flat_pass = needs_flat_pass(p);
    p->npass += p->flat_pass;
    p->plan->work += p->g->len;
}

/* The first pass that folds r, over all variants that need it. */
static int first_fold(const Planner *p, Ref r)
{
    int first = p->npass;
    for (int v = 0; v < p->nvariant; v++)
        if (p->route[v].in[r] && p->route[v].at[r] < first)
            first = p->route[v].at[r];
    return first;
}

/* The last time each value may become known without delaying anything. */
static void find_late(Planner *p)
{
    for (Ref r = 0; r < p->g->len; r++)
        p->late[r] = p->npass;
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            int put = p->route[v].put[i];
            Ref r = p->ph->body[v].w[i].val;
            if (put >= 0 && p->late[r] > put)
                p->late[r] = put;
        }
    for (Ref r = p->g->len - 1; r >= 0; r--) {
        const Node *n = &p->g->n[r];
        int l = elem_fold(p, r) ? first_fold(p, r) : p->late[r];
        for (int k = 0; k < n->nargs; k++)
            if (l < p->late[n->arg[k]])
                p->late[n->arg[k]] = l;
    }
    p->plan->work += p->g->len;
}

/* ---- needed values and writes ---- */
/* Which values each variant needs. If one variant needs a global reduction, all variants contribute
 * to it. Users come after operands, so one walk backwards sees every user first. */
static void find_needed(Planner *p)
{
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++)
            p->route[v].in[p->ph->body[v].w[i].val] = true;
    for (Ref r = p->g->len - 1; r >= 0; r--) {
        const Node *n = &p->g->n[r];
        bool any = false;
        for (int v = 0; v < p->nvariant; v++)
            any = any || p->route[v].in[r];
        for (int v = 0; v < p->nvariant; v++)
            for (int k = 0; k < n->nargs; k++)
                if (is_global(n) ? any && k == v : p->route[v].in[r])
                    p->route[v].in[n->arg[k]] = true;
        if (elem_fold(p, r))
            p->nfold++;
    }
    p->fold = NEWS(p->arena, Ref, p->nfold + 1);
    for (Ref r = 0, i = 0; r < p->g->len; r++)
        if (elem_fold(p, r))
            p->fold[i++] = r;
}

static void find_writes(Planner *p, Route *t)
{
    int n = t->body->n, nstate = p->plan->rule->nstate + p->ncarry;
    t->target = NEWS(p->arena, int, nstate + 1);
    t->first = NEWS(p->arena, int, p->g->len + 1);
    t->next = NEWS(p->arena, int, n + 1);
    t->put = NEWS(p->arena, int, n + 1);
    memset(t->target, -1, sizeof(int) * (size_t)(nstate + 1));
    memset(t->first, -1, sizeof(int) * (size_t)(p->g->len + 1));
    for (int i = n - 1; i >= 0; i--) {
        Write w = t->body->w[i];
        t->next[i] = t->first[w.val];
        t->first[w.val] = i;
        if (target_dom(p, w.state) == ELEM)
            t->target[w.state + 1] = i;
    }
}

/* Sorts the reductions by their pass. */
static void sort_folds(Planner *p, Route *t)
{
    memset(t->fold_from, 0, sizeof(int) * (size_t)(p->npass + 2));
    for (int i = 0; i < p->nfold; i++)
        if (t->in[p->fold[i]])
            t->fold_from[t->at[p->fold[i]] + 2]++;
    for (int k = 2; k <= p->npass + 1; k++)
        t->fold_from[k] += t->fold_from[k - 1];
    for (int i = 0; i < p->nfold; i++)
        if (t->in[p->fold[i]])
            t->fold[t->fold_from[t->at[p->fold[i]] + 1]++] = p->fold[i];
}

static void begin(Planner *p)
{
    int n = p->g->len;
    p->time = NEWS(p->arena, int, n + 1);
    p->late = NEWS(p->arena, int, n + 1);
    p->route = NEWS(p->arena, Route, p->nvariant);
    for (int v = 0; v < p->nvariant; v++) {
        Route *t = &p->route[v];
        t->body = &p->ph->body[v];
        t->in = NEWS(p->arena, bool, n + 1);
        t->at = NEWS(p->arena, int, n + 1);
        find_writes(p, t);
    }
    find_needed(p);
    find_times(p);
    for (int v = 0; v < p->nvariant; v++) {
        Route *t = &p->route[v];
        t->fold = NEWS(p->arena, Ref, p->nfold + 1);
        t->fold_from = NEWS(p->arena, int, p->npass + 3);
        sort_folds(p, t);
        for (int i = 0; i < t->body->n; i++)
            t->put[i] = target_dom(p, t->body->w[i].state) == ELEM ? p->npass - 1 : -1;
    }
}

/* ---- moves ---- */
/* Stores write i of a variant in pass k, if that is better. Between the old and the new pass, the
 * state holds another value than before: passes there that may load or compute it become dirty. */
static bool move_put(Planner *p, Route *t, int i, int k)
{
    int was = t->put[i], lo = was < k ? was : k, hi = was < k ? k : was;
    int64_t best = p->total;
    t->put[i] = k;
    loads_dirty(t, was);
    loads_dirty(t, k);
    for (int j = lo + 1; j <= hi; j++)
        if (t->pass[j]->touches[i >> 6 & 1] >> (i & 63) & 1)
            loads_dirty(t, j);
    p->plan->work += hi - lo;
    if (loads_settle(p) && (p->total < best || (p->total == best && k < was))) {
        loads_keep(p);
        return true;
    }
    t->put[i] = was;
    loads_undo(p, best);
    return false;
}

/* Marks the passes that are affected by changed times. */
static void retime(Planner *p, const int *was)
{
    for (Ref r = 0; r < p->g->len; r++) {
        if (p->time[r] == was[r])
            continue;
        int lo = p->time[r] < was[r] ? p->time[r] : was[r],
            hi = p->time[r] < was[r] ? was[r] : p->time[r];
        for (int v = 0; v < p->nvariant; v++)
            for (int j = lo + 1; j <= hi && j < p->npass; j++)
                loads_dirty(&p->route[v], j);
        loads_moved(p, r, was[r]);
    }
}

/* Folds r in pass k of a variant, if that is better and adds no pass. */
static bool move_fold(Planner *p, Route *t, Ref r, int k, int *was)
{
    int at = t->at[r], passes = p->npass;
    int64_t best = p->total;
    memcpy(was, p->time, sizeof(int) * (size_t)p->g->len);
    t->at[r] = k;
    find_times(p);
    p->plan->work += 4 * p->g->len + 2 * p->npass;
    bool ok = p->npass == passes;
    if (ok) {
        for (int v = 0; v < p->nvariant; v++)
            sort_folds(p, &p->route[v]);
        loads_dirty(t, at);
        loads_dirty(t, k);
        retime(p, was);
        ok = loads_settle(p) && p->total < best;
    }
    if (ok) {
        loads_keep(p);
        find_late(p);
        return true;
    }
    int *now = p->time;
    t->at[r] = at;
    p->npass = passes;
    for (Ref x = 0; x < p->g->len; x++) {
        int time = now[x];
        now[x] = was[x];
        was[x] = time;
    }
    loads_undo(p, best);
    for (int v = 0; v < p->nvariant; v++) {
        sort_folds(p, &p->route[v]);
        for (Ref x = 0; x < p->g->len; x++)
            if (was[x] != now[x] && p->route[v].nloaders[x])
                list_add(p->arena, &p->route[v].want[now[x]], x, -1);
    }
    return false;
}

static bool move_puts(Planner *p)
{
    bool better = false;
    for (int v = 0; v < p->nvariant; v++) {
        Route *t = &p->route[v];
        for (int i = 0; i < t->body->n; i++)
            for (int k = p->time[t->body->w[i].val]; t->put[i] >= 0 && k < p->npass && !p->spent;
                 k++)
                if (k != t->put[i] && move_put(p, t, i, k))
                    better = true;
    }
    return better;
}

static bool move_folds(Planner *p, int *scratch)
{
    bool better = false;
    find_late(p);
    for (int v = 0; v < p->nvariant; v++) {
        Route *t = &p->route[v];
        for (int i = 0; i < p->nfold; i++) {
            Ref r = p->fold[i];
            for (int k = t->at[r] + 1; t->in[r] && k < p->late[r] && k < p->npass && !p->spent; k++)
                if (move_fold(p, t, r, k, scratch))
                    better = true;
        }
    }
    return better;
}

/* Starts with every store in the last pass, which is always possible, and every fold as early as
 * possible. Moves one at a time while that saves bytes, or costs none and stores earlier: sometimes
 * two stores save bytes only after both have moved. */
void place_reductions(Planner *p)
{
    begin(p);
    int64_t limit = p->limit;
    p->limit = INT64_MAX;
    loads_begin(p);
    p->limit = limit;
    int *scratch = NEWS(p->arena, int, p->g->len + 1);
    for (bool better = p->npass > 1; better && !p->spent;) {
        better = move_puts(p);
        better = move_folds(p, scratch) || better;
    }
}

/* Cuts a rule into stages. Needs: a verified, folded rule. plan.h describes the result; this file decides
 *   - in which pass over the elements each reduction is folded and each state is stored, and
 *   - what a later pass loads: an input, a state already stored, a temporary, or the makings to compute it again,
 * by the bytes moved: the choice of loads in one pass is a minimum cut (cut.c), the choice of passes a local search over it. */
#include "plan.h"

#include "cut.h"
#include "gen.h"

#include <math.h>
#include <string.h>

const char *const stage_name[NSTAGEKIND] = {"group", "tensor", "slice", "row", "col", "map", "tile"};

typedef struct {                 /* planning one phase */
    Plan *plan;
    Phase *ph;
    Graph *g;
    Arena *arena;
    int *at;                     /* elem reductions: the pass that folds them */
    int *time, *late;            /* passes before a value is known; the last time it may become known */
    int *lev;
    bool *in[NVARIANT];          /* which nodes a variant needs */
    int npass;
    int *put[NVARIANT];          /* by write: the pass that stores it (elem targets) */
    int *temp, ntemp;            /* small values and kept elem values: their Mem, or -1; how many have one */
    bool *taken;                 /* Mems in use in this phase */
} P;

static Dom pdom(const P *p, Ref r)      /* constants that need computing are computed with the group's values */
{
    Dom d = (Dom)p->g->n[r].dom;
    return d < GROUP ? GROUP : d;
}

static bool inlined(const Node *n) { return n->op == OP_CONST || n->op == OP_HYPER || n->op == OP_STEP || n->op == OP_COUNT; }
static bool in_memory(const Node *n) { return n->op == OP_P || n->op == OP_G || n->op == OP_STATE || n->op == OP_INPUT; }
static bool computed(const Node *n) { return !inlined(n) && !in_memory(n); }
static bool elem_fold(const P *p, Ref r) { const Node *n = &p->g->n[r]; return is_red(n) && n->from == ELEM && !is_global(n); }

/* ---- memory ---- */
static int new_mem(P *p, Mem m)
{
    Plan *pl = p->plan;
    for (int i = 0; i < pl->nmem && (m.kind == MEM_TEMP || m.kind == MEM_PART); i++) {
        const Mem *x = &pl->mem[i];
        if (!p->taken[i] && x->kind == m.kind && x->dom == m.dom && x->from == m.from && x->type == m.type && x->tile == m.tile) {
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

Type mem_type_of(const Plan *p, Dom d) { return d == ROW || d == COL || d == ELEM ? p->real : T_F64; }

static int leaf_mem(const Plan *pl, const Node *n)
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

static int bytes_of(const P *p, int mem) { return type_info[p->plan->mem[mem].type].bytes; }

static int temp_of(P *p, Ref r)
{
    if (p->temp[r] < 0) {
        Dom d = pdom(p, r);
        p->ntemp++;
        p->temp[r] = new_mem(p, (Mem){.kind = MEM_TEMP, .dom = d, .from = d, .type = mem_type_of(p->plan, d)});
    }
    return p->temp[r];
}

/* ---- times ---- */
static void find_times(P *p)
{
    p->npass = 0;
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        int t = 0;
        for (int k = 0; k < 3; k++)
            if (n->a[k] != NONE && p->time[n->a[k]] > t)
                t = p->time[n->a[k]];
        if (elem_fold(p, r)) {
            if (p->at[r] < t)
                p->at[r] = t;
            t = p->at[r] + 1;
        }
        p->time[r] = t;
        if (t > p->npass)
            p->npass = t;
    }
    for (int v = 0; v < NVARIANT; v++)
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
    for (int v = 0; v < NVARIANT; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            Ref r = p->ph->body[v].w[i].val;
            if (p->put[v][i] >= 0 && p->late[r] > p->put[v][i])
                p->late[r] = p->put[v][i];
        }
    for (Ref r = p->g->len - 1; r >= 0; r--)
        for (int k = 0; k < 3; k++) {
            Ref a = p->g->n[r].a[k];
            int l = elem_fold(p, r) ? p->at[r] : p->late[r];
            if (a != NONE && l < p->late[a])
                p->late[a] = l;
        }
}

static void mark(P *p, Ref r, int v)
{
    if (r == NONE || p->in[v][r])
        return;
    p->in[v][r] = true;
    const Node *n = &p->g->n[r];
    for (int k = 0; k < 3; k++)
        if (!is_global(n) || k == v)
            mark(p, n->a[k], v);
}

/* A global reduction needed by one variant is fed by both. */
static void find_needed(P *p)
{
    for (int v = 0; v < NVARIANT; v++) {
        p->in[v] = NEWS(p->arena, bool, p->g->len + 1);
        for (int i = 0; i < p->ph->body[v].n; i++)
            mark(p, p->ph->body[v].w[i].val, v);
    }
    for (Ref r = p->g->len - 1; r >= 0; r--)
        if (is_global(&p->g->n[r]) && (p->in[VEC][r] || p->in[MAT][r]))
            for (int v = 0; v < NVARIANT; v++)
                mark(p, p->g->n[r].a[v], v);
}

/* ---- elem passes ---- */
typedef struct { Access *v; int n, cap; } List;

static void list_add(Arena *a, List *l, Ref val, int mem)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].val == val && l->v[i].mem == mem)
            return;
    PUSH(a, l->v, l->n, l->cap) = (Access){val, mem};
}

typedef struct { List load, store, fold; int cost; bool tile; bool *loaded; } Pass;

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

static void cone(const P *p, Ref r, bool *seen)
{
    if (r == NONE || seen[r] || p->g->n[r].dom != ELEM)
        return;
    seen[r] = true;
    if (is_red(&p->g->n[r]))
        return;
    for (int k = 0; k < 3; k++)
        cone(p, p->g->n[r].a[k], seen);
}

/* Chooses the loads of pass k. Weights are bytes * 16, with one more for a temporary so that computing again wins a tie. */
static int solve_pass(P *p, int v, int k, const List *roots, List *loads, List *keeps)
{
    Arena scratch = {.out = p->arena->out};
    Cut c;
    cut_init(&c, &scratch, p->g->len);
    bool *seen = NEWS(&scratch, bool, p->g->len + 1), *chosen = NEWS(&scratch, bool, p->g->len + 1);
    for (int i = 0; i < roots->n; i++) {
        cone(p, roots->v[i].val, seen);
        c.sink[roots->v[i].val] = seen[roots->v[i].val];
    }
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
        for (int j = 0; j < 3; j++)
            if (n->a[j] != NONE && seen[n->a[j]])
                cut_edge(&c, n->a[j], r);
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
            if (p->in[v][r] && elem_fold(p, r) && p->at[r] == k) {
                list_add(p->arena, &roots[k], p->g->n[r].a[0], -1);
                list_add(p->arena, &q.fold, r, -1);
                q.tile = q.tile || p->g->n[r].dom != TENSOR;
            }
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

static int solve(P *p, Pass *pass)
{
    int total = 0;
    for (int v = 0; v < NVARIANT; v++) {
        int c = solve_variant(p, v, pass ? pass + v * (p->npass + 1) : NULL);
        if (c >= CUT_INF)
            return CUT_INF;
        total += c;
    }
    return total;
}

/* Start with every store in the last pass, which is always possible, and every fold as early as it can be; move one at a time
 * while that saves bytes, or costs none and stores earlier (two stores may only pay once both have moved). */
static void place(P *p)
{
    find_times(p);
    for (int v = 0; v < NVARIANT; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            int s = p->ph->body[v].w[i].state;
            bool elem = s == TO_P || p->plan->rule->state[s].dom == ELEM;
            p->put[v][i] = elem ? p->npass - 1 : -1;
        }
    if (p->npass <= 1 || p->g->len > 1500)
        return;
    int best = solve(p, NULL);
    for (bool better = true; better;) {
        better = false;
        for (int v = 0; v < NVARIANT; v++)
            for (int i = 0; i < p->ph->body[v].n; i++)
                for (int k = p->time[p->ph->body[v].w[i].val]; p->put[v][i] >= 0 && k < p->npass; k++) {
                    int was = p->put[v][i];
                    p->put[v][i] = k;
                    int c = solve(p, NULL);
                    if (c < best || (c == best && k < was))
                        best = c, better = true;
                    else
                        p->put[v][i] = was;
                }
        find_late(p);
        for (Ref r = 0; r < p->g->len; r++)
            for (int k = p->at[r] + 1; elem_fold(p, r) && k < p->late[r] && k < p->npass; k++) {
                int was = p->at[r], passes = p->npass;
                p->at[r] = k;
                find_times(p);
                int c = p->npass == passes ? solve(p, NULL) : CUT_INF;
                if (c < best)
                    best = c, better = true;
                else
                    p->at[r] = was;
                find_times(p);
                find_late(p);
            }
    }
}

/* ---- stages ---- */
static Stage *stage_at(P *p, int time, int level, StageKind kind, int variant)
{
    Phase *ph = p->ph;
    if (kind == S_GROUP)
        variant = VEC;
    for (int i = 0; i < ph->nstage; i++) {
        Stage *s = &ph->stage[i];
        if (s->time == time && s->level == level && s->kind == kind && s->variant == variant)
            return s;
    }
    PUSH(p->arena, ph->stage, ph->nstage, ph->cap) = (Stage){.kind = kind, .variant = variant, .time = time, .level = level};
    return &ph->stage[ph->nstage - 1];
}

static StageKind list_kind(Dom d)
{
    static const StageKind k[NDOM] = {[CONST_] = S_GROUP, [GROUP] = S_GROUP, [TENSOR] = S_TENSOR, [SLICE] = S_SLICE, [ROW] = S_ROW, [COL] = S_COL};
    return k[d];
}

enum { ELEM_LEVEL = 1 << 20 };           /* elem passes come after the list stages of their time */

static void add_access(P *p, Access **v, int *n, Ref val, int mem)
{
    for (int i = 0; i < *n; i++)
        if ((*v)[i].val == val && (*v)[i].mem == mem)
            return;
    Access *nv = NEWS(p->arena, Access, *n + 1);
    if (*n)
        memcpy(nv, *v, sizeof **v * (size_t)*n);
    nv[*n] = (Access){val, mem};
    *v = nv;
    ++*n;
}

static void find_levels(P *p)
{
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        int l = 0;
        for (int k = 0; k < 3 && computed(n) && n->dom != ELEM && !elem_fold(p, r); k++) {
            Ref a = n->a[k];
            if (a == NONE || p->time[a] < p->time[r] || (!computed(&p->g->n[a]) && !is_red(n)))
                continue;
            int la = p->lev[a] + (is_red(n) || pdom(p, a) != pdom(p, r));
            if (la > l)
                l = la;
        }
        p->lev[r] = l;
    }
}

/* Adds to stage s what computing r in it takes: operations in order, loads from memory, reductions to finish.
 * `here` is the domain the stage computes; `loaded` the elem values it loads. */
static void gather(P *p, Stage *s, Ref r, Dom here, const List *loads, bool *done)
{
    const Node *n = &p->g->n[r];
    if (inlined(n) || done[r])
        return;
    done[r] = true;
    for (int i = 0; loads && i < loads->n; i++)
        if (loads->v[i].val == r) {
            add_access(p, &s->load, &s->nload, r, loads->v[i].mem >= 0 ? loads->v[i].mem : temp_of(p, r));
            return;
        }
    if (in_memory(n)) {
        add_access(p, &s->load, &s->nload, r, leaf_mem(p->plan, n));
        return;
    }
    bool mine = here == ELEM ? n->dom == ELEM : pdom(p, r) == here && p->time[r] == s->time && p->lev[r] == s->level;
    if (!mine) {
        add_access(p, &s->load, &s->nload, r, temp_of(p, r));
        return;
    }
    if (is_red(n)) {
        add_access(p, &s->fin, &s->nfin, r, -1);
        return;
    }
    for (int k = 0; k < 3; k++)
        if (n->a[k] != NONE)
            gather(p, s, n->a[k], here, loads, done);
    Ref *nb = NEWS(p->arena, Ref, s->nbody + 1);
    if (s->nbody)
        memcpy(nb, s->body, sizeof *nb * (size_t)s->nbody);
    nb[s->nbody] = r;
    s->body = nb;
    s->nbody++;
}

static void make_elem_stages(P *p, Pass *pass)
{
    for (int v = 0; v < NVARIANT; v++)
        for (int k = 0; k < p->npass; k++) {
            Pass *q = &pass[v * (p->npass + 1) + k];
            if (!q->store.n && !q->fold.n)
                continue;
            Stage *s = stage_at(p, k, ELEM_LEVEL, q->tile ? S_TILE : S_FLAT, v);
            bool *done = NEWS(p->arena, bool, p->g->len + 1);
            for (int i = 0; i < q->fold.n; i++) {
                Ref r = q->fold.v[i].val;
                gather(p, s, p->g->n[r].a[0], ELEM, &q->load, done);
                add_access(p, &s->fold, &s->nfold, r, -1);
            }
            for (int i = 0; i < q->store.n; i++) {
                Access a = q->store.v[i];
                gather(p, s, a.val, ELEM, &q->load, done);
                add_access(p, &s->store, &s->nstore, a.val, a.mem >= 0 ? a.mem : temp_of(p, a.val));
            }
        }
}

/* Where a small value lives: stage coordinates. Memory leaves are there from the start. */
static Stage *home(P *p, Ref r, int v)
{
    const Node *n = &p->g->n[r];
    return stage_at(p, computed(n) ? p->time[r] : 0, computed(n) ? p->lev[r] : 0, list_kind(pdom(p, r)), v);
}

/* Folds of small values run where their operand lives. */
static void make_list_folds(P *p)
{
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        if (!is_red(n) || elem_fold(p, r))
            continue;
        for (int v = 0; v < NVARIANT; v++) {
            Ref a = is_global(n) ? n->a[v] : n->a[0];
            if (a == NONE || !p->in[v][is_global(n) ? a : r])
                continue;
            Stage *s = stage_at(p, computed(&p->g->n[a]) ? p->time[a] : 0, computed(&p->g->n[a]) ? p->lev[a] : 0, list_kind((Dom)n->from), v);
            add_access(p, &s->fold, &s->nfold, r, -1);
        }
    }
}

/* List stages, until nothing new is asked for: gathering one stage may want a temporary of another. */
static void fill_list_stages(P *p)
{
    for (int before = -1; before != p->ntemp;) {
        before = p->ntemp;
        for (Ref r = 0; r < p->g->len; r++)
            for (int v = 0; v < NVARIANT && p->temp[r] >= 0; v++)
                if (computed(&p->g->n[r]) && p->g->n[r].dom != ELEM && p->in[v][r]) {
                    Stage *s = home(p, r, v);
                    add_access(p, &s->store, &s->nstore, r, p->temp[r]);
                }
        for (int i = 0; i < p->ph->nstage; i++) {
            Stage *s = &p->ph->stage[i];
            if (s->kind == S_FLAT || s->kind == S_TILE)
                continue;
            static const Dom dom_of[] = {[S_GROUP] = GROUP, [S_TENSOR] = TENSOR, [S_SLICE] = SLICE, [S_ROW] = ROW, [S_COL] = COL};
            bool *done = NEWS(p->arena, bool, p->g->len + 1);
            s->nbody = s->nload = s->nfin = 0;
            for (int j = 0; j < s->nfold; j++) {
                const Node *n = &p->g->n[s->fold[j].val];
                gather(p, s, is_global(n) ? n->a[s->variant] : n->a[0], dom_of[s->kind], NULL, done);
            }
            for (int j = 0; j < s->nstore; j++)
                gather(p, s, s->store[j].val, dom_of[s->kind], NULL, done);
        }
    }
}

/* A state of a small domain is stored where its new value is made… */
static void make_small_writes(P *p)
{
    for (int v = 0; v < NVARIANT; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            Write w = p->ph->body[v].w[i];
            if (w.state == TO_P || p->plan->rule->state[w.state].dom == ELEM)
                continue;
            Dom d = p->plan->rule->state[w.state].dom;
            if (d == GROUP && v == MAT && p->in[VEC][w.val])
                continue;                       /* the same value: written once, with the group's other work */
            const Node *n = &p->g->n[w.val];
            bool made = computed(n);
            Stage *s = d == GROUP ? stage_at(p, p->npass, ELEM_LEVEL - 1, S_GROUP, VEC)
                                  : stage_at(p, made ? p->time[w.val] : 0, made ? p->lev[w.val] + (pdom(p, w.val) != d) : 0, list_kind(d), v);
            add_access(p, &s->store, &s->nstore, w.val, plan_mem_of_state(p->plan, w.state));
        }
}

static bool read_after(const P *p, int mem, int stage)
{
    const Stage *h = &p->ph->stage[stage];
    for (int i = 0; i < p->ph->nstage; i++) {
        const Stage *s = &p->ph->stage[i];
        if (i == stage || s->variant != h->variant || s->time < h->time || (s->time == h->time && s->level < h->level))
            continue;
        for (int j = 0; j < s->nload; j++)
            if (s->load[j].mem == mem)
                return true;
    }
    return false;
}

/* … unless something later still reads the old one; then in a last stage, which reads nothing but temporaries. */
static void delay_small_writes(P *p)
{
    for (int i = 0; i < p->ph->nstage; i++)
        for (int j = 0; j < p->ph->stage[i].nstore; j++) {
            Stage *s = &p->ph->stage[i];
            Access a = s->store[j];
            bool small = p->plan->mem[a.mem].kind == MEM_STATE && p->plan->mem[a.mem].dom != ELEM && s->level < ELEM_LEVEL - 1;
            if (!small || !read_after(p, a.mem, i))
                continue;
            s->store[j--] = s->store[--s->nstore];
            Stage *end = stage_at(p, p->npass, ELEM_LEVEL - 1, s->kind, s->variant);
            add_access(p, &end->store, &end->nstore, a.val, a.mem);
        }
}

/* Partials get their Mem once the kind of the folding stage is known; the two variants may fold differently. */
static void place_parts(P *p)
{
    int *part[NVARIANT];
    for (int v = 0; v < NVARIANT; v++) {
        part[v] = NEWS(p->arena, int, p->g->len + 1);
        for (Ref r = 0; r < p->g->len; r++)
            part[v][r] = -1;
    }
    for (int i = 0; i < p->ph->nstage; i++) {
        Stage *s = &p->ph->stage[i];
        for (int j = 0; j < s->nfold; j++) {
            Ref r = s->fold[j].val;
            const Node *n = &p->g->n[r];
            int *at = &part[is_global(n) ? VEC : s->variant][r];
            if (*at < 0)
                *at = new_mem(p, (Mem){.kind = MEM_PART, .dom = (Dom)n->dom, .from = (Dom)n->from, .tile = s->kind == S_TILE,
                                       .type = mem_type_of(p->plan, (Dom)n->from)});
            s->fold[j].mem = *at;
        }
    }
    for (int i = 0; i < p->ph->nstage; i++)
        for (int j = 0; j < p->ph->stage[i].nfin; j++) {
            Access *f = &p->ph->stage[i].fin[j];
            f->mem = part[is_global(&p->g->n[f->val]) ? VEC : p->ph->stage[i].variant][f->val];
        }
}

static Dom stage_dom(StageKind k)
{
    static const Dom d[NSTAGEKIND] = {GROUP, TENSOR, SLICE, ROW, COL, ELEM, ELEM};
    return d[k];
}

static void finish_stage(P *p, Stage *s)
{
    Dom d = stage_dom(s->kind);
    for (int i = 0; i < s->nload; i++) {
        const Mem *m = &p->plan->mem[s->load[i].mem];
        if (m->dom == d)
            s->bytes_read += type_info[m->type].bytes;
        s->uses_rows = s->uses_rows || (d == ELEM && (m->dom == ROW || m->dom == COL || m->dom == SLICE));
    }
    for (int i = 0; i < s->nstore; i++)
        s->bytes_written += bytes_of(p, s->store[i].mem);
    for (int i = 0; i < s->nbody; i++)
        s->cost += op_info[p->g->n[s->body[i]].op].cost;
    s->cost += s->nfold;
    s->fn = p->plan->nfn++;
}

static int stage_before(const Stage *a, const Stage *b)
{
    if (a->time != b->time)
        return a->time - b->time;
    if (a->level != b->level)
        return a->level - b->level;
    return a->variant != b->variant ? a->variant - b->variant : (int)a->kind - (int)b->kind;
}

static void sort_stages(Phase *ph)
{
    int n = 0;
    for (int i = 0; i < ph->nstage; i++)
        if (ph->stage[i].nstore || ph->stage[i].nfold)
            ph->stage[n++] = ph->stage[i];
    ph->nstage = n;
    for (int i = 1; i < n; i++) {                          /* few stages: insertion keeps equal ones in order */
        Stage s = ph->stage[i];
        int j = i;
        for (; j > 0 && stage_before(&s, &ph->stage[j - 1]) < 0; j--)
            ph->stage[j] = ph->stage[j - 1];
        ph->stage[j] = s;
    }
}

static void plan_phase_stages(Plan *pl, Phase *ph)
{
    int n = ph->g->len;
    P p = {.plan = pl, .ph = ph, .g = ph->g, .arena = pl->arena};
    p.at = NEWS(p.arena, int, n + 1);
    p.time = NEWS(p.arena, int, n + 1);
    p.late = NEWS(p.arena, int, n + 1);
    p.lev = NEWS(p.arena, int, n + 1);
    p.temp = NEWS(p.arena, int, n + 1);
    p.taken = NEWS(p.arena, bool, 4 * n + pl->nmem + 64);
    for (int v = 0; v < NVARIANT; v++)
        p.put[v] = NEWS(p.arena, int, ph->body[v].n + 1);
    for (int i = 0; i < n; i++)
        p.temp[i] = -1;
    find_needed(&p);
    place(&p);
    Pass *pass = NEWS(p.arena, Pass, NVARIANT * (p.npass + 1));
    solve(&p, pass);
    find_levels(&p);
    make_elem_stages(&p, pass);
    make_list_folds(&p);
    make_small_writes(&p);
    fill_list_stages(&p);
    delay_small_writes(&p);
    fill_list_stages(&p);
    sort_stages(ph);
    place_parts(&p);
    for (int i = 0; i < ph->nstage; i++)
        finish_stage(&p, &ph->stage[i]);
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
    Node k = {.op = OP_CONST, .dom = CONST_, .ty = BOOL, .a = {NONE, NONE, NONE}, .imm = c->mask >> i & 1};
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
    Entry one = {.name = e->name};
    for (int v = 0; v < NVARIANT; v++) {
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
    for (int v = 0; v < NVARIANT; v++) {
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
                Node c = {.op = OP_ADD, .dom = x->dom, .ty = NUM, .a = {b->w[i].val, node_const(&r.g, -0.0), NONE}, .file = x->file, .line = x->line};
                b->w[i].val = graph_add(&r.g, c);
            }
        }
        ph->body[v] = *b;
    }
    rule_rewrite(&r, NULL, NULL);
    for (int v = 0; v < NVARIANT; v++)
        ph->body[v] = one.body[v];
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
        bool free_type = s->dom == ELEM || s->dom == ROW || s->dom == COL;
        Type t = !free_type ? T_F64 : s->type >= 0 ? (Type)s->type : s->dom == ELEM ? pl->state : pl->real;
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
    pl->state_used = NEWS(a, bool, NVARIANT * r->nstate + 1);
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
                for (int v = 0; v < NVARIANT; v++) {
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

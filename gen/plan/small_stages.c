/* Makes the list stages of a phase, which compute row, column, slice, tensor and group values
 * between the element passes. A value is computed in one stage, its home: the stage of its domain
 * at its time and level. Other stages load it. Users come after operands, so one walk backwards
 * over the values sees every user before the value it needs. */
#include "gen/plan/planner.h"

#include <string.h>

typedef struct { int variant, draft; Write w; bool late; } SmallWrite;

typedef struct Lists {
    Planner *p;
    bool **here, **asked;        /* by variant and value: computed in its home; loaded by another
                                  * stage */
    int **array;                  /* by variant and value: the array from which other stages load
                                   * it, or UNPLACED */
    SmallWrite *write; int nwrite, write_cap;
} Lists;

/* A value that only values of its own domain use is made with the first of them: made as early as
 * possible, it could need a stage and an array of its own, as beta * r in r = beta * r + colsum(g *
 * g) would. A state that is read later for it is stored later, too (delay_writes). */
static void make_with_users(Planner *p)
{
    bool *stays = NEWS(p->arena, bool, p->g->len + 1);
    Ref *first = NEWS(p->arena, Ref, p->g->len + 1);         /* by value: its first user, + 1 */
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++)
            stays[p->ph->body[v].w[i].val] = true;
    for (Ref r = p->g->len - 1; r >= 0; r--) {
        const Node *n = &p->g->n[r];
        bool small = n->dom != ELEM && pdom(p, r) != GROUP;
        Ref user = small && computed(n) && !is_red(n) && !stays[r] ? first[r] - 1 : NONE;
        if (user >= 0 && (p->time[user] > p->time[r] ||
                          (p->time[user] == p->time[r] && p->lev[user] > p->lev[r]))) {
            p->time[r] = p->time[user];
            p->lev[r] = p->lev[user];
        }
        for (int k = 0; k < n->nargs; k++) {
            Ref a = n->arg[k], f = first[a] - 1;
            stays[a] = stays[a] || is_red(n) || p->g->n[a].dom != n->dom || n->op == OP_TRANSPOSE;
            if (f < 0 || p->time[r] < p->time[f] ||
                (p->time[r] == p->time[f] && p->lev[r] < p->lev[f]))
                first[a] = r + 1;
        }
    }
}

/* A fold of sums over whole arrays, as in slice.max(rowsum(abs(A))). In the stage of these sums it
 * would give all rows of a matrix to one thread block. */
static bool folds_sums(const Planner *p, Ref r, Ref a)
{
    const Node *n = &p->g->n[a];
    return is_red(&p->g->n[r]) && !array_fold(&p->g->n[r]) && is_red(n) && array_fold(n);
}

void find_levels(Planner *p)
{
    p->lev = NEWS(p->arena, int, p->g->len + 1);
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        int l = 0;
        for (int k = 0; k < n->nargs && computed(n) && n->dom != ELEM && !elem_fold(p, r); k++) {
            Ref a = n->arg[k];
            if (p->time[a] < p->time[r] || (!computed(&p->g->n[a]) && !is_red(n)))
                continue;
            int la = p->lev[a] + (is_red(n) || n->op == OP_TRANSPOSE || pdom(p, a) != pdom(p, r)) +
                     folds_sums(p, r, a);
            if (la > l)
                l = la;
        }
        p->lev[r] = l;
    }
    make_with_users(p);
}

/* Values of groups are common to all variants and are listed under variant 0. */
static int owner(const Planner *p, Ref r, int v) { return pdom(p, r) == GROUP ? 0 : v; }

/* The draft that computes r. Leaves in memory are known from the start. */
static int home(Planner *p, Ref r, int v)
{
    bool made = computed(&p->g->n[r]);
    return stage_at(p, made ? p->time[r] : 0, made ? p->lev[r] : 0, stage_of(pdom(p, r)), v);
}

static bool at_home(const Planner *p, const Stage *s, Ref r)
{
    return computed(&p->g->n[r]) && stage_of(pdom(p, r)) == s->kind && p->time[r] == s->time &&
           p->lev[r] == s->level;
}

static void ask(Lists *l, Ref r, int v)
{
    if (computed(&l->p->g->n[r]))
        l->asked[owner(l->p, r, v)][r] = true;
}

static Ref fold_operand(const Node *n, int v) { return is_global(n) ? n->arg[v] : n->arg[0]; }

/* ---- values that must be computed ---- */
/* Folds of small values run in the home of their operand; of sums over whole arrays, one level
 * later. */
static void seed_folds(Lists *l)
{
    Planner *p = l->p;
    for (Ref r = 0; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        if (!is_red(n) || elem_fold(p, r) || array_fold(n))
            continue;
        for (int v = 0; v < p->nvariant; v++) {
            if (is_global(n) ? v >= n->nargs : !p->route[v].in[r])
                continue;
            Ref a = fold_operand(n, v);
            l->here[v][a] = l->here[v][a] || computed(&p->g->n[a]);
            int at = home(p, a, v);
            if (folds_sums(p, r, a)) {
                at = stage_at(p, p->time[a], p->lev[a] + 1, stage_of(pdom(p, a)), v);
                ask(l, a, v);
            }
            list_add(p->arena, &p->draft[at].fold, r, UNPLACED);
        }
    }
}

/* A variant before v writes the same value to the state: states of groups are common to all
 * variants. */
static bool written_before(const Planner *p, int v, Write w)
{
    for (int u = 0; u < v; u++)
        for (int i = 0; i < p->ph->body[u].n; i++)
            if (p->ph->body[u].w[i].state == w.state && p->ph->body[u].w[i].val == w.val)
                return true;
    return false;
}

/* A state of a small domain is stored in the home of its new value, or one level later if that has
 * another domain. */
static void seed_writes(Lists *l)
{
    Planner *p = l->p;
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            Write w = p->ph->body[v].w[i];
            Dom d = target_dom(p, w.state);
            if (d == ELEM || (d == GROUP && written_before(p, v, w)))
                continue;
            bool made = computed(&p->g->n[w.val]), away = made && pdom(p, w.val) != d;
            int at = stage_at(p, made ? p->time[w.val] : 0, made ? p->lev[w.val] + away : 0,
                              stage_of(d), v);
            PUSH(p->arena, l->write, l->nwrite, l->write_cap) =
                (SmallWrite){p->draft[at].s.variant, at, w, false};
            if (away)
                ask(l, w.val, v);
            else if (made)
                l->here[owner(p, w.val, v)][w.val] = true;
        }
}

static void seed_passes(Lists *l)
{
    Planner *p = l->p;
    for (int i = 0; i < p->ndraft; i++)
        for (int j = 0; j < p->draft[i].load.n; j++)
            if (p->draft[i].load.v[j].mem == UNPLACED)
                ask(l, p->draft[i].load.v[j].val, p->draft[i].s.variant);
}

static void spread_needs(Lists *l)
{
    Planner *p = l->p;
    for (Ref r = p->g->len - 1; r >= 0; r--) {
        const Node *n = &p->g->n[r];
        for (int v = 0; v < p->nvariant; v++) {
            l->here[v][r] = l->here[v][r] || l->asked[v][r];
            for (int k = 0; k < n->nargs && l->here[v][r] && (!is_red(n) || array_fold(n)); k++) {
                Ref a = n->arg[k];
                if (!computed(&p->g->n[a]))
                    continue;
                if (pdom(p, a) == pdom(p, r) && p->time[a] == p->time[r] && p->lev[a] == p->lev[r])
                    l->here[v][a] = true;
                else
                    ask(l, a, v);
            }
        }
    }
}

/* ---- the stages' lists ---- */
static void load(Planner *p, Draft *d, Ref r)
{
    const Node *n = &p->g->n[r];
    if (inlined(n) || at_home(p, &d->s, r) || p->mark[r] > p->now)
        return;
    p->mark[r] = p->now + 1;
    list_add(p->arena, &d->load, r, in_memory(n) ? leaf_mem(p, n) : UNPLACED);
}

/* The array that TRANSPOSE or a fold along an axis reads, if its operand is a leaf in memory;
 * otherwise UNPLACED. */
static int leaf_of_operand(Planner *p, Ref r)
{
    const Node *n = &p->g->n[p->g->n[r].arg[0]];
    return in_memory(n) ? leaf_mem(p, n) : UNPLACED;
}

static void fill(Lists *l)
{
    Planner *p = l->p;
    for (Ref r = 0; r < p->g->len; r++)
        for (int v = 0; v < p->nvariant; v++)
            if (l->here[v][r]) {
                int at = home(p, r, v);
                Draft *d = &p->draft[at];
                if (is_red(&p->g->n[r]))
                    list_add(p->arena, &d->fin, r,
                             array_fold(&p->g->n[r]) ? leaf_of_operand(p, r) : UNPLACED);
                else if (p->g->n[r].op == OP_TRANSPOSE)
                    list_add(p->arena, &d->load, r, leaf_of_operand(p, r));
                else
                    PUSH(p->arena, d->body, d->nbody, d->cap) = r;
            }
    for (int i = 0; i < p->ndraft; i++) {
        Draft *d = &p->draft[i];
        p->now += 4;
        for (int j = 0; j < d->nbody && !is_elem(d->s.kind); j++) {
            const Node *n = &p->g->n[d->body[j]];
            for (int k = 0; k < n->nargs; k++)
                load(p, d, n->arg[k]);
        }
        for (int j = 0; j < d->fold.n && !is_elem(d->s.kind); j++)
            load(p, d, fold_operand(&p->g->n[d->fold.v[j].val], d->s.variant));
    }
}

/* ---- writes that must wait ---- */
static bool reads_after(const Planner *p, int mem, int draft, int by)
{
    const Stage *h = &p->draft[draft].s, *s = &p->draft[by].s;
    if (by == draft || s->time < h->time || (s->time == h->time && s->level < h->level))
        return false;
    return s->variant == h->variant || p->plan->mem[mem].dom == GROUP;
}

/* A state whose old value a later stage still reads is stored in a last stage, which reads only
 * temporaries. */
static void delay_writes(Lists *l)
{
    Planner *p = l->p;
    int *write = NEWS(p->arena, int, (p->plan->rule->nstate + p->ncarry) * p->nvariant + 1),
        n = p->nvariant;
    /* write: by state and variant, index + 1; for states of groups under variant 0 */
    for (int i = 0; i < l->nwrite; i++)
        write[l->write[i].w.state * n + l->write[i].variant] = i + 1;
    for (int i = 0; i < p->ndraft; i++)
        for (int j = 0; j < p->draft[i].load.n + p->draft[i].fin.n; j++) {
            const List *load = &p->draft[i].load, *fin = &p->draft[i].fin;
            int mem = j < load->n ? load->v[j].mem : fin->v[j - load->n].mem;
            const Mem *m = mem < 0 ? NULL : &p->plan->mem[mem];
            if (!m || m->kind != MEM_STATE || m->dom == ELEM)
                continue;
            int k = write[m->sym * n + (m->dom == GROUP ? 0 : p->draft[i].s.variant)];
            if (k && reads_after(p, mem, l->write[k - 1].draft, i))
                l->write[k - 1].late = true;
        }
    for (int i = 0; i < l->nwrite; i++) {
        SmallWrite *w = &l->write[i];
        if (w->late) {
            StageKind kind = p->draft[w->draft].s.kind;
            w->draft = stage_at(p, p->npass, ELEM_LEVEL - 1, kind, w->variant);
            ask(l, w->w.val, w->variant);
        }
    }
}

static bool loads(const Draft *d, Ref r)
{
    for (int i = 0; i < d->load.n; i++)
        if (d->load.v[i].val == r)
            return true;
    return false;
}

static void store_writes(Lists *l)
{
    Planner *p = l->p;
    for (int i = 0; i < l->nwrite; i++) {
        Draft *d = &p->draft[l->write[i].draft];
        Ref r = l->write[i].w.val;
        list_add(p->arena, &d->store, r, target_mem(p, l->write[i].w.state));
        const Node *n = &p->g->n[r];
        if (!inlined(n) && !at_home(p, &d->s, r) && !loads(d, r))
            list_add(p->arena, &d->load, r, in_memory(n) ? leaf_mem(p, n) : UNPLACED);
    }
}

/* ---- arrays from which values are loaded ---- */
/* Other stages load a value from its state, if the state is stored in the value's home, unrounded,
 * and not delayed. */
static void find_in_states(Lists *l)
{
    Planner *p = l->p;
    for (int i = 0; i < l->nwrite; i++) {
        const SmallWrite *w = &l->write[i];
        int mem = target_mem(p, w->w.state);
        const Mem *m = mem_at(p, mem);
        if (!w->late && at_home(p, &p->draft[w->draft].s, w->w.val) &&
            m->type == mem_type_of(p->plan, m->dom))
            l->array[w->variant][w->w.val] = mem;
    }
}

/* The array that TRANSPOSE or a fold along an axis reads. */
static int array_of_operand(const Lists *l, Ref r, int v)
{
    Ref a = l->p->g->n[r].arg[0];
    int leaf = leaf_of_operand(l->p, r);
    return leaf != UNPLACED ? leaf : l->array[owner(l->p, a, v)][a];
}

static void place_values(Lists *l)
{
    Planner *p = l->p;
    find_in_states(l);
    for (Ref r = 0; r < p->g->len; r++)
        for (int v = 0; v < p->nvariant; v++)
            if (l->asked[v][r] && l->array[v][r] == UNPLACED) {
                int at = home(p, r, v);
                l->array[v][r] = temp_of(p, r);
                list_add(p->arena, &p->draft[at].store, r, l->array[v][r]);
            }
    for (int i = 0; i < p->ndraft; i++) {
        Draft *d = &p->draft[i];
        for (int j = 0; j < d->load.n; j++) {
            Access *a = &d->load.v[j];
            bool transposed = p->g->n[a->val].op == OP_TRANSPOSE && at_home(p, &d->s, a->val);
            a->transposed = transposed;
            if (a->mem == UNPLACED)
                a->mem = transposed ? array_of_operand(l, a->val, d->s.variant)
                                : l->array[owner(p, a->val, d->s.variant)][a->val];
        }
        for (int j = 0; j < d->fin.n; j++)
            if (array_fold(&p->g->n[d->fin.v[j].val]))
                d->fin.v[j].mem = array_of_operand(l, d->fin.v[j].val, d->s.variant);
        list_sort(&d->load);
    }
}

void make_small_stages(Planner *p)
{
    Lists l = {.p = p};
    l.here = NEWS(p->arena, bool *, p->nvariant);
    l.asked = NEWS(p->arena, bool *, p->nvariant);
    l.array = NEWS(p->arena, int *, p->nvariant);
    for (int v = 0; v < p->nvariant; v++) {
        l.here[v] = NEWS(p->arena, bool, p->g->len + 1);
        l.asked[v] = NEWS(p->arena, bool, p->g->len + 1);
        l.array[v] = NEWS(p->arena, int, p->g->len + 1);
        memset(l.array[v], -1, sizeof(int) * (size_t)(p->g->len + 1));
    }
    seed_passes(&l);
    seed_folds(&l);
    seed_writes(&l);
    spread_needs(&l);
    fill(&l);
    delay_writes(&l);
    store_writes(&l);
    place_values(&l);
}

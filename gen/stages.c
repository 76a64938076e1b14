/* The stages of a phase, from what place.c decided: elem passes, and between them the list stages that make small values. */
#include "planner.h"

#include <string.h>

const char *const stage_name[NSTAGEKIND] = {"group", "tensor", "slice", "row", "col", "map", "tile", "band"};

static Stage *stage_at(P *p, int time, int level, StageKind kind, int variant)
{
    Phase *ph = p->ph;
    if (kind == S_GROUP)
        variant = 0;
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
        for (int k = 0; k < n->nargs && computed(n) && n->dom != ELEM && !elem_fold(p, r); k++) {
            Ref a = n->arg[k];
            if (p->time[a] < p->time[r] || (!computed(&p->g->n[a]) && !is_red(n)))
                continue;
            int la = p->lev[a] + (is_red(n) || pdom(p, a) != pdom(p, r));
            if (la > l)
                l = la;
        }
        p->lev[r] = l;
    }
}

static bool *clear_want(P *p)
{
    if (!p->want)
        p->want = NEWS(p->arena, bool, p->g->len + 1);
    memset(p->want, 0, sizeof(bool) * (size_t)(p->g->len + 1));
    return p->want;
}

/* What the stage does with a value it needs. */
enum { SKIP, LOAD, FINISH, COMPUTE };

static int how(const P *p, const Stage *s, Ref r, Dom here, const List *loads, int *mem)
{
    const Node *n = &p->g->n[r];
    *mem = -1;
    if (inlined(n))
        return SKIP;
    for (int i = 0; loads && i < loads->n; i++)
        if (loads->v[i].val == r) {
            *mem = loads->v[i].mem;
            return LOAD;
        }
    if (in_memory(n)) {
        *mem = leaf_mem(p->plan, n);
        return LOAD;
    }
    bool mine = here == ELEM ? n->dom == ELEM : pdom(p, r) == here && p->time[r] == s->time && p->lev[r] == s->level;
    return !mine ? LOAD : is_red(n) ? FINISH : COMPUTE;
}

/* Adds to stage s what the values in `want` take: operations in order, loads from memory, reductions to finish. `here` is the domain the
 * stage computes; `loads` the elem values it was decided to load. One walk back finds all, one forth writes them down. */
static void gather(P *p, Stage *s, bool *want, Dom here, const List *loads)
{
    int mem;
    for (Ref r = p->g->len - 1; r >= 0; r--)
        if (want[r] && how(p, s, r, here, loads, &mem) == COMPUTE)
            for (int k = 0; k < p->g->n[r].nargs; k++)
                want[p->g->n[r].arg[k]] = true;
    for (Ref r = 0; r < p->g->len; r++) {
        int what = want[r] ? how(p, s, r, here, loads, &mem) : SKIP;
        if (what == LOAD)
            add_access(p, &s->load, &s->nload, r, mem >= 0 ? mem : temp_of(p, r));
        else if (what == FINISH)
            add_access(p, &s->fin, &s->nfin, r, -1);
        else if (what == COMPUTE)
            PUSH(p->arena, s->body, s->nbody, s->body_cap) = r;
    }
}

static void make_elem_stages(P *p, Pass *pass)
{
    for (int v = 0; v < p->nvariant; v++)
        for (int k = 0; k < p->npass; k++) {
            Pass *q = &pass[v * (p->npass + 1) + k];
            if (!q->store.n && !q->fold.n)
                continue;
            Stage *s = stage_at(p, k, ELEM_LEVEL, q->cols ? S_TILE : q->tile ? S_BAND : S_FLAT, v);
            bool *want = clear_want(p);
            for (int i = 0; i < q->fold.n; i++) {
                want[p->g->n[q->fold.v[i].val].arg[0]] = true;
                add_access(p, &s->fold, &s->nfold, q->fold.v[i].val, -1);
            }
            for (int i = 0; i < q->store.n; i++) {
                Access a = q->store.v[i];
                want[a.val] = true;
                add_access(p, &s->store, &s->nstore, a.val, a.mem >= 0 ? a.mem : temp_of(p, a.val));
            }
            gather(p, s, want, ELEM, &q->load);
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
        for (int v = 0; v < p->nvariant; v++) {
            if (is_global(n) && v >= n->nargs)
                continue;
            Ref a = n->arg[is_global(n) ? v : 0];
            if (!p->in[v][is_global(n) ? a : r])
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
            for (int v = 0; v < p->nvariant && p->temp[r] >= 0; v++)
                if (computed(&p->g->n[r]) && p->g->n[r].dom != ELEM && p->in[v][r]) {
                    Stage *s = home(p, r, v);
                    add_access(p, &s->store, &s->nstore, r, p->temp[r]);
                }
        for (int i = 0; i < p->ph->nstage; i++) {
            Stage *s = &p->ph->stage[i];
            if (is_elem(s->kind))
                continue;
            static const Dom dom_of[] = {[S_GROUP] = GROUP, [S_TENSOR] = TENSOR, [S_SLICE] = SLICE, [S_ROW] = ROW, [S_COL] = COL};
            bool *want = clear_want(p);
            s->nbody = s->nload = s->nfin = 0;
            for (int j = 0; j < s->nfold; j++) {
                const Node *n = &p->g->n[s->fold[j].val];
                want[n->arg[is_global(n) ? s->variant : 0]] = true;
            }
            for (int j = 0; j < s->nstore; j++)
                want[s->store[j].val] = true;
            gather(p, s, want, dom_of[s->kind], NULL);
        }
    }
}

/* A state of a small domain is stored where its new value is made… */
static void make_small_writes(P *p)
{
    for (int v = 0; v < p->nvariant; v++)
        for (int i = 0; i < p->ph->body[v].n; i++) {
            Write w = p->ph->body[v].w[i];
            if (w.state == TO_P || p->plan->rule->state[w.state].dom == ELEM)
                continue;
            Dom d = p->plan->rule->state[w.state].dom;
            if (d == GROUP && v > 0 && p->in[0][w.val])
                continue;                       /* the same value: written once, with the group's other work */
            const Node *n = &p->g->n[w.val];
            bool made = computed(n);
            Stage *s = stage_at(p, made ? p->time[w.val] : 0, made ? p->lev[w.val] + (pdom(p, w.val) != d) : 0, list_kind(d), v);
            add_access(p, &s->store, &s->nstore, w.val, plan_mem_of_state(p->plan, w.state));
        }
}

static bool read_after(const P *p, int mem, int stage)
{
    const Stage *h = &p->ph->stage[stage];
    for (int i = 0; i < p->ph->nstage; i++) {
        const Stage *s = &p->ph->stage[i];
        bool other = s->variant != h->variant && p->plan->mem[mem].dom != GROUP;       /* the group's values are everyone's */
        if (i == stage || other || s->time < h->time || (s->time == h->time && s->level < h->level))
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
    int *part[MAX_VARIANTS];
    for (int v = 0; v < p->nvariant; v++) {
        part[v] = NEWS(p->arena, int, p->g->len + 1);
        for (Ref r = 0; r < p->g->len; r++)
            part[v][r] = -1;
    }
    for (int i = 0; i < p->ph->nstage; i++) {
        Stage *s = &p->ph->stage[i];
        for (int j = 0; j < s->nfold; j++) {
            Ref r = s->fold[j].val;
            const Node *n = &p->g->n[r];
            int *at = &part[is_global(n) ? 0 : s->variant][r];
            if (*at < 0)
                *at = new_mem(p, (Mem){.kind = MEM_PART, .dom = (Dom)n->dom, .from = (Dom)n->from, .by = s->kind,
                                       .type = mem_type_of(p->plan, (Dom)n->from)});
            s->fold[j].mem = *at;
        }
    }
    for (int i = 0; i < p->ph->nstage; i++)
        for (int j = 0; j < p->ph->stage[i].nfin; j++) {
            Access *f = &p->ph->stage[i].fin[j];
            f->mem = part[is_global(&p->g->n[f->val]) ? 0 : p->ph->stage[i].variant][f->val];
        }
}

static Dom stage_dom(StageKind k)
{
    static const Dom d[NSTAGEKIND] = {GROUP, TENSOR, SLICE, ROW, COL, ELEM, ELEM, ELEM};
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

void make_stages(P *p, Pass *pass)
{
    find_levels(p);
    make_elem_stages(p, pass);
    make_list_folds(p);
    make_small_writes(p);
    fill_list_stages(p);
    delay_small_writes(p);
    fill_list_stages(p);
    sort_stages(p->ph);
    place_parts(p);
    for (int i = 0; i < p->ph->nstage; i++)
        finish_stage(p, &p->ph->stage[i]);
}

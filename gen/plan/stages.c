/* Makes the stages of a phase from the decisions of place_reductions.c: element passes here, the
 * list stages between them in small_stages.c. */
#include "gen/plan/planner.h"

#include <stdlib.h>
#include <string.h>

/* ---- drafts, in a hash table by time, level, kind and variant ---- */
static uint64_t place_of(const Stage *s)
{
    int32_t k[4] = {s->time, s->level, (int32_t)s->kind, s->variant};
    return hash64(3, k, sizeof k);
}

static void table_put(Planner *p, int i)
{
    uint64_t h = place_of(&p->draft[i].s);
    while (p->table[h & (uint64_t)(p->table_cap - 1)] >= 0)
        h++;
    p->table[h & (uint64_t)(p->table_cap - 1)] = i;
}

int stage_at(Planner *p, int time, int level, StageKind kind, int variant)
{
    Stage s = {
        .kind = kind, .variant = kind == S_GROUP ? 0 : variant, .time = time, .level = level};
    if (2 * p->ndraft >= p->table_cap) {
        p->table_cap = p->table_cap ? 2 * p->table_cap : 64;
        p->table = NEWS(p->arena, int, p->table_cap);
        memset(p->table, -1, sizeof(int) * (size_t)p->table_cap);
        for (int i = 0; i < p->ndraft; i++)
            table_put(p, i);
    }
    uint64_t h = place_of(&s);
    for (int i; (i = p->table[h & (uint64_t)(p->table_cap - 1)]) >= 0; h++) {
        const Stage *x = &p->draft[i].s;
        if (x->time == time && x->level == level && x->kind == kind && x->variant == s.variant)
            return i;
    }
    PUSH(p->arena, p->draft, p->ndraft, p->draft_cap) = (Draft){.s = s};
    table_put(p, p->ndraft - 1);
    return p->ndraft - 1;
}

/* ---- elem passes ---- */
static int by_ref(const void *a, const void *b)
{
    Ref x = *(const Ref *)a, y = *(const Ref *)b;
    return (x > y) - (x < y);
}

/* Adds a value that the pass needs, unless it is inlined or already there: as a load, or as an
 * operation whose operands fill_pass adds later. */
static void need(Planner *p, Draft *d, Ref r)
{
    const Node *n = &p->g->n[r];
    if (inlined(n) || p->mark[r] > p->now)
        return;
    p->mark[r] = p->now + 1;
    if (in_memory(n))
        list_add(p->arena, &d->load, r, leaf_mem(p, n));
    else if (n->dom != ELEM)
        list_add(p->arena, &d->load, r, UNPLACED);               /* small_stages.c sets the array */
    else
        PUSH(p->arena, d->body, d->nbody, d->cap) = r;
}

/* Collects the operations, from the folded and stored values back to the loads that choose_loads.c
 * chose; then sorts them. */
static void fill_pass(Planner *p, Draft *d, const ElemPass *q)
{
    p->now += 4;
    for (int i = 0; i < q->load.n; i++) {
        Access a = q->load.v[i];
        p->mark[a.val] = p->now + 1;
        list_add(p->arena, &d->load, a.val, a.mem != UNPLACED ? a.mem : temp_of(p, a.val));
    }
    for (int i = 0; i < q->fold.n; i++)
        need(p, d, p->g->n[q->fold.v[i].val].arg[0]);
    for (int i = 0; i < q->store.n; i++)
        need(p, d, q->store.v[i].val);
    for (int i = 0; i < d->nbody; i++) {
        const Node *n = &p->g->n[d->body[i]];
        for (int k = 0; k < n->nargs; k++)
            need(p, d, n->arg[k]);
    }
    if (d->nbody)
        qsort(d->body, (size_t)d->nbody, sizeof *d->body, by_ref);
    list_sort(&d->load);
}

static void make_elem_stages(Planner *p)
{
    for (int v = 0; v < p->nvariant; v++)
        for (int k = 0; k < p->npass; k++) {
            const ElemPass *q = p->route[v].pass[k];
            if (!q->store.n && !q->fold.n)
                continue;
            int at = stage_at(p, k, ELEM_LEVEL, q->cols ? S_TILE : q->tile ? S_BAND : S_FLAT, v);
            Draft *d = &p->draft[at];
            const ElemPass *before =
                p->flat_pass && k && k == p->npass - 1 ? p->route[v].pass[k - 1] : NULL;
            d->s.for_codes = before && (before->store.n || before->fold.n);
            for (int i = 0; i < q->fold.n; i++)
                list_add(p->arena, &d->fold, q->fold.v[i].val, UNPLACED);
            for (int i = 0; i < q->store.n; i++) {
                Access a = q->store.v[i];
                list_add(p->arena, &d->store, a.val, a.mem != UNPLACED ? a.mem : temp_of(p, a.val));
            }
            fill_pass(p, d, q);
            p->ph->cheaper = p->ph->cheaper || q->coarse;
        }
}

/* ---- finishing ---- */
/* Makes the arrays of partials, now that the kinds of the folding stages are known. Variants may
 * fold in different kinds of stages; a global reduction has one array for all variants. */
static void place_parts(Planner *p)
{
    int **part = NEWS(p->arena, int *, p->nvariant);
    for (int v = 0; v < p->nvariant; v++) {
        part[v] = NEWS(p->arena, int, p->g->len + 1);
        memset(part[v], -1, sizeof(int) * (size_t)(p->g->len + 1));
    }
    for (int i = 0; i < p->ndraft; i++) {
        Draft *d = &p->draft[i];
        for (int j = 0; j < d->fold.n; j++) {
            Ref r = d->fold.v[j].val;
            const Node *n = &p->g->n[r];
            int *at = &part[is_global(n) ? 0 : d->s.variant][r];
            if (*at == UNPLACED)
                *at = new_array(p, (Mem){.kind = MEM_PART,
                                         .dom = (Dom)n->dom,
                                         .from = (Dom)n->from,
                                         .by = d->s.kind,
                                         .type = part_type_of(p->plan, n)});
            d->fold.v[j].mem = *at;
        }
    }
    for (int i = 0; i < p->ndraft; i++)
        for (int j = 0; j < p->draft[i].fin.n; j++) {
            Access *f = &p->draft[i].fin.v[j];
            if (!array_fold(&p->g->n[f->val]))
                f->mem = part[is_global(&p->g->n[f->val]) ? 0 : p->draft[i].s.variant][f->val];
        }
}

static Access *kept_list(Arena *a, const List *l, int *n)
{
    Access *v = NEWS(a, Access, l->n);
    if (l->n)
        memcpy(v, l->v, sizeof *v * (size_t)l->n);
    *n = l->n;
    return v;
}

/* The stage needs the row or column number of its values. */
static bool reads_places(const Planner *p, const Stage *s)
{
    Dom dom = stage_info[s->kind].dom;
    for (int i = 0; i < s->nload; i++) {
        DomIndex at = dom_find(dom, p->plan->mem[s->load[i].mem].dom);
        if (s->load[i].transposed || at == INDEX_DOWN || at == INDEX_ACROSS ||
            (dom == ELEM && at == INDEX_MATRIX))
            return true;
    }
    for (int i = 0; i < s->nbody; i++) {
        const Node *n = &p->g->n[s->body[i]];
        for (int k = -1; k < n->nargs; k++) {
            int op = p->g->n[k < 0 ? s->body[i] : n->arg[k]].op;
            if (op == OP_DOWN || op == OP_ACROSS)
                return true;
        }
    }
    return false;
}

static void finish_stage(Planner *p, const Draft *d, Stage *s)
{
    Arena *a = p->plan->arena;
    *s = d->s;
    s->load = kept_list(a, &d->load, &s->nload);
    s->store = kept_list(a, &d->store, &s->nstore);
    s->fold = kept_list(a, &d->fold, &s->nfold);
    s->fin = kept_list(a, &d->fin, &s->nfin);
    s->body = NEWS(a, Ref, d->nbody);
    s->nbody = d->nbody;
    if (d->nbody)
        memcpy(s->body, d->body, sizeof(Ref) * (size_t)d->nbody);
    Dom dom = stage_info[s->kind].dom;
    for (int i = 0; i < s->nload; i++) {
        const Mem *m = &p->plan->mem[s->load[i].mem];
        if (m->dom == dom)
            s->bytes_read += type_info[m->type].bytes;
    }
    s->uses_rows = dom_square(dom) && reads_places(p, s);
    for (int i = 0; i < s->nfin; i++)
        s->folds_arrays = s->folds_arrays || p->plan->mem[s->fin[i].mem].kind != MEM_PART;
    for (int i = 0; i < s->nstore; i++)
        s->bytes_written += bytes_of(p, s->store[i].mem);
    for (int i = 0; i < s->nbody; i++)
        s->cost += op_info[p->g->n[s->body[i]].op].cost;
    s->cost += s->nfold;
    s->fn = is_called(s->kind) ? -1 : p->plan->nfn++;
}

static int in_order(const void *x, const void *y)
{
    const Stage *a = &((const Draft *)x)->s, *b = &((const Draft *)y)->s;
    if (a->time != b->time)
        return a->time - b->time;
    if (a->level != b->level)
        return a->level - b->level;
    return a->variant != b->variant ? a->variant - b->variant : (int)a->kind - (int)b->kind;
}

void make_drafts(Planner *p)
{
    find_levels(p);
    make_elem_stages(p);
    make_small_stages(p);
    int n = 0;
    for (int i = 0; i < p->ndraft; i++)
        if (p->draft[i].store.n || p->draft[i].fold.n)
            p->draft[n++] = p->draft[i];
    p->ndraft = n;
    if (n)
        qsort(p->draft, (size_t)n, sizeof *p->draft, in_order);       /* no two compare equal */
    place_parts(p);
}

void finish_stages(Planner *p)
{
    Phase *ph = p->ph;
    ph->stage = NEWS(p->plan->arena, Stage, p->ndraft);
    ph->nstage = p->ndraft;
    for (int i = 0; i < p->ndraft; i++)
        finish_stage(p, &p->draft[i], &ph->stage[i]);
}

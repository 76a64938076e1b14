/* Where everything lies: states, temporaries and partials in one block.
 *
 * Arrays of one number lie behind one another, tensor by tensor, of those tensors whose variant touches them. States
 * have memory of their own. A temporary or
 * partial is needed from the first action of a phase that touches it to the last; two that are never needed at once, in
 * no phase, may share memory. The largest are placed first, each as far down as it fits. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static bool ours(const ProgArray *m)
{
    return m->kind == MEM_STATE || m->kind == MEM_TEMP || m->kind == MEM_PART ||
           (m->kind == MEM_INPUT && m->dom == GROUP);
}
static bool passing(const ProgArray *m) { return m->kind == MEM_TEMP || m->kind == MEM_PART; }
static int64_t up64(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

/* Who has an array: every tensor, every group and row, or (the fold over tensors) all of them one. */
static int owners(const optc_binding *b, const ProgArray *m)
{
    return m->dom != GROUP ? b->ntensor : m->kind == MEM_PART && b->ntensor ? 1 : b->nrow;
}

static int64_t bytes_of(const optc_binding *b, const ProgArray *m, int owner)
{
    const Program *p = b->rule->program;
    if (m->dom == GROUP)
        return m->kind == MEM_PART && b->ntensor ? (int64_t)8 * b->ntensor : p->type[m->type].bytes;
    const Tensor *t = &b->tensor[owner];
    if (!(m->kept >> t->variant & 1))
        return 0;
    return array_length(m, t->shape, t->whole, b->ntensor) * p->type[m->type].bytes;
}

/* -1: more than any memory has. */
static int64_t array_bytes(const optc_binding *b, const ProgArray *m)
{
    int64_t sum = 0;
    for (int i = 0; i < owners(b, m); i++)
        if (__builtin_add_overflow(sum, up64(bytes_of(b, m, i)), &sum) || sum > (int64_t)1 << 60)
            return -1;
    return sum;
}

/* ---- how long a temporary is needed ---- */
typedef struct Life { int first, last; } Life;       /* actions of a phase; last < first: not touched */
/* alone: it keeps something from one run to the next */
typedef struct Extent { int array; int64_t bytes; const Life *life; bool alone; } Extent;
typedef struct Lives { Life *life; bool *alone; int phases; } Lives;         /* life: by array, then phase */

static void touch(const Lives *x, int array, int phase, int action, bool reads)
{
    Life *l = &x->life[(size_t)array * (size_t)x->phases + (size_t)phase];
    if (l->last < l->first) {
        l->first = action;
        x->alone[array] = x->alone[array] || reads;     /* it would find what an earlier run left there */
    }
    l->last = action;
}

/* All of them in one walk over the actions. */
static void fill_lives(const Program *p, const Lives *x)
{
    int each = program_phases(p);
    for (size_t i = 0; i < (size_t)p->narray * (size_t)x->phases; i++)
        x->life[i].first = 0, x->life[i].last = -1;
    for (int m = 0; m < x->phases; m++) {
        const ProgPhase *ph = &p->entry[m / each].phase[m % each];
        for (int i = 0; i < ph->naction; i++) {
            const ProgAction *a = &ph->action[i];
            const ProgStage *s = a->kind == ACT_LAUNCH ? &p->stage[a->stage] : NULL;
            for (int k = 0; s && k < s->nreads; k++)
                touch(x, s->reads[k], m, i, true);
            for (int k = 0; s && k < s->nwrites; k++)
                touch(x, s->writes[k], m, i, false);
            if (a->kind == ACT_COPY) {
                touch(x, a->from, m, i, true);
                touch(x, a->to, m, i, false);
            }
        }
    }
}

static bool meet(const Extent *a, const Extent *b, int phases)
{
    if (a->alone || b->alone)
        return true;
    for (int i = 0; i < phases; i++) {
        const Life *x = &a->life[i], *y = &b->life[i];
        if (x->first <= y->last && y->first <= x->last && x->first <= x->last && y->first <= y->last)
            return true;
    }
    return false;
}

static int larger_first(const void *a, const void *b)
{
    const Extent *x = (const Extent *)a, *y = (const Extent *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->array - y->array;
}

/* ---- where they lie ---- */
typedef struct Placed { int64_t lo, hi; const Extent *e; } Placed;
typedef struct Places { Placed *p; int n, phases; int64_t base, end, work; } Places;     /* p: by lo */

/* Comparing very many temporaries in very many phases would take longer than sharing is worth: once so much was
 * compared, the rest have memory of their own. The largest came first. */
enum { MOST_WORK = 1 << 24 };

/* The lowest address that is free while it is needed. Those that were passed on the way up end below it, or are never
 * needed at once with it: none of them is in the way again. */
static int64_t find_room(Places *x, const Extent *e)
{
    int64_t at = x->base;
    for (int k = 0; k < x->n && x->p[k].lo < at + e->bytes; k++) {
        if (x->p[k].hi <= at)
            continue;
        x->work += x->phases;
        if (meet(x->p[k].e, e, x->phases))
            at = x->p[k].hi;
    }
    return at;
}

static void put_extent(Places *x, const Extent *e, int64_t at)
{
    int lo = 0, hi = x->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (x->p[mid].lo <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(x->p + lo + 1, x->p + lo, sizeof *x->p * (size_t)(x->n++ - lo));
    x->p[lo].lo = at;
    x->p[lo].hi = at + e->bytes;
    x->p[lo].e = e;
    x->end = x->p[lo].hi > x->end ? x->p[lo].hi : x->end;
}

static void place_all(optc_binding *b, Extent *e, int n, Places *x)
{
    qsort(e, (size_t)n, sizeof *e, larger_first);
    for (int i = 0; i < n && e[i].bytes; i++) {
        int64_t at = x->work < MOST_WORK ? find_room(x, &e[i]) : x->end;
        put_extent(x, &e[i], at);
        b->at[e[i].array] = at;
    }
}

static int list_extents(const optc_binding *b, const Lives *l, Extent *e)
{
    const Program *p = b->rule->program;
    int n = 0;
    for (int k = 0; k < p->narray; k++)
        if (passing(&p->array[k])) {
            e[n].array = k;
            e[n].bytes = array_bytes(b, &p->array[k]);
            e[n].life = l->life + (size_t)k * (size_t)l->phases;
            e[n++].alone = l->alone[k];
        }
    return n;
}

static optc_status share(optc_binding *b, int64_t *at)
{
    const Program *p = b->rule->program;
    int phases = p->nentry * program_phases(p);
    size_t n = (size_t)p->narray + 1;
    Extent *e = (Extent *)calloc(n, sizeof *e);
    Lives l = {(Life *)calloc(n * (size_t)phases + 1, sizeof *l.life), (bool *)calloc(n, sizeof *l.alone), phases};
    Places x = {(Placed *)calloc(n, sizeof *x.p), 0, phases, *at, *at, 0};
    bool ok = e && l.life && l.alone && x.p;
    if (ok) {
        fill_lives(p, &l);
        place_all(b, e, list_extents(b, &l, e), &x);
        *at = x.end;
    }
    free(e);
    free(l.life);
    free(l.alone);
    free(x.p);
    return ok ? OPTC_OK : no_memory("optc_bind");
}

/* Only arrays that lie alike in a tensor can be copied as bytes. */
static optc_status check_copies(const Program *p)
{
    int phases = program_phases(p);
    for (int m = 0; m < p->nentry * phases; m++) {
        const ProgPhase *ph = &p->entry[m / phases].phase[m % phases];
        for (int i = 0; i < ph->naction; i++) {
            const ProgAction *a = &ph->action[i];
            const ProgArray *x = &p->array[a->to], *y = &p->array[a->from];
            bool alike = x->dom == y->dom && x->type == y->type && x->kind != MEM_PART && y->kind != MEM_PART;
            if (a->kind == ACT_COPY && !alike)
                return fail(OPTC_ERROR_ARGUMENT, "optc_bind: rule '%s' copies '%s' over '%s', which lies otherwise",
                            p->name, y->name, x->name);
        }
    }
    return OPTC_OK;
}

CORE optc_status layout_measure(optc_binding *b)
{
    const Program *p = b->rule->program;
    int64_t kept = 0, all = 0;
    b->at = TAKE(b, int64_t, p->narray);
    if (!b->at)
        return no_memory("optc_bind");
    optc_status s = check_copies(p);
    if (s != OPTC_OK)
        return s;
    for (int k = 0; k < p->narray; k++) {
        int64_t bytes = ours(&p->array[k]) ? array_bytes(b, &p->array[k]) : 0;
        if (bytes < 0 || __builtin_add_overflow(all, bytes, &all) || all > (int64_t)1 << 60)
            return fail(OPTC_ERROR_MEMORY,
                        "optc_bind: the states and temporaries of '%s' on %d tensors are more than any memory holds",
                        p->name, b->ntensor);
        b->at[k] = kept;
        kept += passing(&p->array[k]) ? 0 : bytes;
    }
    b->unshared_bytes = (size_t)all;
    s = share(b, &kept);
    b->block_bytes = (size_t)kept;
    return s;
}

/* ---- pointers ---- */
static void point(optc_binding *b, int k)
{
    const ProgArray *m = &b->rule->program->array[k];
    int n = owners(b, m);
    char *at = (char *)b->block + b->at[k];
    for (int i = 0; i < n; i++) {
        int64_t bytes = bytes_of(b, m, i);
        void *ptr = bytes ? at : NULL;
        at += up64(bytes);
        if (m->dom != GROUP) {
            b->tensor[i].mem[k] = ptr;
            continue;
        }
        bool one = n == 1 && m->kind == MEM_PART;
        for (int g = one ? 0 : i; g < (one ? b->nrow : i + 1); g++) {
            b->group[g].mem[k] = ptr;
            for (int j = b->group[g].first; j < b->group[g].first + b->group[g].count; j++)
                b->tensor[j].mem[k] = ptr;
        }
    }
}

static optc_view tensor_view(const optc_binding *b, int i)
{
    const Tensor *t = &b->tensor[i];
    Shape s = t->shape;
    optc_view v;
    memset(&v, 0, sizeof v);
    v.mem = t->mem;
    v.hyper = b->group[t->group].hyper;
    v.n = s.n, v.slices = s.slices, v.rows = s.rows, v.cols = s.cols;
    v.id = i, v.ntensors = v.present = b->ntensor, v.total = b->elems;
    v.whole_n = t->whole.n, v.whole_slices = t->whole.slices;
    v.whole_rows = t->whole.rows, v.whole_cols = t->whole.cols;
    v.first = t->before[ELEM], v.first_row = t->before[ROW];
    v.first_col = t->before[COL], v.first_slice = t->before[SLICE];
    return v;
}

static void fill_views(optc_binding *b)
{
    for (int i = 0; i < b->ntensor; i++)
        b->tensor[i].view = tensor_view(b, i);
    rows_place(b);
}

/* Tensors of each variant, and how many units of each kind of stage lie before each. */
static optc_status count_units(optc_binding *b)
{
    for (int v = 0; v < b->rule->program->nvariant; v++) {
        Units *u = &b->units[v];
        if (!(u->tensor = TAKE(b, int, b->ntensor)) || !(u->shorter = TAKE(b, int64_t, BRIEF)))
            return no_memory("optc_bind");
        for (int i = 0; i < b->ntensor; i++)
            if (b->tensor[i].variant == v) {
                u->tensor[u->n++] = i;
                u->elems += b->tensor[i].shape.n;
            }
        for (int i = 0, length; i < u->n; i++)
            if ((length = brief_length(b->tensor[u->tensor[i]].shape)))
                u->shorter[length]++;
        for (int i = 1; i <= BRIEF; i++)
            u->shorter[i] += u->shorter[i - 1];
        for (int k = 0; k < NSTAGEKIND; k++) {
            if (!(u->prefix[k] = TAKE(b, int64_t, u->n)))
                return no_memory("optc_bind");
            for (int i = 0; i < u->n; i++) {
                Shape s = b->tensor[u->tensor[i]].shape;
                u->prefix[k][i + 1] = u->prefix[k][i] + stage_units((StageKind)k, s);
                u->longest[k] = list_length((StageKind)k, s) > u->longest[k] ? list_length((StageKind)k, s)
                                                                             : u->longest[k];
            }
        }
    }
    return OPTC_OK;
}

CORE optc_status layout_place(optc_binding *b)
{
    for (int k = 0; k < b->rule->program->narray; k++)
        if (ours(&b->rule->program->array[k]))
            point(b, k);
    fill_views(b);
    return count_units(b);
}

/* ---- what bindings hold ---- */
CORE void memory_took(optc_engine *e, int64_t bytes)
{
    long long now = __atomic_add_fetch(&e->ours, bytes, __ATOMIC_SEQ_CST),
              peak = __atomic_load_n(&e->peak, __ATOMIC_SEQ_CST);
    while (now > peak && !__atomic_compare_exchange_n(&e->peak, &peak, now, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

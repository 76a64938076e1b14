/* Layout: states, temporaries and partials of a binding in one block of memory.
 *
 * An array number has one range of the block, with one part per tensor whose variant uses the
 * array, in tensor order. States share memory with nothing. A temporary or partial is live from the
 * first action of a phase that uses it to the last; two of them may share memory if their live
 * ranges overlap in no phase. The largest are placed first, each at the lowest offset that is free.
 * Temporaries of batches (batches.c) are in one buffer, the pool, tensor by tensor; every batch
 * starts at the pool's beginning. */
#include "runtime/core/bind/bind.h"
#include "runtime/core/memory/layout.h"
#include "runtime/core/shard/shards.h"

#include <stdlib.h>
#include <string.h>

static bool ours(const ProgArray *m)
{
    return m->kind == MEM_STATE || m->kind == MEM_TEMP || m->kind == MEM_PART ||
           (m->kind == MEM_INPUT && m->dom == GROUP);
}

/* ---- offsets ---- */
static int list_extents(const optc_binding *b, const LiveRanges *l, const LiveRange *pool,
                        BufferRequest *e)
{
    const Program *p = b->program;
    int n = 0;
    for (int k = 0; k < p->narray; k++)
        if (array_temporary(&p->array[k])) {
            e[n].array = k;
            e[n].bytes = array_bytes(b, k, false);
            e[n].range = l->range + (size_t)k * (size_t)l->phases;
            e[n++].alone = l->alone[k] || b->plan == PLAN_APART;
        }
    e[n].array = p->narray;
    e[n].bytes = b->pool_bytes;
    e[n++].range = pool;
    return n;
}

static optc_status share(optc_binding *b, const LiveRanges *l, int64_t *at)
{
    size_t n = (size_t)b->program->narray + 1;
    BufferRequest *e = (BufferRequest *)calloc(n, sizeof *e);
    LiveRange *pool = (LiveRange *)calloc((size_t)l->phases + 1, sizeof *pool);
    BufferPlan x = {(PlacedBuffer *)calloc(n, sizeof *x.p), 0, l->phases, *at, *at, 0};
    bool ok = e && pool && x.p;
    if (ok) {
        batches_live_range(b, pool);
        buffer_plan_place(&x, e, list_extents(b, l, pool, e), b->at);
        *at = x.end;
    }
    free(e);
    free(pool);
    free(x.p);
    return ok ? OPTC_OK : no_memory("optc_bind");
}

static optc_status measure(optc_binding *b, LiveRanges *l)
{
    const Program *p = b->program;
    int64_t kept = 0, all = 0;
    optc_status s = batches_plan(b);
    if (s != OPTC_OK)
        return s;
    for (int k = 0; k < p->narray; k++) {
        int64_t bytes = ours(&p->array[k]) ? array_bytes(b, k, true) : 0;
        if (bytes < 0 || __builtin_add_overflow(all, bytes, &all) || all > (int64_t)1 << 60)
            return fail(OPTC_ERROR_MEMORY,
                        "optc_bind: the states and temporaries of '%s' on %d tensors need more "
                        "bytes than 64 bits "
                        "can count; bind fewer tensors",
                        p->name, b->ntensor);
        b->at[k] = kept;
        kept += array_temporary(&p->array[k]) ? 0 : bytes;
    }
    b->unshared_bytes = (size_t)all;
    b->state_bytes = kept;
    batches_cover(b, l);
    overlaps_cover(b, l);
    s = share(b, l, &kept);
    kept = s == OPTC_OK ? kept + shards_bytes(b, kept) : kept;
    b->storage_bytes = (size_t)kept;
    return s;
}

CORE optc_status layout_measure(optc_binding *b)
{
    const Program *p = b->program;
    LiveRanges l = {NULL, NULL, 0};
    b->at = TAKE(b, int64_t, p->narray + 1);
    b->batched = TAKE(b, unsigned, p->narray);
    if (!b->at || !b->batched)
        return no_memory("optc_bind");
    optc_status s = live_ranges_make(p, &l) ? measure(b, &l) : no_memory("optc_bind");
    live_ranges_free(&l);
    return s;
}

/* ---- pointers ---- */
static void point(optc_binding *b, int k)
{
    const ProgArray *m = &b->program->array[k];
    int n = array_owners(b, m);
    char *at = (char *)b->block + b->at[k], *pool = (char *)b->block + b->at[b->program->narray];
    for (int i = 0; i < n; i++) {
        int64_t bytes = array_owned(b, m, i);
        void *ptr = bytes ? at : NULL;
        if (b->batched[k] && in_pool(b, k, i)) {
            b->tensor[i].mem[k] =
                bytes ? pool + b->tensor[i].pool_at + b->tensor[i].pool_place[k] : NULL;
            continue;
        }
        at += bytes;
        if (m->dom != GROUP) {
            b->tensor[i].mem[k] = state_caller_owned(b, i, k) ? b->tensor[i].mem[k] : ptr;
            continue;
        }
        bool one = n == 1 && m->kind == MEM_PART;
        for (int g = one ? 0 : i; g < (one ? b->ncohort : i + 1); g++) {
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
    v.id = t->source, v.ntensors = v.present = b->ntensor, v.total = b->elems;
    v.whole_n = t->whole.n, v.whole_slices = t->whole.slices;
    v.whole_rows = t->whole.rows, v.whole_cols = t->whole.cols;
    v.first = t->before[ELEM], v.first_row = t->before[ROW];
    v.first_col = t->before[COL], v.first_slice = t->before[SLICE];
    v.rank = s.rank;
    return v;
}

static void fill_views(optc_binding *b)
{
    for (int i = 0; i < b->nheld; i++)
        b->tensor[i].view = tensor_view(b, i);
    blocks_views(b);
    cohorts_place(b);
}

static optc_status count_units(optc_binding *b)
{
    optc_status s = OPTC_OK;
    for (int v = 0; v < b->program->nvariant && s == OPTC_OK; v++) {
        Units *u = &b->units[v];
        if (!(u->tensor = TAKE(b, int, b->nheld)))
            return no_memory("optc_bind");
        for (int i = 0; i < b->nheld; i++)
            if (b->tensor[i].variant == v)
                u->tensor[u->n++] = i;
        s = units_count(b, u);
        if (s == OPTC_OK)
            s = blocks_units(b, u, &b->blocks[v]);
    }
    return s;
}

CORE optc_status layout_place(optc_binding *b)
{
    const Program *p = b->program;
    for (int k = 0; k < p->narray; k++)
        if (ours(&p->array[k]))
            point(b, k);
    shards_point(b);
    blocks_point(b);
    fill_views(b);
    optc_status s = count_units(b);
    return s == OPTC_OK ? batches_place(b) : s;
}

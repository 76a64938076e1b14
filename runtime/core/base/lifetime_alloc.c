/* Live ranges of temporaries, and the buffer plan: the lowest free offset for each during its live
 * range. */
#include "runtime/core/base/lifetimes.h"

#include <stdlib.h>
#include <string.h>

/* ---- live ranges ---- */
static void touch(const LiveRanges *x, int array, int phase, int action, bool reads)
{
    LiveRange *l = &x->range[(size_t)array * (size_t)x->phases + (size_t)phase];
    if (l->last < l->first) {
        l->first = action;
        /* the first use reads what an earlier run wrote */
        x->alone[array] = x->alone[array] || reads;
    }
    l->last = action;
}

static void fill_live_ranges(const Program *p, const LiveRanges *x)
{
    int each = program_phases(p);
    for (size_t i = 0; i < (size_t)p->narray * (size_t)x->phases; i++)
        x->range[i].first = 0, x->range[i].last = -1;
    for (int m = 0; m < x->phases; m++) {
        const ProgPhase *ph = &p->entry[m / each].phase[m % each];
        for (int i = 0; i < ph->naction; i++) {
            const ProgAction *a = &ph->action[i];
            const ProgStage *s = a->kind == ACT_LAUNCH ? &p->stage[a->stage] : NULL;
            for (int k = 0; s && k < s->nreads; k++)
                touch(x, s->reads[k], m, i, true);
            for (int k = 0; s && k < s->nwrites; k++)
                touch(x, s->writes[k], m, i, false);
        }
    }
}

CORE bool live_ranges_make(const Program *p, LiveRanges *out)
{
    size_t n = (size_t)p->narray + 1;
    out->phases = p->nentry * program_phases(p);
    out->range = (LiveRange *)calloc(n * (size_t)out->phases + 1, sizeof *out->range);
    out->alone = (bool *)calloc(n, sizeof *out->alone);
    if (!out->range || !out->alone)
        return false;
    fill_live_ranges(p, out);
    return true;
}

CORE void live_ranges_free(LiveRanges *l)
{
    free(l->range);
    free(l->alone);
}

CORE void live_range_cover(LiveRanges *l, int array, int phase, LiveRange actions)
{
    LiveRange *x = &l->range[(size_t)array * (size_t)l->phases + (size_t)phase];
    if (x->last < x->first)
        return;
    x->first = actions.first < x->first ? actions.first : x->first;
    x->last = actions.last > x->last ? actions.last : x->last;
}

/* Both are live at the same time in some phase. */
static bool overlap_in_time(const BufferRequest *a, const BufferRequest *b, int phases)
{
    if (a->alone || b->alone)
        return true;
    if (a->busy && b->busy) {
        for (int i = 0; i < phases; i++)
            if (a->busy[i] & b->busy[i])
                return true;
        return false;
    }
    for (int i = 0; i < phases; i++) {
        const LiveRange *x = &a->range[i], *y = &b->range[i];
        if (x->first <= y->last && y->first <= x->last && x->first <= x->last &&
            y->first <= y->last)
            return true;
    }
    return false;
}

static int larger_first(const void *a, const void *b)
{
    const BufferRequest *x = (const BufferRequest *)a, *y = (const BufferRequest *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : x->array - y->array;
}

/* ---- placement ---- */
/* Comparing very many temporaries in very many phases would cost more than sharing saves. After
 * this many comparisons the remaining buffers, which are the smallest, share no memory. */
enum { MOST_WORK = 1 << 24 };

/* The lowest offset that is free during the live range. Buffers that the search has passed end
 * below `at` or are never live at the same time, so one pass in order of `lo` is enough. */
static int64_t find_room(BufferPlan *x, const BufferRequest *e)
{
    int64_t at = x->base;
    for (int k = 0; k < x->n && x->p[k].lo < at + e->bytes; k++) {
        if (x->p[k].hi <= at)
            continue;
        x->work += x->phases;
        if (overlap_in_time(x->p[k].e, e, x->phases))
            at = x->p[k].hi;
    }
    return at;
}

static void put_extent(BufferPlan *x, const BufferRequest *e, int64_t at)
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

/* The offsets do not depend on the order of the requests. */
CORE void buffer_plan_place(BufferPlan *x, BufferRequest *e, int n, int64_t *at)
{
    qsort(e, (size_t)n, sizeof *e, larger_first);
    for (int i = 0; i < n && e[i].bytes; i++) {
        at[e[i].array] = x->work < MOST_WORK ? find_room(x, &e[i]) : x->end;
        put_extent(x, &e[i], at[e[i].array]);
    }
}

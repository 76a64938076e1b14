/* Memory by the order of a phase's actions: live ranges, the buffer plan that gives temporaries
 * offsets, and stretches. */
#ifndef OPTC_CORE_LIFETIMES_H
#define OPTC_CORE_LIFETIMES_H
#include "runtime/core/base/core.h"

/* actions of a phase; last < first: unused */
typedef struct LiveRange { int first, last; } LiveRange;
/* range: by array, then phase. alone: a run reads what an earlier run wrote, so the array shares
 * memory with no other */
typedef struct LiveRanges { LiveRange *range; bool *alone; int phases; } LiveRanges;
/* A buffer to be placed. busy: if not NULL, replaces `range`: a bit per point in time, in
 * BufferPlan.phases words */
typedef struct BufferRequest {
    int array;
    int64_t bytes;
    const LiveRange *range;
    bool alone;
    const uint64_t *busy;
} BufferRequest;

/* p: placed buffers, sorted by lo. base: lowest offset; end: first offset after all buffers; work:
 * comparisons so far */
typedef struct PlacedBuffer { int64_t lo, hi; const BufferRequest *e; } PlacedBuffer;
typedef struct BufferPlan { PlacedBuffer *p; int n, phases; int64_t base, end, work; } BufferPlan;

/* ---- lifetime_alloc.c ---- */
/* false: no memory; call live_ranges_free anyway */
CORE bool live_ranges_make(const Program *p, LiveRanges *out);
CORE void live_ranges_free(LiveRanges *l);
/* of an array that is used */
CORE void live_range_cover(LiveRanges *l, int array, int phase, LiveRange actions);
/* at: by BufferRequest.array */
CORE void buffer_plan_place(BufferPlan *x, BufferRequest *e, int n, int64_t *at);

/* ---- array_bytes.c ---- */
CORE bool array_temporary(const ProgArray *m);          /* a temporary or partial */
/* bytes, rounded up to 64 */
CORE int64_t array_owned(const optc_binding *b, const ProgArray *m, int owner);
CORE bool in_pool(const optc_binding *b, int array, int tensor);
/* the tensors, the groups and cohorts, or 1 for partials of a fold over tensors */
CORE int array_owners(const optc_binding *b, const ProgArray *m);
/* of all owners, or (all false) of those that have it outside the pool; -1: more than 2^60 */
CORE int64_t array_bytes(const optc_binding *b, int array, bool all);

/* ---- stretches.c ---- */
/* A maximal sequence of stages of one variant, from some action up to `end`. calls: it has a
 * call */
typedef struct Stretch { int end, variant; bool calls; } Stretch;
CORE Stretch stretch_at(const Program *p, const ProgPhase *ph, int from);
CORE unsigned variants_called(const Program *p);        /* bits: variants that have batches */
#endif

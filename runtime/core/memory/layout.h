/* Memory of a binding: offsets of arrays, and batches. */
#ifndef OPTC_CORE_LAYOUT_H
#define OPTC_CORE_LAYOUT_H
#include "runtime/core/base/lifetimes.h"

/* ---- layout.c ---- */
CORE optc_status layout_measure(optc_binding *b);           /* computes storage_bytes and offsets */
/* after allocation: pointers, views, units of work */
CORE optc_status layout_place(optc_binding *b);

/* ---- batches.c ---- */
#define MOST_WORKSPACE ((int64_t)1 << 46)
CORE optc_status batches_plan(optc_binding *b);
/* by phase: live range of the pool */
CORE void batches_live_range(const optc_binding *b, LiveRange *out);
CORE void batches_cover(const optc_binding *b, LiveRanges *l);         /* after batches_plan */
CORE optc_status batches_place(optc_binding *b);

/* ---- device_memory.c ---- */
/* number and bytes of optc_alloc's live blocks */
CORE int memory_blocks(const optc_engine *e, int64_t *bytes);

/* ---- shard_overlap.c ---- */
CORE void overlaps_cover(const optc_binding *b, LiveRanges *l);
#endif

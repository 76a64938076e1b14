/* Memory of a binding: offsets of arrays, and batches. */
#ifndef OPTC_CORE_LAYOUT_H
#define OPTC_CORE_LAYOUT_H
#include "runtime/core/base/lifetimes.h"

/* ---- layout.c ---- */

/* ---- batches.c ---- */
CORE optc_status batches_plan(optc_binding *b);
/* by phase: live range of the pool */
CORE void batches_live_range(const optc_binding *b, LiveRange *out);
CORE void batches_cover(const optc_binding *b, LiveRanges *l);         /* after batches_plan */
CORE optc_status batches_place(optc_binding *b);

/* ---- shard_overlap.c ---- */
CORE void overlaps_cover(const optc_binding *b, LiveRanges *l);
#endif

/* How long temporaries are needed, where they lie meanwhile, and whose they are: shared by layout.c, lifetime_alloc.c
 * and batches.c. */
#ifndef OPTC_CORE_LAYOUT_H
#define OPTC_CORE_LAYOUT_H
#include "runtime/core/api/core.h"

typedef struct LiveRange { int first, last; } LiveRange;       /* actions of a phase; last < first: not touched */
/* life: by array, then phase. alone: it keeps something from one run to the next */
typedef struct LiveRanges { LiveRange *range; bool *alone; int phases; } LiveRanges;
/* busy: not NULL: bits, in place of the life, the times at which it is needed; Places.phases words of them */
typedef struct BufferRequest { int array; int64_t bytes; const LiveRange *range; bool alone; const uint64_t *busy;
                              } BufferRequest;

typedef struct PlacedBuffer { int64_t lo, hi; const BufferRequest *e; } PlacedBuffer;
typedef struct BufferPlan { PlacedBuffer *p; int n, phases; int64_t base, end, work; } BufferPlan;     /* p: by lo */

/* ---- lifetime_alloc.c ---- */
CORE bool live_ranges_make(const Program *p, LiveRanges *out);  /* false: no memory. Freed in either case */
CORE void live_ranges_free(LiveRanges *l);
CORE void buffer_plan_place(BufferPlan *x, BufferRequest *e, int n, int64_t *at);     /* at: by Extent.array */

/* ---- layout.c ---- */
CORE bool array_temporary(const ProgArray *m);          /* a temporary or partial */
CORE int64_t array_owned(const optc_binding *b, const ProgArray *m, int owner);      /* bytes, in steps of 64 */
CORE bool in_pool(const optc_binding *b, int array, int tensor);
CORE optc_status units_count(optc_binding *b, Units *u);        /* of u->tensor[0..n) */

/* ---- batches.c ---- */
CORE optc_status batches_plan(optc_binding *b);
CORE void batches_live_range(const optc_binding *b, LiveRange *out);   /* by phase: when their temporaries are needed */
CORE optc_status batches_place(optc_binding *b);
#endif

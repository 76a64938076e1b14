/* The parts of `optc explain`:
 *
 *   cmd_explain.c   what is asked for, and what the plan means   explain_plan.c   the plan, with the spec's own lines
 *   bandwidth.c     how fast memory is, measured once and kept     explain_calls.c  products: operations, rates, room */
#ifndef OPTC_EXPLAIN_H
#define OPTC_EXPLAIN_H
#include "tools.h"

void explain_plan(Arena *a, const Plan *p);
const char *explain_phase(Arena *a, const Plan *p, int entry, int mask);       /* "step, t divisible by 5" */
bool explain_runs(const Stage *st, int variant);                               /* a tensor of that variant meets it */

/* ---- explain_calls.c ---- */
double explain_flops(const Phase *ph, const Stage *st, Shape s);               /* of a product of this tensor; 0: it is none */
const char *explain_call(Arena *a, const Phase *ph, const Stage *st);          /* "product, rows x rows over cols …" */
/* bytes of temporaries that a tensor of this shape needs at a time */
double explain_room(Arena *a, const Plan *p, const Phase *ph, int variant, Shape s);
double explain_rate(const char *device, Product product);                      /* operations per second; 0: unknown */

/* bytes per second, 0: unknown; and where that is known from; the device, NULL: as given; operations of products per second */
typedef struct Bandwidth { double rate; const char *whence, *device; double flops; } Bandwidth;
/* Of the device that a name stands for (NULL: the best here), from the cache folder, or measured and kept there; anew:
 * measured in any case. Where there is no room to measure the rate is 0. false: no such device, and it has said so. */
bool bandwidth_of(Arena *a, const char *device, bool anew, Bandwidth *out);
#endif

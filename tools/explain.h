/* The parts of `optc explain`:
 *
 *   cmd_explain.c   what is asked for, and what the plan means   explain_plan.c   the plan, with the spec's own lines
 *   bandwidth.c     how fast memory is, measured once and kept */
#ifndef OPTC_EXPLAIN_H
#define OPTC_EXPLAIN_H
#include "tools.h"

void explain_plan(Arena *a, const Plan *p);
const char *explain_phase(Arena *a, const Plan *p, int entry, int mask);       /* "step, t divisible by 5" */
bool explain_runs(const Stage *st, int variant);                               /* a tensor of that variant meets it */

/* bytes per second, 0: unknown; and where that is known from */
typedef struct Bandwidth { double rate; const char *whence; } Bandwidth;
/* Of the device that a name stands for (NULL: the best here), from the cache folder, or measured and kept there; anew:
 * measured in any case. Where there is no room to measure the rate is 0. false: no such device, and it has said so. */
bool bandwidth_of(Arena *a, const char *device, bool anew, Bandwidth *out);
#endif

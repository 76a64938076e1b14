/* Tensors of our own to time launches on a GPU, never anybody's: rings of large sets (as many as it takes to go round
 * past the second-level cache) and small odd ones to compare bits on. The sets of a ring come in two layouts in turn,
 * because a launch that suits one may not suit the other: a persistent grid that gained 2 % of a stage on tensors of
 * one size lost 20 on GPT-2's. */
#ifndef OPTC_TUNE_SETS_H
#define OPTC_TUNE_SETS_H
#include "runtime/library/rule/gpu_code.h"

enum { MOST_SETS = 128, LAYOUTS = 2 };         /* of a ring; one large tensor, a model's many */

/* numbers: what parameters and gradients are filled with, over and over */
typedef struct TuneSets { optc_rule *r; CUdeviceptr numbers[2]; } TuneSets;
typedef struct Set { optc_binding *b; CUdeviceptr p, g; size_t p_bytes; } Set;
typedef struct Ring {
    Set set[MOST_SETS]; int n, layouts;        /* layout by layout in turn; where memory is short, only the first */
    bool whole;                                /* memory was not short */
    int next_set, settle;                          /* launches before the clock starts */
    double each;                               /* milliseconds of a launch, as the last race had them; 0: not known */
} Ring;

optc_status sets_begin(TuneSets *u);           /* within gpu_enter, as sets_end */
void sets_end(TuneSets *u);
optc_status set_open_odd(const TuneSets *u, Set *s);
void set_close(optc_rule *r, Set *s);
/* sets of so many elements for this stage; not OPTC_OK: close it */
optc_status ring_open(const TuneSets *u, const Stage *stage, Ring *r, int64_t elements);
void ring_close(optc_rule *rule, Ring *r);
double stage_bytes(const optc_binding *b, const Stage *s);
#endif

/* Tensors for timing launches on a GPU. The tuner allocates them and never uses a caller's. A ring
 * has enough large sets to exceed the second-level cache; a small set of odd sizes is for comparing
 * bits. The sets of a ring alternate between two layouts, because a launch that suits one may not
 * suit the other: a persistent grid that gained 2 % of a stage on tensors of one size lost 20 % on
 * GPT-2's. */
#ifndef OPTC_TUNE_SETS_H
#define OPTC_TUNE_SETS_H
#include "runtime/library/rule/gpu_code.h"

/* per ring; layouts: one large tensor, and a model's many */
enum { MOST_SETS = 128, LAYOUTS = 2 };

/* numbers: a block of numbers that parameters and gradients are filled with, repeated */
typedef struct TuneSets { optc_rule *r; CUdeviceptr numbers[2]; } TuneSets;
typedef struct Set { optc_binding *b; CUdeviceptr p, g; size_t p_bytes; } Set;
typedef struct Ring {
    /* the layouts alternate; if memory is short there is only the first */
    Set set[MOST_SETS]; int n, layouts;
    bool whole;                                /* memory was not short */
    /* settle: untimed launches before the clock starts */
    int next_set, settle;
    /* milliseconds of a launch in the last race; 0: unknown */
    double each;
} Ring;

optc_status sets_begin(TuneSets *u);           /* call this and sets_end within gpu_enter */
void sets_end(TuneSets *u);
optc_status set_open_odd(const TuneSets *u, Set *s);
void set_close(optc_rule *r, Set *s);
/* Allocates sets of that many elements for a stage. After a failure the caller closes the ring
 * too. */
optc_status ring_open(const TuneSets *u, const Stage *stage, Ring *r, int64_t elements);
void ring_close(optc_rule *rule, Ring *r);
double stage_bytes(const optc_binding *b, const Stage *s);
#endif

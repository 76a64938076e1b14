/* The phases of a rule. A period every(k) is due at step t or not; each combination of the rule's
 * periods is a phase: a copy of the rule in which these conditions are constants. */
#ifndef OPTC_PHASES_H
#define OPTC_PHASES_H
#include "gen/base/diag.h"
#include "gen/ir/ir.h"

/* limit on the values of all phases of all entries together */
enum { MAX_PHASE_NODES = 20 * MAX_NODES };

/* body: by variant, the writes */
typedef struct PhaseRule { Graph *g; Body *body; } PhaseRule;
typedef struct Phases {
    Period period[MAX_PERIODS]; int nperiod;
    int nphase;                          /* per entry: 1 << nperiod */
    PhaseRule *phase;                    /* [entry * nphase + mask]; bit i of the mask: period i is
                                          * due */
} Phases;

/* NULL: too many values, d is set */
Phases *phases_make(Arena *a, const Rule *r, Diag *d);
#endif

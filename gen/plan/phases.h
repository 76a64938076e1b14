/* The phases of a rule: every(k) makes each combination of its periods, divides t or not, a rule of its own in
 * which those conditions are constants. */
#ifndef OPTC_PHASES_H
#define OPTC_PHASES_H
#include "gen/base/diag.h"
#include "gen/ir/ir.h"

enum { MAX_PHASE_NODES = 20 * MAX_NODES };       /* values of all phases of all entries */

typedef struct PhaseRule { Graph *g; Body *body; } PhaseRule;          /* body: by variant, what it changes */
typedef struct Phases {
    Period period[MAX_PERIODS]; int nperiod;
    int nphase;                          /* of an entry: 1 << nperiod */
    PhaseRule *phase;                    /* [entry * nphase + bits by period] */
} Phases;

Phases *phases_make(Arena *a, const Rule *r, Diag *d);                /* NULL: the Diag is set */
#endif

/* Values whose entries above the diagonal are 0. */
#ifndef OPTC_LOWER_VALUES_H
#define OPTC_LOWER_VALUES_H
#include "gen/ir/ir.h"

bool *rule_lower_states(Arena *a, const Rule *r);          /* by state */
void graph_lower(const Graph *g, const bool *state, bool *lower);      /* lower: by node */
#endif

/* Entries that a spec lists under `gradients`, and the steps at which a caller runs them. */
#ifndef OPTC_GRADIENT_STEPS_H
#define OPTC_GRADIENT_STEPS_H
#include "tools/tools.h"

#include "optc.h"

/* Steps between two runs of an entry: 1 is every step. 0: the entry is not listed, or it runs at
 * most once in `most` steps. */
int gradient_period(const optc_rule *r, const char *entry, int most);
bool gradient_listed(const optc_rule *r, const char *entry);
#endif

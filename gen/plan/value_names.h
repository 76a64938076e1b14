/* What values and arrays are called, in emitted code and wherever the plan is shown: by the spec's own names where it
 * gave any, else by what they are made of. */
#ifndef OPTC_NAMES_H
#define OPTC_NAMES_H
#include "gen/plan/plan.h"

enum { LONGEST_NAME = 48 };                                    /* of a value that the spec gave none */
/* An identifier; two values may share one. */
const char *value_name(Arena *a, const Rule *r, const Phase *ph, Ref v);
void plan_name_arrays(Plan *p);        /* gives every Access of the plan its array's name */
#endif

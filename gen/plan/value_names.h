/* Names of values and arrays, in emitted code and in printed plans: the spec's names, or names
 * built from the operations. */
#ifndef OPTC_NAMES_H
#define OPTC_NAMES_H
#include "gen/plan/plan.h"

enum { LONGEST_NAME = 48 };                                    /* of a built name, in characters */
/* A C identifier for the value. Two values may have the same one. */
const char *value_name(Arena *a, const Rule *r, const Phase *ph, Ref v);
void plan_name_arrays(Plan *p);        /* fills Access.name of every stage */
#endif

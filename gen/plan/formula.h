/* Prints values as formulas, for `optc explain`: `lr / (1 - beta1 ^ t)`, `norm(u)`, with the names
 * of the spec. */
#ifndef OPTC_FORMULA_H
#define OPTC_FORMULA_H
#include "gen/plan/plan.h"

/* The formula of v. A value that the spec named is printed as that name. Above `most` characters,
 * inner operands are replaced by …; a formula of depth 1 may still be longer. */
const char *formula(Arena *a, const Rule *r, const Phase *ph, Ref v, int most);
/* The same, but the outermost operation is printed even if the value has a name. */
const char *formula_of(Arena *a, const Rule *r, const Phase *ph, Ref v, int most);
/* True if n is printed together with the reduction below it, as one word of the spec: mean, norm,
 * global.sum. */
bool formula_part(const Graph *g, const Node *n);
#endif

/* Values as a person would write them: `lr / (1 - beta1 ^ t)`, `norm(u)`, with the spec's own names. */
#ifndef OPTC_FORMULA_H
#define OPTC_FORMULA_H
#include "gen/plan/plan.h"

/* At most `most` characters: what would be longer is said less deeply, with … for what is left out. */
const char *formula(Arena *a, const Rule *r, const Phase *ph, Ref v, int most);
/* Likewise, but written out at the top, whatever the spec calls it. */
const char *formula_of(Arena *a, const Rule *r, const Phase *ph, Ref v, int most);
/* The reductions a value is made of are said in the spec's words: sum, mean and norm. True where `n`, whose operand is
 * or leads to a reduction, is part of such a word. */
bool formula_part(const Graph *g, const Node *n);
#endif

/* Makes a Program (gen/abi/program.h) from a plan, in memory or as C tables. */
#ifndef OPTC_PROGRAM_MAKE_H
#define OPTC_PROGRAM_MAKE_H
#include "gen/plan/plan.h"
#include "gen/abi/program.h"

/* prefix: of the kernels' names */
const Program *program_make(Arena *a, const Plan *p, const char *prefix);
/* Prints tables whose names end with id, then `static const Program program_<id>`. */
void program_print(Buf *b, const Program *p, const char *id);
#endif

/* From a plan to a Program, in memory or as C tables. */
#ifndef OPTC_PROGRAM_MAKE_H
#define OPTC_PROGRAM_MAKE_H
#include "gen/plan/plan.h"
#include "gen/abi/program.h"

/* prefix: ahead of the kernels' names */
const Program *program_make(Arena *a, const Plan *p, const char *prefix);
/* tables whose names end with id, and `static const Program program_<id>` behind them */
void program_print(Buf *b, const Program *p, const char *id);
#endif

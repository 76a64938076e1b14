/* What generated code stands on: of the shared sources in templates/ the pieces that it calls, and those that these
 * call. */
#ifndef OPTC_PRELUDE_H
#define OPTC_PRELUDE_H
#include "gen/base/util.h"

/* files: NULL-terminated, in the order in which they may rest on each other. */
void prelude_put(Buf *out, Arena *a, const char *const *files, const char *target, const char *code);
#endif

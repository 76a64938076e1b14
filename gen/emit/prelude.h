/* What generated code stands on: of the shared sources in templates/ the pieces that it calls, and those that these
 * call. */
#ifndef OPTC_PRELUDE_H
#define OPTC_PRELUDE_H
#include "gen/emit/template.h"
#include "gen/ir/ir.h"

/* The holes of templates that are filled once per storage type: {{name}}, its C type {{c}}, the functions {{load}} and
 * {{store}} (empty where values are stored as they are computed), and the C type that is computed in, {{real}}. */
enum { NTYPEHOLE = 5 };
void type_holes(Type t, Hole h[NTYPEHOLE]);

/* files: NULL-terminated, in the order in which they may rest on each other. */
void prelude_put(Buf *out, Arena *a, const char *const *files, const char *target, const char *code);
#endif

/* The prelude of generated code: those functions and macros of templates/ that it uses, directly or
 * indirectly. */
#ifndef OPTC_PRELUDE_H
#define OPTC_PRELUDE_H
#include "gen/emit/template.h"
#include "gen/ir/ir.h"

/* Fills the holes of templates that are repeated for each storage type: {{name}}, its C type {{c}},
 * the functions {{load}} and {{store}} (empty if no conversion is needed), and the C type {{real}}
 * that it is computed in. */
enum { NTYPEHOLE = 5 };
void type_holes(Type t, Hole h[NTYPEHOLE]);

/* Appends the snippets that `code` needs. files: NULL-terminated; a file may use the files before
 * it. */
void prelude_put(Buf *out, Arena *a, const char *const *files, const char *target,
                 const char *code);
#endif

/* Templates: source text with named holes, embedded into the library when it is built (embed.c). */
#ifndef OPTC_TEMPLATE_H
#define OPTC_TEMPLATE_H
#include "gen/abi/embedded.h"
#include "gen/base/util.h"

typedef struct { const char *hole, *text; } Hole;

/* a whole file, such as "math.h"; NULL: none */
const char *template_text(const char *name);
/* Fills the holes of a text, or of one section ("@@ name" to the next "@@") of a file. Every hole
 * of the text must be among `holes`, which may be in any order. If a hole is alone on a line, all
 * lines of its text get its indentation.
 * false: the template has an unknown hole, or there is no such section. */
bool template_fill_text(Buf *b, const char *s, const char *end, const Hole *holes, int n);
bool template_has(const char *file, const char *section);
bool template_fill(Buf *b, const char *file, const char *section, const Hole *holes, int n);
#endif

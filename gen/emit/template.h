/* Templates: readable source with named holes, embedded into the library when it is built (embed.c). */
#ifndef OPTC_TEMPLATE_H
#define OPTC_TEMPLATE_H
#include "gen/abi/embedded.h"
#include "gen/base/util.h"

typedef struct { const char *hole, *text; } Hole;

const char *template_text(const char *name);                       /* a whole file, such as "math.h" */
/* Fills one section ("@@ name" to the next) of a file; every hole must be named, in any order. A hole alone on a line
 * takes as many lines as its text has, each as deep as the hole stands. false: a bug in the template. */
bool template_fill_text(Buf *b, const char *s, const char *end, const Hole *holes, int n);      /* of a text */
bool template_fill(Buf *b, const char *file, const char *section, const Hole *holes, int n);
#endif

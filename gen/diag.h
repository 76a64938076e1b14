/* A failure: what, and where in which file. Passes fill it once and return false; the first message wins. */
#ifndef OPTC_DIAG_H
#define OPTC_DIAG_H
#include "util.h"

#include "../templates/near.h"

typedef struct Diag { char *text; int line; char file[256]; } Diag;

/* file may be NULL (no place), line 0 (the whole file). source, where given, is the file's text: the line is quoted. */
void diag_set(Diag *d, const char *file, int line, const char *source, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void diag_free(Diag *d);

/* "; did you mean 'a' or 'b'?" from the nearest of names, or "" */
const char *near_text(const Near *n, Arena *a);
#endif

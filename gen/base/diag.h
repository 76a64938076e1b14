/* A failure: what, and where in which file. Passes fill it once and return false; the first message wins. */
#ifndef OPTC_DIAG_H
#define OPTC_DIAG_H
#include "gen/base/util.h"

#include "gen/abi/near_names.h"

/* What failed: the spec; memory, which makes any message before it doubtful and has none of its own (text NULL); a
 * file. */
typedef enum { DIAG_SPEC, DIAG_MEMORY, DIAG_FILE } DiagKind;
typedef struct Diag { char *text; int line; char file[256]; DiagKind kind; } Diag;

/* file may be NULL (no place), line 0 (the whole file). source, where given, is the file's text: the line is quoted.
 * Control characters, which a spec may put into its own words, come out as blanks. */
void diag_set(Diag *d, const char *file, int line, const char *source, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void diag_memory(Diag *d);
void diag_free(Diag *d);

/* "; did you mean 'a' or 'b'?" from the nearest of names, or "" */
const char *near_text(const Near *n, Arena *a);
#endif

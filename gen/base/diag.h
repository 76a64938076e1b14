/* Diagnostics: the message, file and line of a failure. A pass that fails sets it and returns
 * false; later messages are ignored. */
#ifndef OPTC_DIAG_H
#define OPTC_DIAG_H
#include "gen/base/util.h"

#include "gen/abi/near_names.h"

/* The cause: an error in a spec, lack of memory, or a file. DIAG_MEMORY discards earlier messages
 * and has none (text NULL). */
typedef enum { DIAG_SPEC, DIAG_MEMORY, DIAG_FILE } DiagKind;
typedef struct Diag { char *text; int line; char file[256]; DiagKind kind; } Diag;

/* file may be NULL (no position), line 0 (the whole file). source: the file's text, from which the
 * line is quoted, or NULL. Control characters, which may come from a spec, become blanks. */
void diag_set(Diag *d, const char *file, int line, const char *source, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void diag_memory(Diag *d);
void diag_free(Diag *d);

/* "; did you mean 'a' or 'b'?" with the nearest names, or "" */
const char *near_text(const Near *n, Arena *a);
#endif

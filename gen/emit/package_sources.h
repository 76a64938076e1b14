/* The sources of the runtime that package_text.c pastes into a package. Results are in the
 * package's arena. */
#ifndef OPTC_PACKAGE_SOURCES_H
#define OPTC_PACKAGE_SOURCES_H
#include "gen/emit/package_text.h"

/* The files that a package contains, in four sections: headers (each after the headers that it
 * includes), loops over elements, code of steps, code of bindings. The last three have different
 * levels of optimization. end: the number of the first file after each section. */
typedef struct PackSources { const char **path; int n, cap, end[4]; } PackSources;
bool pack_sources(Pack *p, PackSources *s);
const char *pack_source(const char *path);                 /* its text; NULL: it is not embedded */
/* Pastes sources number from..to - 1, with the names of `header` renamed. */
bool pack_paste(Pack *p, Buf *b, const char *header, const PackSources *s, int from, int to);
const char *pack_public_header(Pack *p);
/* Prints text with the public names of `header` renamed to this package's prefix. */
void pack_rename(const Pack *p, Buf *b, const char *header, const char *s, size_t len);
const char *pack_upper(Arena *a, const char *s);
#endif

/* Facts about the specs of the library, for `optc list` and `optc show`. Texts come from the spec's fields, numbers
 * from its plan. */
#ifndef OPTC_CATALOGUE_H
#define OPTC_CATALOGUE_H
#include "tools/tools.h"

/* ---- catalogue_entry.c ---- */
typedef struct CatalogueEntry {
    const char *library;       /* "adamw", "wrappers/ema" */
    Fields fields;
    /* Bytes per element that a step moves, and those of the states: "28", "24-32", "0-4+" (+: some states are not
     * elements). Of a wrapper: what it adds to sgd. */
    const char *moved, *states;
} CatalogueEntry;
/* The name after the folder of wrappers; NULL: the spec is a rule. */
const char *catalogue_wrapper(const char *library_name);
/* Reads and compiles a spec of the library. Prints the reason of a failure. */
bool catalogue_entry(Arena *a, const char *library_name, const CompileOpts *c, CatalogueEntry *out);

/* ---- catalogue_pages.c ---- */
/* All specs: rules, then wrappers, by family and name. NULL: one of them failed, and the reason was printed. */
CatalogueEntry *catalogue_read(Arena *a, const CompileOpts *c, int *n);
int catalogue_group(const CatalogueEntry *v, int n, int from);         /* the end of the family that starts at from */
void catalogue_markdown(const CatalogueEntry *v, int n, Buf *b);
#endif

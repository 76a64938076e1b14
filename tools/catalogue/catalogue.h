/* Facts about the specs of the library, for `optc list` and `optc show`. Texts come from the spec's
 * fields, numbers from its plan. */
#ifndef OPTC_CATALOGUE_H
#define OPTC_CATALOGUE_H
#include "tools/tools.h"

/* ---- catalogue_entry.c ---- */
typedef struct CatalogueEntry {
    const char *library;       /* "adamw", "wrappers/ema" */
    Fields fields;
    /* Bytes per element that a step moves, and those of the states: "28", "24-32", "0-4+" (+: some
     * states are not elements). Of a wrapper: what it adds to sgd. */
    const char *moved, *states;
} CatalogueEntry;
/* The name after the folder of wrappers; NULL: the spec is a rule. */
const char *catalogue_wrapper(const char *library_name);
/* Reads and compiles a spec of the library. Prints the reason of a failure. */
bool catalogue_entry(Arena *a, const char *library_name, const CompileOpts *c, CatalogueEntry *out);

/* ---- catalogue_pages.c ---- */
/* All specs: rules, then wrappers, by family and name. NULL: one of them failed, and the reason was
 * printed. */
CatalogueEntry *catalogue_read(Arena *a, const CompileOpts *c, int *n);
/* the end of the family that starts at from */
int catalogue_group(const CatalogueEntry *v, int n, int from);
void catalogue_markdown(const CatalogueEntry *v, int n, Buf *b);

/* ---- catalogue_html.c ---- */
/* The median losses of a rule at steps 0, every, 2 every, …, by optc race --curves. */
typedef struct CatalogueCurve {
    const char *rule, *task, *command;
    double steps, every, target, *loss;
    int npoint;
} CatalogueCurve;
/* NULL: failed, and the reason was printed */
CatalogueCurve *catalogue_curves(Arena *a, const char *path, int *n);
/* ncurve 0: a page without curves. */
void catalogue_html(const CatalogueEntry *v, int n, const CatalogueCurve *curve, int ncurve,
                    Buf *b);
#endif

/* The catalogue of the library, by family, as a Markdown page. */
#include "tools/catalogue/catalogue.h"

#include "optc.h"

#include <stdlib.h>
#include <string.h>

static int by_family(const void *x, const void *y)
{
    const CatalogueEntry *a = x, *b = y;
    int wrapper = (catalogue_wrapper(a->library) != NULL) - (catalogue_wrapper(b->library) != NULL);
    int family = strcmp(a->fields.family, b->fields.family);
    return wrapper ? wrapper : family ? family : strcmp(a->fields.name, b->fields.name);
}

CatalogueEntry *catalogue_read(Arena *a, const CompileOpts *c, int *n)
{
    *n = optc_library_size();
    CatalogueEntry *v = NEWS(a, CatalogueEntry, *n + 1);
    for (int i = 0; i < *n; i++)
        if (!catalogue_entry(a, optc_library_name(i), c, &v[i]))
            return NULL;
    qsort(v, (size_t)*n, sizeof *v, by_family);
    return v;
}

int catalogue_group(const CatalogueEntry *v, int n, int from)
{
    int i = from + 1;
    while (i < n && !catalogue_wrapper(v[i].library) == !catalogue_wrapper(v[from].library) &&
           !strcmp(v[i].fields.family, v[from].fields.family))
        i++;
    return i;
}

/* A cell of a Markdown table: | is escaped, and signs that start a tag or emphasis. */
static void cell(Buf *b, const char *s)
{
    for (buf_puts(b, " "); *s; s++) {
        if (strchr("|<>*_\\", *s))
            buf_puts(b, "\\");
        buf_add(b, s, 1);
    }
    buf_puts(b, " |");
}

void catalogue_markdown(const CatalogueEntry *v, int n, Buf *b)
{
    int rules = 0;
    while (rules < n && !catalogue_wrapper(v[rules].library))
        rules++;
    buf_printf(
        b,
        "# Catalogue\n\n`optc show NAME` prints one of these with its code, its cost and the "
        "wrappers that "
        "accept it.\n`optc list --markdown` writes this page from the specs. A page with curves is "
        "made by\n"
        "`optc list --html --curves specs/curves.jsonl -o catalogue.html`.\n\n"
        "- **state**: bytes per parameter that the states take in f32. A + means that further "
        "states are "
        "not\n  elements: rows, columns, squares or numbers.\n"
        "- **moves**: bytes per parameter that a step reads and writes, without products of "
        "matrices. Of "
        "a\n  wrapper both columns have what it adds to `sgd`.\n"
        "- **compared with**: the implementation that computed the trajectories of its tests.\n"
        "\nThere are %d rules and %d wrappers.\n",
        rules, n - rules);
    for (int i = 0, end; i < n; i = end) {
        bool wrapper = catalogue_wrapper(v[i].library) != NULL;
        end = catalogue_group(v, n, i);
        buf_printf(b,
                   "\n## %s: %s\n| name | what it does | when to use it | state | moves | compared "
                   "with |\n"
                   "|---|---|---|---|---|---|\n",
                   wrapper ? "Wrappers" : "Rules",
                   *v[i].fields.family ? v[i].fields.family : "others");
        for (int k = i; k < end; k++) {
            const Fields *f = &v[k].fields;
            buf_printf(b, "| [`%s`](%s.lua) |", f->name, v[k].library);
            const char *const text[] = {f->doc, f->use, v[k].states, v[k].moved, f->follows};
            for (size_t t = 0; t < sizeof text / sizeof *text; t++)
                cell(b, text[t]);
            buf_puts(b, "\n");
        }
    }
}

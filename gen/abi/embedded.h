/* Texts that the build puts into the library (gen/base/embed.c). */
#ifndef OPTC_EMBEDDED_H
#define OPTC_EMBEDDED_H
typedef struct { const char *name, *text; } Embedded;
/* Each ends with a NULL name. */
extern const Embedded embedded_templates[], embedded_specs[], embedded_shared[], embedded_tuned[],
    embedded_core[];
#endif

/* Targets that code is planned and emitted for. One constant per target holds every fact; emit_c.c
 * and emit_cuda.c define them. */
#ifndef OPTC_TARGET_H
#define OPTC_TARGET_H
#include "gen/ir/ir.h"

struct Gen;
struct EmitOptions;

typedef struct Target {
    const char *name;                          /* as in `optc emit --target` */
    /* planning */
    /* products use the GPU's types (product_info) and tensor cores where possible; stages may
     * compute half of a symmetric result */
    bool gpu;
    /* emission */
    const char *templates;                     /* a file with its template sections */
    /* a second file with sections of single statements; or NULL */
    const char *statements;
    const char *restricted;                    /* the restrict qualifier of pointers */
    /* the table of array numbers that a shared kernel takes */
    const char *array_slot;
    const char *const *prelude;                /* shared sources that its code may call, in order */
    const char *const *reserved;               /* names that its templates use */
    bool (*emit)(const struct Gen *g, const struct EmitOptions *o, Arena *a, Buf *out);
} Target;
extern const Target target_c, target_cuda;
extern const Target *const gen_targets[];      /* all, NULL-terminated */
const Target *target_by_name(const char *name);                    /* NULL: none */

/* The storage type of a product's operands on a target. */
static inline Type target_product(const Target *t, Product p)
{
    return t->gpu ? product_info[p].gpu : product_info[p].cpu;
}
#endif

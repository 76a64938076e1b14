/* Targets: what code is planned and emitted for. One constant per target holds every fact; emit_c.c and emit_cuda.c
 * define them. */
#ifndef OPTC_TARGET_H
#define OPTC_TARGET_H
#include "gen/ir/ir.h"

struct Gen;
struct EmitOptions;

typedef struct Target {
    const char *name;                          /* as `optc emit --target` takes it */
    /* planning */
    bool gpu;                                  /* its products are the GPU's (product_info), on tensor cores where they
                                                * can be, and stages may compute half of a symmetric result */
    /* emission */
    const char *templates;                     /* the file of its sections */
    const char *restricted;                    /* of a pointer: nothing else points there */
    const char *array_slot;                    /* the numbers of arrays, where they are told */
    const char *const *prelude;                /* shared sources that its code may call, in order */
    const char *const *reserved;               /* names that its templates use themselves */
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

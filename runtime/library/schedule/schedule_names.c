/* Names of the values that ops read and write: an array holds several, one after another. */
#include "runtime/library/schedule/schedule.h"

#include "runtime/core/shard/shard.h"

#include <string.h>

/* now: the value that an array holds at this point, by variant of the rule, then array. Variants
 * use an array for different values. Arrays of the group are the same for all. */
typedef struct Names {
    Arena *a;
    const optc_binding *b;
    const char **now;
} Names;

/* The rule's variant of a role (sharded bindings), or the variant itself. */
static int variant_of_role(const optc_binding *b, int role)
{
    for (int v = 0; b->shards && v < b->rule->program->nvariant; v++)
        for (int k = 0; k < NROLE; k++)
            if (b->shards->role[v][k] == role)
                return v;
    return role;
}

static const char **name_at(const Names *x, int role, int array)
{
    const Program *p = x->b->program;
    int variant = role < 0 ? 0 : variant_of_role(x->b, role);
    return &x->now[(p->array[array].dom == GROUP ? 0 : variant) * p->narray + array];
}

static const char **names_of_arrays(const Names *x, const ScheduleOp *op)
{
    const int role = schedule_role(op), all = op->nreads + op->nwrites;
    const char **name = NEWS(x->a, const char *, all + 1);
    for (int i = 0; i < all; i++) {
        const char **now =
            name_at(x, role, i < op->nreads ? op->reads[i] : op->writes[i - op->nreads]);
        if (op->stage && op->stage->value)
            *now = op->stage->value[i];
        name[i] = *now;
    }
    return name;
}

static const char **names_of_items(const Names *x, const Exchange *e)
{
    const char **name = NEWS(x->a, const char *, e->nitem + 1);
    for (int i = 0; i < e->nitem; i++)
        name[i] = *name_at(x, e->item[i].variant, e->item[i].array);
    return name;
}

const char ***schedule_names(Arena *a, const optc_binding *b, const Schedule *s)
{
    const Program *p = b->program;
    Names x = {a, b, NEWS(a, const char *, p->nvariant * p->narray + 1)};
    const char ***name = NEWS(a, const char **, s->n + 1);
    for (int k = 0; k < p->nvariant * p->narray; k++)
        x.now[k] = p->array[k % p->narray].name;
    for (int i = 0; i < s->n; i++)
        name[i] = s->op[i].kind == SCHEDULE_EXCHANGE
                      ? names_of_items(&x, &b->shards->exchange[s->op[i].what])
                      : names_of_arrays(&x, &s->op[i]);
    return name;
}

/* Lists the tensors that a checkpoint of some bindings contains, with their names, types, shapes
 * and memory. */
#include "runtime/core/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */
CORE const SafeType *saved_dtype(int type)
{
    static const char *const known[][2] = {{"float32", "F32"},
                                           {"float64", "F64"},
                                           {"bfloat16", "BF16"},
                                           {"float16", "F16"},
                                           {"float8_e4m3fn", "F8_E4M3"},
                                           {"float8_e5m2", "F8_E5M2"},
                                           {"uint8", "U8"},
                                           {"int16", "I16"},
                                           {"int8", "I8"}};
    optc_type_info x = {NULL, NULL, 0, 0};
    optc_type_about((optc_type)(type + 1), &x);
    for (size_t i = 0; x.dtype && i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i][0], x.dtype))
            return safe_type(known[i][1]);
    return NULL;
}

/* ---- names ---- */
static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const Tensor *const *)a)->name, (*(const Tensor *const *)b)->name);
}

static bool usable_name(const char *name) { return name && *name && safe_utf8(name, strlen(name)); }

/* Marks the tensors whose names can be used: UTF-8 that no other tensor of the binding has. Others
 * are called by their number, as "#3". false: out of memory. */
static bool mark_names(const optc_binding *b, bool *usable)
{
    const Tensor **sorted = (const Tensor **)malloc(sizeof *sorted * (size_t)(b->ntensor + 1));
    int n = 0;
    for (int i = 0; sorted && i < b->ntensor; i++)
        if ((usable[i] = usable_name(b->tensor[i].name)))
            sorted[n++] = &b->tensor[i];
    if (n)
        qsort(sorted, (size_t)n, sizeof *sorted, by_tensor_name);
    for (int i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            usable[sorted[i - 1] - b->tensor] = usable[sorted[i] - b->tensor] = false;
    free(sorted);
    return sorted != NULL;
}

/* ---- items ---- */
/* Adds an item; its name is PREFIX OWNER STATE SUFFIX. */
static bool add_item(SavedList *l, SavedItem x, const char *owner, const char *state,
                     const char *suffix)
{
    if (l->n == l->room) {
        SavedItem *more = (SavedItem *)realloc(l->item, sizeof *more * (size_t)(2 * l->room + 16));
        if (!more)
            return false;
        l->item = more;
        l->room = 2 * l->room + 16;
    }
    const char *const parts[] = {l->binding[x.binding].prefix, owner, state, suffix};
    x.name = l->names.n;
    for (int i = 0; i < 4; i++)
        safe_add(&l->names, parts[i], strlen(parts[i]));
    safe_add(&l->names, "", 1);
    l->binding[x.binding].items += x.array != PARAM_ARRAY;
    l->item[l->n++] = x;
    return !l->names.failed;
}

static bool dims_fit(const int64_t *dim, int rank, int64_t count)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++)
        n *= dim[k];
    return n == count;
}

/* A state's values, and its scales if they are block codes. Elementwise states have the parameter's
 * shape; others, and those of parameters that are not row-major, one dimension. t NULL: of a
 * group. */
static bool add_state(SavedList *l, int binding, int array, const Tensor *t, const char *owner,
                      void *at, int64_t count, int stored)
{
    const optc_binding *b = l->binding[binding].b;
    const ProgArray *m = &b->program->array[array];
    SavedItem x;
    memset(&x, 0, sizeof x);
    x.type = saved_dtype(stored);
    x.count = count;
    x.at = (char *)at;
    x.tensor = t ? (int)(t - b->tensor) : -1;
    x.binding = binding, x.array = array, x.stored = stored;
    if (t && m->dom == ELEM && !t->permuted) {
        const int64_t *dim = dims_fit(t->dim, t->rank, count) ? t->dim : t->whole_dim;
        x.dim = dims_fit(dim, t->rank, count) ? dim : NULL;
        x.rank = x.dim ? t->rank : 0;
    }
    if (!x.type || !add_item(l, x, owner, array == PARAM_ARRAY ? "param" : m->name, ""))
        return false;
    if (!type_is_coded(stored))
        return true;
    int block = b->program->type[stored].block;
    x.type = safe_type("F32");
    x.count = (count + block - 1) / block;
    x.at = (char *)at + x.count * block;
    x.dim = NULL, x.rank = 0;
    x.scales = true;
    return add_item(l, x, owner, m->name, "/scale");
}

static bool add_tensor_states(SavedList *l, int binding, int i, bool usable)
{
    const optc_binding *b = l->binding[binding].b;
    const Program *p = b->program;
    const Tensor *t = &b->tensor[i];
    char number[24];
    snprintf(number, sizeof number, "#%d/", i);
    size_t len = usable ? strlen(t->name) : 0;
    char *owner = usable ? (char *)malloc(len + 2) : number;
    bool ok = owner != NULL;
    if (usable && ok) {
        memcpy(owner, t->name, len);
        strcpy(owner + len, "/");
    }
    for (int k = 0; k < p->narray && ok; k++) {
        const ProgArray *m = &p->array[k];
        int entry = array_visible(m, false) && m->dom != GROUP ? shards_state_entry(b, i, k) : -1;
        if (l->params && k == PARAM_ARRAY)
            entry = i;
        if (entry < 0)
            continue;
        const Tensor *x = &b->tensor[entry];
        int64_t count = dom_len(m->dom, x->shape);
        if (x->mem[k] || (!count && (m->held_by >> x->variant & 1)))
            ok = add_state(l, binding, k, t, owner, x->mem[k], count,
                           plain_type(stored_type(p->type, m->type, t->whole.n)));
    }
    if (usable)
        free(owner);
    return ok;
}

static bool add_group_states(SavedList *l, int binding, int group)
{
    const optc_binding *b = l->binding[binding].b;
    const Program *p = b->program;
    char owner[40];
    bool ok = true;
    snprintf(owner, sizeof owner, "optc.group%d/", group);
    for (int k = 0; k < p->narray && ok; k++)
        if (array_visible(&p->array[k], false) && p->array[k].dom == GROUP &&
            p->array[k].held_by && b->group[group].mem[k])
            ok = add_state(l, binding, k, NULL, owner, b->group[group].mem[k], 1,
                           plain_type(stored_type(p->type, p->array[k].type, 1)));
    return ok;
}

static bool add_states(SavedList *l, int binding)
{
    const optc_binding *b = l->binding[binding].b;
    bool *usable = (bool *)calloc((size_t)b->ntensor + 1, sizeof *usable);
    bool ok = usable && mark_names(b, usable);
    for (int i = 0; i < b->ngroup && ok; i++)
        ok = add_group_states(l, binding, i);
    for (int i = 0; i < b->ntensor && ok; i++)
        ok = add_tensor_states(l, binding, i, usable[i]);
    free(usable);
    return ok;
}

static bool add_table(SavedList *l, int binding, const char *name, const char *dtype,
                      const void *host, const int64_t *dim, int rank)
{
    SavedItem x;
    memset(&x, 0, sizeof x);
    x.type = safe_type(dtype);
    x.count = 1;
    for (int k = 0; k < rank; k++)
        x.count *= dim[k];
    x.host = host;
    x.dim = dim, x.rank = rank;
    x.tensor = -1, x.binding = binding, x.array = -1;
    return add_item(l, x, "", name, "");
}

/* ---- bindings ---- */
static optc_status read_tables(SavedBinding *x, bool counts)
{
    const optc_binding *b = x->b;
    int64_t now = b->steps;
    optc_status s = counts ? b->rule->device->get_t(b, &now) : OPTC_OK;
    x->steps[0] = now;
    for (int i = 0; i < b->ntensor; i++)
        x->steps[i + 1] = tensor_steps(b, i, now);
    for (int i = 0; i < b->ngroup * b->program->nhyper && s == OPTC_OK; i++) {
        int group = i / b->program->nhyper, at = i % b->program->nhyper + 1;
        const DeviceScalar *from = hyper_device_scalar(b, group, at);
        x->hyper[i] = b->group[group].hyper[at];
        if (from)
            s = device_scalar_now(b, from, "optc_save", &x->hyper[i]);
    }
    return s;
}

static optc_status add_binding(SavedList *l, const char *call, int i, bool counts)
{
    SavedBinding *x = &l->binding[i];
    const optc_binding *b = x->b;
    x->steps_dim[0] = 1 + (int64_t)b->ntensor;
    x->hyper_dim[0] = b->ngroup, x->hyper_dim[1] = b->program->nhyper;
    x->steps = (int64_t *)malloc(sizeof *x->steps * (size_t)x->steps_dim[0]);
    x->hyper = (double *)malloc(sizeof *x->hyper * (size_t)(b->ngroup * b->program->nhyper + 1));
    if (!x->steps || !x->hyper)
        return no_memory(call);
    optc_status s = read_tables(x, counts);
    if (s != OPTC_OK)
        return s;
    return add_table(l, i, "optc.t", "I64", x->steps, x->steps_dim, 1) &&
                   add_table(l, i, "optc.hyper", "F64", x->hyper, x->hyper_dim, 2) &&
                   add_states(l, i)
               ? OPTC_OK
               : no_memory(call);
}

static int by_text_of(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static optc_status check_names(const SavedList *l, const char *call)
{
    const char **names = (const char **)malloc(sizeof *names * (size_t)(l->n + 1));
    optc_status s = names ? OPTC_OK : no_memory(call);
    for (int64_t i = 0; names && i < l->n; i++)
        names[i] = saved_name(l, &l->item[i]);
    if (names && l->n)
        qsort(names, (size_t)l->n, sizeof *names, by_text_of);
    for (int64_t i = 1; i < l->n && s == OPTC_OK; i++)
        if (!strcmp(names[i - 1], names[i]))
            s = fail(OPTC_ERROR_ARGUMENT,
                     "%s: two tensors of the file would be called '%.200s': give the tensors "
                     "other names, or the bindings other prefixes",
                     call, names[i]);
    free(names);
    return s;
}

static optc_status take_prefixes(SavedList *l, const char *call, const optc_checkpoint *c)
{
    for (int i = 0; i < l->nbinding; i++) {
        SavedBinding *x = &l->binding[i];
        if (l->nbinding > 1)
            snprintf(x->number, sizeof x->number, "%d.", i);
        x->prefix = c->prefix ? c->prefix[i] : x->number;
        if (!x->prefix || !safe_utf8(x->prefix, strlen(x->prefix)))
            return fail(OPTC_ERROR_ARGUMENT, "%s: the prefix of binding %d is %s", call, i,
                        x->prefix ? "not UTF-8" : "NULL");
        for (int k = 0; k < i; k++)
            if (!strcmp(l->binding[k].prefix, x->prefix))
                return fail(OPTC_ERROR_ARGUMENT,
                            "%s: bindings %d and %d have the same prefix '%.100s'", call, k, i,
                            x->prefix);
    }
    return OPTC_OK;
}

CORE optc_status saved_make(SavedList *l, const char *call, optc_binding *const *b, int n,
                            const optc_checkpoint *c, bool counts)
{
    memset(l, 0, sizeof *l);
    if (!b || n < 1)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s", call,
                    !b ? "the list of bindings is NULL" : "n must be 1 or more");
    for (int i = 0; i < n; i++)
        if (!b[i])
            return fail(OPTC_ERROR_ARGUMENT, "%s: binding %d is NULL", call, i);
    if (!(l->binding = (SavedBinding *)calloc((size_t)n, sizeof *l->binding)))
        return no_memory(call);
    l->nbinding = n;
    l->params = c->params != 0;
    for (int i = 0; i < n; i++)
        l->binding[i].b = b[i];
    optc_status s = take_prefixes(l, call, c);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = add_binding(l, call, i, counts);
    return s == OPTC_OK ? check_names(l, call) : s;
}

CORE void saved_free(SavedList *l)
{
    for (int i = 0; i < l->nbinding; i++) {
        free(l->binding[i].steps);
        free(l->binding[i].hyper);
    }
    free(l->binding);
    free(l->item);
    free(l->names.s);
    memset(l, 0, sizeof *l);
}

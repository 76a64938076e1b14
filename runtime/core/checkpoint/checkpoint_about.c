/* The metadata of a binding in a checkpoint: which rule and pieces it has, and how its states are
 * stored. */
#include "runtime/core/checkpoint/checkpoint.h"

#include "gen/abi/hash.h"
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

CORE const char *about_key(About k)
{
    static const char *const keys[NABOUT] = {
        "optc.rule",  "optc.with",  "optc.options", "optc.rank", "optc.cut",    "optc.strides",
        "optc.order", "optc.types", "optc.hypers",  "optc.t",    "optc.tensors"};
    return keys[k];
}

static uint64_t hash_cut(const optc_binding *b)
{
    uint64_t h = 1;
    for (int i = 0; i < b->ntensor; i++)                   /* dim, then whole_dim and offset */
        h = hash_bytes(h, b->tensor[i].dim, sizeof(int64_t) * 3 * (size_t)b->tensor[i].rank);
    return h;
}

/* 0: all tensors are row-major. States of others are saved in memory order. */
static uint64_t hash_strides(const optc_binding *b)
{
    uint64_t h = 0;
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].permuted) {
            const uint64_t x[2] = {(uint64_t)i, b->tensor[i].layout};
            h = hash_bytes(h + 1, x, sizeof x);
        }
    return h;
}

/* Step counts and draws go by the number of a tensor, hyperparameters by the number of its
 * group. */
static uint64_t hash_order(const optc_binding *b)
{
    uint64_t h = 1;
    for (int i = 0; i < b->ntensor; i++) {
        const char *name = b->tensor[i].name ? b->tensor[i].name : "";
        const int64_t x[2] = {b->tensor[i].group, (int64_t)strlen(name)};
        h = hash_bytes(hash_bytes(h, x, sizeof x), name, strlen(name));
    }
    return h;
}

static void types_text(SafeBuf *out, const Program *p)
{
    safe_print(out, "param=%s,grad=%s", p->type[p->p].name, p->type[p->g].name);
    for (int k = 0; k < p->narray; k++)
        if (array_visible(&p->array[k], false))
            safe_print(out, ",%s=%s", p->array[k].name, p->type[p->array[k].type].name);
}

CORE void about_text(SafeBuf *out, const SavedBinding *x, About k)
{
    const Program *p = x->b->program;
    const char *const texts[] = {p->spec, p->with, p->options};
    safe_add(out, "", 0);                                  /* an empty text is not NULL */
    switch (k) {
    case ABOUT_RULE:
    case ABOUT_WITH:
    case ABOUT_OPTIONS: safe_add(out, texts[k], strlen(texts[k])); break;
    case ABOUT_RANK:
        if (x->b->shards)
            safe_print(out, "%d/%d", x->b->shards->comm.rank, x->b->shards->comm.ranks);
        break;
    case ABOUT_CUT: safe_print(out, "%016llx", (unsigned long long)hash_cut(x->b)); break;
    case ABOUT_STRIDES: safe_print(out, "%016llx", (unsigned long long)hash_strides(x->b)); break;
    case ABOUT_ORDER: safe_print(out, "%016llx", (unsigned long long)hash_order(x->b)); break;
    case ABOUT_TYPES: types_text(out, p); break;
    case ABOUT_HYPERS:
        for (int i = 0; i < p->nhyper; i++)
            safe_print(out, "%s%s", i ? "," : "", p->hyper[i].name);
        break;
    case ABOUT_T: safe_print(out, "%lld", (long long)x->steps[0]); break;
    case ABOUT_TENSORS: safe_print(out, "%lld", (long long)x->items); break;
    default: break;
    }
}

CORE const char *about_in(const SafeFile *f, const char *prefix, About k, bool *failed)
{
    SafeBuf key;
    memset(&key, 0, sizeof key);
    safe_add(&key, prefix, strlen(prefix));
    safe_add(&key, about_key(k), strlen(about_key(k)));
    const char *text = key.failed ? NULL : safe_meta(f, key.s);
    *failed = *failed || key.failed;
    free(key.s);
    return text;
}

CORE const char *about_value(const char *list, const char *name, size_t *n)
{
    size_t len = strlen(name);
    for (const char *s = list; s && *s; s += strcspn(s, ","), s += *s == ',')
        if (!strncmp(s, name, len) && s[len] == '=') {
            *n = strcspn(s + len + 1, ",");
            return s + len + 1;
        }
    return NULL;
}

CORE int about_index(const char *list, const char *name)
{
    size_t len = strlen(name);
    int i = 0;
    for (const char *s = list; *s; s += strcspn(s, ","), s += *s == ',', i++)
        if (strcspn(s, ",") == len && !strncmp(s, name, len))
            return i;
    return -1;
}

CORE int about_count(const char *list)
{
    int n = *list ? 1 : 0;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* One spec of the library: the texts of its fields, and the bytes of its plan. */
#include "tools/catalogue/catalogue.h"

#include <limits.h>
#include <string.h>

const char *catalogue_wrapper(const char *name)
{
    static const char folder[] = "wrappers/";
    return strncmp(name, folder, strlen(folder)) ? NULL : name + strlen(folder);
}

typedef struct Range { int least, most; } Range;

static Range range_add(Range r, int x)
{
    return (Range){x < r.least ? x : r.least, x > r.most ? x : r.most};
}

static const char *range_text(Arena *a, Range r)
{
    if (r.most == r.least)
        return arena_printf(a, "%d", r.least);
    return arena_printf(a, r.least < 0 ? "%d to %d" : "%d-%d", r.least, r.most);
}

/* Bytes per element that a step moves, least and most over variants and phases. */
static Range moved(const Plan *p)
{
    int step = spec_entry(p, "step");
    Range r = {INT_MAX, 0};
    for (int v = 0; v < p->rule->nvariant; v++) {
        int lo, hi;
        spec_bytes(p, step < 0 ? 0 : step, v, &lo, &hi);
        r = range_add(range_add(r, lo), hi);
    }
    return r;
}

/* Bytes per element of the states, with a + if some state is a matrix or a list. */
static const char *state_text(Arena *a, const Plan *p, const char *wrapper)
{
    const Rule *r = p->rule;
    Range all = {INT_MAX, 0};
    bool more = false;
    for (int v = 0; v < r->nvariant; v++) {
        int bytes = 0;
        for (int i = 0; i < r->nstate; i++) {
            const Mem *m = &p->mem[plan_mem_of_state(p, i)];
            bool used = p->state_used[v * r->nstate + i] && !r->state[i].report &&
                        fields_own(r->state[i].name, wrapper);
            bytes += used && m->dom == ELEM ? type_info[m->type].bytes : 0;
            more = more || (used && m->dom != ELEM);
        }
        all = range_add(all, bytes);
    }
    return arena_printf(a, "%s%s", range_text(a, all), more ? "+" : "");
}

/* Describes the bytes that a wrapper adds to a step of sgd. */
static const char *added_text(Arena *a, const Plan *p, const CompileOpts *c)
{
    Spec plain;
    const char *text = "";
    if (spec_open(&plain, "sgd", c, false, NULL)) {
        Range with = moved(p), without = moved(plain.gen.plan);
        text = range_text(a, (Range){with.least - without.least, with.most - without.most});
    }
    spec_close(&plain);
    return text;
}

bool catalogue_entry(Arena *a, const char *name, const CompileOpts *c, CatalogueEntry *out)
{
    Spec s;
    const char *wrapper = catalogue_wrapper(name);
    *out = (CatalogueEntry){.library = name};
    bool ok = spec_open(&s, wrapper ? wrapper : name, c, wrapper != NULL, NULL);
    if (ok) {
        const Plan *p = s.gen.plan;
        fields_read(a, arena_strndup(a, s.src.text, s.src.len), s.src.len, &out->fields);
        out->moved = wrapper ? added_text(a, p, c) : range_text(a, moved(p));
        out->states = state_text(a, p, s.wrapper);
    } else {
        spec_fail(&s);
    }
    spec_close(&s);
    return ok;
}

/* The user's choice of storage types, as text. Which states it applies to is decided by
 * pass_storage. */
#include "gen/ir/rule_passes.h"

#include <stdio.h>
#include <string.h>

static const char *const master_name[NMASTER] = {"none", "f32", "low16", "low8", "kahan"};

static int master_by_name(const char *name)
{
    for (int i = 0; i < NMASTER; i++)
        if (!strcmp(master_name[i], name))
            return i;
    return -1;
}

static bool no_such(Diag *d, const char *key, const char *value, const char *known)
{
    diag_set(d, NULL, 0, NULL, "types: '%s=%s': there is no such %s", key, value, known);
    return false;
}

static bool set_type(const char *key, const char *value, Type *out, Diag *d)
{
    int t = type_by_name(value);
    char known[256] = "storage type: use ";
    for (int i = 0; t < 0 && i < NTYPES; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", type_info[i].name);
    }
    if (t < 0)
        return no_such(d, key, value, known);
    *out = (Type)t;
    return true;
}

/* One "key=value". Names of states are checked when the rule is known; their types are checked
 * here. */
static bool parse_one(Arena *a, const char *key, const char *value, Types *out, Diag *d)
{
    Type t;
    if (!strcmp(key, "param"))
        return set_type(key, value, &out->p, d);
    if (!strcmp(key, "grad"))
        return set_type(key, value, &out->g, d);
    if (!strcmp(key, "state"))
        return set_type(key, value, &out->state, d);
    if (!strcmp(key, "master")) {
        int m = master_by_name(value);
        out->master = m < 0 ? out->master : (Master)m;
        return m >= 0 ||
               no_such(d, key, value, "way to keep rounded bits (none, f32, low16, low8, kahan)");
    }
    if (!strcmp(key, "lost")) {
        out->lost = !strcmp(value, "count");
        return out->lost || !strcmp(value, "none") ||
               no_such(d, key, value, "choice for lost updates (none, count)");
    }
    if (!strcmp(key, "edits")) {
        out->edits = !strcmp(value, "find");
        return out->edits || !strcmp(value, "none") ||
               no_such(d, key, value, "choice for edits (none, find)");
    }
    if (!set_type(key, value, &t, d))
        return false;
    if (!strcmp(key, "copy"))
        out->copy = 1 + (int)t;
    else
        out->named = arena_printf(a, "%s%s%s=%s", out->named ? out->named : "",
                                  out->named ? "," : "", key, value);
    return true;
}

/* The user's choice:
 * "param=bf16,state=q8,ema.avg=bf16,master=low16,copy=bf16,lost=count,edits=find". Keys that the
 * text does not have stay as they are in *out; keys other than param, grad, state, master, copy,
 * lost and edits name states. false: the Diag is set. */
static bool types_parse(Arena *a, const char *text, Types *out, Diag *d)
{
    for (const char *s = text ? text : ""; *s;) {
        size_t n = strcspn(s, ",");
        const char *one = arena_printf(a, "%.*s", (int)n, s), *is = strchr(one, '=');
        if (!is || is == one || !is[1]) {
            diag_set(d, NULL, 0, NULL, "types: '%s' is not KEY=TYPE, as in state=q8,ema.avg=bf16",
                     one);
            return false;
        }
        if (!parse_one(a, arena_printf(a, "%.*s", (int)(is - one), one), is + 1, out, d))
            return false;
        s += n + (s[n] == ',');
    }
    return true;
}

bool types_choose(Arena *a, const char *text, int p, int g, int state, Types *out, Diag *d)
{
    const Type none = NTYPES;
    *out = (Types){.p = p < 0 ? none : (Type)p, .g = g < 0 ? none : (Type)g,
                   .state = state < 0 ? none : (Type)state};
    if (!types_parse(a, text, out, d))
        return false;
    out->p = out->p == none ? T_F32 : out->p;
    out->g = out->g == none ? (Type)plain_type((int)out->p) : out->g;
    out->state = out->state == none ? type_info[out->p].compute : out->state;
    return true;
}

const char *types_beside(Arena *a, const Types *t)
{
    Buf b = {.arena = a};
    if (t->named && *t->named)
        buf_puts(&b, t->named);
    if (t->master)
        buf_printf(&b, "%smaster=%s", b.len ? "," : "", master_name[t->master]);
    if (t->copy)
        buf_printf(&b, "%scopy=%s", b.len ? "," : "", type_info[t->copy - 1].name);
    if (t->lost)
        buf_printf(&b, "%slost=count", b.len ? "," : "");
    if (t->edits)
        buf_printf(&b, "%sedits=find", b.len ? "," : "");
    return b.len ? buf_text(&b) : NULL;
}

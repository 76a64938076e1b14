/* Reads the fields of a spec and declares the rule's hyperparameters, options, states and
 * inputs. */
#include "gen/front/declare.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const spec_fields[] = {
    "name",  "cite",      "doc",    "hyper", "options", "args",     "inputs",
    "state", "values",    "view",   "step",  "matrix",  "products", "rank",
    "block", "gradients", "family", "use",   "follows", "vectors",  NULL};
/* Texts for people, which no pass of the compiler reads; the tools read them from the spec's
 * text. */
static const char *const catalogue_fields[] = {"family", "use", "follows"};
const char *const spec_names[] = {
    "p",    "g",      "t",    "numel", "nrows",  "ncols",   "nkernel",   "inner",      "every",
    "when", "stored", "seed", "step",  "shrink", "descend", "separable", "add_inputs", NULL};

/* The line of `key =` in the spec, for messages about a field; 1: not found. */
int field_line(const char *text, const char *key)
{
    size_t n = strlen(key);
    int line = 1;
    for (const char *s = text; *s; s++) {
        if (s[0] == '-' && s[1] == '-')                   /* a comment is not a field */
            s += strcspn(s, "\n");
        if (!*s)
            break;
        if (*s == '\n')
            line++;
        if (strncmp(s, key, n) ||
            (s > text && (isalnum((unsigned char)s[-1]) || s[-1] == '_' || s[-1] == '.')))
            continue;
        const char *e = s + n;
        e += strspn(e, " \t");
        if (*e == '=' && e[1] != '=')
            return line;
    }
    return 1;
}

void declare_fail(Trace *t, const SpecFile *s, const char *key, const char *fmt, ...)
{
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    int line = key ? field_line(s->text, key) : 1;
    if (buf_text(&b))
        diag_set(t->diag, s->path, line, s->text, "%s", buf_text(&b));
    else
        diag_memory(t->diag);
    buf_free(&b);
    errors_raise(t->L);
}

static int l_spec(lua_State *L)          /* optimizer { … } and wrapper { … } */
{
    const char *kind = lua_tostring(L, lua_upvalueindex(1));
    if (lua_type(L, 1) != LUA_TTABLE || lua_gettop(L) != 1)
        return spec_error(L, "%s takes one table: return %s { name = …, step = function() … end }",
                          kind, kind);
    lua_pushstring(L, kind);
    lua_rawsetp(L, 1, &spec_fields);    /* a key that no spec can write */
    return 1;
}

void declare_open(lua_State *L)
{
    state_init_open(L);
    fallback_open(L);
    shared_open(L);
    static const char *const kinds[] = {"optimizer", "wrapper"};
    for (int i = 0; i < 2; i++) {
        lua_pushstring(L, kinds[i]);
        lua_pushcclosure(L, l_spec, 1);
        lua_setfield(L, -2, kinds[i]);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The string keys of the table on top, sorted, so that no result depends on the order of a Lua
 * table. */
static const char **sorted_keys(Trace *t, const SpecFile *s, const char *field, int *n)
{
    lua_State *L = t->L;
    const char **v = NULL;
    int cap = 0;
    *n = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            declare_fail(t, s, field,
                         "'%s' holds an entry without a name: write %s = { name = value, … }",
                         field, field);
        if (*n >= MAX_HYPERS)
            declare_fail(t, s, field, "'%s' has over %d entries", field, MAX_HYPERS);
        PUSH(t->arena, v, *n, cap) = arena_strdup(t->arena, lua_tostring(L, -2));
    }
    if (*n)
        qsort(v, (size_t)*n, sizeof *v, by_name);
    return v;
}

static bool listed(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (!strcmp(*list, name))
            return true;
    return false;
}

void check_name(Trace *t, const SpecFile *s, const char *name, const char *what)
{
    if (!is_ident(name))
        declare_fail(t, s, name, "%s '%s' is not an identifier of at most 40 letters, digits and _",
                     what, name);
    lua_getfield(t->L, LUA_REGISTRYINDEX, "optc.builtins");
    bool builtin = lua_getfield(t->L, -1, name) != LUA_TNIL;
    lua_pop(t->L, 2);
    if (builtin || listed(spec_names, name))
        declare_fail(t, s, name, "%s '%s' takes a name the language uses itself", what, name);
    const char *full = arena_printf(t->arena, "%s%s", s->prefix, name);
    const Rule *r = t->rule;
    bool taken = false;
    for (int i = 0; i < r->nhyper; i++)
        taken = taken || !strcmp(r->hyper[i].name, full);
    for (int i = 0; i < r->nstate; i++)
        taken = taken || !strcmp(r->state[i].name, full);
    for (int i = 0; i < r->ninput; i++)
        taken = taken || !strcmp(r->input[i].name, full);
    for (int i = 0; i < r->noption; i++)
        taken = taken || !strcmp(r->option[i].name, full);
    if (taken)
        declare_fail(t, s, name, "%s '%s': the name is declared twice", what, name);
}

/* Opens a table field; false if it is absent. */
bool open_field(Trace *t, const SpecFile *s, const char *field)
{
    int ty = lua_getfield(t->L, -1, field);
    if (ty == LUA_TNIL) {
        lua_pop(t->L, 1);
        return false;
    }
    if (ty != LUA_TTABLE)
        declare_fail(t, s, field, "'%s' must be a table, not a %s", field, lua_typename(t->L, ty));
    return true;
}

static double number_field(Trace *t, const SpecFile *s, const char *name, const char *key,
                           double def)
{
    lua_State *L = t->L;
    int ty = lua_getfield(L, -1, key);
    double x = def;
    if (ty == LUA_TNUMBER)
        x = lua_tonumber(L, -1);
    else if (ty != LUA_TNIL)
        declare_fail(t, s, name, "hyperparameter '%s': %s must be a number, not a %s", name, key,
                     lua_typename(L, ty));
    lua_pop(L, 1);
    return x;
}

/* { 0.9, min = 0, max = 1 }: the default and the ends of its range. */
static void hyper_table(Trace *t, const SpecFile *s, const char *key, Hyper *h)
{
    lua_State *L = t->L;
    lua_rawgeti(L, -1, 1);
    if (lua_type(L, -1) != LUA_TNUMBER)
        declare_fail(t, s, key,
                     "hyperparameter '%s' needs its default first: { 0.9, min = 0, max = 1 }", key);
    h->def = lua_tonumber(L, -1);
    lua_pop(L, 1);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        static const char *const keys[] = {"min", "max", "above", "below", NULL};
        bool first = lua_isinteger(L, -2) && lua_tointeger(L, -2) == 1;
        if (!first && !(lua_type(L, -2) == LUA_TSTRING && listed(keys, lua_tostring(L, -2))))
            declare_fail(t, s, key,
                         "hyperparameter '%s' knows min, max, above and below beside its default",
                         key);
    }
    double above = number_field(t, s, key, "above", NAN),
           below = number_field(t, s, key, "below", NAN);
    double least = number_field(t, s, key, "min", NAN), most = number_field(t, s, key, "max", NAN);
    if ((!isnan(above) && !isnan(least)) || (!isnan(below) && !isnan(most)))
        declare_fail(t, s, key,
                     "hyperparameter '%s' has two ends on one side: min or above, max or below",
                     key);
    /* a missing end is an open infinity; max = inf is a closed one */
    h->lo_open = isnan(least);
    h->hi_open = isnan(most);
    h->lo = !isnan(above) ? above : h->lo_open ? -INFINITY : least;
    h->hi = !isnan(below) ? below : h->hi_open ? INFINITY : most;
}

static void declare_hyper(Trace *t, SpecFile *s, const char *key)
{
    lua_State *L = t->L;
    check_name(t, s, key, "hyperparameter");
    Hyper h = {arena_printf(t->arena, "%s%s", s->prefix, key), 0, -INFINITY, INFINITY, true, true};
    if (lua_type(L, -1) == LUA_TNUMBER)
        h.def = lua_tonumber(L, -1);
    else if (lua_type(L, -1) == LUA_TTABLE)
        hyper_table(t, s, key, &h);
    else
        declare_fail(t, s, key,
                     "hyperparameter '%s' must be a number or { default, min = …, max = … }", key);
    if (!hyper_allows(&h, h.def))
        declare_fail(t, s, key, "the default %g of hyperparameter '%s' is outside its range %s",
                     h.def, key, hyper_range(&h, (char[64]){0}));
    s->hyper[s->nhyper++] = t->rule->nhyper;
    PUSH(t->arena, t->rule->hyper, t->rule->nhyper, t->rule->hyper_cap) = h;
}

static void declare_input(Trace *t, SpecFile *s, const char *key)
{
    lua_State *L = t->L;
    check_name(t, s, key, "input");
    int dom = lua_type(L, -1) == LUA_TSTRING ? dom_by_words(lua_tostring(L, -1)) : -1;
    uint64_t allowed = 0;
    for (int d = 0; d < NDOM; d++)
        allowed |= (uint64_t)(dom_named((Dom)d, false, false) && d != SLICE) << d;
    if (dom < 0 || dom == SLICE)
        declare_fail(t, s, key, "input '%s' must name its domain: %s", key,
                     dom_list(t->arena, allowed, "\"", " or "));
    if (trace_dom(t, (Dom)dom) != (Dom)dom || dom_of_block((Dom)dom))
        declare_fail(
            t, s, key,
            "input '%s' has a domain of blocks: an input must be per tensor, row, column or "
            "element",
            key);
    need_axes(t, s, key, (Dom)dom);
    s->input[s->ninput++] = t->rule->ninput;
    PUSH(t->arena, t->rule->input, t->rule->ninput, t->rule->input_cap) =
        (Input){arena_printf(t->arena, "%s%s", s->prefix, key), (Dom)dom};
}

/* ---- fields that declare names, one by one ---- */
typedef struct Item { Trace *t; SpecFile *s; const char *key; Declare one; } Item;

static int l_item(lua_State *L)
{
    Item *i = lua_touserdata(L, 1);
    i->one(i->t, i->s, i->key);
    return 0;
}

typedef struct Field { Trace *t; SpecFile *s; const char *field; Declare one; } Field;

static int l_field(lua_State *L)                           /* the spec's table is on top */
{
    Field *f = lua_touserdata(L, 1);
    int n;
    if (!open_field(f->t, f->s, f->field))
        return 0;
    const char **key = sorted_keys(f->t, f->s, f->field, &n);
    for (int i = 0; i < n; i++) {
        Item item = {f->t, f->s, key[i], f->one};
        lua_pushcfunction(L, l_item);
        lua_pushlightuserdata(L, &item);
        lua_getfield(L, -3, key[i]);
        if (!errors_call(f->t, 2, 0))
            names_add(&f->s->failed, f->t->arena, key[i], strlen(key[i]));
    }
    return 0;
}

/* Declares every name of a field. An error in one declaration is recorded and the others are still
 * checked. */
static void each_name(Trace *t, SpecFile *s, const char *field, Declare one)
{
    Field f = {t, s, field, one};
    lua_pushcfunction(t->L, l_field);
    lua_pushlightuserdata(t->L, &f);
    lua_pushvalue(t->L, -3);
    errors_call(t, 2, 0);
}

static const char *text_field(Trace *t, const SpecFile *s, const char *key)
{
    int ty = lua_getfield(t->L, -1, key);
    if (ty != LUA_TNIL && ty != LUA_TSTRING)
        declare_fail(t, s, key, "'%s' must be a string", key);
    const char *x = ty == LUA_TSTRING ? arena_strdup(t->arena, lua_tostring(t->L, -1)) : "";
    lua_pop(t->L, 1);
    if (strlen(x) > MAX_TEXT)
        declare_fail(t, s, key, "'%s' is over %d bytes long", key, MAX_TEXT);
    return x;
}

/* step = rule "adamw": the fallback rule for tensors that are no matrices. */
static void declare_fallback(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    lua_getfield(L, -1, "step");
    const char *name = fallback_named(L, -1);
    bool matrix = lua_getfield(L, -2, "matrix") == LUA_TFUNCTION;
    lua_pop(L, 2);
    if (!name)
        return;
    if (s->is_wrapper || s->is_fallback)
        declare_fail(t, s, "step",
                     "step = rule \"%s\" is allowed only in the outermost rule, not in a wrapper "
                     "or in a rule that "
                     "another one uses",
                     name);
    if (!matrix)
        declare_fail(
            t, s, "step",
            "step = rule \"%s\" steps what is no matrix: the matrices need 'matrix', a function",
            name);
    s->fallback_name = name;
    t->rule->fallback = arena_strdup(t->arena, name);
}

static void check_fields(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    lua_rawgetp(L, -1, &spec_fields);
    const char *kind = lua_tostring(L, -1);
    if (!kind)
        declare_fail(t, s, NULL, "the spec must return optimizer { … } or wrapper { … }");
    bool wrapper = !strcmp(kind, "wrapper");
    lua_pop(L, 1);
    if (wrapper != s->is_wrapper) {
        const char *name = wrapper ? text_field(t, s, "name") : s->name;
        declare_fail(t, s, "name",
             wrapper ? "this is a wrapper: put it around a rule with --with %s"
                     : "%s is an optimizer, not a wrapper: --with takes wrappers",
             name);
    }
    lua_pushnil(L);
    lua_rawsetp(L, -2, &spec_fields);
    int n;
    declare_fallback(t, s);
    const char **key = sorted_keys(t, s, "optimizer", &n);
    for (int i = 0; i < n; i++) {
        bool fn = lua_getfield(L, -1, key[i]) == LUA_TFUNCTION;
        if (fn && has_arguments(L, -1))
            declare_fail(
                t, s, key[i],
                "'%s' takes no arguments: p, g, t, the states and the hyperparameters are known "
                "by name; write %s = function() … end",
                key[i], key[i]);
        lua_pop(L, 1);
        bool entry = !strcmp(key[i], "step") || !strcmp(key[i], "matrix");
        if (entry && !fn && !(!strcmp(key[i], "step") && s->fallback_name))
            declare_fail(t, s, key[i], "'%s' must be a function", key[i]);
        if (listed(spec_fields, key[i]))
            continue;
        Near near = {.want = key[i]};
        for (const char *const *k = spec_fields; *k; k++)
            near_try(&near, *k);
        if (!fn)
            declare_fail(t, s, key[i], "a spec has no field '%s'%s", key[i],
                         near_text(&near, t->arena));
        if (!is_ident(key[i]))
            declare_fail(t, s, NULL, "'%s' cannot name an entry", key[i]);
        if (s->is_fallback)
            declare_fail(t, s, key[i],
                         "a rule used as step = rule \"…\" may have only 'step' and 'matrix', not "
                         "the entry '%s'",
                         key[i]);
    }
    if (lua_getfield(L, -1, "step") == LUA_TNIL)
        declare_fail(t, s, NULL, "the spec has no 'step' function");
    lua_pop(L, 1);
}

/* The prefix of a wrapper's names: "ema." for the first wrapper of that name, "ema2." for the
 * second; inner wrappers are declared first. A wrapper of the library is named after its file; one
 * given by path, by its field `name`. */
static void make_prefix(Trace *t, SpecFile *s)
{
    int same = 1;
    if (s->wrap->file) {
        s->wrap->name = s->name;
        s->wrap->file = false;
    }
    for (const SpecFile *in = s + 1; in < t->spec + t->nspec - 1; in++)
        same += !strcmp(in->wrap->name, s->wrap->name);
    s->prefix = same == 1 ? arena_printf(t->arena, "%s.", s->wrap->name)
                          : arena_printf(t->arena, "%s%d.", s->wrap->name, same);
}

/* products = "bf16": the default precision of the rule's products. */
static void declare_products(Trace *t, SpecFile *s)
{
    const char *word = text_field(t, s, "products");
    s->product = -1;
    if (!*word)
        return;
    Buf all = {.arena = t->arena};
    for (int i = 0; i < NPRODUCT; i++)
        buf_printf(&all, "%s\"%s\"",
                   !i                  ? ""
                   : i == NPRODUCT - 1 ? " or "
                                       : ", ",
                   product_info[i].name);
    if (product_by_name(word) < 0)
        declare_fail(t, s, "products", "'products' is %s, not \"%.40s\"", buf_text(&all), word);
    if (s->is_wrapper)
        declare_fail(t, s, "products",
                     "'products' belongs to a rule, not to a wrapper: a wrapper computes as its "
                     "rule does");
    s->product = product_by_name(word);
    if (t->rule->product < 0)
        t->rule->product = s->product;
}

/* rank = 8 and block = 1024, or the name of a numeric option: the largest rank, the most rows and
 * columns of a block. */
static void declare_length(Trace *t, const SpecFile *s, const char *field, int most, int *out)
{
    lua_State *L = t->L;
    int ty = lua_getfield(L, -1, field);
    const char *name = ty == LUA_TSTRING ? arena_strdup(t->arena, lua_tostring(L, -1)) : NULL;
    if (name) {
        lua_pop(L, 1);
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        ty = lua_getfield(L, -1, name);
        lua_remove(L, -2);
        if (ty != LUA_TNUMBER)
            declare_fail(
                t, s, field,
                "'%s' must be a whole number, or the name of an option that is one: '%.40s' is "
                "not",
                field, name);
    }
    double x = lua_tonumber(L, -1);
    lua_pop(L, 1);
    if (ty == LUA_TNIL)
        return;
    if (ty != LUA_TNUMBER || !(x >= 1 && x <= most && x == floor(x)))
        declare_fail(t, s, field,
                     "'%s' must be a whole number from 1 to %d, or the name of an option", field,
                     most);
    if (*out && *out != (int)x)
        declare_fail(t, s, field,
                     "'%s' is %d here and %d in another spec of the composition: both must be "
                     "equal",
                     field, (int)x, *out);
    *out = (int)x;
}

/* rank = { share = 0.25, of = "rows" }: true, and the field is read. share: a number, or the name
 * of an option. */
static bool declare_share(Trace *t, const SpecFile *s)
{
    lua_State *L = t->L;
    Rule *r = t->rule;
    bool known = true;
    if (lua_getfield(L, -1, "rank") != LUA_TTABLE)
        return lua_pop(L, 1), false;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *k = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        known = known && (!strcmp(k, "share") || !strcmp(k, "of"));
    }
    if (lua_getfield(L, -1, "share") == LUA_TSTRING) {
        const char *name = arena_strdup(t->arena, lua_tostring(L, -1));
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        lua_getfield(L, -1, name);
        lua_replace(L, -3);
        lua_pop(L, 1);
    }
    double share = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
    lua_getfield(L, -2, "of");
    const char *of = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    bool rows = !strcmp(of, "rows"), cols = !strcmp(of, "cols");
    if (!known || !(share > 0 && share <= 1) || !(rows || cols || !strcmp(of, "side")))
        declare_fail(
            t, s, "rank",
            "rank = { share = 0.25, of = \"rows\" }: share is a number above 0 and up to 1, or "
            "the name of an option that is one; of is \"rows\", \"cols\" or \"side\", the "
            "shorter one");
    lua_pop(L, 3);
    RankShare x = {share, rows ? AXIS_ROWS : cols ? AXIS_COLS : AXIS_ONE};
    if (r->rank && (r->share.share != x.share || r->share.of != x.of))
        declare_fail(
            t, s, "rank",
            "'rank' differs from that of another spec of the composition: both must be equal");
    r->rank = MAX_DIRECTIONS;
    r->share = x;
    return true;
}

/* vectors = true, or the name of an option that is true or false. */
static void declare_vectors(Trace *t, SpecFile *s)
{
    lua_State *L = t->L;
    bool matrix = lua_getfield(L, -1, "matrix") == LUA_TFUNCTION;
    lua_pop(L, 1);
    int ty = lua_getfield(L, -1, "vectors");
    bool given = ty != LUA_TNIL;
    if (ty == LUA_TSTRING) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        lua_insert(L, -2);
        ty = lua_gettable(L, -2);
        lua_remove(L, -2);
    }
    s->vectors = lua_toboolean(L, -1);
    lua_pop(L, 1);
    if (given && ty != LUA_TBOOLEAN)
        declare_fail(t, s, "vectors",
                     "'vectors' must be true, or the name of an option that is true or false");
    if (given && (s->is_wrapper || !matrix))
        declare_fail(
            t, s, "vectors",
            "'vectors' lets the 'matrix' of a rule step tensors of one dimension too: there is %s",
            matrix ? "no rule here, but a wrapper" : "no 'matrix'");
}

/* Reads the user's arguments of a wrapper, or options. fallback_rule.c has already set those of a
 * fallback rule. */
static void read_args(Trace *t, SpecFile *s, const char *options)
{
    if (s->is_fallback)
        return;
    int narg = s->wrap ? s->wrap->narg : 0;
    /* a copy: name_args adds keys, Wrap.arg must not change */
    Arg *arg = NEWS(t->arena, Arg, narg + 1);
    if (narg)
        memcpy(arg, s->wrap->arg, sizeof *arg * (size_t)narg);
    if (options && !args_parse(t->arena, options, &arg, &narg, t->diag, "options"))
        errors_raise(t->L);
    for (int i = 0; options && i < narg; i++)
        if (!arg[i].key)
            declare_fail(t, s, "options", "options are given as name=value, not '%s'",
                         arg[i].value);
    s->arg = arg;
    s->narg = narg;
    fallback_args(t, s);
}

void declare_spec(Trace *t, SpecFile *s, const char *options)
{
    lua_State *L = t->L;
    if (lua_isnil(L, -1))
        declare_fail(t, s, NULL,
                     "the spec must return optimizer { … } or wrapper { … }, and returns nothing");
    if (lua_type(L, -1) != LUA_TTABLE)
        declare_fail(t, s, NULL, "the spec must return optimizer { … } or wrapper { … }, not a %s",
                     luaL_typename(L, -1));
    check_fields(t, s);
    const char *name = text_field(t, s, "name");
    if (!is_ident(name))
        declare_fail(t, s, "name", "'name' must be an identifier, such as name = \"adamw\"");
    s->name = name;
    for (size_t i = 0; i < sizeof catalogue_fields / sizeof *catalogue_fields; i++)
        text_field(t, s, catalogue_fields[i]);           /* refuses what is no string */
    if (s->wrap) {
        make_prefix(t, s);
    } else if (!s->is_fallback) {
        t->rule->name = name;
        t->rule->cite = text_field(t, s, "cite");
        t->rule->doc = text_field(t, s, "doc");
    }
    const char *view = text_field(t, s, "view");
    s->view = !strcmp(view, "last") ? VIEW_LAST : VIEW_FIRST;
    s->plain = !strcmp(view, "plain");
    if (*view && !s->plain && strcmp(view, "last") && strcmp(view, "first"))
        declare_fail(t, s, "view", "'view' is \"first\", \"last\" or \"plain\", not \"%s\"", view);
    read_args(t, s, options);
    s->hyper = NEWS(t->arena, int, MAX_HYPERS);
    s->input = NEWS(t->arena, int, MAX_HYPERS);
    s->state = NEWS(t->arena, int, MAX_STATES);
    lua_newtable(L);
    s->opts = luaL_ref(L, LUA_REGISTRYINDEX);
    name_args(t, s, s->arg, s->narg);
    each_name(t, s, "options", declare_option);
    each_name(t, s, "hyper", declare_hyper);
    declare_products(t, s);
    if (!declare_share(t, s))
        declare_length(t, s, "rank", MAX_DIRECTIONS, &t->rule->rank);
    declare_length(t, s, "block", MAX_BLOCK, &t->rule->block);
    declare_vectors(t, s);
    if (t->rule->block && t->rule->share.share > 0)
        declare_fail(t, s, "rank",
                     "'rank' as a share cannot be combined with 'block': give a number");
    declare_gradients(t, s);
    each_name(t, s, "state", declare_state);
    each_name(t, s, "values", declare_value);
    each_name(t, s, "inputs", declare_input);
    apply_args(t, s, s->arg, s->narg);
    s->table = luaL_ref(L, LUA_REGISTRYINDEX);
}

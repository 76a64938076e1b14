/* Runs a spec on symbolic values and records its assignments.
 * Needs: the spec's text and a function that finds wrappers by name. Result: a Rule whose graph may hold dead nodes. */
#include "gen/front/trace.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static char mark_p;                      /* the value of `p` in declarations: only copy(p) accepts it */

/* find_hyper, find_state, find_input: the index in the rule of one of this spec's names, or -1. */
#define FIND(kind)                                                                                 \
    static int find_##kind(const Trace *t, const SpecFile *s, const char *name)                    \
    {                                                                                              \
        size_t skip = strlen(s->prefix);                                                           \
        for (int i = 0; i < s->n##kind; i++)                                                       \
            if (!strcmp(t->rule->kind[s->kind[i]].name + skip, name))                              \
                return s->kind[i];                                                                 \
        return -1;                                                                                 \
    }
FIND(hyper)
FIND(state)
FIND(input)

static Ref leaf(Trace *t, Op op, Dom dom, int sym) { return node_leaf(&t->rule->g, op, dom, sym, 0); }

Ref trace_hyper(Trace *t, const SpecFile *s, const char *name)
{
    int i = find_hyper(t, s, name);
    return i < 0 ? NONE : leaf(t, OP_HYPER, GROUP, i);
}

/* A hint for a name that another spec of the composition declares: each spec sees only its own names. */
static const char *hint_other(Trace *t, const SpecFile *s, const char *name)
{
    for (const SpecFile *o = t->spec; o < t->spec + t->nall; o++)
        if (o != s && (find_hyper(t, o, name) >= 0 || find_state(t, o, name) >= 0 || find_input(t, o, name) >= 0))
            return arena_printf(t->arena, "it belongs to %s%s, and each spec sees its own names alone",
                                o->is_wrapper ? "the wrapper " : "the rule ", o->name);
    return "";
}

static int undeclared(lua_State *L, Trace *t, const SpecFile *s, const char *name, bool write)
{
    Near near = {.want = name};
    size_t skip = strlen(s->prefix);
    static const char *const fixed[] = {"p", "g", "t", "numel", "nrows", "ncols", "every", "when", "inner", "stored",
                                        "shrink", "descend"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        near_try(&near, fixed[i]);
    for (int i = 0; i < s->nhyper; i++)
        near_try(&near, t->rule->hyper[s->hyper[i]].name + skip);
    for (int i = 0; i < s->nstate; i++)
        near_try(&near, t->rule->state[s->state[i]].name + skip);
    for (int i = 0; i < s->ninput; i++)
        near_try(&near, t->rule->input[s->input[i]].name + skip);
    lua_getfield(L, LUA_REGISTRYINDEX, "optc.builtins");
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        near_try(&near, arena_strdup(t->arena, lua_tostring(L, -2)));
    const char *hint = *hint_name(name) ? hint_name(name) : hint_other(t, s, name);
    if (*hint)
        return spec_error(L, "'%s' is not declared: %s", name, hint);
    const char *nearest = near_text(&near, t->arena);
    return spec_error(L,
                      write ? "'%s' is not declared: write 'local %s = …' for an intermediate, or declare it in "
                              "'state'%s"
                      : *nearest ? "'%s' is not declared%.0s%s"
                                 : "'%s' is not declared: make it a hyperparameter, an option, a state, an input or a "
                                   "local%.0s%s",
                      name, name, nearest);
}

static bool push_own(lua_State *L, Trace *t, SpecFile *s, const char *name)
{
    int i;
    if ((i = find_state(t, s, name)) >= 0) {
        i = project_state(L, i);
        t->read[i] = true;
        Dom d = t->rule->state[i].dom;
        if (t->rule->state[i].report && t->state[i] == leaf(t, OP_STATE, d, i))
            spec_error(L,
                       "'%s' is listed in 'values', which are not kept between steps: assign it before reading it, "
                       "or make it a state",
                       name);
        s->uses_view = s->uses_view || (dom_inside(d) && d != ELEM);
        push_value(L, t->state[i]);
    } else if ((i = find_hyper(t, s, name)) >= 0) {
        push_value(L, leaf(t, OP_HYPER, GROUP, i));
    } else if ((i = find_input(t, s, name)) >= 0) {
        Dom d = t->rule->input[i].dom;
        if (t->elem != ELEM && dom_inside(d))
            spec_error(L, "'%s' has one value per %s of the tensor, and the rule steps a projection of it", name,
                       dom_info[d].name);
        s->uses_view = s->uses_view || (dom_inside(d) && d != ELEM);
        push_value(L, leaf(t, OP_INPUT, d, i));
    } else {
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->opts);
        if (lua_getfield(L, -1, name) == LUA_TNIL) {
            lua_pop(L, 2);
            return false;
        }
        lua_remove(L, -2);
    }
    return true;
}

static int no_stored(lua_State *L, Trace *t, const SpecFile *s, const char *name)
{
    Near near = {.want = name};
    near_try(&near, "p");
    for (int i = 0; i < s->nstate; i++)
        near_try(&near, t->rule->state[s->state[i]].name + strlen(s->prefix));
    return spec_error(L, "stored \"%s\": there is no state of that name%s", name, near_text(&near, t->arena));
}

/* stored "m": the current value of m, rounded to its storage type. */
static int l_stored(lua_State *L)
{
    Trace *t = trace_of(L);
    const SpecFile *s = &t->spec[t->at];
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    bool of_p = !strcmp(name, "p");
    int i = of_p ? TO_P : find_state(t, s, name);
    if (lua_gettop(L) != 1 || !*name)
        return spec_error(L, "stored takes the name of a state, or of p: stored \"p\"");
    if (i < 0 && !of_p)                            /* -1 is also TO_P */
        return no_stored(L, t, s, name);
    if (i == TO_P && t->elem != ELEM)
        return spec_error(L, "stored \"p\": a rule that steps a projection has no p in memory");
    i = i == TO_P ? i : project_state(L, i);
    Dom d = i == TO_P ? ELEM : t->rule->state[i].dom;
    Ref now = i == TO_P ? t->p : t->state[i];
    if (i != TO_P)
        t->read[i] = true;
    Node n = {.op = OP_STORED, .dom = (uint8_t)d, .ty = NUM, .sym = i, .nargs = 1, .arg = &now};
    bool unchanged = now == (i == TO_P ? leaf(t, OP_P, ELEM, 0) : leaf(t, OP_STATE, d, i));
    push_value(L, unchanged ? now : trace_node(t, n));         /* an unchanged value was just loaded */
    return 1;
}

static bool push_fixed(lua_State *L, Trace *t, const char *name)
{
    Graph *g = &t->rule->g;
    if (!strcmp(name, "p"))
        parts_read_p(L), push_value(L, t->p);
    else if (!strcmp(name, "g"))
        push_value(L, t->g);
    else if (!strcmp(name, "t"))
        push_value(L, t->clock.t);
    else if (!strcmp(name, "numel"))
        push_value(L, node_count(g, t->elem, TENSOR));
    else if (!strcmp(name, "nrows"))
        push_value(L, node_count(g, dom_product(dom_info[t->elem].axis[0], AXIS_ONE), SLICE));
    else if (!strcmp(name, "ncols"))
        push_value(L, node_count(g, dom_product(dom_info[t->elem].axis[1], AXIS_ONE), SLICE));
    else if (!strcmp(name, "every"))
        lua_pushcfunction(L, l_every), errors_guard(L, NULL, false);
    else if (!strcmp(name, "stored"))
        lua_pushcfunction(L, l_stored), errors_guard(L, NULL, false);
    else if (!strcmp(name, "when"))
        lua_pushcfunction(L, l_when), errors_guard(L, NULL, false);
    else if (!strcmp(name, "shrink"))
        lua_pushcfunction(L, l_shrink), errors_guard(L, NULL, false);
    else if (!strcmp(name, "descend"))
        lua_pushcfunction(L, l_descend), errors_guard(L, NULL, false);
    else if (!strcmp(name, "inner"))
        lua_pushcfunction(L, l_inner), errors_guard(L, NULL, false);
    else if (!strcmp(name, "step") && t->matrix)
        lua_pushcfunction(L, l_step), errors_guard(L, NULL, false);
    else
        return false;
    return true;
}

static int l_env_read(lua_State *L)
{
    Trace *t = trace_of(L);
    SpecFile *s = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = lua_tostring(L, 2);
    if (!name)
        return spec_error(L, "a name was expected");
    lua_getfield(L, LUA_REGISTRYINDEX, "optc.builtins");
    if (lua_getfield(L, -1, name) != LUA_TNIL)
        return 1;
    if (t->at < 0) {
        if (!strcmp(name, "p"))
            return lua_pushlightuserdata(L, &mark_p), 1;
        const char *path;
        int line;
        sandbox_where(L, &path, &line);
        if (declare_named(L, s, name, line))
            return 1;
        return undeclared(L, t, s, name, false);
    }
    if (push_own(L, t, s, name) || push_fixed(L, t, name))
        return 1;
    if (names_has(&s->failed, name, strlen(name)))
        return push_value(L, UNKNOWN), 1;
    return undeclared(L, t, s, name, false);
}

static void assign(lua_State *L, Trace *t, const char *name, Ref *slot, Dom dom)
{
    const Rule *r = t->rule;
    if (is_value(L, 3) && *value_at(L, 3) == UNKNOWN) {
        *slot = UNKNOWN;
        return;
    }
    Ref v = lang_arg(L, 3, name, 1);
    const Node *n = &r->g.n[v];
    if (n->ty == BOOL)
        spec_error(L, "'%s' cannot hold %s: turn it into numbers with where(c, 1, 0)", name, describe(t, v));
    if (dom_of_block(dom) && trace_sizes(t, v) != NONE)
        n = &r->g.n[v = trace_sizes(t, v)];
    if (!dom_spreads((Dom)n->dom, dom))
        spec_error(L, "'%s' has one value per %s and cannot take %s: %s", name, dom_info[dom].name, describe(t, v),
                   dom_spreads(dom_transposed((Dom)n->dom), dom) ? "transpose it with .T"
                   : dom_of_block((Dom)n->dom)               ? "that belongs to a block of the matrix"
                                                             : "reduce it first");
    t->spec[t->at].uses_view |= dom_inside((Dom)n->dom) && n->dom != ELEM;
    *slot = n->dom == dom ? v : trace_copy(t, v, dom);         /* later reads see the declared domain */
}

static int l_env_write(lua_State *L)
{
    Trace *t = trace_of(L);
    SpecFile *s = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = lua_tostring(L, 2);
    if (!name)
        return spec_error(L, "a name was expected");
    if (t->at < 0)
        return spec_error(L, "'%s' is assigned outside an entry: use 'local' for helpers", name);
    int i = find_state(t, s, name);
    if (!strcmp(name, "p")) {
        Ref was = t->p;
        assign(L, t, name, &t->p, t->elem);
        parts_write_p(L, was);
    } else if (!strcmp(name, "g")) {
        if (!s->is_wrapper)
            return spec_error(
                L, "a rule reads its gradient and does not change it: write 'local grad = …' (wrappers may assign g)");
        assign(L, t, name, &t->g, t->elem);
        t->rule->changes_grad = true;
    } else if (i >= 0) {
        i = project_state(L, i);
        assign(L, t, name, &t->state[i], t->rule->state[i].dom);
        t->written[i] = true;
    } else if (find_hyper(t, s, name) >= 0) {
        return spec_error(L,
                          "'%s' is a hyperparameter and cannot be assigned: keep what changes in a state, such as %s = "
                          "fill(1, \"group\")",
                          name, name);
    } else if (find_input(t, s, name) >= 0 || !strcmp(name, "t")) {
        return spec_error(L, "'%s' is an input and cannot be assigned", name);
    } else if (!names_has(&s->failed, name, strlen(name))) {
        return undeclared(L, t, s, name, true);
    }
    return 0;
}

static bool push_field(lua_State *L, const SpecFile *s, const char *name)      /* a function; false: pushes nothing */
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->table);
    bool yes = lua_getfield(L, -1, name) == LUA_TFUNCTION;
    lua_remove(L, -2);
    if (!yes)
        lua_pop(L, 1);
    return yes;
}

bool push_body(lua_State *L, Trace *t, int i, const char *name)
{
    const SpecFile *s = &t->spec[i];
    return (t->matrix && !strcmp(name, "step") && push_field(L, s, "matrix")) || push_field(L, s, name);
}

static int function_line(lua_State *L)                     /* first line of the function on top; pops it */
{
    lua_Debug ar;
    lua_getinfo(L, ">S", &ar);
    return ar.linedefined;
}

bool has_arguments(lua_State *L, int f)
{
    lua_Debug ar;
    lua_pushvalue(L, f);
    lua_getinfo(L, ">u", &ar);
    return ar.nparams > 0;
}

int entry_line(Trace *t, const SpecFile *s, const char *name)
{
    return push_field(t->L, s, name) ? function_line(t->L) : 0;
}

/* Warns if the entry returned a value, which is on top of the stack: nothing uses it. */
static void note_returned(Trace *t, const SpecFile *s, int line)
{
    const Ref *r = value_at(t->L, -1);
    const Node *n = r && *r >= 0 ? &t->rule->g.n[*r] : NULL;
    if ((!n && lua_type(t->L, -1) != LUA_TNUMBER) || (n && *r == t->p))        /* `return p` is harmless */
        return;
    if (n && !is_leaf(n) && n->file == s->file && n->line > line)
        line = n->line;
    warn_at(t, s, line, "the entry returns this value, and nothing uses it: assign it, as in p = p - lr * g");
    t->returned = t->returned ? t->returned : line;
}

void call_body(lua_State *L, Trace *t, int i, const char *name)
{
    SpecFile *s = &t->spec[i];
    int at = t->at, calls = t->inner_calls, tries = t->tries;
    t->at = i;
    t->inner_calls = 0;
    lua_pushvalue(L, -1);
    int line = function_line(L);
    lua_call(L, 0, 1);
    note_returned(t, s, line);
    lua_pop(L, 1);
    if (s->is_wrapper && !strcmp(name, "step") && t->inner_calls == 0 && t->tries == tries) {
        diag_set(t->diag, s->path, 0, NULL, "the wrapper's step never calls inner(): the rule inside would not run");
        errors_raise(L);
    }
    t->at = at;
    t->inner_calls = calls;
}

/* Calls entry `name` of spec i, or of the first inner spec that has it. */
bool call_entry(lua_State *L, Trace *t, int i, const char *name)
{
    for (; i < t->nspec; i++) {
        int fallback = !strcmp(name, "step") ? t->spec[i].fallback : 0;
        if (push_body(L, t, i, name))
            return call_body(L, t, i, name), true;
        if (fallback && push_body(L, t, fallback, name))
            return call_body(L, t, fallback, name), true;
    }
    return false;
}

/* ---- loading and tracing ---- */
static void make_env(lua_State *L, SpecFile *s)
{
    lua_newtable(L);
    lua_newtable(L);
    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, l_env_read, 1);
    errors_guard(L, NULL, true);
    lua_setfield(L, -2, "__index");
    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, l_env_write, 1);
    errors_guard(L, NULL, true);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}

static void load_spec(lua_State *L, Trace *t, int i, const char *options)
{
    SpecFile *s = &t->spec[i];
    if (!sandbox_load(t, s))
        lua_error(L);
    make_env(L, s);
    lua_setupvalue(L, -2, 1);
    lua_call(L, 0, 1);
    declare_spec(t, s, options);
    lint_spec(t, s);
    if (s->fallback_name) {
        fallback_find(t, s);
        load_spec(L, t, s->fallback, NULL);
    }
}

typedef struct { Trace *t; const char *options; int i, e; } Job;

static int l_load(lua_State *L)
{
    Job *j = lua_touserdata(L, 1);
    load_spec(L, j->t, j->i, j->i == j->t->nspec - 1 ? j->options : NULL);
    return 0;
}

static int l_entry(lua_State *L)
{
    Job *j = lua_touserdata(L, 1);
    call_entry(L, j->t, 0, j->t->rule->entry[j->e].name);
    return 0;
}

static int entry_order(const char *name) { return !strcmp(name, "step") ? 0 : 1; }

/* Entry names of all specs: step first, the others by name. */
static void collect_entries(lua_State *L, Trace *t)
{
    Rule *r = t->rule;
    for (int i = 0; i < t->nspec; i++) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, t->spec[i].table);
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
            const char *name = lua_tostring(L, -2);
            bool seen = (lua_type(L, -1) != LUA_TFUNCTION && !fallback_named(L, -1)) || !strcmp(name, "matrix");
            for (int e = 0; e < r->nentry; e++)
                seen = seen || !strcmp(r->entry[e].name, name);
            if (seen)
                continue;
            PUSH(t->arena, r->entry, r->nentry, r->entry_cap) =
                (Entry){.name = arena_strdup(t->arena, name), .body = NEWS(t->arena, Body, MAX_VARIANTS)};
            for (int e = r->nentry - 1; e > 0; e--) {
                Entry *a = &r->entry[e - 1], *b = &r->entry[e];
                int oa = entry_order(a->name), ob = entry_order(b->name);
                if (oa < ob || (oa == ob && strcmp(a->name, b->name) < 0))
                    break;
                Entry x = *a;
                *a = *b;
                *b = x;
            }
        }
        lua_pop(L, 1);
    }
    if (r->nentry > MAX_ENTRIES)
        spec_error(L, "over %d entries", MAX_ENTRIES);
}

void trace_entry(lua_State *L, Trace *t, int e, int variant)
{
    Rule *r = t->rule;
    Body *b = &r->entry[e].body[variant];
    t->entry = e;
    t->in_step = false;
    t->elem = ELEM;
    t->p = leaf(t, OP_P, ELEM, 0);
    t->g = leaf(t, OP_G, ELEM, 0);
    t->clock = (Clock){leaf(t, OP_STEP, GROUP, 0), {1, 0}};
    t->block = (GuardedBlock){{1, 0}, 0, false, false};
    t->parts = (StepParts){NULL, false, NONE, NONE, NONE, 0};
    for (int i = 0; i < r->nstate; i++)
        t->state[i] = leaf(t, OP_STATE, r->state[i].dom, i);
    Job job = {.t = t, .e = e};
    t->before = t->nerror;
    lua_pushcfunction(L, l_entry);
    lua_pushlightuserdata(L, &job);
    bool ok = errors_call(t, 1, 0);
    t->at = -1;
    t->inner_calls = 0;
    if (!ok || t->nerror)
        return;
    if (t->p != leaf(t, OP_P, ELEM, 0))
        PUSH(t->arena, b->w, b->n, b->cap) = (Write){TO_P, t->p};
    for (int i = 0; i < r->nstate; i++)
        if (t->state[i] != leaf(t, OP_STATE, r->state[i].dom, i))
            PUSH(t->arena, b->w, b->n, b->cap) = (Write){i, t->state[i]};
}

static int run_all(lua_State *L)
{
    Job *j = lua_touserdata(L, 1);
    Trace *t = j->t;
    Rule *r = t->rule;
    /* Inner specs first: the rule's names get the first numbers and need no prefix. */
    bool loaded = true;
    for (j->i = t->nspec - 1; j->i >= 0; j->i--) {
        t->before = t->nerror;
        lua_pushcfunction(L, l_load);
        lua_pushlightuserdata(L, j);
        loaded = errors_call(t, 1, 0) && loaded;
    }
    if (!loaded)
        return 0;
    for (int i = 0; i < r->nstate; i++)                    /* an outer spec may have declared `block` */
        r->state[i].dom = trace_dom(t, r->state[i].dom);
    t->state = NEWS(t->arena, Ref, MAX_STATES + 1);        /* projections add some */
    t->read = NEWS(t->arena, bool, MAX_STATES + 1);
    t->written = NEWS(t->arena, bool, MAX_STATES + 1);
    t->twin_of = NEWS(t->arena, int, MAX_STATES + 1);
    collect_entries(L, t);
    bool has_matrix = false;
    for (int i = 0; i < t->nspec; i++)
        has_matrix = has_matrix || entry_line(t, &t->spec[i], "matrix");
    do
        variants_trace(L, t, has_matrix);
    while (variants_next(t));
    if (t->nerror)
        return 0;
    check_rule(t);
    if (t->nerror)
        return 0;
    variants_join(t);
    warn_rule(t);
    return 0;
}

/* "mine.lua", "rules/mine", "adamw+clip(1)": a rule's name or path where its text is expected. */
static bool is_name_or_path(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("_./\\~:-+(),", text[i]))
            return false;
    return n > 0 && n < 1000;
}

bool check_text(Source s, Diag *d)
{
    if (s.len > (256 << 10))
        diag_set(d, s.path, 0, NULL, "the spec is over 256 KiB");
    else if (s.len && s.text[0] == '\033')
        diag_set(d, s.path, 0, NULL, "this is Lua bytecode: specs are text");
    else if (memchr(s.text, 0, s.len))
        diag_set(d, s.path, 0, NULL, "the spec holds a zero byte: specs are text");
    else if (is_name_or_path(s.text, s.len))
        diag_set(d, s.path, 0, NULL,
                 "a spec's text is expected, and '%.*s' is a name or a path: give it as the rule, Optimizer(params, "
                 "\"%.*s\") in Python, .spec in C",
                 (int)s.len, s.text, (int)s.len, s.text);
    else
        return true;
    return false;
}

void add_spec(Trace *t, int i, Source s, Wrap *w)
{
    t->spec[i] = (SpecFile){.name = w ? w->name : "rule",
                            .prefix = "",
                            .wrap = w,
                            .path = arena_strdup(t->arena, s.path),
                            .text = arena_strndup(t->arena, s.text, s.len),
                            .file = t->rule->nfile,
                            .is_wrapper = w != NULL};
    /* The rule stores only the file's base name: hashes and emitted code must not depend on its folder. */
    const char *slash = strrchr(t->spec[i].path, '/');
    char *bare = arena_strdup(t->arena, slash ? slash + 1 : t->spec[i].path);
    text_clean(bare, "");
    PUSH(t->arena, t->rule->file, t->rule->nfile, t->rule->file_cap) = bare;
    PUSH(t->arena, t->rule->text, t->rule->ntext, t->rule->text_cap) = t->spec[i].text;
}

/* Lua has its own memory. It is freed also if the arena runs out of memory and jumps over Lua's frames. */
static bool trace_in_lua(Trace *t, Job *job)
{
    Arena *a = t->arena;
    jmp_buf out, *outer = a->out;
    if (outer && setjmp(out)) {
        a->out = outer;
        if (t->L)
            lua_close(t->L);
        longjmp(*outer, 1);
    }
    a->out = outer ? &out : NULL;
    int rc = LUA_ERRMEM;
    if (!sandbox_open(t)) {
        diag_memory(t->diag);
    } else {
        lua_pushcfunction(t->L, run_all);
        lua_pushlightuserdata(t->L, job);
        rc = lua_pcall(t->L, 1, 0, 0);
        if (rc != LUA_OK)
            errors_caught(t, rc);
        errors_tell(t, t->diag);
        lua_sethook(t->L, NULL, 0, 0);
        lua_close(t->L);
        t->L = NULL;
    }
    a->out = outer;
    return rc == LUA_OK && !t->nerror;
}

Rule *pass_trace(Arena *a, Source spec, const GenOptions *o, Diag *d)
{
    Rule *r = NEW(a, Rule);
    *r = (Rule){.arena = a, .name = "", .cite = "", .doc = "", .with = "", .product = -1};
    r->g.arena = a;
    Trace *t = NEW(a, Trace);
    *t = (Trace){.arena = a, .rule = r, .diag = d, .at = -1, .seed = -1, .product = o->product,
                 .params = o->types.p, .shared = o->bindings > 1};
    Wrap *wrap;
    int nwrap;
    if (!check_text(spec, d) || !compose_parse(a, o->with, &wrap, &nwrap, d))
        return NULL;
    if (nwrap >= MAX_SPECS) {
        diag_set(d, NULL, 0, NULL, "--with names over %d wrappers", MAX_SPECS - 1);
        return NULL;
    }
    /* spec[0] is the outermost wrapper: the last one in `with`. */
    t->nspec = t->nall = nwrap + 1;
    t->find = o->find;
    t->find_ctx = o->find_ctx;
    add_spec(t, nwrap, spec, NULL);
    for (int i = 0; i < nwrap; i++) {
        Source s;
        if (!o->find) {
            diag_set(d, NULL, 0, NULL, "the wrapper '%s' cannot be found: no search function is set", wrap[i].name);
            return NULL;
        }
        if (!o->find(o->find_ctx, wrap[i].name, a, &s, d) || !check_text(s, d))
            return NULL;
        add_spec(t, nwrap - 1 - i, s, &wrap[i]);
    }
    Job job = {.t = t, .options = o->options};
    if (!trace_in_lua(t, &job))
        return NULL;
    r->with = compose_text(a, wrap, nwrap);
    return r;
}

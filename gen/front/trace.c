/* Runs a spec on symbolic values and records its assignments.
 * Needs: the spec's text and a function that finds wrappers by name. Result: a Rule whose graph may
 * hold dead nodes. */
#include "gen/front/rings.h"

#include <ctype.h>
#include <string.h>

/* a function; false: pushes nothing */
static bool push_field(lua_State *L, const SpecFile *s, const char *name)
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
    return (t->matrix && !strcmp(name, "step") && push_field(L, s, "matrix")) ||
           push_field(L, s, name);
}

/* first line of the function on top; pops it */
static int function_line(lua_State *L)
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
    /* `return p` is harmless */
    if ((!n && lua_type(t->L, -1) != LUA_TNUMBER) || (n && *r == t->p))
        return;
    if (n && !is_leaf(n) && n->file == s->file && n->line > line)
        line = n->line;
    warn_at(t, s, line,
            "the entry returns this value, and nothing uses it: assign it, as in p = p - lr * g");
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
        diag_set(t->diag, s->path, 0, NULL,
                 "the wrapper's step never calls inner(): the rule inside would not run");
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
static void load_spec(lua_State *L, Trace *t, int i, const char *options)
{
    SpecFile *s = &t->spec[i];
    if (!sandbox_load(t, s))
        lua_error(L);
    make_env(L, s);
    lua_setupvalue(L, -2, 1);
    t->declaring = i;
    t->nopen = 0;
    lua_call(L, 0, 1);
    declare_spec(t, s, options);
    lint_spec(t, s, s);
    for (int k = 0; k < t->nall; k++)
        if (s->includes >> k & 1)
            lint_spec(t, s, &t->spec[k]);
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
            bool seen = (lua_type(L, -1) != LUA_TFUNCTION && !fallback_named(L, -1)) ||
                        !strcmp(name, "matrix");
            for (int e = 0; e < r->nentry; e++)
                seen = seen || !strcmp(r->entry[e].name, name);
            if (seen)
                continue;
            PUSH(t->arena, r->entry, r->nentry, r->entry_cap) = (Entry){
                .name = arena_strdup(t->arena, name), .body = NEWS(t->arena, Body, MAX_VARIANTS)};
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
    t->clock = (Clock){leaf(t, OP_STEP, GROUP, 0), {1, 0}, NULL};
    t->block = (GuardedBlock){{1, 0}, 0, false, false, 0};
    ring_start(t);
    inputs_start(t);
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
    ring_end(t);
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
    /* an outer spec may have declared `block` */
    for (int i = 0; i < r->nstate; i++)
        r->state[i].dom = trace_dom(t, r->state[i].dom);
    t->state = NEWS(t->arena, Ref, MAX_STATES + 1);        /* projections add some */
    t->read = NEWS(t->arena, bool, MAX_STATES + 1);
    t->written = NEWS(t->arena, bool, MAX_STATES + 1);
    t->pushed = NEWS(t->arena, bool, MAX_STATES + 1);
    t->peeked = arena_alloc(t->arena, sizeof *t->peeked * (MAX_STATES + 1));
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
    note_gradients(t);
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
    else if (s.len > 8 && !memcmp(s.text, "optc-ir ", 8))
        diag_set(d, s.path, 0, NULL,
                 "this is IR text, which only check, explain, emit, compile, ship, show and dump "
                 "read; a spec is needed here");
    else if (memchr(s.text, 0, s.len))
        diag_set(d, s.path, 0, NULL, "the spec holds a zero byte: specs are text");
    else if (is_name_or_path(s.text, s.len))
        diag_set(d, s.path, 0, NULL,
                 "a spec's text is expected, and '%.*s' is a name or a path: give it as the rule, "
                 "Optimizer(params, "
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
    /* The rule stores only the file's base name: hashes and emitted code must not depend on its
     * folder. */
    const char *slash = strrchr(t->spec[i].path, '/');
    char *bare = arena_strdup(t->arena, slash ? slash + 1 : t->spec[i].path);
    text_clean(bare, "");
    PUSH(t->arena, t->rule->file, t->rule->nfile, t->rule->file_cap) = bare;
    PUSH(t->arena, t->rule->text, t->rule->ntext, t->rule->text_cap) = t->spec[i].text;
}

/* Lua has its own memory. It is freed also if the arena runs out of memory and jumps over Lua's
 * frames. */
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

static Rule *trace_once(Arena *a, Source spec, const GenOptions *o, Diag *d, bool separable,
                        bool *again)
{
    Rule *r = NEW(a, Rule);
    *r = (Rule){.arena = a, .name = "", .cite = "", .doc = "", .with = "", .product = -1};
    r->g.arena = a;
    Trace *t = NEW(a, Trace);
    *t = (Trace){.arena = a, .rule = r, .diag = d, .at = -1, .seed = -1, .product = o->product,
                 .params = o->types.p, .shared = o->bindings > 1, .separable = separable};
    Wrap *wrap;
    int nwrap;
    if (!check_text(spec, d) || !compose_parse(a, o->with, &wrap, &nwrap, d))
        return NULL;
    if (nwrap >= MAX_WRAPPED) {
        diag_set(d, NULL, 0, NULL, "--with names over %d wrappers", MAX_WRAPPED - 1);
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
            diag_set(d, NULL, 0, NULL,
                     "the wrapper '%s' cannot be found: no search function is set", wrap[i].name);
            return NULL;
        }
        if (!o->find(o->find_ctx, wrap[i].name, a, &s, d) || !check_text(s, d))
            return NULL;
        add_spec(t, nwrap - 1 - i, s, &wrap[i]);
    }
    Job job = {.t = t, .options = o->options};
    if (!trace_in_lua(t, &job)) {
        *again = t->asked_separable && !t->spent && !t->no_memory;
        return NULL;
    }
    parts_answer(t);
    r->with = compose_text(a, wrap, nwrap);
    return r;
}

Rule *pass_trace(Arena *a, Source spec, const GenOptions *o, Diag *d)
{
    bool again = false;
    Rule *r = trace_once(a, spec, o, d, true, &again);
    if (r || !again)
        return r;
    diag_free(d);
    return trace_once(a, spec, o, d, false, &again);
}

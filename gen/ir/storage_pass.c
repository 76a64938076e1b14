/* pass_storage: gives the rule's states the types that the user chose, and refuses choices that
 * would give wrong results.
 *
 *   state=TYPE   f32, f64, bf16 and f16 cover every elementwise state without a type of its own.
 *                Other types cover those that start at 0 and never keep the parameters; the rest is
 *                stored in the type that elements are computed in
 *   NAME=TYPE    one state; it overrides a type that the spec gives, with a warning
 *
 * Block codes are for elementwise states that start at 0. A state that is never negative
 * (value_ranges.c) takes the unsigned code, which keeps small values apart from 0; one of unknown
 * sign must not divide. */
#include "gen/ir/rule_passes.h"

#include <stdarg.h>
#include <string.h>

typedef struct Storage { Rule *r; const Types *t; const char *path; Diag *d; int *named; } Storage;

static Place place(const Storage *x, const State *s)
{
    return place_in(state_place(x->r, s), x->path);
}

static bool refuse(const Storage *x, const State *s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(const Storage *x, const State *s, const char *fmt, ...)
{
    Place at = place(x, s);
    Buf b = {.arena = x->r->arena};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    diag_set(x->d, at.path, at.line, at.source, "types: %s", buf_text(&b));
    return false;
}

static void warn(const Storage *x, const State *s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void warn(const Storage *x, const State *s, const char *fmt, ...)
{
    Buf b = {.arena = x->r->arena};
    va_list ap;
    va_start(ap, fmt);
    buf_puts(&b, "types: ");
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    rule_warn(x->r, s ? place(x, s) : (Place){0}, buf_text(&b));
}

/* ---- the choice ---- */
/* A state, or the first state of a ring: its name ends in _0. */
static int find_name(const Rule *r, const char *name, size_t n)
{
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        if (!strncmp(s->name, name, n) && !strcmp(s->name + n, s->ring ? "_0" : ""))
            return i;
    }
    return -1;
}

static bool unknown_name(const Storage *x, const char *name)
{
    static const char *const classes[] = {"param", "grad", "state", "master",
                                          "copy",  "lost", "edits"};
    Near near = {.want = name};
    for (int i = 0; i < 7; i++)
        near_try(&near, classes[i]);
    Buf all = {.arena = x->r->arena};
    for (int i = 0; i < x->r->nstate; i++) {
        const State *s = &x->r->state[i];
        /* a ring has one type, under its name */
        if (!s->slots.every && s->init != INIT_KERNEL && !s->age) {
            const char *known = ring_name(x->r->arena, s);
            near_try(&near, known);
            buf_printf(&all, "%s%s", all.len ? ", " : "", known);
        }
    }
    diag_set(x->d, NULL, 0, NULL, "types: the rule '%s' has no state '%s'%s (its states: %s)",
             x->r->name, name, near_text(&near, x->r->arena), all.len ? buf_text(&all) : "none");
    return false;
}

static bool read_named(const Storage *x)
{
    Arena *a = x->r->arena;
    for (int i = 0; i < x->r->nstate; i++)
        x->named[i] = -1;
    for (const char *s = x->t->named ? x->t->named : ""; *s;) {
        size_t n = strcspn(s, "="), len = strcspn(s, ",");
        int i = find_name(x->r, s, n);
        if (i < 0)
            return unknown_name(x, arena_strndup(a, s, n));
        const State *st = &x->r->state[i];
        if (dom_wide(st->dom))
            return refuse(x, st,
                          "the state '%s' has one value per %s, and such values are always stored "
                          "as f64: leave "
                          "'%s' out",
                          ring_name(a, st), dom_info[st->dom].per, ring_name(a, st));
        for (int k = 0; k < (st->ring ? st->ring : 1); k++)
            x->named[i + k] = type_by_name(arena_strndup(a, s + n + 1, len - n - 1));
        s += len + (s[len] == ',');
    }
    return true;
}

/* Types that `state=` gives to all elementwise states. The others leave out states that do not
 * start at 0. */
static bool covers_all(Type t)
{
    return !type_coded(t) && !type_info[t].draws && type_info[t].bits >= 16;
}

/* Or at a hyperparameter, which is 0 by default (runtime/core/bind/coded_start.c). */
static bool starts_at_zero(const Rule *r, const State *s)
{
    bool zero =
        s->init == INIT_HYPER ? r->hyper[s->hyper].def == 0 : s->init == INIT_FILL && s->value == 0;
    return zero && !s->eye;
}

/* The value is the parameter, or a choice between it and something else. */
static bool is_params(const Rule *r, Ref v)
{
    const Node *n = &r->g.n[v];
    if (n->op == OP_WHERE)
        return is_params(r, n->arg[1]) || is_params(r, n->arg[2]);
    return n->op == OP_P || (n->op == OP_STATE && r->state[n->sym].follows_p);
}

int keeps_params(const Rule *r, int state, Ref *at)
{
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                *at = w.val;
                if (w.state == state && is_params(r, w.val))
                    return e;
            }
    return -1;
}

static int chosen_type(const Storage *x, int i)
{
    const State *s = &x->r->state[i];
    if (x->named[i] >= 0)
        return x->named[i];
    /* a minimum: f64 keeps more */
    if (s->type == T_F32 && s->dom == ELEM && x->t->state == T_F64)
        return T_F64;
    if (s->type >= 0 || s->dom != ELEM || covers_all(x->t->state))
        return s->type;
    Ref at;
    bool narrow =
        starts_at_zero(x->r, s) && !s->report && !s->ring && keeps_params(x->r, i, &at) < 0;
    return (int)(narrow ? x->t->state : type_info[x->t->p].compute);
}

static void apply(const Storage *x)
{
    for (int i = 0; i < x->r->nstate; i++) {
        State *s = &x->r->state[i];
        int type = chosen_type(x, i);
        if (s->type >= 0 && s->type != type && x->named[i] >= 0)
            warn(x, s,
                 "the spec stores the state '%s' as %s; it is stored as %s, which was chosen by "
                 "name",
                 s->name, type_info[s->type].name, type_info[type].name);
        s->type = type;
    }
}

/* ---- block codes ---- */
static bool is_unsigned(Type t) { return t == T_Q8U || t == T_F8U; }

static bool read_as_stored(const Rule *r, int state)
{
    for (Ref i = 0; i < r->g.len; i++)
        if (r->g.n[i].op == OP_STORED && r->g.n[i].sym == state)
            return true;
    return false;
}

static bool can_hold_codes(const Storage *x, int i)
{
    const State *s = &x->r->state[i];
    const char *type = type_info[s->type].name;
    if (s->dom != ELEM)
        return refuse(x, s,
                      "the state '%s' has one value per %s, and %s is for elementwise states: "
                      "store it as f32 or "
                      "bf16",
                      s->name, dom_info[s->dom].per, type);
    if (!starts_at_zero(x->r, s))
        return refuse(
            x, s,
            "the state '%s' starts as %s, and %s is for states that start at 0: store it as f32 or "
            "bf16",
            s->name,
            s->init == INIT_COPY_P   ? "a copy of p"
            : s->init == INIT_NORMAL ? "random values"
                                     : "a value other than 0",
            type);
    if (s->ring)
        return refuse(x, s,
                      "'%s' is a ring, and %s is not available for rings: store it as f32 or bf16",
                      ring_name(x->r->arena, s), type);
    if (s->report)
        return refuse(x, s, "'%s' is a value for the caller, and %s is for states: leave it out",
                      s->name, type);
    if (read_as_stored(x->r, i))
        return refuse(x, s,
                      "the rule uses stored(%s), its value after rounding, and %s rounds whole "
                      "blocks at the end "
                      "of a pass: store it as f32 or bf16",
                      s->name, type);
    return true;
}

static bool choose_sign(const Storage *x, const Ranges *ranges, int i)
{
    Rule *r = x->r;
    State *s = &r->state[i];
    Type is = (Type)s->type;
    if (ranges->nonneg[i]) {
        s->type = is == T_Q8 ? T_Q8U : is == T_F8 ? T_F8U : is;
        return true;
    }
    if (is_unsigned(is))
        return refuse(
            x, s,
            "%s is for states that are never negative, and the compiler cannot prove this of '%s': "
            "store it as %s, or declare it in the spec, %s = zeros { min = 0 }",
            type_info[is].name, s->name, is == T_Q8U ? "q8" : "f8", s->name);
    Ref at = state_divides(r->arena, r, ranges, i);
    if (at == NONE)
        return true;
    const Node *n = &r->g.n[at];
    bool known = n->file >= 0 && n->file < r->nfile && n->line;
    const char *where = known ? arena_printf(r->arena, ", %s:%d", r->file[n->file], n->line) : "";
    return refuse(
        x, s,
        "the state '%s' may be negative and reaches a denominator, root or logarithm (%s%s), where "
        "a "
        "value that %s rounds to 0 gives a huge step: store it as f32 (%s=f32) or, if it is never "
        "negative, declare that in the spec: %s = zeros { min = 0 }",
        s->name, op_info[n->op].name, where, type_info[is].name, s->name, s->name);
}

static bool check_codes(const Storage *x)
{
    Ranges ranges = {NULL, NULL};
    for (int i = 0; i < x->r->nstate; i++) {
        const State *s = &x->r->state[i];
        if (s->type < 0 || !type_coded((Type)s->type))
            continue;
        if (!ranges.of)
            ranges = rule_ranges(x->r->arena, x->r);
        if (!can_hold_codes(x, i) || !choose_sign(x, &ranges, i))
            return false;
    }
    if (type_coded(x->t->state) && !ranges.of)
        warn(x, NULL,
             "state=%s applies to no state of '%s': none is elementwise, starts at 0 and has no "
             "type in the "
             "spec",
             type_info[x->t->state].name, x->r->name);
    return true;
}

/* ---- matrices ---- */
/* A factor of a matrix that was rounded to `digits` bits needs eigenvalues above the rounding:
 * relative >= 2^-8. */
enum { MATRIX_DIGITS = 24 };
static const double least_relative = 0x1p-8 / (1 + 0x1p-8);       /* as call_low */

static bool from_state(const Rule *r, const bool *from, Ref i)
{
    const Node *n = &r->g.n[i];
    for (int k = 0; k < n->nargs; k++)
        if (from[n->arg[k]])
            return true;
    return false;
}

/* Rounding of this state reaches a factor (power, chol, eigh …) that does not lift its
 * eigenvalues. */
static bool factor_unlifted(const Rule *r, int state)
{
    bool *from = NEWS(r->arena, bool, r->g.len + 1);
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        bool factor = is_call(n) && n->op != OP_MM;
        from[i] = n->op == OP_STATE ? n->sym == state : !factor && from_state(r, from, i);
        if (factor && from_state(r, from, i) && !(n->op == OP_POWER && n->beta >= least_relative))
            return true;
    }
    return false;
}

static void check_matrices(const Storage *x)
{
    for (int i = 0; i < x->r->nstate; i++) {
        const State *s = &x->r->state[i];
        if (dom_square(s->dom) && s->dom != ELEM && s->type >= 0 &&
            type_info[s->type].digits < MATRIX_DIGITS && factor_unlifted(x->r, i))
            warn(x, s,
                 "the matrix '%s' is stored as %s, whose rounding moves its small eigenvalues; use "
                 "power(A, r, { "
                 "relative = 2^-8 }) or more in the spec, or store it as f32",
                 s->name, type_info[s->type].name);
    }
}

/* ---- the pass ---- */
static bool check_arrays(const Storage *x)
{
    const struct { const char *key; Type t; } of[] = {{"param", x->t->p}, {"grad", x->t->g}};
    for (int i = 0; i < 2; i++) {
        const char *type = type_info[of[i].t].name;
        if (type_coded(of[i].t)) {
            diag_set(x->d, NULL, 0, NULL, "types: %s=%s: block codes are for states only; use bf16",
                     of[i].key, type);
            return false;
        }
    }
    if (type_info[x->t->g].draws) {
        diag_set(x->d, NULL, 0, NULL,
                 "types: grad=%s: gradients are only read, so stochastic rounding does not apply; "
                 "use bf16 or f16",
                 type_info[x->t->g].name);
        return false;
    }
    return true;
}

/* The names in the rule's order: the same choice gives the same text. */
static const char *named_in_order(const Storage *x)
{
    Buf b = {.arena = x->r->arena};
    for (int i = 0; i < x->r->nstate; i++)
        if (x->named[i] >= 0)
            buf_printf(&b, "%s%s=%s", b.len ? "," : "", x->r->state[i].name,
                       type_info[x->named[i]].name);
    return buf_text(&b);
}

bool pass_storage(Rule *r, const Types *t, const char *path, Diag *d)
{
    Storage x = {r, t, path, d, NEWS(r->arena, int, r->nstate + 1)};
    if (!check_arrays(&x) || !read_named(&x))
        return false;
    apply(&x);
    Types in_order = *t;
    in_order.named = named_in_order(&x);
    r->types = types_beside(r->arena, &in_order);
    check_matrices(&x);
    return check_codes(&x);
}

/* The words by which a rule changes p: p = shrink(p, amount), its weight decay, and p = descend(p,
 * x, rate), its step. A wrapper that writes local x, rate, amount = inner { apart = true } gets
 * their arguments and changes p itself; p stays as it is meanwhile. rate is the rule's lr: other
 * factors of the rate become part of x. */
#include "gen/front/trace.h"

#include <string.h>

enum { FACTORS_MOST = 100, VISITS_MOST = 1000 };

/* where(c, x, 0): each factor of x is one of this value too. */
static bool is_masked(const Graph *g, const Node *n)
{
    return n->op == OP_WHERE && g->n[n->arg[2]].op == OP_CONST && g->n[n->arg[2]].imm == 0;
}

/* Values share operands, so a search without a limit could take as long as 2 to the number of
 * products. */
static bool find_factor(const Graph *g, Ref rate, Ref lr, int depth, int *visits)
{
    const Node *n = &g->n[rate];
    if (rate == lr || depth == FACTORS_MOST || ++*visits > VISITS_MOST)
        return rate == lr;
    if (is_masked(g, n))
        return find_factor(g, n->arg[1], lr, depth + 1, visits);
    return (n->op == OP_DIV || n->op == OP_MUL) &&
           (find_factor(g, n->arg[0], lr, depth + 1, visits) ||
            (n->op == OP_MUL && find_factor(g, n->arg[1], lr, depth + 1, visits)));
}

/* rate is lr, or lr times or over other values, or where(c, such a value, 0). */
static bool has_factor(const Graph *g, Ref rate, Ref lr)
{
    int visits = 0;
    return find_factor(g, rate, lr, 0, &visits);
}

/* rate over lr, which is a factor of it; NONE: it is 1. */
static Ref without_lr(lua_State *L, Ref rate, Ref lr)
{
    Graph *g = &trace_of(L)->rule->g;
    const Node n = g->n[rate];
    if (rate == lr)
        return NONE;
    if (is_masked(g, &n)) {
        Ref x = without_lr(L, n.arg[1], lr);
        return trace_op3(L, OP_WHERE, n.arg[0], x == NONE ? node_const(g, 1) : x, n.arg[2]);
    }
    int i = n.op == OP_MUL && !has_factor(g, n.arg[0], lr);
    Ref rest = without_lr(L, n.arg[i], lr);
    if (n.op == OP_DIV)
        return trace_op(L, OP_DIV, rest == NONE ? node_const(g, 1) : rest, n.arg[1]);
    return rest == NONE ? n.arg[1 - i] : trace_op(L, OP_MUL, rest, n.arg[1 - i]);
}

/* The hyperparameter that is the factor of this rate: lr, or another of the spec whose name starts
 * with lr_. */
static Ref rate_hyper(lua_State *L, const SpecFile *s, Ref rate)
{
    Trace *t = trace_of(L);
    const Graph *g = &t->rule->g;
    Ref lr = s->is_wrapper ? t->parts.rate : trace_hyper(t, s, "lr");
    if (lr == NONE)
        return (Ref)spec_error(
            L, "descend: a wrapper takes this step apart, and '%s' has no hyperparameter lr",
            s->name);
    for (int k = -1; k < s->nhyper; k++) {
        const char *name = k < 0 ? "" : t->rule->hyper[s->hyper[k]].name + strlen(s->prefix);
        Ref r = k < 0 ? lr : !strncmp(name, "lr_", 3) ? trace_hyper(t, s, name) : NONE;
        if (r != NONE && has_factor(g, rate, r))
            return r;
    }
    return (Ref)spec_error(
        L, "descend: a wrapper takes this step apart, so its rate is lr, or lr times or over other "
           "values: p = descend(p, x, lr / (1 - beta1 ^ t))");
}

/* The second argument of descend: x, or { x, plus = y, rate = s, times = z, over = d }. With the
 * rate r the step is (r * x + s * y) * z / d, in this order. Absent fields are NONE. */
typedef struct StepValue { Ref x, plus, rate, times, over; } StepValue;

static StepValue read_step(lua_State *L)
{
    StepValue v = {NONE, NONE, NONE, NONE, NONE};
    const struct { const char *key; Ref *to; } field[] = {
        {"plus", &v.plus}, {"rate", &v.rate}, {"times", &v.times}, {"over", &v.over}};
    bool known = true;
    if (lua_type(L, 2) != LUA_TTABLE)
        return v.x = lang_num(L, 2, "descend", 2), v;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        const char *k = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        Ref *to = lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) == 1 ? &v.x : NULL;
        for (size_t i = 0; i < sizeof field / sizeof *field; i++)
            to = strcmp(k, field[i].key) ? to : field[i].to;
        known = known && to;
        if (to)
            *to = lang_num(L, lua_gettop(L), to == &v.x ? "descend" : k, to == &v.x ? 2 : 1);
    }
    if (!known || v.x == NONE || (v.plus == NONE) != (v.rate == NONE) ||
        (v.plus == NONE && v.times == NONE && v.over == NONE))
        spec_error(
            L,
            "descend's second argument is x, or { x, plus = y, rate = s, times = z, over = d } for "
            "(rate * x + s * y) * z / d: p = descend(p, { m, over = sqrt(v) + eps }, lr)");
    return v;
}

/* The step for this rate of x, and `rate` of plus; NONE: 1 */
static Ref scaled(lua_State *L, Ref by, Ref rate, StepValue v)
{
    Ref x = by == NONE ? v.x : trace_op(L, OP_MUL, by, v.x);
    if (v.plus != NONE)
        x = trace_op(L, OP_ADD, x, rate == NONE ? v.plus : trace_op(L, OP_MUL, rate, v.plus));
    x = v.times == NONE ? x : trace_op(L, OP_MUL, x, v.times);
    return v.over == NONE ? x : trace_op(L, OP_DIV, x, v.over);
}

static void check_p(lua_State *L, Ref p, const char *word, const char *example)
{
    const Trace *t = trace_of(L);
    if (t->parts.by && p != t->p)
        spec_error(L,
                   "%s: a wrapper takes this step apart, so its first argument is p itself: p = %s",
                   word, example);
}

static void add_amount(lua_State *L, Ref amount)
{
    Trace *t = trace_of(L);
    if (t->rule->g.n[t->parts.amount].op != OP_CONST)
        spec_error(L, "p is shrunk twice: a wrapper takes this step apart and expects one amount");
    t->parts.amount = amount;
}

int l_shrink(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "shrink", 2, 3);
    Ref p = lang_num(L, 1, "shrink", 1), amount = lang_num(L, 2, "shrink", 2);
    bool factor = lua_gettop(L) == 3;
    if (factor && (lua_type(L, 3) != LUA_TSTRING || strcmp(lua_tostring(L, 3), "factor")))
        return spec_error(
            L,
            "shrink takes p, an amount and perhaps the word \"factor\": shrink(p, a) is p - a * p, "
            "shrink(p, a, \"factor\") is (1 - a) * p");
    check_p(L, p, "shrink", "shrink(p, lr * weight_decay)");
    if (t->parts.by)
        add_amount(L, amount);
    else if (factor)
        p = trace_op(L, OP_MUL, trace_op(L, OP_SUB, node_const(&t->rule->g, 1), amount), p);
    else
        p = trace_op(L, OP_SUB, p, trace_op(L, OP_MUL, amount, p));
    push_value(L, p);
    return 1;
}

int l_descend(lua_State *L)
{
    Trace *t = trace_of(L);
    const SpecFile *s = &t->spec[t->at];
    lang_count(L, "descend", 3, 4);
    StepValue v = read_step(L);
    Ref p = lang_num(L, 1, "descend", 1), rate = lang_num(L, 3, "descend", 3);
    Ref decay = lua_gettop(L) > 3 ? lang_num(L, 4, "descend", 4) : NONE;
    bool plain = v.plus == NONE && v.times == NONE && v.over == NONE;
    if (decay != NONE && !plain)
        return spec_error(
            L, "descend takes a decay with a plain x: p = descend(p, x, lr, weight_decay)");
    check_p(L, p, "descend", "descend(p, x, lr)");
    if (!t->parts.by) {
        v.x = decay == NONE ? v.x : trace_op(L, OP_ADD, v.x, trace_op(L, OP_MUL, decay, p));
        push_value(L, trace_op(L, OP_SUB, p, scaled(L, rate, v.rate, v)));
        return 1;
    }
    Ref lr = rate_hyper(L, s, rate);
    if (v.rate != NONE && !has_factor(&t->rule->g, v.rate, lr))
        return spec_error(L, "descend: a wrapper takes this step apart, so both rates of it have "
                             "the same factor lr");
    t->parts.x =
        scaled(L, without_lr(L, rate, lr), v.rate == NONE ? NONE : without_lr(L, v.rate, lr), v);
    t->parts.rate = lr;
    if (decay != NONE)
        add_amount(L, trace_op(L, OP_MUL, rate, decay));
    push_value(L, p);
    return 1;
}

/* separable(): a plain truth value. The first trace answers true. If that trace fails, pass_trace
 * traces once more with
 * false: only a complete trace shows whether p changes in another way. */
int l_separable(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "separable", 0, 0);
    if (t->at < 0 || !t->spec[t->at].is_wrapper)
        return spec_error(
            L,
            "separable() is for entries of wrappers: whether the rule inside can be taken apart");
    t->asked_separable = true;
    lua_pushboolean(L, t->separable);
    return 1;
}

/* An option `apart` that is "auto" gets the answer as its value, so that `optc explain` and the IR
 * show it. */
void parts_answer(Trace *t)
{
    for (int i = 0; t->asked_separable && i < t->rule->noption; i++) {
        Option *o = &t->rule->option[i];
        const char *dot = strrchr(o->name, '.');
        if (dot && !strcmp(dot, ".apart") && !strcmp(o->value, "auto"))
            o->value = t->separable ? "true" : "false";
    }
}

void parts_open(Trace *t)
{
    Ref zero = node_const(&t->rule->g, 0);
    t->parts = (StepParts){t->spec[t->at].name, false, zero, zero, NONE, t->tries};
}

void parts_close(lua_State *L, StepParts was)
{
    Trace *t = trace_of(L);
    const StepParts x = t->parts;
    t->parts = was;
    t->parts.rate = x.rate;
    /* an error inside of it is already recorded */
    if (t->tries > x.tries) {
        push_value(L, UNKNOWN), push_value(L, UNKNOWN), push_value(L, UNKNOWN);
        return;
    }
    if (x.rate == NONE)
        spec_error(
            L, "the wrapper '%s' takes the step of '%s' apart, which has no p = descend(p, x, lr)",
            x.by, t->spec[t->nspec - 1].name);
    push_value(L, t->rule->g.n[x.x].dom == t->elem ? x.x : trace_copy(t, x.x, t->elem));
    push_value(L, x.rate);
    push_value(L, x.amount);
}

void parts_read_p(lua_State *L)
{
    const Trace *t = trace_of(L);
    const SpecFile *s = &t->spec[t->at];
    if (t->parts.by && t->parts.stepped && s->is_wrapper)
        spec_error(L,
                   "'%s' reads p after the step, but the wrapper '%s' around it takes the step "
                   "apart and changes p "
                   "later: put '%s' outside of it",
                   s->name, t->parts.by, s->name);
}

/* The line that runs, with the words; NULL: its form is not known. */
static const char *rewritten(lua_State *L)
{
    Trace *t = trace_of(L);
    const char *path, *text;
    int line;
    sandbox_where(L, &path, &line);
    int s = spec_of_source(t, path);
    text = s >= 0 ? t->spec[s].text : NULL;
    for (; text && line > 1; line--)
        text = (text = strchr(text, '\n')) ? text + 1 : NULL;
    return text ? step_rewrite(t->arena, text) : NULL;
}

void parts_write_p(lua_State *L, Ref was)
{
    const Trace *t = trace_of(L);
    if (!t->parts.by || t->p == was || t->p == UNKNOWN)
        return;
    const char *line = rewritten(L);
    spec_error(L,
               "'%s' changes p in another way than by p = shrink(p, …) and p = descend(p, …), but "
               "the wrapper "
               "'%s' takes its step apart: write %s%s%s, or leave out the wrapper",
               t->spec[t->at].name, t->parts.by, line ? "'" : "it with these words",
               line ? line : "", line ? "'" : "");
}

/* The words by which a rule changes p: p = shrink(p, amount), its weight decay, and p = descend(p, x, rate), its step.
 * A wrapper that writes local x, rate, amount = inner { apart = true } gets their arguments and changes p itself; p
 * stays as it is meanwhile. rate is the rule's lr: other factors of the rate become part of x. */
#include "gen/front/trace.h"

#include <string.h>

enum { FACTORS_MOST = 100 };

/* rate over lr; NONE: it is 1. */
static Ref without_lr(lua_State *L, Ref rate, Ref lr, int depth)
{
    const Node n = trace_of(L)->rule->g.n[rate];
    if (rate == lr)
        return NONE;
    if (depth < FACTORS_MOST && n.op == OP_DIV) {
        Ref top = without_lr(L, n.arg[0], lr, depth + 1);
        return trace_op(L, OP_DIV, top == NONE ? node_const(&trace_of(L)->rule->g, 1) : top, n.arg[1]);
    }
    for (int i = 0; i < 2 && depth < FACTORS_MOST && n.op == OP_MUL; i++) {
        const Node *a = &trace_of(L)->rule->g.n[n.arg[i]];
        if (n.arg[i] != lr && a->op != OP_MUL && a->op != OP_DIV)
            continue;
        Ref rest = without_lr(L, n.arg[i], lr, depth + 1), other = n.arg[1 - i];
        return rest == NONE ? other : trace_op(L, OP_MUL, rest, other);
    }
    return spec_error(L, "descend: a wrapper takes this step apart, so its rate is lr, or lr times or over other "
                         "values: p = descend(p, x, lr / (1 - beta1 ^ t))");
}

/* The second argument of descend: x, or { x, over = y } and { x, times = y }, which multiply x by the rate first. */
typedef struct StepValue { Ref x, y; Op op; } StepValue;

static StepValue read_step(lua_State *L)
{
    StepValue v = {NONE, NONE, OP_MUL};
    bool known = true;
    if (lua_type(L, 2) != LUA_TTABLE)
        return v.x = lang_num(L, 2, "descend", 2), v;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        const char *k = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        bool over = !strcmp(k, "over"), second = (over || !strcmp(k, "times")) && v.y == NONE;
        if (lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) == 1)
            v.x = lang_num(L, lua_gettop(L), "descend", 2);
        else if (second)
            v.y = lang_num(L, lua_gettop(L), k, 1), v.op = over ? OP_DIV : OP_MUL;
        else
            known = false;
    }
    if (!known || v.x == NONE || v.y == NONE)
        spec_error(L, "descend's second argument is x, { x, over = y } or { x, times = y }: p = descend(p, { m, over = "
                      "sqrt(v) + eps }, lr)");
    return v;
}

/* by * x / y; by NONE: 1 */
static Ref scaled(lua_State *L, Ref by, StepValue v)
{
    Ref x = by == NONE ? v.x : trace_op(L, OP_MUL, by, v.x);
    return v.y == NONE ? x : trace_op(L, v.op, x, v.y);
}

static void check_p(lua_State *L, Ref p, const char *word, const char *example)
{
    const Trace *t = trace_of(L);
    if (t->parts.by && p != t->p)
        spec_error(L, "%s: a wrapper takes this step apart, so its first argument is p itself: p = %s", word, example);
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
    lang_count(L, "shrink", 2, 2);
    Ref p = lang_num(L, 1, "shrink", 1), amount = lang_num(L, 2, "shrink", 2);
    check_p(L, p, "shrink", "shrink(p, lr * weight_decay)");
    if (t->parts.by)
        add_amount(L, amount);
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
    if (decay != NONE && v.y != NONE)
        return spec_error(L, "descend takes a decay with a plain x: p = descend(p, x, lr, weight_decay)");
    check_p(L, p, "descend", "descend(p, x, lr)");
    if (!t->parts.by) {
        v.x = decay == NONE ? v.x : trace_op(L, OP_ADD, v.x, trace_op(L, OP_MUL, decay, p));
        push_value(L, trace_op(L, OP_SUB, p, scaled(L, rate, v)));
        return 1;
    }
    Ref lr = s->is_wrapper ? t->parts.rate : trace_hyper(t, s, "lr");
    if (lr == NONE)
        return spec_error(L, "descend: a wrapper takes this step apart, and '%s' has no hyperparameter lr", s->name);
    t->parts.x = scaled(L, without_lr(L, rate, lr, 0), v);
    t->parts.rate = lr;
    if (decay != NONE)
        add_amount(L, trace_op(L, OP_MUL, rate, decay));
    push_value(L, p);
    return 1;
}

/* separable(): a plain truth value. The first trace answers true. If that trace fails, pass_trace traces once more with
 * false: only a complete trace shows whether p changes in another way. */
int l_separable(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "separable", 0, 0);
    if (t->at < 0 || !t->spec[t->at].is_wrapper)
        return spec_error(L, "separable() is for entries of wrappers: whether the rule inside can be taken apart");
    t->asked_separable = true;
    lua_pushboolean(L, t->separable);
    return 1;
}

/* An option `apart` that is "auto" gets the answer as its value, so that `optc explain` and the IR show it. */
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
    if (t->tries > x.tries) {                              /* an error inside of it is already recorded */
        push_value(L, UNKNOWN), push_value(L, UNKNOWN), push_value(L, UNKNOWN);
        return;
    }
    if (x.rate == NONE)
        spec_error(L, "the wrapper '%s' takes the step of '%s' apart, which has no p = descend(p, x, lr)",
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
        spec_error(L, "'%s' reads p after the step, but the wrapper '%s' around it takes the step apart and changes p "
                      "later: put '%s' outside of it", s->name, t->parts.by, s->name);
}

void parts_write_p(lua_State *L, Ref was)
{
    const Trace *t = trace_of(L);
    if (t->parts.by && t->p != was && t->p != UNKNOWN)
        spec_error(L, "'%s' changes p in another way than by p = shrink(p, …) and p = descend(p, …), but the wrapper "
                      "'%s' takes its step apart: write it with these words, or leave out the wrapper",
                   t->spec[t->at].name, t->parts.by);
}

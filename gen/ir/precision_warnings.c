/* pass_precision: warnings about storage types that cannot work: averages and decays whose change
 * in one step is below half a step of the type, so that rounding to nearest undoes it. Uses the
 * defaults of the hyperparameters; optc_type_warnings runs it with the caller's.
 *
 * A type with d significant bits has steps of 2^(1-d) to 2^-d of a number: a change below 2^-d of
 * it is lost for some numbers, and below 2^-(d+1) for all. */
#include "gen/ir/rule_passes.h"

#include <math.h>
#include <string.h>

/* the step that is looked at: corrections for the first ones are over */
enum { LATE = 10000, MOST_FACTORS = 8 };
/* of: by node; NaN: unknown or not one number */
typedef struct Numbers { const Rule *r; double *of; } Numbers;

static Numbers numbers(Arena *a, const Rule *r)
{
    Numbers x = {r, NEWS(a, double, r->g.len + 1)};
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        OpKind k = op_info[n->op].kind;
        double arg[3] = {0};
        bool known = dom_info[n->dom].scope <= SCOPE_GROUP && k != K_LEAF && k < K_RED;
        for (int j = 0; j < n->nargs && j < 3 && known; j++) {
            arg[j] = x.of[n->arg[j]];
            known = !isnan(arg[j]);
        }
        x.of[i] = n->op == OP_CONST   ? n->imm
                  : n->op == OP_HYPER ? r->hyper[n->sym].def
                  : n->op == OP_STEP  ? LATE
                  : known             ? op_eval((Op)n->op, arg[0], arg[1], arg[2])
                                      : NAN;
    }
    return x;
}

/* Splits a product into known factors and the rest, a node that is no such product. */
static double factor(const Numbers *x, Ref r, Ref *rest)
{
    double f = 1;
    const Node *n = &x->r->g.n[r];
    for (int depth = 0; n->op == OP_MUL && depth < MOST_FACTORS; depth++, n = &x->r->g.n[r]) {
        int k = !isnan(x->of[n->arg[0]]) ? 0 : 1;
        if (isnan(x->of[n->arg[k]]))
            break;
        f *= x->of[n->arg[k]];
        r = n->arg[!k];
    }
    *rest = r;
    return f;
}

/* leaf minus a value, or the reverse */
static bool differs_from(const Graph *g, Ref r, Ref leaf)
{
    return g->n[r].op == OP_SUB && (g->n[r].arg[0] == leaf || g->n[r].arg[1] == leaf);
}

/* The share of `leaf` that value r replaces: w in leaf + w (y - leaf), y + (1 - w) (leaf - y), (1 -
 * w) leaf + y, leaf - w leaf. NaN: r has none of these forms. */
static double share(const Numbers *x, Ref r, Ref leaf)
{
    const Graph *g = &x->r->g;
    const Node *n = &g->n[r];
    Ref rest;
    double f;
    if (n->op == OP_WHERE) {
        f = share(x, n->arg[1], leaf);
        return isnan(f) ? share(x, n->arg[2], leaf) : f;
    }
    if (n->op == OP_MUL) {
        f = factor(x, r, &rest);
        return rest == leaf ? fabs(1 - f) : NAN;
    }
    for (int k = 0; k < 2 && (n->op == OP_ADD || n->op == OP_SUB); k++) {
        if (n->op == OP_ADD && !isnan(x->of[n->arg[k]]))       /* an epsilon */
            return share(x, n->arg[!k], leaf);
        f = factor(x, n->arg[!k], &rest);
        if (n->arg[k] == leaf && (rest == leaf || differs_from(g, rest, leaf)))
            return fabs(f);
        if (n->arg[k] != leaf && differs_from(g, rest, leaf) && differs_from(g, rest, n->arg[k]))
            return fabs(1 - f);                                /* lerp(y, leaf, f) */
        f = factor(x, n->arg[k], &rest);
        if (rest == leaf && n->arg[k] != leaf && (n->op == OP_ADD || k == 0))
            return fabs(1 - f);
    }
    return NAN;
}

static bool rounds(Type t)                     /* to nearest, in few bits */
{
    return type_info[t].digits < 24 && !type_coded(t) && !type_integer(t) && !type_info[t].draws;
}

static bool lost(Type t, double w) { return w > 0 && w < ldexp(1, -type_info[t].digits); }

static void warn_at(Rule *r, const Node *n, const char *text)
{
    bool known = n && n->line && n->file >= 0 && n->file < r->nfile;
    Place at = {known ? n->file : 0, known ? n->line : 0, known ? r->file[n->file] : NULL,
                known && n->file < r->ntext ? r->text[n->file] : NULL};
    rule_warn(r, at, text);
}

static Ref find_leaf(const Graph *g, Op op, int sym)
{
    for (Ref i = 0; i < g->len; i++)
        if (g->n[i].op == op && g->n[i].sym == sym)
            return i;
    return NONE;
}

/* The share of a state that value r replaces, where the state may first have been chosen by
 * where(). */
static double share_of_state(const Numbers *x, Ref r, Ref leaf)
{
    double by = NAN;
    for (Ref i = leaf; i < x->r->g.len && isnan(by); i++) {
        const Node *n = &x->r->g.n[i];
        if (i == leaf || (n->op == OP_WHERE && (n->arg[1] == leaf || n->arg[2] == leaf)))
            by = share(x, r, i);
    }
    return by;
}

static void warn_average(Rule *r, const Types *t, const Numbers *x, int state)
{
    const State *s = &r->state[state];
    Type type = type_of_state(s, t->p, t->state);
    Ref leaf = find_leaf(&r->g, OP_STATE, state);
    if (leaf == NONE || dom_wide(s->dom) || !rounds(type) || s->follows_p)
        return;
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                double by = w.state == state ? share_of_state(x, w.val, leaf) : NAN;
                if (!lost(type, by))
                    continue;
                warn_at(
                    r, &r->g.n[w.val],
                    arena_printf(
                        r->arena,
                        "state '%s' is an average that moves by %g of the difference in a step, "
                        "less than half a step of %s (%g): it freezes; store it in f32 or in a "
                        "type with stochastic rounding",
                        s->name, by, type_info[type].name, ldexp(1, -type_info[type].digits)));
                return;
            }
}

static bool has_master(const Rule *r)
{
    for (int i = 0; i < r->nstate; i++)
        if (r->state[i].follows_p && !r->state[i].report)
            return true;
    return false;
}

/* Warns of a narrow state from which an entry restores the parameters: they are rounded then. */
static void warn_kept_params(Rule *r, const Types *t, int state)
{
    const State *s = &r->state[state];
    Type type = type_of_state(s, t->p, t->state), whole = has_master(r) ? T_F32 : t->p;
    Ref at;
    int entry = keeps_params(r, state, &at);
    if (entry >= 0 && !s->follows_p && type_info[type].digits < type_info[whole].digits)
        warn_at(
            r, &r->g.n[at],
            arena_printf(
                r->arena,
                "entry '%s' keeps the parameters in state '%s', and %s rounds them: store it in "
                "%s if you run this entry",
                r->entry[entry].name, s->name, type_info[type].name, type_info[whole].name));
}

static void warn_params(Rule *r, Type p, const Numbers *x)
{
    const char *name = type_info[p].name, *master = p == T_BF16 ? "low16" : "f32";
    Ref leaf = find_leaf(&r->g, OP_P, 0);
    double half = ldexp(1, -type_info[p].digits);
    if (leaf == NONE || !rounds(p) || has_master(r))
        return;
    for (Ref i = 0; i < r->g.len; i++) {
        double by = share(x, i, leaf);
        if (lost(p, by)) {
            warn_at(r, &r->g.n[i],
                    arena_printf(
                        r->arena,
                        "a decay of %g of the parameter in a step is less than half a step of %s "
                        "(%g): it rounds away; choose types master=%s",
                        by, name, half, master));
            break;
        }
    }
    for (int h = 0; h < r->nhyper; h++)
        if (!strcmp(r->hyper[h].name, "lr") && r->hyper[h].def > 0 && r->hyper[h].def < half / 2)
            warn_at(r, NULL,
                    arena_printf(
                        r->arena,
                        "an update of lr = %g rounds away on parameters in %s above %g; choose "
                        "types master=%s",
                        r->hyper[h].def, name, r->hyper[h].def * 2 / half, master));
}

bool pass_precision(Rule *r, const Types *t, const char *path, Diag *d)
{
    (void)path;                                    /* rules have the names of their files */
    (void)d;
    Numbers x = numbers(r->arena, r);
    for (int i = 0; i < r->nstate; i++)
        warn_average(r, t, &x, i);
    for (int i = 0; i < r->nstate; i++)
        warn_kept_params(r, t, i);
    warn_params(r, t->p, &x);
    return true;
}

/* Bounds of values, and the states that are never negative.
 *
 * Ranges are intervals that contain every value of a node, NaN aside. Hyperparameters have the
 * range that the rule gives them. A state that starts at or above 0 is assumed to stay there until
 * an entry writes a value whose range reaches below 0; the states are checked again until no
 * assumption falls (induction over the steps).
 *
 * The proofs hold for rounded arithmetic: rounding keeps the order of numbers, so x >= 0 stays so,
 * and v + w*(x - v) with 0 <= w <= 1 stays between v and x or at most one rounding from them, never
 * past 0. */
#include "gen/ir/rule_passes.h"

#include <float.h>
#include <math.h>

enum { MOST_FACTORS = 32 };

static const Interval any_number = {-INFINITY, INFINITY}, not_negative = {0, INFINITY};

static Interval hull(Interval a, Interval b)
{
    return (Interval){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}
static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

static Interval product(Interval a, Interval b)
{
    double x[4] = {times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi)};
    return (Interval){fmin(fmin(x[0], x[1]), fmin(x[2], x[3])),
                      fmax(fmax(x[0], x[1]), fmax(x[2], x[3]))};
}

static Interval sum(Interval a, Interval b)
{
    Interval x = {a.lo + b.lo, a.hi + b.hi};
    return isnan(x.lo) || isnan(x.hi) ? any_number : x;
}

static Interval quotient(Interval a, Interval b)
{
    if (!(b.lo >= 0 || b.hi <= 0))
        return any_number;
    Interval inverse =
        b.lo >= 0 ? (Interval){isinf(b.hi) ? 0 : 1 / b.hi, b.lo == 0 ? INFINITY : 1 / b.lo}
                  : (Interval){b.hi == 0 ? -INFINITY : 1 / b.hi, isinf(b.lo) ? 0 : 1 / b.lo};
    return product(a, inverse);
}

/* ---- products with factors that occur twice ---- */
/* The factors of a product or quotient; minus: their signs so far. */
typedef struct Factors { Ref of[MOST_FACTORS]; int n; bool minus, lost; } Factors;

static void collect(const Graph *g, Ref r, Factors *f)
{
    const Node *n = &g->n[r];
    if (n->op == OP_COPY || n->op == OP_NEG) {
        f->minus ^= n->op == OP_NEG;
        collect(g, n->arg[0], f);
    } else if (n->op == OP_MUL || n->op == OP_DIV) {
        collect(g, n->arg[0], f);
        collect(g, n->arg[1], f);
    } else if (f->n < MOST_FACTORS) {
        f->of[f->n++] = r;
    } else {
        f->lost = true;
    }
}

/* Every factor is never negative or occurs an even number of times: c * g * g. */
static bool even_product(const Graph *g, const Interval *of, Ref r)
{
    Factors f = {.n = 0};
    collect(g, r, &f);
    bool odd = f.lost || f.minus;
    for (int i = 0; i < f.n && !odd; i++) {
        int same = 0;
        for (int k = 0; k < f.n; k++)
            same += f.of[k] == f.of[i];
        odd = same % 2 && of[f.of[i]].lo < 0;
    }
    return !odd;
}

/* ---- interpolation ---- */
/* part is w * (b - a), or w * (a - b) if a comes first, with 0 <= w <= 1: returns b; NONE: it is
 * not. */
static Ref far_end(const Graph *g, const Interval *of, Ref part, Ref a, bool a_first)
{
    const Node *m = &g->n[part];
    for (int k = 0; m->op == OP_MUL && k < 2; k++) {
        Interval w = of[m->arg[k]];
        const Node *d = &g->n[m->arg[!k]];
        if (w.lo >= 0 && w.hi <= 1 && d->op == OP_SUB && d->arg[!a_first] == a)
            return d->arg[a_first];
    }
    return NONE;
}

static Interval interpolated(const Graph *g, const Interval *of, const Node *n, Interval plain)
{
    Ref a = n->arg[0], b = far_end(g, of, n->arg[1], a, n->op == OP_SUB);
    if (b == NONE && n->op == OP_ADD)
        a = n->arg[1], b = far_end(g, of, n->arg[0], a, false);
    return b == NONE ? plain : hull(of[a], of[b]);
}

/* ---- operations ---- */
static Interval power_range(Interval a, const Node *e, Interval x)
{
    bool even = e->op == OP_CONST && fmod(e->imm, 2) == 0;
    if (a.lo < 0)
        return even ? not_negative : any_number;
    return (Interval){0, (a.hi <= 1 && x.lo >= 0) || (a.lo >= 1 && x.hi <= 0) ? 1 : INFINITY};
}

static Interval rising(Op op, Interval a)
{
    Interval x = {op_eval(op, a.lo, 0, 0), op_eval(op, a.hi, 0, 0)};
    return isnan(x.lo) || isnan(x.hi) ? any_number : x;
}

static Interval operation(const Graph *g, const Interval *of, Ref r)
{
    const Node *n = &g->n[r];
    Interval a = n->nargs > 0 ? of[n->arg[0]] : any_number,
             b = n->nargs > 1 ? of[n->arg[1]] : any_number;
    Interval c = n->nargs > 2 ? of[n->arg[2]] : any_number, x;
    switch ((Op)n->op) {
    case OP_ADD: return interpolated(g, of, n, sum(a, b));
    case OP_SUB: return interpolated(g, of, n, sum(a, (Interval){-b.hi, -b.lo}));
    case OP_MUL: case OP_DIV:
        x = n->op == OP_MUL ? product(a, b) : quotient(a, b);
        return x.lo < 0 && even_product(g, of, r) ? not_negative : x;
    case OP_FMA: return sum(product(a, b), c);
    case OP_COPY: case OP_STORED: case OP_RMAX: case OP_RMIN: case OP_TRANSPOSE:
    case OP_TAKE: return a;
    case OP_NEG: return (Interval){-a.hi, -a.lo};
    case OP_ABS: return (Interval){a.lo > 0 ? a.lo : 0, fmax(fabs(a.lo), fabs(a.hi))};
    case OP_SQRT: return (Interval){a.lo > 0 ? sqrt(a.lo) : 0, a.hi > 0 ? sqrt(a.hi) : INFINITY};
    case OP_MIN: return (Interval){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
    case OP_MAX: return (Interval){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    case OP_WHERE: return hull(b, c);
    case OP_SIGN: case OP_FLOOR: case OP_CEIL: case OP_ROUND: case OP_EXP: case OP_EXPM1:
    case OP_TANH: case OP_ERF:
    case OP_CBRT: return rising((Op)n->op, a);
    case OP_LOG:
    case OP_LOG1P: return a.lo >= 1 || (n->op == OP_LOG1P && a.lo >= 0) ? not_negative : any_number;
    case OP_SIN: case OP_COS: return (Interval){-1, 1};
    case OP_POW: case OP_POWI: return power_range(a, &g->n[n->arg[1]], b);
    case OP_NORM: case OP_RMS: return not_negative;
    case OP_SUM: return a.lo >= 0 ? not_negative : any_number;
    case OP_MM:
        return a.lo >= 0 && b.lo >= 0 && n->imm >= 0 && n->diagonal >= 0 &&
               (n->nargs < 3 || (n->beta >= 0 && c.lo >= 0)) ? not_negative : any_number;
    default: return any_number;
    }
}

/* One operand per variant. */
static Interval global_range(const Interval *of, const Node *n)
{
    Interval x = of[n->arg[0]];
    for (int k = 1; k < n->nargs; k++)
        x = hull(x, of[n->arg[k]]);
    return n->op != OP_GSUM ? x : x.lo >= 0 ? not_negative : any_number;
}

static Interval hyper_bounds(const Hyper *h)
{
    return (Interval){h->lo == 0 && h->lo_open ? DBL_TRUE_MIN : h->lo, h->hi};
}

static Interval node_range(const Rule *r, const Ranges *x, Ref i)
{
    const Node *n = &r->g.n[i];
    switch ((Op)n->op) {
    case OP_CONST: return isnan(n->imm) ? any_number : (Interval){n->imm, n->imm};
    case OP_HYPER: return hyper_bounds(&r->hyper[n->sym]);
    case OP_STATE: return x->nonneg[n->sym] ? not_negative : any_number;
    case OP_STEP: return (Interval){1, INFINITY};
    case OP_COUNT: case OP_DOWN: case OP_ACROSS: return not_negative;
    case OP_RANDOM: return (Interval){0, 1};
    default: break;
    }
    return n->ty == BOOL  ? (Interval){0, 1}
           : is_global(n) ? global_range(x->of, n)
                          : operation(&r->g, x->of, i);
}

static bool starts_nonneg(const Rule *r, const State *s)
{
    if (s->rotates)                                        /* what other steps pushed */
        return false;
    if (s->init == INIT_KERNEL)
        return true;
    return s->init == INIT_FILL ? s->value >= 0
                                : s->init == INIT_HYPER && r->hyper[s->hyper].lo >= 0;
}

/* One round over the graph, operands first; true: an assumption fell. */
static bool one_round(const Rule *r, Ranges *x)
{
    bool fell = false;
    for (Ref i = 0; i < r->g.len; i++)
        x->of[i] = node_range(r, x, i);
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                if (w.state == TO_P || !x->nonneg[w.state] || r->state[w.state].nonneg ||
                    x->of[w.val].lo >= 0)
                    continue;
                x->nonneg[w.state] = false;
                fell = true;
            }
    return fell;
}

Ranges rule_ranges(Arena *a, const Rule *r)
{
    Ranges x = {NEWS(a, Interval, r->g.len + 1), NEWS(a, bool, r->nstate + 1)};
    for (int i = 0; i < r->nstate; i++)
        x.nonneg[i] =
            r->state[i].nonneg || (!r->state[i].slots.every && starts_nonneg(r, &r->state[i]));
    while (one_round(r, &x))
        ;
    return x;
}

/* ---- states in denominators ---- */
/* The new value of a state carries its error on; a residual, measured data minus the state, does
 * not: its error is that of the state's code, and no code brings it to 0 where it is not. */
static bool residual(const Ranges *x, const bool *from, const Node *n)
{
    return n->op == OP_SUB && from[n->arg[1]] && !from[n->arg[0]] && x->of[n->arg[0]].lo < 0;
}

static bool carries(const Graph *g, const Ranges *x, const bool *from, Ref r)
{
    const Node *n = &g->n[r];
    bool any = false;
    OpKind kind = op_info[n->op].kind;
    if ((kind != K_NUM && kind != K_SEL && kind != K_TRANSPOSE) || n->op == OP_EXP ||
        residual(x, from, n))
        return false;
    for (int k = kind == K_SEL; k < n->nargs; k++)
        any = any || from[n->arg[k]];
    for (int k = 0; n->op == OP_MAX && k < 2; k++)
        any = any && (from[n->arg[k]] || !(x->of[n->arg[k]].lo > 0));
    return any;
}

/* A stored 0, or a wrong sign, in this place gives an infinity or NaN. */
static bool divides(const Graph *g, const Ranges *x, const bool *from, const Node *n)
{
    switch ((Op)n->op) {
    case OP_DIV: return from[n->arg[1]];
    case OP_SQRT: return from[n->arg[0]] && x->of[n->arg[0]].lo < 0;
    case OP_LOG: return from[n->arg[0]];
    case OP_POW: case OP_POWI: {
        const Node *e = &g->n[n->arg[1]];
        bool whole = n->op == OP_POWI || (e->op == OP_CONST && e->imm == floor(e->imm));
        return from[n->arg[0]] && (x->of[n->arg[1]].lo < 0 || (!whole && x->of[n->arg[0]].lo < 0));
    }
    default: return false;
    }
}

Ref state_divides(Arena *a, const Rule *r, const Ranges *x, int state)
{
    bool *from = NEWS(a, bool, r->g.len + 1);
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        if (divides(&r->g, x, from, n))
            return i;
        from[i] = n->op == OP_STATE ? n->sym == state : carries(&r->g, x, from, i);
    }
    return NONE;
}

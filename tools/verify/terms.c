/* Makes terms. The rewrites are exact for all values, infinities and signs of zero included, and up
 * to the bits of NaNs. tests/PROOF.md lists them. */
#include "tools/verify/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void terms_start(TermPool *p, Arena *a)
{
    *p = (TermPool){.arena = a};
    terms_reset(p);
}

void terms_reset(TermPool *p)
{
    p->len = 1;
    if (p->table)
        memset(p->table, 0, sizeof *p->table * (size_t)p->table_cap);
}

void terms_free(TermPool *p)
{
    free(p->node);
    free(p->table);
    *p = (TermPool){.len = 0};
}

static void *grown(TermPool *p, void *old, size_t bytes)
{
    void *x = realloc(old, bytes);
    if (!x)
        arena_out(p->arena);
    return x;
}

static uint64_t hash_node(const TermNode *n)
{
    uint64_t h = (uint64_t)n->op * 0x9e3779b97f4a7c15u ^ (uint64_t)n->width << 8 ^
                 n->imm * 0xc2b2ae3d27d4eb4fu;
    for (int i = 0; i < n->n; i++)
        h = (h ^ (uint64_t)(uint32_t)n->arg[i]) * 0x9fb21c651e98df25u, h ^= h >> 29;
    h *= 0x9fb21c651e98df25u;
    return h ^ h >> 29;
}

static bool same_node(const TermNode *a, const TermNode *b)
{
    return a->op == b->op && a->width == b->width && a->n == b->n && a->imm == b->imm &&
           !memcmp(a->arg, b->arg, sizeof *a->arg * a->n);
}

static void grow_table(TermPool *p)
{
    int cap = p->table_cap ? p->table_cap * 2 : 1 << 16;
    uint64_t *old = p->table, mask = (uint64_t)(cap - 1);
    p->table = NULL;
    p->table = grown(p, NULL, sizeof *p->table * (size_t)cap);
    memset(p->table, 0, sizeof *p->table * (size_t)cap);
    for (int i = 0; i < p->table_cap; i++) {
        uint64_t h = old[i] >> 32;
        while (old[i] && p->table[h & mask])
            h++;
        if (old[i])
            p->table[h & mask] = old[i];
    }
    free(old);
    p->table_cap = cap;
}

Term term_make(TermPool *p, const TermNode *n)
{
    if (p->len * 2 >= p->table_cap)
        grow_table(p);
    uint64_t hash = hash_node(n) >> 32, mask = (uint64_t)(p->table_cap - 1), h = hash;
    for (; p->table[h & mask]; h++)
        if (p->table[h & mask] >> 32 == hash &&
            same_node(&p->node[(uint32_t)p->table[h & mask]], n))
            return (Term)(uint32_t)p->table[h & mask];
    if (p->len >= p->cap) {
        p->cap = p->cap ? p->cap * 2 : 1 << 14;
        p->node = grown(p, p->node, sizeof *p->node * (size_t)p->cap);
    }
    p->node[p->len] = *n;
    p->table[h & mask] = hash << 32 | (uint64_t)p->len;
    return p->len++;
}

static Term made(TermPool *p, int op, int width, Term a, Term b, Term c)
{
    TermNode n = {.op = op,
                  .width = (uint8_t)width,
                  .n = (uint8_t)(c   ? 3
                                 : b ? 2
                                     : 1),
                  .arg = {a, b, c}};
    return term_make(p, &n);
}

Term term_const(TermPool *p, int width, uint64_t bits)
{
    if (width < 8)
        bits &= ((uint64_t)1 << 8 * (width ? width : 1)) - 1;
    return term_make(
        p, &(TermNode){.op = TERM_CONST, .width = (uint8_t)width, .imm = width ? bits : bits != 0});
}

Term term_truth(TermPool *p, bool x) { return term_const(p, 0, x); }

Term term_leaf(TermPool *p, int width, int array, int64_t index)
{
    return term_make(p, &(TermNode){.op = TERM_LEAF, .width = (uint8_t)width,
                                    .imm = (uint64_t)array << 48 | (uint64_t)index});
}

Term term_of(TermPool *p, int width, Value v)
{
    return v.term ? v.term : term_const(p, width, v.bits);
}

Value term_value(const TermPool *p, Term t)
{
    return term_is_const(p, t) ? (Value){p->node[t].imm, 0} : (Value){0, t};
}

/* ---- constants as floats ---- */
static double as_double(const TermPool *p, Term t)
{
    const TermNode *n = &p->node[t];
    union { uint64_t u; double f; } d = {n->imm};
    union { uint32_t u; float f; } s = {(uint32_t)n->imm};
    return n->width == 8 ? d.f : (double)s.f;
}

static Term of_double(TermPool *p, int width, double x)
{
    union { uint64_t u; double f; } d = {.f = x};
    union { uint32_t u; float f; } s = {.f = (float)x};
    if (isnan(x))
        return term_make(p, &(TermNode){.op = TERM_NAN, .width = (uint8_t)width});
    return term_const(p, width, width == 8 ? d.u : s.u);
}

bool term_const_nan(const TermPool *p, Term t)
{
    return p->node[t].op == TERM_NAN ||
           (term_is_const(p, t) && p->node[t].width >= 4 && isnan(as_double(p, t)));
}

static bool is_number(const TermPool *p, Term t, double x)
{
    return t && term_is_const(p, t) && as_double(p, t) == x &&
           signbit(as_double(p, t)) == signbit(x);
}

/* Sums, products and quotients of f32 values in f64, rounded to f32, are those of f32: 53 >= 2 * 24
 * + 2. */
static Term folded(TermPool *p, TermOp op, int width, Term ta, Term tb, Term tc)
{
    double a = as_double(p, ta), b = tb ? as_double(p, tb) : 0, c = tc ? as_double(p, tc) : 0;
    switch (op) {
    case TERM_ADD: return of_double(p, width, a + b);
    case TERM_MUL: return of_double(p, width, a * b);
    case TERM_DIV: return of_double(p, width, a / b);
    case TERM_FMA:
        return of_double(p, width,
                         width == 8 ? fma(a, b, c) : (double)fmaf((float)a, (float)b, (float)c));
    case TERM_SQRT: return of_double(p, width, sqrt(a));
    case TERM_NEG: return of_double(p, width, -a);
    case TERM_ABS: return of_double(p, width, fabs(a));
    default: return of_double(p, width, a);
    }
}

bool term_float_op(int op) { return op >= TERM_ADD && op <= TERM_CVT; }

static Term operand(const TermPool *p, Term t, TermOp op)
{
    return p->node[t].op == (int)op ? p->node[t].arg[0] : 0;
}

/* 1 / c if that is exact and no operand needs more digits: c is a power of two, and both are
 * normal. */
static double exact_reciprocal(const TermPool *p, Term c, int width)
{
    int e;
    double x = term_is_const(p, c) ? as_double(p, c) : 0;
    return x != 0 && isfinite(x) && fabs(frexp(x, &e)) == 0.5 && abs(e) < (width == 8 ? 1000 : 120)
               ? 1 / x
               : 0;
}

static Term make_mul(TermPool *p, int width, Term a, Term b)
{
    Term na = operand(p, a, TERM_NEG), nb = operand(p, b, TERM_NEG);
    if (na || nb) {
        Term x = term_float(p, TERM_MUL, width, na ? na : a, nb ? nb : b, 0);
        return na && nb ? x : term_float(p, TERM_NEG, width, x, 0, 0);
    }
    for (int k = 0; k < 2; k++) {
        Term c = k ? b : a, x = k ? a : b;
        if (is_number(p, c, 1))
            return x;
        if (is_number(p, c, -1))
            return term_float(p, TERM_NEG, width, x, 0, 0);
        if (term_is_const(p, c) && !term_const_nan(p, c) && signbit(as_double(p, c)))
            return term_float(
                p, TERM_NEG, width,
                term_float(p, TERM_MUL, width, x, of_double(p, width, -as_double(p, c)), 0), 0, 0);
    }
    return a < b ? made(p, TERM_MUL, width, a, b, 0) : made(p, TERM_MUL, width, b, a, 0);
}

static Term make_div(TermPool *p, int width, Term a, Term b)
{
    double r = exact_reciprocal(p, b, width);
    Term na = operand(p, a, TERM_NEG), nb = operand(p, b, TERM_NEG);
    if (r != 0)
        return term_float(p, TERM_MUL, width, a, of_double(p, width, r), 0);
    if (na || nb) {
        Term x = term_float(p, TERM_DIV, width, na ? na : a, nb ? nb : b, 0);
        return na && nb ? x : term_float(p, TERM_NEG, width, x, 0, 0);
    }
    return made(p, TERM_DIV, width, a, b, 0);
}

/* The value of a term that was widened to f64 exactly, or 0. */
static Term widened(const TermPool *p, Term t)
{
    return p->node[t].width == 8 && operand(p, t, TERM_CVT) ? p->node[t].arg[0] : 0;
}

static Term make_fma(TermPool *p, int width, Term a, Term b, Term c)
{
    Term na = operand(p, a, TERM_NEG), nb = operand(p, b, TERM_NEG);
    a = na ? na : a;
    b = nb ? nb : b;
    /* the product of two f32 values is exact in f64 */
    if (widened(p, a) && widened(p, b)) {
        Term x = term_float(p, TERM_MUL, width, a, b, 0);
        return term_float(p, TERM_ADD, width,
                          !na != !nb ? term_float(p, TERM_NEG, width, x, 0, 0) : x, c, 0);
    }
    if (a > b) {
        Term x = a;
        a = b, b = x;
    }
    return made(p, TERM_FMA, width, !na != !nb ? made(p, TERM_NEG, width, a, 0, 0) : a, b, c);
}

/* A sum is -0 only if both operands are. */
static bool never_minus_zero(const TermPool *p, Term t)
{
    const TermNode *n = &p->node[t];
    return n->op == TERM_CONST ? !(as_double(p, t) == 0 && signbit(as_double(p, t)))
           : n->op == TERM_ADD ? never_minus_zero(p, n->arg[0]) || never_minus_zero(p, n->arg[1])
           : n->op == TERM_MUL ? n->arg[0] == n->arg[1]
           : n->op == TERM_CVT ? never_minus_zero(p, n->arg[0]) : n->op == TERM_ABS;
}

static Term make_add(TermPool *p, int width, Term a, Term b)
{
    if (a == b)
        return term_float(p, TERM_MUL, width, a, of_double(p, width, 2), 0);
    for (int k = 0; k < 2; k++) {
        Term zero = k ? b : a, x = k ? a : b;
        if (is_number(p, zero, -0.0) || (is_number(p, zero, 0) && never_minus_zero(p, x)))
            return x;
    }
    return a < b ? made(p, TERM_ADD, width, a, b, 0) : made(p, TERM_ADD, width, b, a, 0);
}

Term term_float(TermPool *p, TermOp op, int width, Term a, Term b, Term c)
{
    if (term_const_nan(p, a) || (b && term_const_nan(p, b)) || (c && term_const_nan(p, c)))
        return term_make(p, &(TermNode){.op = TERM_NAN, .width = (uint8_t)width});
    if (term_is_const(p, a) && (!b || term_is_const(p, b)) && (!c || term_is_const(p, c)))
        return folded(p, op, width, a, b, c);
    switch (op) {
    case TERM_ADD: return make_add(p, width, a, b);
    case TERM_MUL: return make_mul(p, width, a, b);
    case TERM_DIV: return make_div(p, width, a, b);
    case TERM_FMA: return make_fma(p, width, a, b, c);
    case TERM_NEG:
        return operand(p, a, TERM_NEG) ? operand(p, a, TERM_NEG) : made(p, op, width, a, 0, 0);
    case TERM_ABS:
        return p->node[a].op == TERM_ABS
                   ? a
                   : made(p, op, width, operand(p, a, TERM_NEG) ? p->node[a].arg[0] : a, 0, 0);
    /* widening and narrowing again changes nothing */
    case TERM_CVT:
        return p->node[a].width == width     ? a
               : width == 4 && widened(p, a) ? widened(p, a)
                                             : made(p, op, width, a, 0, 0);
    default: return made(p, op, width, a, 0, 0);
    }
}

Term term_sub(TermPool *p, int width, Term a, Term b)
{
    return term_float(p, TERM_ADD, width, a, term_float(p, TERM_NEG, width, b, 0, 0), 0);
}

/* ---- truth values ---- */
static bool select_of_consts(const TermPool *p, Term t)
{
    const TermNode *n = &p->node[t];
    return n->op == TERM_SELECT &&
           (term_is_const(p, n->arg[1]) || select_of_consts(p, n->arg[1])) &&
           (term_is_const(p, n->arg[2]) || select_of_consts(p, n->arg[2]));
}

/* A constant of f64 beside a widened f32 becomes one of f32. */
static Term narrowed(TermPool *p, Term t)
{
    if (widened(p, t))
        return widened(p, t);
    double x = term_is_const(p, t) && p->node[t].width == 8 ? as_double(p, t) : NAN;
    return (double)(float)x == x ? of_double(p, 4, x) : 0;
}

Term term_compare(TermPool *p, TermOp op, Term a, Term b)
{
    if (op == TERM_ISNAN) {
        if (term_const_nan(p, a))
            return term_truth(p, true);
        if (term_is_const(p, a))
            return term_truth(p, false);
        const TermNode n = p->node[a];
        if (n.op == TERM_NEG || n.op == TERM_ABS || n.op == TERM_CVT)
            return term_compare(p, TERM_ISNAN, n.arg[0], 0);
        return made(p, op, 0, a, 0, 0);
    }
    if (term_const_nan(p, a) || term_const_nan(p, b))
        return term_truth(p, false);
    if (term_is_const(p, a) && term_is_const(p, b)) {
        double x = as_double(p, a), y = as_double(p, b);
        return term_truth(p, op == TERM_LT ? x < y : op == TERM_LE ? x <= y : x == y);
    }
    if (a == b)
        return op == TERM_LT ? term_truth(p, false)
                             : term_not(p, term_compare(p, TERM_ISNAN, a, 0));
    /* -a < c as -c < a, so that a sign is at constants only */
    Term ma = operand(p, a, TERM_NEG), mb = operand(p, b, TERM_NEG);
    if ((ma && (mb || term_is_const(p, b))) || (mb && term_is_const(p, a))) {
        Term x = mb ? mb : term_float(p, TERM_NEG, p->node[b].width, b, 0, 0);
        return term_compare(p, op, x, ma ? ma : term_float(p, TERM_NEG, p->node[a].width, a, 0, 0));
    }
    if (op == TERM_LT && (is_number(p, b, -INFINITY) || is_number(p, a, INFINITY)))
        return term_truth(p, false);
    if (p->node[a].op == TERM_ABS && term_is_const(p, b) &&
        as_double(p, b) <= (op == TERM_LT ? 0 : -0x1p-1074))
        return term_truth(p, false);
    Term na = p->node[a].width == 8 ? narrowed(p, a) : 0, nb = na ? narrowed(p, b) : 0;
    if (na && nb)
        return term_compare(p, op, na, nb);
    if (is_number(p, a, -0.0))
        a = of_double(p, p->node[a].width, 0);
    if (is_number(p, b, -0.0))
        b = of_double(p, p->node[b].width, 0);
    return op == TERM_EQ && a > b ? made(p, op, 0, b, a, 0) : made(p, op, 0, a, b, 0);
}

Term term_not(TermPool *p, Term a)
{
    const TermNode *n = &p->node[a];
    if (n->op == TERM_CONST)
        return term_truth(p, !n->imm);
    return n->op == TERM_NOT ? n->arg[0] : made(p, TERM_NOT, 0, a, 0, 0);
}

Term term_logic(TermPool *p, TermOp op, Term a, Term b)
{
    bool all = op == TERM_AND;
    for (int k = 0; k < 2; k++) {
        Term c = k ? b : a, x = k ? a : b;
        if (term_is_const(p, c))
            return (p->node[c].imm != 0) == all ? x : c;
    }
    if (a == b)
        return a;
    if (term_not(p, a) == b)
        return term_truth(p, !all);
    if (p->node[a].op == TERM_NOT && p->node[b].op == TERM_NOT)
        return term_not(
            p, term_logic(p, all ? TERM_OR : TERM_AND, p->node[a].arg[0], p->node[b].arg[0]));
    return a < b ? made(p, op, 0, a, b, 0) : made(p, op, 0, b, a, 0);
}

/* y is a NaN whenever x is one. */
static bool nan_reaches(const TermPool *p, Term x, Term y, int depth)
{
    const TermNode *n = &p->node[y];
    bool any = x == y;
    for (int i = 0; i < n->n && !any && depth && term_float_op(n->op); i++)
        any = nan_reaches(p, x, n->arg[i], depth - 1);
    return any;
}

Term term_select(TermPool *p, Term c, Term a, Term b)
{
    const TermNode *n = &p->node[c];
    if (n->op == TERM_CONST)
        return n->imm ? a : b;
    if (n->op == TERM_NOT)
        return term_select(p, n->arg[0], b, a);
    if (a == b)
        return a;
    if (n->op == TERM_ISNAN && term_const_nan(p, a) && nan_reaches(p, n->arg[0], b, 6))
        return b;
    if (p->node[a].width == 0 && (term_is_const(p, a) || term_is_const(p, b))) {
        bool first = term_is_const(p, a), truth = p->node[first ? a : b].imm;
        Term cond = first == truth ? c : term_not(p, c);
        return term_logic(p, truth ? TERM_OR : TERM_AND, cond, first ? b : a);
    }
    /* two choices with the same result are one */
    const TermNode *x = &p->node[a], *y = &p->node[b];
    if (y->op == TERM_SELECT && y->arg[1] == a)
        return term_select(p, term_logic(p, TERM_OR, c, y->arg[0]), a, y->arg[2]);
    if (x->op == TERM_SELECT && x->arg[2] == b)
        return term_select(p, term_logic(p, TERM_AND, c, x->arg[0]), x->arg[1], b);
    return made(p, TERM_SELECT, p->node[a].width, c, a, b);
}

/* ---- operations by name ---- */
static int name_number(TermPool *p, const char *name)
{
    for (int i = 0; i < p->nname; i++)
        if (!strcmp(p->name[i], name))
            return i;
    PUSH(p->arena, p->name, p->nname, p->name_cap) = arena_strdup(p->arena, name);
    return p->nname - 1;
}

const char *term_op_name(const TermPool *p, int op)
{
    static const char *const names[TERM_NAMED] = {
        "none", "const", "leaf", "nan", "piece", "join", "add",   "mul", "div", "fma", "sqrt",
        "neg",  "abs",   "cvt",  "lt",  "le",    "eq",   "isnan", "not", "and", "or",  "select"};
    return op >= TERM_NAMED ? p->name[op - TERM_NAMED] : names[op];
}

/* An operation on a choice of constants is a choice of results. */
static Term pushed_in(TermPool *p, const TermNode *n)
{
    for (int i = 0; i < n->n; i++) {
        if (!select_of_consts(p, n->arg[i]))
            continue;
        const TermNode s = p->node[n->arg[i]];
        TermNode yes = *n, no = *n;
        yes.arg[i] = s.arg[1];
        no.arg[i] = s.arg[2];
        for (int k = 0; k < n->n; k++)
            if (k != i && !term_is_const(p, n->arg[k]) && !select_of_consts(p, n->arg[k]))
                return 0;
        return term_select(p, s.arg[0], term_rebuilt(p, &yes, yes.arg),
                           term_rebuilt(p, &no, no.arg));
    }
    return 0;
}

static uint64_t masked(int width, uint64_t x)
{
    return width >= 8 ? x : x & (((uint64_t)1 << 8 * width) - 1);
}
static int64_t extended(int width, uint64_t x)
{
    return (int64_t)(x << (64 - 8 * width)) >> (64 - 8 * width);
}

/* Integer operations on constants, by the names that the interpreter gives them. */
static bool fold_named(const char *f, int width, int of, uint64_t a, uint64_t b, uint64_t *out)
{
    int64_t sa = extended(of, a), sb = extended(of, b);
    unsigned bits = 8 * (unsigned)of;
    uint64_t r = !strcmp(f, "add")      ? a + b
                 : !strcmp(f, "sub")    ? a - b
                 : !strcmp(f, "mul.lo") ? a * b
                 : !strcmp(f, "and")    ? (a & b)
                 : !strcmp(f, "or")     ? (a | b)
                 : !strcmp(f, "xor")    ? a ^ b
                 : !strcmp(f, "not")    ? ~a
                 : !strcmp(f, "shl")    ? (b >= bits ? 0 : a << b)
                 : !strcmp(f, "shr.u")  ? (b >= bits ? 0 : masked(of, a) >> b)
                 : !strcmp(f, "shr.s")  ? (uint64_t)(sa >> (b >= bits ? bits - 1 : b))
                 : !strcmp(f, "min.s")  ? (uint64_t)(sa < sb ? sa : sb)
                 : !strcmp(f, "max.s")  ? (uint64_t)(sa > sb ? sa : sb)
                 : !strcmp(f, "min.u")  ? (a < b ? a : b)
                 : !strcmp(f, "max.u")  ? (a > b ? a : b)
                 : !strcmp(f, "ieq")    ? a == b
                 : !strcmp(f, "ilt.s")  ? sa < sb
                 : !strcmp(f, "ilt.u")  ? a < b
                 : !strcmp(f, "sext")   ? (uint64_t)sa
                                        : 0;
    static const char *const all[] = {"add", "sub",   "mul.lo", "and",   "or",    "xor",   "not",
                                      "shl", "shr.u", "shr.s",  "min.s", "max.s", "min.u", "max.u",
                                      "ieq", "ilt.s", "ilt.u",  "sext",  NULL};
    for (int i = 0; all[i]; i++)
        if (!strcmp(all[i], f)) {
            *out = width ? masked(width, r) : r != 0;
            return true;
        }
    return false;
}

Term term_named(TermPool *p, const char *name, int width, bool commutes, int n, const Term *arg)
{
    TermNode x = {.op = TERM_NAMED + name_number(p, name),
                  .width = (uint8_t)width,
                  .n = (uint8_t)n,
                  .imm = commutes};
    memcpy(x.arg, arg, sizeof *arg * (size_t)n);
    if (commutes && x.arg[0] > x.arg[1]) {
        x.arg[0] = arg[1];
        x.arg[1] = arg[0];
    }
    uint64_t bits;
    bool fixed = n <= 2;
    for (int i = 0; i < n; i++)
        fixed = fixed && term_is_const(p, arg[i]);
    if (fixed && fold_named(name, width, p->node[arg[0]].width, p->node[arg[0]].imm,
                            n > 1 ? p->node[arg[1]].imm : 0, &bits))
        return term_const(p, width, bits);
    Term t = n <= 2 ? pushed_in(p, &x) : 0;
    return t ? t : term_make(p, &x);
}

Term term_rebuilt(TermPool *p, const TermNode *n, const Term *arg)
{
    if (n->op >= TERM_NAMED) {
        bool bitwise = n->n == 2 && n->width && arg[0] && arg[1];
        Value v;
        const char *name = term_op_name(p, n->op);
        if (bitwise &&
            bytes_operate(p, name, n->width, term_value(p, arg[0]), term_value(p, arg[1]), &v))
            return term_of(p, n->width, v);
        return term_named(p, name, n->width, n->imm != 0, n->n, arg);
    }
    switch (n->op) {
    case TERM_LT: case TERM_LE: case TERM_EQ:
    case TERM_ISNAN: return term_compare(p, (TermOp)n->op, arg[0], arg[1]);
    case TERM_NOT: return term_not(p, arg[0]);
    case TERM_AND: case TERM_OR: return term_logic(p, (TermOp)n->op, arg[0], arg[1]);
    case TERM_SELECT: return term_select(p, arg[0], arg[1], arg[2]);
    default: break;
    }
    if (term_float_op(n->op))
        return term_float(p, (TermOp)n->op, n->width, arg[0], n->n > 1 ? arg[1] : 0,
                          n->n > 2 ? arg[2] : 0);
    Byte b[16];
    int at = 0;
    if (n->op == TERM_PIECE) {
        bytes_of(p, p->node[arg[0]].width, term_value(p, arg[0]), b);
        return term_of(p, n->width, bytes_value(p, n->width, b + n->imm));
    }
    if (n->op != TERM_JOIN)
        return term_make(p, n);
    for (int i = 0; i < n->n; at += p->node[arg[i]].width, i++)
        bytes_of(p, p->node[arg[i]].width, term_value(p, arg[i]), b + at);
    return term_of(p, n->width, bytes_value(p, n->width, b));
}

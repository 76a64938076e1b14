/* What a stage of the plan stores, as terms of what its arrays hold: the plan executed on names of
 * floats. */
#include "tools/verify/verify.h"

#include <stdlib.h>

static TermPool *pool(PlanSide *s) { return &s->c->v->pool; }

void side_start(PlanSide *s, VerifyCase *c, int tensor)
{
    const Stage *st = c->v->at.stage;
    const Graph *g = c->v->phase->g;
    Arena *a = &c->v->scratch;
    bool wide = dom_wide(stage_info[st->kind].dom);
    *s = (PlanSide){.c = c, .g = g, .s = st, .tensor = tensor,
                    .real = wide || c->v->plan->real == T_F64 ? 8 : 4};
    s->memo = NEWS(a, Term, g->len + 1);
    s->when = NEWS(a, int, g->len + 1);
    s->load_of = NEWS(a, int, g->len + 1);
    s->fin_of = NEWS(a, int, g->len + 1);
    for (int i = 0; i < st->nload; i++)
        s->load_of[st->load[i].val] = i + 1;
    for (int i = 0; i < st->nfin; i++)
        s->fin_of[st->fin[i].val] = i + 1;
}

static Term number(PlanSide *s, int width, double x)
{
    union { double f; uint64_t u; } d = {x};
    union { float f; uint32_t u; } f = {(float)x};
    return term_const(pool(s), width, width == 8 ? d.u : f.u);
}

Term side_cast(PlanSide *s, int width, Term x)
{
    return term_at(pool(s), x)->width == width ? x : term_float(pool(s), TERM_CVT, width, x, 0, 0);
}

static Term missing(PlanSide *s, const char *what)
{
    if (!s->missing)
        s->missing = what;
    return number(s, s->real, 0);
}

/* ---- shared functions ---- */
/* Executes the function as it was compiled alone. */
static Term called(PlanSide *s, Op op, const Term *arg, int n)
{
    Verify *v = s->c->v;
    PtxMemory memory = {.pool = &v->pool, .arena = &v->scratch};
    PtxMachine x = {.pool = &v->pool,
                    .memory = &memory,
                    .kernel = &v->ref[op],
                    .arena = &v->scratch,
                    .threads = 1,
                    .blocks = 1};
    uint64_t param[4] = {0};
    if (!v->has_ref[op])
        return missing(s, op_info[op].name);
    for (int i = 0; i < 4; i++) {
        int w = i && i <= n ? term_at(&v->pool, arg[i - 1])->width : 8;
        int at = memory_area(&memory, "operand", w, 0, i == 0);
        param[i] = memory.area[at].base;
        if (i && i <= n)
            bytes_of(&v->pool, w, term_value(&v->pool, arg[i - 1]), memory.area[at].byte);
    }
    x.param = (uint8_t *)param;
    Term r = 0;
    if (ptx_run_block(&x, 0))
        r = term_of(&v->pool, s->real, bytes_value(&v->pool, s->real, memory.area[0].byte));
    free(x.file);
    free(x.thread);
    return r ? r : missing(s, op_info[op].name);
}

/* x^n for a known whole number n, in the order of optc_powi (templates/math.h). */
static Term power(PlanSide *s, Term x, Term n)
{
    TermPool *p = pool(s);
    union { uint64_t u; double f; } e = {term_at(p, n)->imm};
    union { uint32_t u; float f; } e4 = {(uint32_t)term_at(p, n)->imm};
    if (!term_is_const(p, n))
        return missing(s, "a power whose exponent is not known");
    double of = term_at(p, n)->width == 8 ? e.f : (double)e4.f, most = 9007199254740992.0;
    double size = of < 0 ? -of : of;
    Term r = number(s, s->real, 1);
    for (uint64_t k = (uint64_t)(size <= most ? size : most); k; k >>= 1) {
        r = k & 1 ? term_float(p, TERM_MUL, s->real, r, x, 0) : r;
        x = term_float(p, TERM_MUL, s->real, x, x, 0);
    }
    return of < 0 ? term_float(p, TERM_DIV, s->real, number(s, s->real, 1), r, 0) : r;
}

/* A NaN operand is the result; of equal operands the second. */
Term side_less(PlanSide *s, bool max, Term a, Term b)
{
    TermPool *p = pool(s);
    Term above = max ? term_compare(p, TERM_LT, b, a) : term_compare(p, TERM_LT, a, b);
    return term_select(p, term_compare(p, TERM_ISNAN, a, 0), a, term_select(p, above, a, b));
}

static Term sign_of(PlanSide *s, Term x)
{
    TermPool *p = pool(s);
    Term zero = number(s, s->real, 0);
    Term up = term_select(p, term_compare(p, TERM_LT, zero, x), number(s, s->real, 1), x);
    return term_select(p, term_compare(p, TERM_LT, x, zero), number(s, s->real, -1), up);
}

/* ---- operations ---- */
static bool is_rsqrt(const PlanSide *s, const Node *n)
{
    const Node *g = s->g->n;
    return n->op == OP_DIV && g[n->arg[1]].op == OP_SQRT && g[n->arg[0]].op == OP_CONST &&
           g[n->arg[0]].imm == 1 && is_elem(s->s->kind) && s->real == 4 &&
           s->c->v->has_ref[OP_SQRT] && s->approximate_root;
}

static Term operate(PlanSide *s, const Node *n, const Term *x)
{
    TermPool *p = pool(s);
    int w = s->real;
    switch (n->op) {
    case OP_ADD: return term_float(p, TERM_ADD, w, x[0], x[1], 0);
    case OP_SUB: return term_sub(p, w, x[0], x[1]);
    case OP_MUL: return term_float(p, TERM_MUL, w, x[0], x[1], 0);
    case OP_DIV: return term_float(p, TERM_DIV, w, x[0], x[1], 0);
    case OP_FMA: return term_float(p, TERM_FMA, w, x[0], x[1], x[2]);
    case OP_SQRT: return term_float(p, TERM_SQRT, w, x[0], 0, 0);
    case OP_NEG: return term_float(p, TERM_NEG, w, x[0], 0, 0);
    case OP_ABS: return term_float(p, TERM_ABS, w, x[0], 0, 0);
    case OP_COPY: return x[0];
    case OP_SIGN: return sign_of(s, x[0]);
    case OP_MIN: case OP_MAX: return side_less(s, n->op == OP_MAX, x[0], x[1]);
    case OP_POWI: return power(s, x[0], x[1]);
    case OP_LT: return term_compare(p, TERM_LT, x[0], x[1]);
    case OP_LE: return term_compare(p, TERM_LE, x[0], x[1]);
    case OP_EQ: return term_compare(p, TERM_EQ, x[0], x[1]);
    case OP_NE: return term_not(p, term_compare(p, TERM_EQ, x[0], x[1]));
    case OP_BOTH: return term_logic(p, TERM_AND, x[0], x[1]);
    case OP_EITHER: return term_logic(p, TERM_OR, x[0], x[1]);
    case OP_ISNT: return term_not(p, x[0]);
    case OP_WHERE: return term_select(p, x[0], x[1], x[2]);
    default: return called(s, (Op)n->op, x, n->nargs);
    }
}

/* ---- leaves ---- */
Term side_loaded(PlanSide *s, Type t, Term leaf)
{
    TermPool *p = pool(s);
    Byte b[4] = {{0, 0, 0}};
    switch (t) {
    case T_F32: case T_F64: return leaf;
    case T_BF16: case T_BF16SR:
        bytes_of(p, 2, term_value(p, leaf), b + 2);
        return term_of(p, 4, bytes_value(p, 4, b));
    case T_F16: case T_F16SR: return term_named(p, "cvt.f32.f16", 4, false, 1, &leaf);
    default: return missing(s, type_info[t].name);
    }
}

/* The index of entry (c, r) of the transposed array for entry (r, c). */
int64_t side_mirrored(Dom d, int64_t index, Shape h)
{
    int64_t down = axis_len(dom_info[d].axis[0], h), across = axis_len(dom_info[d].axis[1], h);
    int64_t c = index % across, r = index / across % down, matrix = index / across / down;
    return (matrix * across + c) * down + r;
}

static Term load(PlanSide *s, Access a, int64_t index)
{
    VerifyCase *c = s->c;
    int at = access_mem(c, a);
    const Mem *m = &c->v->plan->mem[at];
    Dom own = stage_info[s->s->kind].dom;
    Shape h = c->plan->tensor[s->tensor].shape;
    Dom d = a.transposed ? (Dom)s->g->n[a.val].dom : m->dom;
    int64_t i = dom_index(own, d, index, h);
    if (a.transposed && dom_square(d))
        i = side_mirrored(d, i, h);
    Term leaf = term_leaf(pool(s), type_info[m->type].bytes, case_area(c, s->tensor, at), i);
    Term x = side_loaded(s, m->type, leaf);
    if (s->g->n[a.val].ty != BOOL)
        return side_cast(s, s->real, x);
    return term_not(pool(s),
                    term_compare(pool(s), TERM_EQ, x, number(s, term_at(pool(s), x)->width, 0)));
}

static double count_of(PlanSide *s, const Node *n)
{
    const CasePlan *c = s->c->plan;
    const DomInfo *from = &dom_info[n->from], *to = &dom_info[n->dom];
    Shape h = c->tensor[s->tensor].shape;
    double total = 0, r = 1;
    if (to->scope == SCOPE_GROUP) {
        for (int i = 0; i < c->n; i++)
            total += n->from == ELEM ? (double)c->tensor[i].shape.n : 1;
        return total;
    }
    if (from->scope == SCOPE_BLOCK)
        missing(s, "a count of blocks");
    if (dom_inside((Dom)n->from) && !dom_inside((Dom)n->dom))
        r = (double)h.slices;
    for (int k = 0; k < 2; k++)
        r *= from->axis[k] != to->axis[k] ? (double)axis_len(from->axis[k], h) : 1;
    return r;
}

Term side_count(PlanSide *s, const Node *n) { return number(s, 8, count_of(s, n)); }

/* The index along an axis of the stage's domain. */
static double along(PlanSide *s, int axis, int64_t index)
{
    const Axis *of = dom_info[stage_info[s->s->kind].dom].axis;
    Shape h = s->c->plan->tensor[s->tensor].shape;
    int64_t across = axis_len(of[1], h), down = axis_len(of[0], h);
    return of[axis] == AXIS_ONE ? 0 : (double)(axis ? index % across : index / across % down);
}

static Term leaf_value(PlanSide *s, const Node *n, int64_t index)
{
    TermPool *p = pool(s);
    switch (n->op) {
    case OP_CONST: return n->ty == BOOL ? term_truth(p, n->imm != 0) : number(s, s->real, n->imm);
    case OP_HYPER:
        return side_cast(s, s->real,
                         term_leaf(p, 8, s->c->hyper[case_group(s->tensor)], n->sym + 1));
    case OP_STEP: return side_cast(s, s->real, s->c->t[case_group(s->tensor)]);
    case OP_COUNT: return number(s, s->real, count_of(s, n));
    case OP_DOWN: return number(s, s->real, along(s, 0, index));
    case OP_ACROSS: return number(s, s->real, along(s, 1, index));
    default: return missing(s, op_info[n->op].name);
    }
}

/* A value as an array of this type stores it. */
static Term packed(PlanSide *s, Type t, Term x)
{
    TermPool *p = pool(s);
    if (term_at(p, x)->width == 0)
        x = term_select(p, x, number(s, s->real, 1), number(s, s->real, 0));
    x = side_cast(s, type_info[t].compute == T_F64 ? 8 : 4, x);
    switch (t) {
    case T_F32: case T_F64: return x;
    case T_BF16: return term_named(p, "cvt.rn.bf16.f32", 2, false, 1, &x);
    case T_F16: return term_named(p, "cvt.rn.f16.f32", 2, false, 1, &x);
    default: return missing(s, type_info[t].name);
    }
}

/* A value after a store to the state's type and a load from it. */
static Term stored(PlanSide *s, const Node *n, Term x)
{
    const Plan *p = s->c->v->plan;
    Type t = p->mem[plan_mem_of_state(p, n->sym)].type;
    if (dom_wide((Dom)n->dom) || t == p->real)
        return x;
    return side_cast(s, s->real, side_loaded(s, t, packed(s, t, x)));
}

Term side_value(PlanSide *s, Ref r, int64_t index)
{
    const Node *n = &s->g->n[r];
    Term x[MAX_ARGS];
    if (s->when[r] == s->now)
        return s->memo[r];
    Term y;
    if (s->load_of[r])
        y = load(s, s->s->load[s->load_of[r] - 1], index);
    else if (s->fin_of[r])
        y = side_finished(s, s->s->fin[s->fin_of[r] - 1], index);
    else if (n->op == OP_STORED)
        y = stored(s, n, side_value(s, n->arg[0], index));
    else if (is_leaf(n))
        y = leaf_value(s, n, index);
    else if (is_rsqrt(s, n)) {
        x[0] = side_value(s, s->g->n[n->arg[1]].arg[0], index);
        y = called(s, OP_SQRT, x, 1);
    } else {
        for (int i = 0; i < n->nargs; i++)
            x[i] = side_value(s, n->arg[i], index);
        y = operate(s, n, x);
    }
    s->when[r] = s->now;
    return s->memo[r] = y;
}

Term side_stored(PlanSide *s, Type t, Ref r, int64_t index)
{
    return packed(s, t, side_value(s, r, index));
}

/* Decides whether two terms are equal for all values of their leaves, by cases: a comparison of a
 * and b has the cases "a is a NaN", "b is a NaN", a < b, a == b, a > b, and each case is
 * substituted. What is left must be the same term. Not deciding counts as unequal. Cases that
 * contradict each other may be looked at; that can only refuse. */
#include "tools/verify/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kind: ISNAN of a (is: 0, 1); LT: a against b (is: -1, 0, 1); NAMED: the truth value a (is: 0,
 * 1) */
typedef struct Fact { int kind; Term a, b; int is; } Fact;
enum { MOST_FACTS = 48, MOST_SPLITS = 20000 };

typedef struct Cases {
    TermPool *p;
    Fact fact[MOST_FACTS]; int n;
    Term *to; int *when; int cap, now;                     /* rebuilt terms of the current case */
    int64_t splits;
    bool gave_up;
} Cases;

static const Fact *fact_of(const Cases *c, int kind, Term a, Term b)
{
    for (int i = 0; i < c->n; i++)
        if (c->fact[i].kind == kind && c->fact[i].a == a && c->fact[i].b == b)
            return &c->fact[i];
    return NULL;
}

static bool is_nan_now(const Cases *c, Term t)
{
    const Fact *f = fact_of(c, TERM_ISNAN, t, 0);
    return term_const_nan(c->p, t) || (f && f->is);
}

/* The order of a and b if a case fixes it; 2: it does not. */
static int order_of(const Cases *c, Term a, Term b)
{
    const Fact *f = fact_of(c, TERM_LT, a < b ? a : b, a < b ? b : a);
    return !f ? 2 : a < b ? f->is : -f->is;
}

static Term truth_now(Cases *c, Term t)
{
    const TermNode n = *term_at(c->p, t);
    if (n.op == TERM_ISNAN) {
        const Fact *f = fact_of(c, TERM_ISNAN, n.arg[0], 0);
        return f ? term_truth(c->p, f->is) : t;
    }
    if (n.op == TERM_LT || n.op == TERM_LE || n.op == TERM_EQ) {
        if (is_nan_now(c, n.arg[0]) || is_nan_now(c, n.arg[1]))
            return term_truth(c->p, false);
        int is = order_of(c, n.arg[0], n.arg[1]);
        return is == 2 ? t
                       : term_truth(c->p, n.op == TERM_LT   ? is < 0
                                          : n.op == TERM_LE ? is <= 0
                                                            : is == 0);
    }
    const Fact *f = n.op >= TERM_NAMED ? fact_of(c, TERM_NAMED, t, 0) : NULL;
    return f ? term_truth(c->p, f->is) : t;
}

/* x == c for a constant other than zero: the value is the constant. */
static Term fixed_now(const Cases *c, Term t)
{
    for (int i = 0; i < c->n; i++) {
        const Fact *f = &c->fact[i];
        Term k = f->kind != TERM_LT || f->is ? 0 : f->a == t ? f->b : f->b == t ? f->a : 0;
        if (k && term_is_const(c->p, k) && (term_at(c->p, k)->imm << 1) != 0)
            return k;
    }
    return t;
}

static bool takes_nan(const TermPool *p, const TermNode *n)
{
    return term_float_op(n->op) ||
           (n->op >= TERM_NAMED && !strncmp(term_op_name(p, n->op), "cvt.r", 5));
}

static Term rebuilt(Cases *c, Term t)
{
    if (t >= c->cap) {
        int cap = c->cap ? c->cap : 1024;
        while (cap <= t)
            cap *= 2;
        Term *to = realloc(c->to, sizeof *to * (size_t)cap);
        c->to = to ? to : c->to;
        int *when = realloc(c->when, sizeof *when * (size_t)cap);
        c->when = when ? when : c->when;
        if (!to || !when)
            arena_out(c->p->arena);
        memset(c->when + c->cap, 0, sizeof *when * (size_t)(cap - c->cap));
        c->cap = cap;
    }
    if (c->when[t] == c->now)
        return c->to[t];
    TermNode n = *term_at(c->p, t);
    Term r = t;
    if (n.op == TERM_SELECT) {
        Term cond = rebuilt(c, n.arg[0]);
        const TermNode *k = term_at(c->p, cond);
        r = k->op == TERM_CONST
                ? rebuilt(c, n.arg[k->imm ? 1 : 2])
                : term_select(c->p, cond, rebuilt(c, n.arg[1]), rebuilt(c, n.arg[2]));
    } else if (n.n) {
        for (int i = 0; i < n.n; i++) {
            n.arg[i] = rebuilt(c, n.arg[i]);
            if (takes_nan(c->p, &n) && is_nan_now(c, n.arg[i]))
                n.arg[i] = term_make(
                    c->p, &(TermNode){.op = TERM_NAN, .width = term_at(c->p, n.arg[i])->width});
        }
        r = term_rebuilt(c->p, &n, n.arg);
    }
    r = term_at(c->p, r)->width ? fixed_now(c, r) : truth_now(c, r);
    c->when[t] = c->now;
    c->to[t] = r;
    return r;
}

/* A comparison in t whose operands contain none; 0: there is none. */
static Term first_atom(Cases *c, Term t)
{
    if (c->when[t] == -c->now)
        return 0;
    const TermNode n = *term_at(c->p, t);
    for (int i = 0; i < n.n; i++) {
        Term x = first_atom(c, n.arg[i]);
        if (x)
            return x;
    }
    if (n.width == 0 && (n.op == TERM_ISNAN || n.op == TERM_LT || n.op == TERM_LE ||
                         n.op == TERM_EQ || n.op >= TERM_NAMED))
        return t;
    if (t < c->cap)
        c->when[t] = -c->now;
    return 0;
}

static double const_double(const TermPool *p, Term t)
{
    const TermNode *n = term_at(p, t);
    union { uint64_t u; double f; } d = {n->imm};
    union { uint32_t u; float f; } s = {(uint32_t)n->imm};
    return n->width == 8 ? d.f : (double)s.f;
}

/* The cases contradict each other: x is on two sides of constants, or is no NaN and becomes one. */
static bool impossible(Cases *c)
{
    for (int i = 0; i < c->n; i++) {
        const Fact *f = &c->fact[i];
        if (f->kind == TERM_ISNAN && !f->is) {
            TermNode n = *term_at(c->p, f->a);
            bool nan = false;
            for (int k = 0; k < n.n && term_float_op(n.op); k++)
                nan = nan || is_nan_now(c, n.arg[k]);
            if (nan)
                return true;
        }
        for (int j = 0; j < i && f->kind == TERM_LT; j++) {
            const Fact *g = &c->fact[j];
            if (g->kind != TERM_LT)
                continue;
            Term x = term_is_const(c->p, f->a) ? f->b : f->a, k = x == f->a ? f->b : f->a;
            Term y = term_is_const(c->p, g->a) ? g->b : g->a, l = y == g->a ? g->b : g->a;
            if (x != y || !term_is_const(c->p, k) || !term_is_const(c->p, l))
                continue;
            /* x against k, against l */
            int fi = x == f->a ? f->is : -f->is, gi = y == g->a ? g->is : -g->is;
            int kl = const_double(c->p, k) < const_double(c->p, l)
                         ? -1
                         : const_double(c->p, k) > const_double(c->p, l);
            if ((kl <= 0 && fi <= 0 && gi >= 0 && (kl < 0 || fi != gi)) ||
                (kl >= 0 && fi >= 0 && gi <= 0 && (kl > 0 || fi != gi)))
                return true;
        }
    }
    return false;
}

static bool split(Cases *c, Term a, Term b);

static bool with_fact(Cases *c, Term a, Term b, Fact f)
{
    if (c->n == MOST_FACTS) {
        c->gave_up = true;
        return false;
    }
    c->fact[c->n++] = f;
    bool ok = split(c, a, b);
    c->n--;
    return ok;
}

static bool undecided_nan(const Cases *c, Term t)
{
    return !term_is_const(c->p, t) && !fact_of(c, TERM_ISNAN, t, 0);
}

static bool split(Cases *c, Term a, Term b)
{
    if (c->splits++ > MOST_SPLITS) {
        c->gave_up = true;
        return false;
    }
    c->now++;
    a = rebuilt(c, a);
    b = rebuilt(c, b);
    if (a == b || (is_nan_now(c, a) && is_nan_now(c, b)))
        return true;
    Term at = first_atom(c, a);
    at = at ? at : first_atom(c, b);
    if (!at)
        return impossible(c);
    const TermNode n = *term_at(c->p, at);
    if (n.op >= TERM_NAMED || n.op == TERM_ISNAN) {
        int kind = n.op == TERM_ISNAN ? TERM_ISNAN : TERM_NAMED;
        Term of = n.op == TERM_ISNAN ? n.arg[0] : at;
        return with_fact(c, a, b, (Fact){kind, of, 0, 1}) &&
               with_fact(c, a, b, (Fact){kind, of, 0, 0});
    }
    for (int k = 0; k < 2; k++)
        if (undecided_nan(c, n.arg[k]))
            return with_fact(c, a, b, (Fact){TERM_ISNAN, n.arg[k], 0, 1}) &&
                   with_fact(c, a, b, (Fact){TERM_ISNAN, n.arg[k], 0, 0});
    Term lo = n.arg[0] < n.arg[1] ? n.arg[0] : n.arg[1], hi = lo == n.arg[0] ? n.arg[1] : n.arg[0];
    for (int is = -1; is <= 1; is++)
        if (!with_fact(c, a, b, (Fact){TERM_LT, lo, hi, is}))
            return false;
    return true;
}

/* ---- proofs are kept, whatever the leaves are called ---- */
typedef struct Spelling {
    const TermPool *p; uint64_t *w; int n, cap; Term *seen; int nseen, seen_cap;
} Spelling;

static int place_of(Spelling *s, Term t)
{
    for (int i = s->nseen - 1; i >= 0; i--)
        if (s->seen[i] == t)
            return i;
    return -1;
}

static void spell(Spelling *s, Term t)
{
    const TermNode *n = term_at(s->p, t);
    for (int i = 0; i < n->n; i++)
        if (place_of(s, n->arg[i]) < 0)
            spell(s, n->arg[i]);
    if (place_of(s, t) >= 0)
        return;
    if (s->n + 16 > s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1024;
        uint64_t *w = realloc(s->w, sizeof *w * (size_t)s->cap);
        Term *seen = realloc(s->seen, sizeof *seen * (size_t)s->cap);
        s->w = w ? w : s->w;
        s->seen = seen ? seen : s->seen;
        if (!w || !seen)
            arena_out(s->p->arena);
    }
    /* numbers of names differ from case to case */
    uint64_t op = (uint64_t)n->op;
    if (n->op >= TERM_NAMED)
        op = hash64(1, term_op_name(s->p, n->op), strlen(term_op_name(s->p, n->op)));
    s->w[s->n++] = op << 16 | (uint64_t)n->width << 8 | n->n;
    s->w[s->n++] = n->op == TERM_LEAF ? 0 : n->imm;
    for (int i = 0; i < n->n; i++)
        s->w[s->n++] = (uint64_t)place_of(s, n->arg[i]);
    s->seen[s->nseen++] = t;
}

static Hash128 spelled(const TermPool *p, Term a, Term b)
{
    Spelling s = {.p = p};
    spell(&s, a);
    spell(&s, b);
    uint64_t ends[2] = {(uint64_t)place_of(&s, a), (uint64_t)place_of(&s, b)};
    s.w[s.n++] = ends[0];
    s.w[s.n++] = ends[1];
    Hash128 h = hash128(s.w, sizeof *s.w * (size_t)s.n);
    free(s.w);
    free(s.seen);
    return h;
}

bool terms_equal(TermPool *p, TermProofs *known, Term a, Term b)
{
    if (a == b || (term_const_nan(p, a) && term_const_nan(p, b)))
        return true;
    if (term_at(p, a)->width != term_at(p, b)->width)
        return false;
    Hash128 h = spelled(p, a, b);
    for (int i = 0; i < known->len; i++)
        if (known->key[i][0] == h.a && known->key[i][1] == h.b)
            return true;
    Cases c = {.p = p};
    bool ok = split(&c, a, b);
    known->splits += c.splits;
    known->undecided = !ok && c.gave_up;
    free(c.to);
    free(c.when);
    if (!ok)
        return false;
    if (known->len == known->cap) {
        known->cap = known->cap ? known->cap * 2 : 64;
        known->key = realloc(known->key, sizeof *known->key * (size_t)known->cap);
        if (!known->key)
            arena_out(p->arena);
    }
    known->key[known->len][0] = h.a;
    known->key[known->len++][1] = h.b;
    known->proved++;
    return true;
}

/* ---- text ---- */
void term_print(Buf *b, const TermPool *p, Term t, int most)
{
    const TermNode *n = term_at(p, t);
    if (most <= 0) {
        buf_puts(b, "…");
        return;
    }
    if (n->op == TERM_CONST && n->width == 0)
        buf_puts(b, n->imm ? "true" : "false");
    else if (n->op == TERM_CONST && n->width >= 4 && (n->imm >> (8 * n->width - 16)) != 0)
        buf_double(b, const_double(p, t));
    else if (n->op == TERM_CONST)
        buf_printf(b, "%llu", (unsigned long long)n->imm);
    else if (n->op == TERM_LEAF)
        buf_printf(b, "%s[%lld]", p->array[n->imm >> 48], (long long)(n->imm & 0xffffffffffff));
    else {
        buf_printf(b, "%s%s", term_op_name(p, n->op),
                   n->op >= TERM_NAMED || n->width != 8 ? "" : ".f64");
        if (n->op == TERM_PIECE)
            buf_printf(b, "%d+%d", (int)n->imm, n->width);
        for (int i = 0; i < n->n; i++) {
            buf_puts(b, i ? ", " : "(");
            term_print(b, p, n->arg[i], most - 1);
        }
        buf_puts(b, n->n ? ")" : "");
    }
}

void term_difference(const TermPool *p, Term *a, Term *b)
{
    for (;;) {
        const TermNode *x = term_at(p, *a), *y = term_at(p, *b);
        int differ = -1;
        if (x->op != y->op || x->n != y->n || x->width != y->width || x->imm != y->imm)
            return;
        bool pair = x->n == 2 && (x->op == TERM_ADD || x->op == TERM_MUL);
        if (pair && (x->arg[0] == y->arg[1] || x->arg[1] == y->arg[0])) {
            int k = x->arg[0] == y->arg[1];
            *a = x->arg[k];
            *b = y->arg[1 - k];
            continue;
        }
        for (int i = 0; i < x->n; i++)
            if (x->arg[i] != y->arg[i])
                differ = i;
        if (differ < 0)
            return;
        *a = x->arg[differ];
        *b = y->arg[differ];
    }
}

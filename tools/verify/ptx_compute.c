/* What one instruction computes: on numbers the result, on terms a term. Floats are always handled
 * as terms' constants, so that both agree. */
#include "tools/verify/ptx.h"

#include <math.h>
#include <string.h>

static uint64_t cut(int width, uint64_t x)
{
    return width >= 8 ? x : x & (((uint64_t)1 << 8 * width) - 1);
}
static int64_t extend(int width, uint64_t x)
{
    return (int64_t)(x << (64 - 8 * width)) >> (64 - 8 * width);
}

/* ---- floats ---- */
static Term named(PtxMachine *x, const PtxInst *i, int width, const Value *v, int n)
{
    Term arg[TERM_ARGS];
    for (int k = 0; k < n; k++)
        arg[k] = term_of(x->pool, i->from_width ? i->from_width : i->width, v[k]);
    return term_named(x->pool, i->name, width, false, n, arg);
}

/* min and max: a NaN operand gives the other one (.NaN: a NaN), and -0 is below +0. */
static Term least(PtxMachine *x, const PtxInst *i, Term a, Term b)
{
    TermPool *p = x->pool;
    bool max = i->kind == PTX_MAX, keeps_nan = strstr(i->name, ".NaN") != NULL;
    Term args[2] = {a, b};
    Term zeros = term_named(p, max ? "greater_zero" : "lesser_zero", i->width, true, 2, args);
    bool number = (term_is_const(p, a) && term_at(p, a)->imm << 1) ||
                  (term_is_const(p, b) && term_at(p, b)->imm << 1);
    Term equal = number ? term_is_const(p, a) ? a : b
                        : term_select(p, term_compare(p, TERM_EQ, a, b), zeros, a);
    Term r = term_select(p, term_compare(p, TERM_LT, a, b), max ? b : a,
                         term_select(p, term_compare(p, TERM_LT, b, a), max ? a : b, equal));
    r = term_select(p, term_compare(p, TERM_ISNAN, a, 0), keeps_nan ? a : b, r);
    return term_select(p, term_compare(p, TERM_ISNAN, b, 0), keeps_nan ? b : a, r);
}

static bool float_compute(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    TermPool *p = x->pool;
    int w = i->width;
    Term a = term_of(p, w, v[0]), b = i->narg > 1 ? term_of(p, w, v[1]) : 0,
         c = i->narg > 2 ? term_of(p, w, v[2]) : 0;
    Term one = term_const(p, w, w == 8 ? 0x3ff0000000000000u : 0x3f800000u), r;
    bool exact = i->kind == PTX_NEG || i->kind == PTX_ABS;
    if (i->kind == PTX_MIN || i->kind == PTX_MAX)
        r = least(x, i, a, b);
    else if (!i->plain || (!exact && !i->rounded))
        /* ptxas may contract operations without .rn */
        r = named(x, i, w, v, i->narg);
    else
        switch (i->kind) {
        case PTX_ADD: r = term_float(p, TERM_ADD, w, a, b, 0); break;
        case PTX_SUB: r = term_sub(p, w, a, b); break;
        case PTX_MUL: r = term_float(p, TERM_MUL, w, a, b, 0); break;
        case PTX_DIV: r = term_float(p, TERM_DIV, w, a, b, 0); break;
        case PTX_RCP: r = term_float(p, TERM_DIV, w, one, a, 0); break;
        case PTX_SQRT: r = term_float(p, TERM_SQRT, w, a, 0, 0); break;
        case PTX_FMA: r = term_float(p, TERM_FMA, w, a, b, c); break;
        case PTX_NEG: r = term_float(p, TERM_NEG, w, a, 0, 0); break;
        case PTX_ABS: r = term_float(p, TERM_ABS, w, a, 0, 0); break;
        default: r = named(x, i, w, v, i->narg);
        }
    *out = term_value(p, r);
    return true;
}

/* ---- integers ---- */
static const char *int_name(const PtxInst *i)
{
    bool s = i->type == 's';
    switch (i->kind) {
    case PTX_ADD: return "add";
    case PTX_SUB: return "sub";
    case PTX_MUL: return i->high ? s ? "mul.hi.s" : "mul.hi.u" : "mul.lo";
    case PTX_DIV: return s ? "div.s" : "div.u";
    case PTX_REM: return s ? "rem.s" : "rem.u";
    case PTX_MIN: return s ? "min.s" : "min.u";
    case PTX_MAX: return s ? "max.s" : "max.u";
    case PTX_AND: return "and";
    case PTX_OR: return "or";
    case PTX_XOR: return "xor";
    case PTX_NOT: return "not";
    case PTX_SHL: return "shl";
    case PTX_SHR: return s ? "shr.s" : "shr.u";
    case PTX_NEG: return "neg.i";
    default: return NULL;
    }
}

static bool on_numbers(const PtxInst *i, uint64_t a, uint64_t b, uint64_t *out)
{
    int w = i->width;
    bool s = i->type == 's';
    int64_t sa = extend(w, a), sb = extend(w, b);
    unsigned bits = 8 * (unsigned)w;
    a = cut(w, a);
    uint64_t ub = i->kind == PTX_SHL || i->kind == PTX_SHR ? cut(4, b) : cut(w, b);
    switch (i->kind) {
    case PTX_ADD: *out = a + ub; break;
    case PTX_SUB: *out = a - ub; break;
    case PTX_MUL:
        if (i->high && w == 8)
            return false;
        *out = !i->high ? a * ub : s ? (uint64_t)(sa * sb) >> bits : a * ub >> bits;
        break;
    case PTX_DIV: case PTX_REM:
        if (!ub)
            return false;
        if (s)
            *out = (uint64_t)(sb == -1             ? i->kind == PTX_DIV ? -sa : 0
                              : i->kind == PTX_DIV ? sa / sb
                                                   : sa % sb);
        else
            *out = i->kind == PTX_DIV ? a / ub : a % ub;
        break;
    case PTX_MIN: *out = s ? (uint64_t)(sa < sb ? sa : sb) : a < ub ? a : ub; break;
    case PTX_MAX: *out = s ? (uint64_t)(sa > sb ? sa : sb) : a > ub ? a : ub; break;
    case PTX_AND: *out = a & ub; break;
    case PTX_OR: *out = a | ub; break;
    case PTX_XOR: *out = a ^ ub; break;
    case PTX_NOT: *out = ~a; break;
    case PTX_NEG: *out = 0 - a; break;
    case PTX_ABS: *out = (uint64_t)(sa < 0 ? -sa : sa); break;
    case PTX_SHL: *out = ub >= bits ? 0 : a << ub; break;
    case PTX_SHR:
        *out = s ? (uint64_t)(sa >> (ub >= bits ? bits - 1 : ub)) : ub >= bits ? 0 : a >> ub;
        break;
    default: return false;
    }
    *out = cut(w, *out);
    return true;
}

static Term with_constant(PtxMachine *x, const char *op, int width, Term a, uint64_t c)
{
    Term arg[2] = {a, term_const(x->pool, width, c)};
    return term_named(x->pool, op, width, true, 2, arg);
}

/* Sums with a constant: x - c is x + -c, and constants of nested sums are added. */
static Term sum_of(PtxMachine *x, int width, Term a, uint64_t c)
{
    const TermNode *n = term_at(x->pool, a);
    if (n->op >= TERM_NAMED && !strcmp(term_op_name(x->pool, n->op), "add"))
        for (int k = 0; k < 2; k++)
            if (term_is_const(x->pool, n->arg[k])) {
                c += term_at(x->pool, n->arg[k])->imm;
                a = n->arg[1 - k];
                break;
            }
    return cut(width, c) ? with_constant(x, "add", width, a, cut(width, c)) : a;
}

static bool on_terms(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    TermPool *p = x->pool;
    int w = i->width, n = i->narg;
    const char *name = int_name(i);
    if (!name || n > 2)
        return false;
    bool shift = i->kind == PTX_SHL || i->kind == PTX_SHR;
    if (n == 2 && bytes_operate(p, name, w, v[0], v[1], out))
        return true;
    Term a = term_of(p, w, v[0]), b = n > 1 ? term_of(p, shift ? 4 : w, v[1]) : 0, r;
    bool commutes = i->kind == PTX_ADD || i->kind == PTX_MUL || i->kind == PTX_AND ||
                    i->kind == PTX_OR || i->kind == PTX_XOR || i->kind == PTX_MIN ||
                    i->kind == PTX_MAX;
    uint64_t c = b && !v[1].term ? v[1].bits : v[0].bits;
    bool constant = n == 2 && (!v[1].term || (commutes && !v[0].term));
    Term other = n == 2 && !v[1].term ? a : b;
    if (i->kind == PTX_ADD && constant)
        r = sum_of(x, w, other, c);
    else if (i->kind == PTX_SUB && constant)
        r = sum_of(x, w, a, 0 - c);
    else if (i->kind == PTX_MUL && !i->high && constant && c && !(c & (c - 1))) {
        Value by = value_bits((uint64_t)__builtin_ctzll(c));
        if (bytes_operate(p, "shl", w, (Value){0, other}, by, out))
            return true;
        r = term_named(p, "shl", w, false, 2, (Term[]){other, term_const(p, 4, by.bits)});
    } else
        r = term_named(p, name, w, commutes, n, (Term[]){a, b});
    *out = term_value(p, r);
    return true;
}

static bool int_compute(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    bool terms = v[0].term || (i->narg > 1 && v[1].term);
    if (terms)
        return on_terms(x, i, v, out);
    uint64_t r;
    if (!on_numbers(i, v[0].bits, i->narg > 1 ? v[1].bits : 0, &r))
        return false;
    *out = value_bits(r);
    return true;
}

/* mul.wide, mad.lo, mad.wide */
static bool multiply(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    PtxInst by = *i;
    int w = i->wide ? 2 * i->width : i->width;
    Value a = v[0], b = v[1];
    if (i->wide) {
        if (a.term || b.term) {
            Term r =
                term_named(x->pool, i->type == 's' ? "mul.wide.s" : "mul.wide.u", w, true, 2,
                           (Term[]){term_of(x->pool, i->width, a), term_of(x->pool, i->width, b)});
            *out = term_value(x->pool, r);
        } else
            *out = value_bits(i->type == 's'
                                  ? (uint64_t)(extend(i->width, a.bits) * extend(i->width, b.bits))
                                  : cut(i->width, a.bits) * cut(i->width, b.bits));
        out->bits = cut(w, out->bits);
    } else {
        by.kind = PTX_MUL;
        by.narg = 2;
        if (!int_compute(x, &by, v, out))
            return false;
    }
    if (i->kind != PTX_MAD)
        return true;
    by.kind = PTX_ADD;
    by.narg = 2;
    by.width = (uint8_t)w;
    Value sum[2] = {*out, v[2]};
    return int_compute(x, &by, sum, out);
}

/* ---- truth values ---- */
static bool logic(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    TermPool *p = x->pool;
    Term a = term_of(p, 0, v[0]), b = i->narg > 1 ? term_of(p, 0, v[1]) : 0, r;
    switch (i->kind) {
    case PTX_AND: r = term_logic(p, TERM_AND, a, b); break;
    case PTX_OR: r = term_logic(p, TERM_OR, a, b); break;
    case PTX_NOT: r = term_not(p, a); break;
    case PTX_XOR: r = term_select(p, a, term_not(p, b), b); break;
    case PTX_MOV: r = a; break;
    default: return false;
    }
    *out = term_value(p, r);
    return true;
}

static Term compare_floats(TermPool *p, const char *how, Term a, Term b)
{
    static const struct { const char *name, *of; bool swap, negate;
    } table[] = {{"lt", "lt", false, false}, {"le", "le", false, false}, {"gt", "lt", true, false},
                 {"ge", "le", true, false},  {"eq", "eq", false, false}, {"neu", "eq", false, true},
                 {"ltu", "le", true, true},  {"leu", "lt", true, true},  {"gtu", "le", false, true},
                 {"geu", "lt", false, true}};
    Term nan = term_logic(p, TERM_OR, term_compare(p, TERM_ISNAN, a, 0),
                          term_compare(p, TERM_ISNAN, b, 0));
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (!strcmp(table[k].name, how)) {
            TermOp op = table[k].of[0] == 'e' ? TERM_EQ : table[k].of[1] == 't' ? TERM_LT : TERM_LE;
            Term r = table[k].swap ? term_compare(p, op, b, a) : term_compare(p, op, a, b);
            return table[k].negate ? term_not(p, r) : r;
        }
    if (!strcmp(how, "nan") || !strcmp(how, "num"))
        return how[1] == 'a' ? nan : term_not(p, nan);
    Term eq = term_compare(p, TERM_EQ, a, b);
    return !strcmp(how, "equ") ? term_logic(p, TERM_OR, eq, nan)
                               /* ne */
                               : term_logic(p, TERM_AND, term_not(p, eq), term_not(p, nan));
}

static Term compare_ints(TermPool *p, const char *how, bool s, Term a, Term b)
{
    bool swap = how[0] == 'g' || !strcmp(how, "le") || !strcmp(how, "hi") || !strcmp(how, "ls");
    bool negate = !strcmp(how, "ge") || !strcmp(how, "le") || !strcmp(how, "ne") ||
                  !strcmp(how, "hs") || !strcmp(how, "ls");
    if (!strcmp(how, "ge"))
        swap = false;                                      /* a >= b: not a < b */
    bool eq = !strcmp(how, "eq") || !strcmp(how, "ne");
    Term arg[2] = {swap ? b : a, swap ? a : b};
    Term r = term_named(p, eq ? "ieq" : s ? "ilt.s" : "ilt.u", 0, eq, 2, arg);
    return negate ? term_not(p, r) : r;
}

static bool compare(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    TermPool *p = x->pool;
    int w = i->width;
    if (i->type != 'f' && !v[0].term && !v[1].term) {
        uint64_t a = cut(w, v[0].bits), b = cut(w, v[1].bits);
        int64_t sa = extend(w, a), sb = extend(w, b);
        bool s = i->type == 's', less = s ? sa < sb : a < b, same = a == b;
        const char *c = i->cmp;
        *out = value_bits(!strcmp(c, "eq")                       ? same
                          : !strcmp(c, "ne")                     ? !same
                          : !strcmp(c, "lt") || !strcmp(c, "lo") ? less
                          : !strcmp(c, "le") || !strcmp(c, "ls") ? less || same
                          : !strcmp(c, "gt") || !strcmp(c, "hi") ? !less && !same
                                                                 : !less);
        return true;
    }
    Term a = term_of(p, w, v[0]), b = term_of(p, w, v[1]);
    Term r = i->type == 'f' ? compare_floats(p, i->cmp, a, b)
                            : compare_ints(p, i->cmp, i->type == 's', a, b);
    for (int k = 0; i->narg == 3 && k < 1; k++)            /* setp.lt.and and so on */
        r = strstr(i->name, ".and.") ? term_logic(p, TERM_AND, r, term_of(p, 0, v[2]))
            : strstr(i->name, ".or.") ? term_logic(p, TERM_OR, r, term_of(p, 0, v[2])) : r;
    *out = term_value(p, r);
    return i->narg == 2 || strstr(i->name, ".and.") || strstr(i->name, ".or.");
}

/* ---- conversions ---- */
static double number_of(TermPool *p, int width, Value v)
{
    union { uint64_t u; double f; } d = {v.bits};
    union { uint32_t u; float f; } s = {(uint32_t)v.bits};
    (void)p;
    return width == 8 ? d.f : (double)s.f;
}

static uint64_t to_integer(const PtxInst *i, double a)
{
    double r = strstr(i->name, ".rzi") ? trunc(a) : strstr(i->name, ".rni") ? rint(a)
               : strstr(i->name, ".rmi") ? floor(a) : ceil(a);
    int bits = 8 * i->width;
    bool s = i->type == 's';
    if (isnan(r))
        return i->width == 8 && i->from_width == 8 ? (uint64_t)1 << 63 : 0;
    double lo = s ? -ldexp(1, bits - 1) : 0, hi = ldexp(1, s ? bits - 1 : bits);
    if (r < lo)
        return s ? (uint64_t)1 << (bits - 1) : 0;
    if (r >= hi)
        return s            ? ((uint64_t)1 << (bits - 1)) - 1
               : bits == 64 ? UINT64_MAX
                            : ((uint64_t)1 << bits) - 1;
    return s ? (uint64_t)(int64_t)r : (uint64_t)r;
}

static uint64_t from_integer(const PtxInst *i, uint64_t a)
{
    int64_t s = extend(i->from_width, a);
    uint64_t u = cut(i->from_width, a);
    union { double f; uint64_t u; } d = {i->from == 's' ? (double)s : (double)u};
    union { float f; uint32_t u; } f = {i->from == 's' ? (float)s : (float)u};
    return i->width == 8 ? d.u : f.u;
}

static bool convert(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    TermPool *p = x->pool;
    if (v[0].term && i->from != 'f' && i->from != 'h' && term_at(p, v[0].term)->op == TERM_SELECT) {
        const TermNode choice = *term_at(p, v[0].term);   /* of numbers: each is converted */
        Value one = term_value(p, choice.arg[1]), two = term_value(p, choice.arg[2]), a, b;
        if (!one.term && !two.term && convert(x, i, &one, &a) && convert(x, i, &two, &b)) {
            *out = term_value(
                p, term_select(p, choice.arg[0], term_of(p, i->width, a), term_of(p, i->width, b)));
            return true;
        }
    }
    int w = i->width, from = i->from_width;
    bool ints = i->type != 'f' && i->type != 'h' && i->from != 'f' && i->from != 'h';
    if (ints && i->plain) {
        Byte b[16] = {{0, 0, 0}};
        if (i->from == 's' && w > from && !v[0].term)
            *out = value_bits(cut(w, (uint64_t)extend(from, v[0].bits)));
        else if (i->from == 's' && w > from)
            *out = term_value(p, term_named(p, "sext", w, false, 1, &v[0].term));
        else {
            bytes_of(p, from, v[0], b);
            *out = bytes_value(p, w, b);
        }
        return true;
    }
    if (i->type == 'f' && i->from == 'f' && i->plain && w != from) {
        *out = term_value(p, term_float(p, TERM_CVT, w, term_of(p, from, v[0]), 0, 0));
        return w == 8 || i->rounded;
    }
    /* two values at once; the first is above */
    if (i->type == 'h' && w == 4 && i->narg == 2 && i->from == 'f') {
        const char *one = strstr(i->name, "bf16x2") ? "cvt.rn.bf16.f32" : "cvt.rn.f16.f32";
        Byte b[4];
        for (int k = 0; k < 2; k++) {
            Term a = term_of(p, 4, v[1 - k]);
            bytes_of(p, 2, (Value){0, term_named(p, one, 2, false, 1, &a)}, b + 2 * k);
        }
        *out = bytes_value(p, 4, b);
        return i->plain && i->rounded;
    }
    if (!v[0].term && i->type != 'h' && i->from == 'f' && i->type != 'f') {
        *out = value_bits(cut(w, to_integer(i, number_of(p, from, v[0]))));
        return !strstr(i->name, ".sat") && !strstr(i->name, ".ftz");
    }
    if (!v[0].term && i->type == 'f' && i->rounded && i->plain && i->from != 'h') {
        *out = value_bits(from_integer(i, v[0].bits));
        return true;
    }
    *out = term_value(p, named(x, i, w, v, i->narg));
    return true;
}

static bool permute(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    Byte from[8], to[4];
    if (v[2].term || strcmp(i->name, "prmt.b32"))
        return false;
    bytes_of(x->pool, 4, v[0], from);
    bytes_of(x->pool, 4, v[1], from + 4);
    for (int k = 0; k < 4; k++) {
        unsigned at = (unsigned)(v[2].bits >> 4 * k) & 15;
        if (at & 8)
            return false;
        to[k] = from[at];
    }
    *out = bytes_value(x->pool, 4, to);
    return true;
}

/* bfi a, b, at, bits: the low bits of a inside b. bfe a, at, bits: bits of a, unsigned. */
static bool bit_field(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    bool insert = i->kind == PTX_BFI;
    uint64_t at = v[insert ? 2 : 1].bits & 255, n = v[insert ? 3 : 2].bits & 255;
    int w = i->width;
    if (v[insert ? 2 : 1].term || v[insert ? 3 : 2].term || at + n > 8 * (uint64_t)w ||
        (!insert && i->type == 's'))
        return false;
    uint64_t mask = n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1;
    if (!v[0].term && (!insert || !v[1].term)) {
        *out = value_bits(cut(w, insert ? (v[1].bits & ~(mask << at)) | (v[0].bits & mask) << at
                                        : v[0].bits >> at & mask));
        return true;
    }
    Byte a[8], b[8] = {{0, 0, 0}};
    if (at % 8 || n % 8)
        return false;
    bytes_of(x->pool, w, v[0], a);
    if (insert)
        bytes_of(x->pool, w, v[1], b);
    for (uint64_t k = 0; k < n / 8; k++)
        b[insert ? at / 8 + k : k] = a[insert ? k : at / 8 + k];
    *out = bytes_value(x->pool, w, b);
    return true;
}

/* copysign a, b: the sign of a with the magnitude of b. */
static Value copysign_of(PtxMachine *x, const PtxInst *i, const Value *v)
{
    TermPool *p = x->pool;
    Term m = term_float(p, TERM_ABS, i->width, term_of(p, i->width, v[1]), 0, 0);
    if (!v[0].term)
        return term_value(p, v[0].bits >> (8 * i->width - 1) & 1
                                 ? term_float(p, TERM_NEG, i->width, m, 0, 0)
                                 : m);
    return term_value(p, term_named(p, "copysign", i->width, false, 2, (Term[]){v[0].term, m}));
}

bool ptx_compute(PtxMachine *x, const PtxInst *i, const Value *v, Value *out)
{
    switch (i->kind) {
    case PTX_SETP: return compare(x, i, v, out);
    case PTX_CVT: return convert(x, i, v, out);
    case PTX_PRMT: return permute(x, i, v, out);
    case PTX_BFI: case PTX_BFE: return bit_field(x, i, v, out);
    case PTX_COPYSIGN: *out = copysign_of(x, i, v); return true;
    case PTX_SELP:
        if (v[2].term)
            *out = term_value(x->pool,
                              term_select(x->pool, v[2].term, term_of(x->pool, i->width, v[0]),
                                          term_of(x->pool, i->width, v[1])));
        else
            *out = v[v[2].bits ? 0 : 1];
        return true;
    case PTX_OTHER:                                        /* rsqrt.approx and the like */
        if (i->type == 'f')
            *out = term_value(x->pool, named(x, i, i->width, v, i->narg));
        return i->type == 'f';
    default: break;
    }
    if (i->type == 'p')
        return logic(x, i, v, out);
    if (i->kind == PTX_MOV) {
        *out = v[0];
        return true;
    }
    if (i->type == 'f')
        return float_compute(x, i, v, out);
    if (i->type == 'h')
        return false;
    if (i->wide || i->kind == PTX_MAD)
        return multiply(x, i, v, out);
    return int_compute(x, i, v, out);
}

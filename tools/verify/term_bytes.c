/* Values as bytes: memory, packed registers, and integer operations that only move bytes or change
 * a float's sign. */
#include "tools/verify/terms.h"

#include <string.h>

void bytes_of(const TermPool *p, int width, Value v, Byte *out)
{
    const TermNode *n = v.term ? term_at(p, v.term) : NULL;
    for (int i = 0; i < width; i++)
        out[i] = (Byte){0, 0, (uint8_t)(v.bits >> 8 * i)};
    if (!n)
        return;
    int at = 0;
    for (int i = 0; i < width; i++)
        out[i] = i < n->width ? (Byte){v.term, (uint8_t)i, 0} : (Byte){0, 0, 0};
    if (n->op == TERM_PIECE)
        for (int i = 0; i < width && i < n->width; i++)
            out[i] = (Byte){n->arg[0], (uint8_t)(n->imm + (uint64_t)i), 0};
    for (int k = 0; n->op == TERM_JOIN && k < n->n; k++) {
        Byte part[8];
        int w = term_at(p, n->arg[k])->width;
        bytes_of(p, w, term_value(p, n->arg[k]), part);
        for (int i = 0; i < w && at < width; i++)
            out[at++] = part[i];
    }
}

static int run_of(const Byte *b, int from, int width)
{
    int n = 1;
    while (from + n < width && b[from].term == b[from + n].term &&
           (!b[from].term || b[from + n].at == b[from].at + n))
        n++;
    return n;
}

Value bytes_value(TermPool *p, int width, const Byte *b)
{
    TermNode join = {.op = TERM_JOIN, .width = (uint8_t)width};
    for (int i = 0, n; i < width; i += n) {
        n = run_of(b, i, width);
        Term whole = b[i].term;
        uint64_t bits = 0;
        for (int k = 0; k < n && !whole; k++)
            bits |= (uint64_t)b[i + k].value << 8 * k;
        Term part = !whole ? term_const(p, n, bits)
                    : b[i].at == 0 && term_at(p, whole)->width == n
                        ? whole
                        : term_make(p, &(TermNode){.op = TERM_PIECE,
                                                   .width = (uint8_t)n,
                                                   .n = 1,
                                                   .imm = b[i].at,
                                                   .arg = {whole}});
        if (n == width)
            return term_value(p, part);
        join.arg[join.n++] = part;
    }
    return (Value){0, term_make(p, &join)};
}

/* A constant of whole bytes 00 and ff, or of the sign bit. */
static bool is_mask(int width, uint64_t x)
{
    for (int i = 0; i < width; i++)
        if ((x >> 8 * i & 255) != 0 && (x >> 8 * i & 255) != 255)
            return false;
    return true;
}

/* The sign of a float: and with 0x7f…, xor with 0x80…, or with 0x80…. */
static Term sign_change(TermPool *p, const char *op, int width, Term x, uint64_t mask)
{
    uint64_t sign = (uint64_t)1 << (8 * width - 1), rest = sign - 1;
    if (width < 4)
        return 0;
    if (!strcmp(op, "and") && mask == rest)
        return term_float(p, TERM_ABS, width, x, 0, 0);
    if (!strcmp(op, "xor") && mask == sign)
        return term_float(p, TERM_NEG, width, x, 0, 0);
    if (!strcmp(op, "or") && mask == sign)
        return term_float(p, TERM_NEG, width, term_float(p, TERM_ABS, width, x, 0, 0), 0, 0);
    return 0;
}

static bool combine(const char *op, Byte a, Byte b, Byte *out)
{
    bool and = !strcmp(op, "and");
    for (int k = 0; k < 2; k++) {
        Byte c = k ? b : a, x = k ? a : b;
        if (c.term || (c.value != 0 && c.value != 255) || (!strcmp(op, "xor") && c.value))
            continue;
        *out = and == (c.value != 0) ? x : c;
        return true;
    }
    return false;
}

bool bytes_operate(TermPool *p, const char *op, int width, Value a, Value b, Value *out)
{
    Byte x[8], y[8], z[16] = {{0, 0, 0}};
    bool shift = !strcmp(op, "shl") || !strcmp(op, "shr.u");
    if (shift && (b.term || b.bits % 8))
        return false;
    if (!shift && strcmp(op, "and") && strcmp(op, "or") && strcmp(op, "xor"))
        return false;
    bytes_of(p, width, a, x);
    if (shift) {
        int by = b.bits / 8 > (uint64_t)width ? width : (int)(b.bits / 8);
        for (int i = 0; i + by < width; i++)
            z[*op == 's' && op[2] == 'l' ? i + by : i] = x[op[2] == 'l' ? i : i + by];
        *out = bytes_value(p, width, z);
        return true;
    }
    Term t = a.term && !b.term ? sign_change(p, op, width, a.term, b.bits)
             : b.term && !a.term ? sign_change(p, op, width, b.term, a.bits) : 0;
    if (t) {
        *out = term_value(p, t);
        return true;
    }
    if (!a.term && !b.term)
        return false;
    if ((!a.term && !is_mask(width, a.bits) && strcmp(op, "or")) ||
        (!b.term && !is_mask(width, b.bits) && strcmp(op, "or")))
        return false;
    bytes_of(p, width, b, y);
    for (int i = 0; i < width; i++)
        if (!combine(op, x[i], y[i], &z[i]))
            return false;
    *out = bytes_value(p, width, z);
    return true;
}

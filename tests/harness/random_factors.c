/* Random specs with nested factors, solutions and orders over rows x rows, cols x cols and
 * elements. */
#include "tests/harness/random_spec.h"

#include "tests/harness/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t s; } Dice;
static unsigned pick(Dice *d, unsigned n) { return (unsigned)((d->s = splitmix(d->s)) >> 33) % n; }

/* Letters of a form and what replaces them: P a positive square value, Q any square value, O an
 * order (lower case: of the other axis), E elements, S the axis' state. */
static void put(Dice *d, Buf *b, const char *form, bool cols, int depth);

static void positive(Dice *d, Buf *b, bool cols, int depth)
{
    static const char *const form[] = {
        "(gram(E#) + eye(1, @))", "(0.25 * L$ + gram(E#) + eye(2, @))",
        "(0.1 * gram(Q) + eye(1, @))", "(gram(E#) / 2 + diag(1 + O))"};
    put(d, b, form[pick(d, depth > 0 ? 4 : 2)], cols, depth - 1);
}

static void square(Dice *d, Buf *b, bool cols, int depth)
{
    static const char *const form[] = {"P",
                                       "L$",
                                       "power(P, -0.5)",
                                       "power(P, -1/4, { relative = 1e-3, last = X$ })",
                                       "power(P, 0.5, { floor = least })",
                                       "power(P, 2, { ridge = 0.5, floor = 0.5 + slice.max(P) })",
                                       "chol(P, { last = Q })",
                                       "qr(Q + 3 * eye(1, @))",
                                       "vectors(P)",
                                       "solve(chol(P), Q)",
                                       "solve(chol(P).T, Q, { right = true })",
                                       "take(Q, O)",
                                       "take(Q, O, 'cols')",
                                       "tanh(Q).T",
                                       "tril(Q)",
                                       "solve(P, Q, { spd = true })"};
    put(d, b, depth > 0 ? form[pick(d, 16)] : pick(d, 2) ? "X$" : "L$", cols, depth - 1);
}

static void elements(Dice *d, Buf *b, bool cols, int depth)
{
    static const char *const form[2][7] = {
        {"solve(chol(P), E)", "solve(P, E, { spd = true })", "take(E, O)", "mm(Q, E)",
         "solve(chol(P).T, E, { last = m })", "(take(E.T, O, 'cols').T - g)",
         "take(take(E, O), O)"},
        {"solve(chol(P), E, { right = true })", "solve(chol(P), E.T).T", "take(E, O, 'cols')",
         "mm(E, Q)", "solve(chol(P), E.T, { last = m.T }).T", "take(E.T, O).T",
         "(solve(P, E, { spd = true, right = true }) + p)"}};
    put(d, b, depth > 0 ? form[cols][pick(d, 7)] : pick(d, 2) ? "m" : "g", cols, depth - 1);
}

static void put(Dice *d, Buf *b, const char *form, bool cols, int depth)
{
    for (const char *c = form; *c; c++) {
        switch (*c) {
        case 'P': positive(d, b, cols, depth); break;
        case 'Q': square(d, b, cols, depth); break;
        case 'O':
            put(d, b, depth > 0 && pick(d, 2) ? "sort(diag(Q))" : "sort(diag(L$))", cols,
                depth - 1);
            break;
        case 'E': elements(d, b, c[1] == '#' ? pick(d, 2) : cols, depth); break;
        case '#': buf_puts(b, cols ? ".T" : ""); break;
        case '$': buf_puts(b, cols ? "c" : "r"); break;
        case '@': buf_puts(b, cols ? "'cols'" : "'rows'"); break;
        default: buf_printf(b, "%c", *c);
        }
    }
}

char *random_factors(uint64_t seed, int block)
{
    static const char *const form[] = {"    X$ = clamp(Q, -9, 9)\n",
                                       "    X$ = clamp(Q, -9, 9)\n",
                                       "    o$ = O\n",
                                       "    m = 0.5 * m + tanh(E)\n",
                                       "    p = p - 0.01 * tanh(E)\n",
                                       "    every(2, function() X$ = clamp(Q, -8, 8) end)\n"};
    Dice d = {splitmix(seed)};
    Buf b = {0};
    const char *of = block ? "block " : "";
    buf_printf(&b,
               "-- factors %llu\nlocal function vectors(A) local w, V = eigh(A) return V "
               "end\nreturn optimizer { name "
               "= 'factors',",
               (unsigned long long)seed);
    if (block)
        buf_printf(&b, " block = %d,", block);
    buf_printf(&b,
               " hyper = { lr = 0.25, least = 0.75 }, products = 'f64',\n  state = { m = zeros, Lr "
               "= zeros 'rows', Lc "
               "= zeros 'cols', Xr = eye(1, 'rows'), Xc = eye(1, 'cols'), or_ = zeros '%srow', oc "
               "= zeros '%scol' },\n",
               of, of);
    buf_puts(&b, "  step = function() m = 0.5 * m + g  p = p - lr * m end,\n  matrix = "
                 "function()\n    m = 0.5 * m + g  Lr "
                 "= 0.5 * Lr + gram(g)  Lc = 0.5 * Lc + gram(g.T)\n");
    for (unsigned n = 3 + pick(&d, 3); n > 0; n--) {
        bool cols = pick(&d, 2);
        const char *f = form[pick(&d, 6)];
        if (f[4] == 'o')
            put(&d, &b, cols ? "    oc = O\n" : "    or_ = O\n", cols, 2);
        else
            put(&d, &b, f, cols, 2);
    }
    buf_puts(&b, "    Xr = 0.9 * Xr + 0.1 * power(Lr, -1/2, { relative = 0.1, last = Xr })  Xc = "
                 "0.75 * Xc  or_ = sort(or_ "
                 "+ diag(Lr))  oc = sort(diag(Lc))  p = p - lr * g\n  end }\n");
    return buf_take(&b);
}

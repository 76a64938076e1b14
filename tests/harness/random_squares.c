/* Random specs over rows x rows and cols x cols: transposes, triangles, diagonals, folds along one
 * axis, and optionally products. With blocks, values along an axis are computed from squares only,
 * and elements are scaled only by values that fit them. */
#include "tests/harness/random_spec.h"

#include "tests/harness/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t s; bool products; int block; } Dice;
enum { ROWS, COLS };                               /* an axis, its square and the values along it */

static unsigned pick(Dice *d, unsigned n) { return (unsigned)((d->s = splitmix(d->s)) >> 33) % n; }

static char *around(const char *form, char *x)       /* inserts x for %s; frees x */
{
    const char *at = strstr(form, "%s");
    char *y = format("%.*s%s%s", (int)(at - form), form, x, at + 2);
    free(x);
    return y;
}

static char *along(Dice *d, int axis, int depth);

static char *square_leaf(Dice *d, int axis)
{
    static const char *const leaf[2][8] = {
        {"L", "L", "M", "r", "r.T", "0.5", "s", "eye(0.25, \"rows\")"},
        {"R", "R", "Q", "c", "c.T", "-0.75", "s", "eye(0.25, \"cols\")"}};
    return format("%s", leaf[axis][pick(d, 8)]);
}

static char *square(Dice *d, int axis, int depth)
{
    static const char *const one[] = {"abs(%s)",        "(0 - %s)",         "tanh(%s)",
                                      "sqrt(abs(%s))",  "cos(%s)",          "clamp(%s, -1, 1)",
                                      "(0 * N + %s).T", "triu(0 * N + %s)", "tril(0 * N + %s)",
                                      "(0 * N + %s).T"};
    static const char *const two[] = {"(%s + ", "(%s - ", "(%s * ", "max(%s, ", "lerp(0.5, %s, "};
    static const char *const made[2][3] = {
        {"mm(0 * L + %s, M) / nrows", "gram(g + r) / ncols + %s", "mm(M, (0 * L + %s).T) / nrows"},
        {"mm(Q, 0 * R + %s) / ncols", "gram((g + c).T) / nrows + %s",
         "mm((0 * R + %s).T, Q) / ncols"}};
    unsigned i = depth <= 0 ? 99 : pick(d, d->products ? 10 : 8);
    if (i == 99)
        return square_leaf(d, axis);
    if (i < 3) {
        char *x = around(one[pick(d, 10)], square(d, axis, depth - 1)), *n = strchr(x, 'N');
        if (n)
            *n = axis == ROWS ? 'L' : 'R';
        return x;
    }
    if (i < 6) {
        char *x = around(two[pick(d, 5)], square(d, axis, depth - 1)),
             *y = square(d, axis, depth - 1), *all = format("%s%s)", x, y);
        free(x);
        free(y);
        return all;
    }
    if (i < 8)
        return i == 6 ? around("diag(%s)", along(d, axis, depth - 1)) : square_leaf(d, axis);
    static const char *const cut[2] = {"gram(g + 1) / ncols + %s", "gram((g - 1).T) / nrows + %s"};
    unsigned k = pick(d, 3);
    return around(d->block && k == 1 ? cut[axis] : made[axis][k], square(d, axis, depth - 1));
}

/* Row or col values. */
static char *along(Dice *d, int axis, int depth)
{
    static const char *const leaf[2][2][3] = {
        {{"r", "rowmax(g)", "rowmean(m)"}, {"c", "colmin(g)", "colmean(m)"}},
        {{"r", "rowmax(L)", "diag(M)"}, {"c", "colmin(R)", "diag(Q)"}}};
    static const char *const fold[2][6] = {
        {"rowsum(0 * L + %s) / nrows", "rowmax(0 * L + %s)", "colmin(0 * L + %s).T",
         "(colsum(0 * L + %s) / nrows).T", "diag(0 * L + %s)", "rowmin(0 * L + %s)"},
        {"colsum(0 * R + %s) / ncols", "colmax(0 * R + %s)", "rowmin(0 * R + %s).T",
         "(rowsum(0 * R + %s) / ncols).T", "diag(0 * R + %s)", "colmin(0 * R + %s)"}};
    if (depth <= 0)
        return format("%s", leaf[d->block > 0][axis][pick(d, 3)]);
    if (d->products && pick(d, 6) == 0)
        return around(axis == ROWS ? "mm(0 * L + %s, r) / nrows" : "mm(0 * R + %s, c) / ncols",
                      square(d, axis, depth - 1));
    return around(fold[axis][pick(d, 6)], square(d, axis, depth - 1));
}

static void statement(Dice *d, Buf *b)
{
    static const char *const to[2][3] = {{"L", "M", "r"}, {"R", "Q", "c"}};
    static const char *const scales[2][4] = {{"(1 + r)", "(1 + c)", "(1 + s)", "(r + c)"},
                                             {"(1 + rowmax(g))", "(1 + colmin(g))",
                                              "(1 + slice.norm(g))",
                                              "(nrows / ncols + max(abs(L)) - mean(R))"}};
    int axis = (int)pick(d, 2);
    unsigned i = pick(d, 6);
    char *x = i == 2 ? along(d, axis, 3) : square(d, axis, 3);
    if (i < 3)
        buf_printf(b, "    %s = clamp(%s, -4, 4)\n", to[axis][i], x);
    else if (i == 3)
        buf_printf(b, "    s = clamp(slice.max(%c * (%s)) + slice.mean(%s + 0 * %c), -4, 4)\n",
                   axis ? 'R' : 'L', x, x, axis ? 'R' : 'L');
    else if (i == 4 && d->products)
        buf_printf(b, "    p = clamp(p - 0.01 * mm(%s0 * %c + %s%s%s), -8, 8)\n", axis ? "m, " : "",
                   axis ? 'R' : 'L', x, axis ? "" : ", m",
                   d->s % 2 ? ", { products = \"tf32\" }" : "");
    else
        buf_printf(b, "    p = clamp(p - 0.01 * g * %s, -8, 8)\n",
                   scales[d->block > 0][pick(d, 4)]);
    free(x);
}

char *random_squares(uint64_t seed, bool products, int block)
{
    Dice d = {splitmix(seed), products, block};
    char head[32] = "";
    if (block)
        snprintf(head, sizeof head, " block = %d,", block);
    const char *of = block ? "block " : "";
    Buf b = {0};
    buf_printf(
        &b,
        "-- squares %llu\nreturn optimizer { name = \"squares\", view = \"%s\",%s hyper = { lr = "
        "0.25 },\n"
        "  state = { m = zeros, L = zeros \"rows\", M = eye(0.5, \"rows\"), R = zeros \"cols\", Q "
        "= "
        "eye(0.5, \"cols\"), r = zeros \"%srow\", c = fill(0.25, \"%scol\"), s = zeros \"%s\" },\n"
        "  step = function() m = 0.5 * m + g  p = p - lr * m end,\n  matrix = function()\n    m = "
        "0.5 * m + "
        "g\n",
        (unsigned long long)seed, pick(&d, 2) ? "first" : "last", head, of, of,
        block ? "block" : "slice");
    for (unsigned n = 3 + pick(&d, 4); n > 0; n--) {
        bool turns = splitmix(seed * 31 + n) % 4 == 0;
        if (turns)
            buf_printf(&b, "    every(%u, { stagger = true%s }, function()\n", 2 + n % 2,
                       n % 3 ? ", first = true" : "");
        statement(&d, &b);
        buf_puts(&b, turns ? "    end)\n" : "");
    }
    /* every state is written */
    buf_puts(&b, block ? "    L = 0.5 * L + rowmax(L)  R = 0.5 * R + colmax(Q)  r = 0.5 * r + "
                         "rowmean(L)  s = 0.5 * s + "
                         "slice.max(L)"
                       : "    L = 0.5 * L + rowmax(g)  R = 0.5 * R + colmax(g)  r = 0.5 * r + "
                         "rowmean(g)  s = 0.5 * s + "
                         "slice.max(g)");
    buf_puts(&b, "  M = M * 0.75  Q = Q * 0.75  c = c * 0.5\n  end }\n");
    return buf_take(&b);
}

#include "tests/harness/random_spec.h"

#include "tests/harness/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* shared: step and matrix must agree on the group's state, so neither writes it. turns: inside
 * every() with stagger, where no group state may be written. */
typedef struct { uint64_t s; Buf *out; bool rows, global, draws, shared, matrix, turns; } Fuzz;

static unsigned pick(Fuzz *f, unsigned n) { return (unsigned)((f->s = splitmix(f->s)) >> 33) % n; }

typedef struct { char *text; Dom dom; } Expr;

static Expr made(Dom d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static Expr made(Dom d, const char *fmt, ...)
{
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return (Expr){buf_take(&b), d};
}

static Expr leaf(Fuzz *f)
{
    static const struct { const char *name; Dom d;
    } v[] = {{"p", ELEM},  {"g", ELEM},  {"g", ELEM},   {"m", ELEM},  {"a", GROUP},
             {"b", GROUP}, {"t", GROUP}, {"x", TENSOR}, {"k", GROUP}, {"numel", TENSOR},
             {"h", ELEM},  {"r", ROW},   {"c", COL},    {"s", SLICE}};
    unsigned i = pick(f, f->rows ? 18 : 15);
    if (i >= 14 || (i >= 11 && !f->rows))
        return made(CONST_, "%s",
                    ((const char *[]){"0.25", "3", "-1.5", "1e-3", "0.7"})[pick(f, 5)]);
    return made(v[i].d, "%s", v[i].name);
}

static Expr expr(Fuzz *f, int depth);

static Expr unary(Fuzz *f, int depth)
{
    static const char *const form[] = {"abs(%s)",
                                       "-(%s)",
                                       "sqrt(abs(%s))",
                                       "tanh(%s)",
                                       "erf(%s)",
                                       "exp(-abs(%s))",
                                       "log1p(abs(%s))",
                                       "sign(%s)",
                                       "floor(%s)",
                                       "round(%s)",
                                       "ceil(%s)",
                                       "cbrt(%s)",
                                       "sin(%s)",
                                       "cos(%s)",
                                       "sigmoid(%s)",
                                       "rsqrt(abs(%s) + 0.5)",
                                       "(%s) ^ 2",
                                       "(%s) ^ 3",
                                       "(abs(%s) + 0.5) ^ -0.7",
                                       "log(abs(%s) + 0.1)",
                                       "expm1(min(%s, 2))",
                                       "atan2(%s, 1.5)",
                                       "(abs(%s) + 0.1) ^ 0.5",
                                       "clamp(%s, -2, 2)"};
    Expr a = expr(f, depth - 1);
    Buf b = {0};
    const char *s = form[pick(f, sizeof form / sizeof *form)];
    const char *at = strstr(s, "%s");
    buf_printf(&b, "%.*s%s%s", (int)(at - s), s, a.text, at + 2);
    free(a.text);
    return (Expr){buf_take(&b), a.dom};
}

static Expr binary(Fuzz *f, int depth)
{
    Expr a = expr(f, depth - 1), b = expr(f, depth - 1);
    Dom d = dom_join(a.dom, b.dom);
    Expr r;
    switch (pick(f, 8)) {
    case 0: r = made(d, "(%s + %s)", a.text, b.text); break;
    case 1: r = made(d, "(%s - %s)", a.text, b.text); break;
    case 2: r = made(d, "(%s * %s)", a.text, b.text); break;
    case 3: r = made(d, "(%s / (abs(%s) + 0.5))", a.text, b.text); break;
    case 4: r = made(d, "min(%s, %s)", a.text, b.text); break;
    case 5: r = made(d, "max(%s, %s)", a.text, b.text); break;
    case 6: r = made(d, "lerp(%s, %s, 0.3)", a.text, b.text); break;
    default: r = made(d, "where(lt(%s, %s), %s, %s * 0.5)", a.text, b.text, b.text, a.text); break;
    }
    free(a.text);
    free(b.text);
    return r;
}

static Expr reduction(Fuzz *f, int depth)
{
    static const char *const kind[] = {"sum", "mean", "norm", "rms", "max", "min"};
    Expr a = expr(f, depth - 1), r;
    const char *k = kind[pick(f, 6)];
    unsigned where = pick(f, 6);
    const char *bound = !strcmp(k, "sum") ? " / numel" : "";
    if (a.dom == ELEM && f->rows && where == 0)
        r = made(ROW, "row%s(%s)", k, a.text);
    else if (a.dom == ELEM && f->rows && where == 1)
        r = made(COL, "col%s(%s)", k, a.text);
    else if (a.dom >= ROW && f->rows && where == 2)
        r = made(SLICE, "slice.%s(%s)", k, a.text);
    else if (a.dom >= TENSOR && f->global && where == 3)
        r = made(GROUP, "global.%s(%s)", k, a.text);
    else if (a.dom > TENSOR)
        r = made(TENSOR, "(%s(%s)%s)", k, a.text, bound);
    else
        return a;
    free(a.text);
    return r;
}

/* ---- matrix values: rows x rows, since columns may be many ---- */
/* An expression broadcast to elements, or reduced to rows. */
static Expr over(Fuzz *f, Dom d, int depth)
{
    Expr a = expr(f, depth - 1),
         r = made(d, d == ELEM ? "(%s + 0*p)" : "rowmean(%s + 0*p)", a.text);
    free(a.text);
    return r;
}

static Expr square(Fuzz *f, int depth)
{
    Expr a = {0}, b = {0}, r;
    unsigned i = depth <= 0 ? pick(f, 2) : pick(f, 12);
    if (i >= 2 && i < 6)
        a = over(f, i == 5 ? ROW : ELEM, depth - 1), b = over(f, i == 5 ? ROW : ELEM, depth - 1);
    else if (i >= 6)
        a = square(f, depth - 1), b = i == 9 ? over(f, ROW, depth - 1) : square(f, depth - 1);
    switch (i) {
    case 0: r = made(ROWS2, "L"); break;
    case 1: r = made(ROWS2, "eye(0.75, \"rows\")"); break;
    case 2: case 3: r = made(ROWS2, "(mm(%s, %s.T) / ncols)", a.text, b.text); break;
    case 4: r = made(ROWS2, "(gram(%s) / ncols)", a.text); break;
    case 5: r = made(ROWS2, "outer(%s, %s)", a.text, b.text); break;
    case 6: r = made(ROWS2, "(%s).T", a.text); break;
    case 7: r = made(ROWS2, "(%s - 0.5 * (%s).T)", a.text, b.text); break;
    case 8: r = made(ROWS2, "(mm(%s, %s) / nrows)", a.text, b.text); break;
    case 9: r = made(ROWS2, "(%s * %s)", a.text, b.text); break;
    case 10: r = made(ROWS2, "%s(%s)", pick(f, 2) ? "triu" : "tril", a.text); break;
    default: r = made(ROWS2, "(2 * mm(%s, %s) / nrows + 0.5 * L)", a.text, b.text); break;
    }
    free(a.text);
    free(b.text);
    return r;
}

/* A value that is computed from matrices but is not a matrix. */
static Expr from_square(Fuzz *f, int depth)
{
    unsigned i = pick(f, 9);
    Expr a = i < 7 ? square(f, depth - 1) : over(f, ELEM, depth - 1),
        b = over(f, i < 2 || i == 7 ? ELEM : ROW, depth - 1), r;
    switch (i) {
    case 0: r = made(ELEM, "(mm(%s, %s) / nrows)", a.text, b.text); break;
    case 1: r = made(ELEM, "(mm(%s.T, %s).T / nrows)", b.text, a.text); break;
    case 2: r = made(ROW, "(mm(%s, %s) / nrows)", a.text, b.text); break;
    case 3: r = made(ROW, "%s(%s)", pick(f, 2) ? "rowmean" : "rowmax", a.text); break;
    case 4: r = made(ROW, "%s(%s).T", pick(f, 2) ? "colmin" : "colrms", a.text); break;
    case 5: r = made(ROW, "diag(%s)", a.text); break;
    case 6: r = made(SLICE, "(trace(%s) / nrows)", a.text); break;
    case 7: r = made(ROW, "(mm(%s, colmean(%s)) / ncols)", a.text, b.text); break;
    default: r = made(COL, "(mm(%s.T, %s) / nrows)", a.text, b.text); break;
    }
    free(a.text);
    free(b.text);
    return r;
}

static Expr expr(Fuzz *f, int depth)
{
    if (depth <= 0)
        return leaf(f);
    if (f->matrix && pick(f, 6) == 0)
        return from_square(f, depth);
    unsigned i = pick(f, 20);
    if (f->draws && i == 19)
        return pick(f, 2) ? made(ELEM, "random()") : made(ELEM, "normal()");
    return i < 7    ? unary(f, depth)
           : i < 15 ? binary(f, depth)
           : i < 18 ? reduction(f, depth)
                    : leaf(f);
}

/* One assignment. The value is reduced to the target's domain and bounded, so that error bounds
 * stay narrow. */
static void statement(Fuzz *f, const char *indent)
{
    if (f->matrix && pick(f, 4) == 0) {
        Expr s = square(f, 1 + (int)pick(f, 3));
        buf_printf(f->out, "%sL = clamp(%s, -8, 8)\n", indent, s.text);
        free(s.text);
        return;
    }
    static const struct { const char *name; Dom d;
    } target[] = {{"p", ELEM},  {"p", ELEM}, {"m", ELEM}, {"x", TENSOR},
                  {"k", GROUP}, {"r", ROW},  {"c", COL},  {"s", SLICE}};
    unsigned i = pick(f, f->rows ? 8 : 5);
    if ((f->shared || f->turns) && target[i].d == GROUP)
        i = 0;
    Expr e = expr(f, 1 + (int)pick(f, 4));
    Dom d = target[i].d;
    const char *down = "%s";
    if (dom_join(e.dom, d) != d)
        down = d == ROW      ? "rowmean(%s + 0*p)"
               : d == COL    ? "colmean(%s + 0*p)"
               : d == SLICE  ? "slice.mean(%s + 0*p)"
               : d == TENSOR ? "mean(%s + 0*p)"
               : f->global   ? "global.mean(%s + 0*p)"
                             : "0.5*k";
    if (d == GROUP && !f->global && e.dom > GROUP)
        down = "0.5 * k";
    buf_printf(f->out, "%s%s = clamp(", indent, target[i].name);
    const char *at = strstr(down, "%s");
    if (at)
        buf_printf(f->out, "%.*s%s%s", (int)(at - down), down, e.text, at + 2);
    else
        buf_puts(f->out, down);
    buf_puts(f->out, ", -8, 8)\n");
    free(e.text);
}

static void entry(Fuzz *f, const char *name)
{
    buf_printf(f->out, "  %s = function()\n", name);
    for (unsigned n = 1 + pick(f, 4); n > 0; n--) {
        if (pick(f, 6) == 0) {
            /* half of them staggered; of those, half with first = true */
            unsigned how = (unsigned)(splitmix(f->s ^ 0x51) % 4);
            f->turns = how < 2;
            buf_printf(f->out, "    every(%u, %sfunction()\n", 2 + pick(f, 2),
                       how == 0   ? "{ stagger = true, first = true }, "
                       : how == 1 ? "{ stagger = true }, "
                                  : "");
            statement(f, "      ");
            buf_puts(f->out, "    end)\n");
            f->turns = false;
        } else {
            statement(f, "    ");
        }
    }
    buf_puts(f->out, "  end,\n");
}

char *random_spec(uint64_t seed, bool products)
{
    Buf b = {0};
    Fuzz f = {.s = seed, .out = &b};
    f.rows = pick(&f, 3) > 0;
    f.global = pick(&f, 2);
    f.draws = pick(&f, 3) == 0;
    /* the other seeds give the same specs as before products were added */
    f.matrix = products && f.rows && splitmix(seed ^ 0x3a) % 2;
    buf_printf(&b,
               "-- seed %llu\nreturn optimizer {\n  name = \"fuzz\", view = \"%s\",\n  hyper = { a "
               "= 0.3, b = { 1.7, "
               "min = 0 } }, inputs = { h = \"elem\" },\n",
               (unsigned long long)seed, pick(&f, 2) ? "first" : "last");
    buf_printf(&b,
               "  state = { m = zeros, x = fill(0.5, \"tensor\"), k = fill(1, \"group\")%s%s },\n",
               f.rows ? ", r = zeros \"row\", c = fill(0.25, \"col\"), s = zeros \"slice\"" : "",
               f.matrix ? ", L = eye(0.5, \"rows\")" : "");
    f.shared = f.rows && !f.global && pick(&f, 2);
    entry(&f, "step");
    if (f.shared)
        entry(&f, "matrix");
    f.shared = false;
    for (int i = 1; i < RANDOM_ENTRIES; i++) {
        char name[16];
        snprintf(name, sizeof name, "e%d", i);
        entry(&f, name);
    }
    /* every state is written by some entry */
    buf_printf(&b, "  last = function() m = m * 0.5; x = x * 0.5; k = k * 0.5%s%s end,\n}\n",
               f.rows ? "; r = r * 0.5; c = c * 0.5; s = s * 0.5" : "",
               f.matrix ? "; L = L * 0.5; p = p * 0.5" : "");
    return buf_take(&b);
}

const char *random_wrapper(uint64_t seed)
{
    static const char *const wrappers[] =
        {"", "", "", "clip_value(0.5)", "ema(0.9)", "clip_norm(1),ema(0.5)", "lookahead(2,0.5)"};
    return wrappers[splitmix(seed) % 7];
}

char *crowded_spec(int cols, int sums)
{
    Buf head = {0}, folds = {0}, all = {0}, text = {0};
    for (int i = 0; i < cols + sums; i++) {
        bool col = i < cols;
        buf_printf(&head, ", x%d = zeros \"%s\"", i, col ? "col" : "tensor");
        buf_printf(&folds, "    x%d = %s(g * g + %d)\n", i, col ? "colmean" : "mean", i + 1);
        buf_printf(&all, "%sx%d", i ? " + " : "", i);
    }
    buf_printf(&text,
               "return optimizer {\n  name = \"crowd\", hyper = { lr = 0.1 }, state = { m = "
               "zeros%s },\n  matrix = "
               "function()\n%s    p = p - lr * g * (%s)\n  end,\n  step = function() m = g; p = p "
               "- lr * m end,\n}\n",
               head.s, folds.s, all.s);
    buf_free(&head);
    buf_free(&folds);
    buf_free(&all);
    return buf_take(&text);
}

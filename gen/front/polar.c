/* polar(x, { steps =, coefficients =, form =, safety =, eps = }): the orthogonal factor of a
 * matrix, by an odd polynomial of its singular values that is applied a few times. It adds no
 * operation: it builds products and element passes.
 *
 *   X <- (a I + b A + c A A) X,   A = X X^T for wide X; for tall X the products are on the other
 *                                 side
 *
 * The Gram form works on the small square matrices: with R = X X^T and Q = I, Z = a I + b R + c R
 * R, Q <- Q Z, R <- Z (R Z); all are polynomials of R, so symmetric. X <- Q X ends it. It also
 * restarts the iteration after the second step: without the restart low precision diverges. a is
 * added on the diagonal, so that a I + b R + c R R is one call (product_fuse.c); a X beside the
 * product would load X once more. This rounds by 2^-11 of a in f16, as much as X itself is
 * rounded. */
#include "gen/front/matrix_values.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 30, MOST_GIVEN = 8, MOST_TRIPLES = 24 };
typedef struct { double a, b, c; } Triple;
typedef struct {
    const char *name;
    Triple step[MOST_TRIPLES]; int n;      /* later steps use the last triple */
    int steps;                             /* the published number of steps */
    double safety;                         /* all triples but the last: p(x / safety) in place of
                                            * p(x) */
    bool scaled;                           /* scales rows by rsqrt of the row sums of |X X^T| in
                                            * place of the norm */
} Set;

#define JORDAN {3.4445, -4.7750, 2.0315}
#define EXACT_STEP {2, -1.5, 0.5}
/* published with p(x / 1.02) multiplied out */
#define WITH_SAFETY(a, b, c) \
    {(a) * 1.02, (b) * 1.02 * 1.02 * 1.02, (c) * 1.02 * 1.02 * 1.02 * 1.02 * 1.02}

/* The first step of Polar Express, as p(x / 2): values up to 2 stay below 2, and small ones grow
 * 4.1 times. Fourteen of them raise a share of 3e-12 of the norm to what the published steps after
 * the first expect. */
#define GROW {4.143606009072815, -2.9494858148873546, 0.5406371035165917}
#define GROW_4 GROW, GROW, GROW, GROW

static const Set sets[] = {
    {"jordan", {JORDAN}, 1, 5, 1, false}, /* kellerjordan.github.io/posts/muon, torch.optim.Muon */
    {"polar_express", /* arXiv 2505.16932 */
     {{8.28721201814563, -23.595886519098837, 17.300387312530933},
      {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
      {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
      {3.3184196573706015, -2.488488024314874, 0.51004894012372},
      {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
      {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
      {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
      {1.875, -1.25, 0.375}},
     8,
     5,
     1.01,
     false},
    {"cans", /* Chebyshev, arXiv 2506.10935 */
     {{8.4703, -25.1081, 18.6293},
      {4.1828, -3.1087, 0.5806},
      {3.9619, -2.9541, 0.5630},
      {3.2866, -2.4647, 0.5074},
      {2.2737, -1.6447, 0.4162}},
     5,
     5,
     1,
     false},
    {"turbo", /* arXiv 2512.04632 */
     {{4.0098, -7.0585, 2.4635},
      {3.4585, -5.5479, 2.5959},
      {2.7573, -3.2939, 1.4254},
      {2.7215, -3.0494, 1.3169}},
     4,
     4,
     1,
     true},
    /* leloykun.github.io/ponder/muon-opt-coeffs, modded-nanogpt */
    {"quintic",
     {{4.0848, -6.8946, 2.9270},
      {3.9505, -6.3029, 2.6377},
      {3.7418, -5.5913, 2.3037},
      {2.8769, -3.1427, 1.2046},
      {2.8366, -3.0525, 1.2012}},
     5,
     5,
     1,
     false},
    /* DeepSeek-V4 report: eight steps of jordan, two that end at 1 */
    {"deepseekv4",
     {JORDAN, JORDAN, JORDAN, JORDAN, JORDAN, JORDAN, JORDAN, JORDAN, EXACT_STEP, EXACT_STEP},
     10,
     10,
     1,
     false},
    {"cubic5", /* arXiv 2606.00371: no square of A */
     {{3.3656576, -3.3420992, 0},
      {2.5744352, -1.4957376, 0},
      {2.5368962, -1.4312570, 0},
      {2.4418906, -1.2764040, 0},
      {2.2230472, -0.9630650, 0}},
     5,
     5,
     1,
     false},
    /* arXiv 2505.16932 for 5 steps: modded-nanogpt, nanochat, dion */
    {"polar_express_5",
     {WITH_SAFETY(8.156554524902461, -22.48329292557795, 15.878769915207462),
      WITH_SAFETY(4.042929935166739, -2.808917465908714, 0.5000178451051316),
      WITH_SAFETY(3.8916678022926607, -2.772484153217685, 0.5060648178503393),
      WITH_SAFETY(3.285753657755655, -2.3681294933425376, 0.46449024233003106),
      {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
     5,
     5,
     1.02,
     false},
    /* polar_express with more steps after the first */
    {"exact",
     {{8.28721201814563, -23.595886519098837, 17.300387312530933},
      GROW_4,
      GROW_4,
      GROW_4,
      GROW,
      GROW,
      {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
      {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
      {3.3184196573706015, -2.488488024314874, 0.51004894012372},
      {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
      {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
      {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
      {1.875, -1.25, 0.375}},
     22,
     24,
     1.01,
     false},
};
enum { NSETS = sizeof sets / sizeof *sets };

typedef enum { FORM_PLAIN, FORM_GRAM, FORM_AUTO, NFORMS } Form;
static const char *const form_names[] = {
    [FORM_PLAIN] = "plain", [FORM_GRAM] = "gram", [FORM_AUTO] = "auto"};
_Static_assert(sizeof form_names / sizeof *form_names == NFORMS, "every form has a name");
typedef struct {
    Set set;
    int steps;
    Form form;
    double eps;                            /* smallest norm to divide by, as in torch.optim.Muon; 0:
                                            * none */
} Polar;

/* ---- options ---- */
static void read_triple(lua_State *L, int i, Triple *out)
{
    double x[3];
    bool ok = lua_rawgeti(L, -1, i) == LUA_TTABLE && lua_rawlen(L, -1) == 3;
    for (int k = 0; k < 3 && ok; k++) {
        ok = lua_rawgeti(L, -1, k + 1) == LUA_TNUMBER && isfinite(lua_tonumber(L, -1));
        x[k] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (!ok)
        spec_error(L, "polar: coefficients are triples of numbers, one a step: { { 3.4445, -4.775, "
                      "2.0315 }, … }");
    *out = (Triple){x[0], x[1], x[2]};
}

/* The value on top, for messages */
static const char *found_text(lua_State *L)
{
    Arena *a = trace_of(L)->arena;
    int ty = lua_type(L, -1);
    return ty == LUA_TNUMBER ? arena_printf(a, "%.15g", lua_tonumber(L, -1))
           : ty == LUA_TSTRING
               ? arena_printf(a, "\"%.40s\"", lua_tostring(L, -1))
               : arena_printf(a, "a %s", is_value(L, -1) ? "value" : luaL_typename(L, -1));
}

static void read_coefficients(lua_State *L, Polar *o)
{
    Buf all = {.arena = trace_of(L)->arena};
    int ty = lua_type(L, -1);
    if (ty == LUA_TTABLE) {
        int n = (int)lua_rawlen(L, -1);
        if (n < 1 || n > MOST_GIVEN)
            spec_error(L, "polar: coefficients are 1 to %d triples, and this list has %d",
                       MOST_GIVEN, n);
        o->set = (Set){.name = "", .n = n, .steps = n, .safety = 1};
        for (int i = 0; i < n; i++)
            read_triple(L, i + 1, &o->set.step[i]);
        return;
    }
    const char *name = ty == LUA_TSTRING ? lua_tostring(L, -1) : "";
    for (int i = 0; i < NSETS; i++) {
        buf_printf(&all, "%s\"%s\"", i ? ", " : "", sets[i].name);
        if (!strcmp(name, sets[i].name)) {
            o->set = sets[i];
            return;
        }
    }
    spec_error(L, "polar: coefficients are one of %s or a list of triples, not %s", buf_text(&all),
               found_text(L));
}

/* Pushes an option; false if it is absent, or UNKNOWN after an error. */
static bool option_given(lua_State *L, const char *key)
{
    int ty = lua_getfield(L, 2, key);
    return ty != LUA_TNIL && !(is_value(L, -1) && *value_at(L, -1) == UNKNOWN);
}

static Polar read_options(lua_State *L)
{
    Polar o = {.set = sets[0]};
    bool table = lua_type(L, 2) == LUA_TTABLE;
    if (!table && !lua_isnoneornil(L, 2))
        spec_error(L, "polar's options are a table: polar(x, { steps = 5 })");
    if (!table)
        lua_settop(L, 1), lua_newtable(L);
    matrix_keys(L, 2, "polar knows steps, coefficients, form, safety and eps",
                (const char *const[]){"steps", "coefficients", "form", "safety", "eps", NULL});
    if (option_given(L, "coefficients"))
        read_coefficients(L, &o);
    o.steps = o.set.steps;
    if (option_given(L, "steps")) {
        double n = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
        if (!(n >= 0 && n <= MOST_STEPS && n == floor(n)))
            spec_error(L,
                       "polar: steps is a whole number from 0 to %d (0: as many as the "
                       "coefficients were published "
                       "for), known when the rule is compiled, not %s",
                       MOST_STEPS, found_text(L));
        o.steps = n > 0 ? (int)n : o.set.steps;
    }
    if (option_given(L, "safety")) {
        o.set.safety = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
        if (!(o.set.safety >= 1 && o.set.safety <= 2))
            spec_error(L, "polar: safety is a number from 1 to 2, not %s", found_text(L));
    }
    if (option_given(L, "eps")) {
        o.eps = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
        if (!(o.eps >= 0 && isfinite(o.eps)))
            spec_error(
                L, "polar: eps is a number of at least 0, known when the rule is compiled, not %s",
                found_text(L));
    }
    if (option_given(L, "form")) {
        const char *form = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
        for (o.form = FORM_PLAIN; o.form < NFORMS && strcmp(form, form_names[o.form]); o.form++)
            continue;
        if (o.form == NFORMS)
            spec_error(L, "polar: form is \"plain\", \"gram\" or \"auto\", not %s", found_text(L));
    }
    lua_settop(L, 1);
    return o;
}

/* ---- the iteration ---- */
static Ref konst(lua_State *L, double x) { return node_const(&trace_of(L)->rule->g, x); }
static Ref times(lua_State *L, double k, Ref x) { return trace_op(L, OP_MUL, konst(L, k), x); }
static Ref plus(lua_State *L, Ref a, Ref b) { return trace_op(L, OP_ADD, a, b); }
/* Replaces a norm of 0 by 1: a zero matrix needs no scaling. A NaN norm stays NaN: otherwise blocks
 * without a NaN would stay unscaled and diverge. */
static Ref or_one(lua_State *L, Ref x)
{
    return trace_op3(L, OP_WHERE, trace_op(L, OP_NE, konst(L, 0), x), x, konst(L, 1));
}
static Dom dom_at(lua_State *L, Ref r) { return (Dom)trace_of(L)->rule->g.n[r].dom; }

static Triple triple_of(const Polar *o, int step)
{
    const Set *s = &o->set;
    Triple x = s->step[step < s->n ? step : s->n - 1];
    double k = step < s->n - 1 || s->n == 1 ? s->safety : 1, cube = k * k * k;
    return (Triple){x.a / k, x.b / cube, x.c / (cube * k * k)};
}

/* The smaller Gram matrix: X X^T of a wide matrix, X^T X of a tall one. */
static Ref small_square(lua_State *L, Ref x, bool wide)
{
    Ref t = matrix_transpose(L, x);
    return matrix_product(L, "polar", wide ? x : t, wide ? t : x, SYMMETRIC);
}
static Ref beside(lua_State *L, Ref square, Ref x, bool wide)
{
    return matrix_product(L, "polar", wide ? square : x, wide ? x : square, 0);
}
static Ref symmetric(lua_State *L, Ref a, Ref b)
{
    return matrix_product(L, "polar", a, b, SYMMETRIC);
}

/* scales each matrix by its norm */
static Ref by_norm(lua_State *L, Ref x, double safety, double eps)
{
    Ref norm = or_one(L, trace_norm(L, OP_NORM, x, SLICE));
    if (eps > 0)
        norm = trace_op(L, OP_MAX, norm, konst(L, eps));
    return trace_op(L, OP_DIV, x, safety == 1 ? norm : times(L, safety, norm));
}

/* Scales by the largest magnitude, so that no square is 0 or infinite; then scales rows (of tall
 * matrices: columns) by rsqrt of the row sums of |A|. *a receives A, scaled in the same way, which
 * the first step needs. */
static Ref by_sums(lua_State *L, Ref x, bool wide, Ref *a)
{
    x = trace_op(L, OP_DIV, x,
                 or_one(L, trace_fold(L, OP_RMAX, trace_op(L, OP_ABS, x, NONE), SLICE)));
    *a = small_square(L, x, wide);
    Axis axis = dom_info[dom_at(L, *a)].axis[0];
    Ref sum = or_one(
        L, trace_fold(L, OP_SUM, trace_op(L, OP_ABS, *a, NONE), dom_product(axis, AXIS_ONE)));
    Ref s = trace_op(L, OP_DIV, konst(L, 1), trace_op(L, OP_SQRT, sum, NONE));
    *a = trace_op(L, OP_MUL, *a, trace_op(L, OP_MUL, s, matrix_transpose(L, s)));
    Dom d = dom_at(L, x);
    return trace_op(L, OP_MUL, x, dom_spreads(dom_at(L, s), d) ? s : matrix_transpose(L, s));
}

static Ref polynomial(lua_State *L, Triple k, Ref a)       /* k.a I + k.b a + k.c a a */
{
    Ref b = times(L, k.b, a);
    if (k.c != 0)
        b = plus(L, times(L, k.c, symmetric(L, a, a)), b);
    return plus(L, b, matrix_eye(L, konst(L, k.a), dom_at(L, a)));
}

static Ref plain_form(lua_State *L, const Polar *o, Ref x, bool wide, Ref a)
{
    for (int i = 0; i < o->steps; i++) {
        Triple k = triple_of(o, i);
        if (i || a == NONE)
            a = small_square(L, x, wide);
        x = beside(L, polynomial(L, k, a), x, wide);
    }
    return x;
}

static Ref gram_form(lua_State *L, const Polar *o, Ref x, bool wide, Ref r)
{
    Ref q = NONE;                                          /* NONE: the unit matrix */
    for (int i = 0; i < o->steps; i++) {
        Triple k = triple_of(o, i);
        if (i == 2) {
            x = beside(L, q, x, wide);
            q = r = NONE;
        }
        if (r == NONE)
            r = small_square(L, x, wide);
        Ref z = polynomial(L, k, r);
        q = q == NONE ? z : symmetric(L, q, z);
        /* before the restart and at the end r is not needed */
        if (i != 1 && i != o->steps - 1)
            r = symmetric(L, z, symmetric(L, r, z));
    }
    return q == NONE ? x : beside(L, q, x, wide);
}

/* A query about the tensor: times * rows <= cols, or with rows and columns exchanged. */
static bool at_most(lua_State *L, bool rows, double times)
{
    Trace *t = trace_of(L);
    Test q = {.kind = TEST_SIZES,
              .relation = IS_AT_MOST,
              .factor = {times, 1},
              .view = t->spec[t->at].view};
    q.size[0] = rows ? SIZE_ROWS : SIZE_COLS;
    q.size[1] = rows ? SIZE_COLS : SIZE_ROWS;
    return trace_query(t, q);
}

/* Whether x has no more rows than columns. If rank is a share of one side, a query about the tensor
 * compares it with the other side: a quarter of the rows of an embedding is 16 times its columns,
 * and Gram matrices of the longer side would take 16^3 times as long. */
bool matrix_is_wide(lua_State *L, Dom d)
{
    RankShare r = trace_of(L)->rule->share;
    const Axis *axis = dom_info[d].axis;
    bool first = axis[0] == AXIS_RANK;
    Axis other = axis[first];
    bool fixed = d == ELEM || first == (axis[1] == AXIS_RANK) || r.share <= 0 || r.of == AXIS_ONE ||
                 r.of == other;
    if (!fixed)
        return at_most(L, r.of == AXIS_ROWS, r.share) == first;
    return d == ELEM ? at_most(L, true, 1) : axis[1] != AXIS_RANK;
}

/* Whether to use the Gram form. Flops of five steps in units of n^3, with k = alpha n: plain 15
 * alpha + 5; Gram with its restart 6 alpha + 14: two Gram matrices, two products with X, 14 small
 * ones. Symmetric products count half. For alpha = 1 both are equal. From alpha = 2 on the Gram
 * form is used: it then has 26 instead of 35. It squares the condition number, which is too much
 * for the 8 bits of bf16. */
static bool by_gram(lua_State *L, const Polar *o, Dom d, bool wide)
{
    const Trace *t = trace_of(L);
    Product precision = t->product ? (Product)(t->product - 1) : rule_product(t->rule, t->params);
    if (o->form != FORM_AUTO)
        return o->form == FORM_GRAM;
    return precision != PRODUCT_BF16 && d == ELEM && at_most(L, wide, 2);
}

int l_polar(lua_State *L)
{
    Trace *t = trace_of(L);
    inside_entry(L, "polar");
    lang_count(L, "polar", 1, 2);
    Ref x = lang_num(L, 1, "polar", 2);
    bool transposed = t->rule->g.n[x].op == OP_TRANSPOSE;
    if (transposed)
        x = t->rule->g.n[x].arg[0];
    if (!dom_square(dom_at(L, x)))
        return spec_error(L, "polar takes a matrix; it got %s", describe(t, x));
    Polar o = read_options(L);
    t->spec[t->at].uses_view = true;
    bool wide = matrix_is_wide(L, dom_at(L, x));
    Ref square = NONE;
    if (o.set.scaled && t->rule->block && dom_at(L, x) == ELEM)
        return spec_error(
            L,
            "polar: coefficients \"turbo\" scale rows by sums of X X^T, which is not possible with "
            "blocks (block = %d): use other coefficients",
            t->rule->block);
    x = o.set.scaled ? by_sums(L, x, wide, &square) : by_norm(L, x, o.set.safety, o.eps);
    x = by_gram(L, &o, dom_at(L, x), wide) ? gram_form(L, &o, x, wide, square)
                                           : plain_form(L, &o, x, wide, square);
    push_value(L, transposed ? matrix_transpose(L, x) : x);
    return 1;
}

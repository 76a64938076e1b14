/* Warnings for valid specs that surely mean something else: line, remedy, and no warning for
 * correct specs. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "gen/emit/template.h"

#include <check.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The body of `matrix`, from line 3 on; the warning's line and a part of it, or NULL for none. */
typedef struct { const char *body; int line; const char *part; } Warned;

static const Warned bodies[] = {
    /* eigenvectors scaled by their values: NumPy's V * w scales rows here, except over cols */
    {"local w, V = eigh(A)\n p = p - mm(mm(V * w, V.T), g)", 4, "write V * w.T (NumPy has V * w)"},
    {"local w, V = eigh(A)\n p = p - mm(mm(w * V, V.T), g)", 4, "write V * w.T"},
    {"local w, V = eigh(A)\n p = p - mm(mm(V / sqrt(w + eps), V.T), g)", 4, "write V * w.T"},
    {"local w, V = eigh(A)\n p = p - mm(mm(V, V.T * w.T), g)", 4,
     "eigenvectors are the rows of V.T; write w * V.T"},
    {"local w, V = eigh(A)\n local o = sort(w)\n p = p - mm(mm(take(V, o, 'cols') * take(w, o), "
     "V.T), g)",
     5, "write V * w.T"},
    {"local w\n w, X = eigh(A)\n p = p - mm(X * w, g)", 5, "write V * w.T"},
    {"local w, V = eigh(gram(g.T))\n p = p - mm(g, mm(V * w.T, V.T))", 4,
     "write V * w: the eigenvalues of a cols x cols value"},
    {"local w, V = eigh(A)\n p = p - mm(mm(V * w.T, V.T), g)", 0, NULL},
    {"local w, V = eigh(A)\n p = p - mm(mm(V, w * V.T), g)", 0, NULL},
    {"local w, V = eigh(gram(g.T))\n p = p - mm(g, mm(V * w, V.T))", 0, NULL},
    {"local w, V = eigh(A)\n p = p - mm(V * rowsum(abs(A)), g)", 0, NULL},

    /* solve reads only the lower triangle of a symmetric matrix */
    {"p = p - solve(gram(g), g)", 3, "solve(A + eye(eps, \"rows\"), B, { spd = true })"},
    {"L = lerp(L, gram(g), 0.1)\n p = p - solve(L + eye(eps, 'rows'), g)", 4,
     "solve(A, B, { spd = true })"},
    {"p = p - solve(A, g, { spd = true })", 0, NULL},
    {"p = p - solve(chol(A), g)", 0, NULL},
    {"p = p - solve(tril(A), g)", 0, NULL},
    {"p = p - solve(eye(2, 'rows'), g)", 0, NULL},

    /* Gram matrices may be singular */
    {"p = p - mm(power(gram(g), -1/2), g)", 3,
     "power(A, -0.5, { ridge = eps }), or relative, or floor"},
    {"p = p - mm(power(mm(g, g.T), 0.5), g)", 3, "power(A, 0.5, { ridge = eps })"},
    {"L = lerp(L, gram(g), 0.1)\n p = p - mm(power(L / nrows, -1), g)", 4,
     "a Gram matrix, which may be singular"},
    {"L = L + gram(g)\n X = power(L, -1/4, { last = X })\n p = p - mm(X, g)", 4,
     "power(A, -0.25, { ridge = eps })"},
    {"p = p - solve(chol(gram(g)), g)", 3, "A + eye(eps, \"rows\")"},
    {"p = p - mm(power(gram(g), 2), g)", 0, NULL},
    {"p = p - mm(power(gram(g), -1/2, { ridge = eps }), g)", 0, NULL},
    {"p = p - mm(power(gram(g), -1/2, { relative = 1e-6 }), g)", 0, NULL},
    {"p = p - mm(power(gram(g), -1/2, { floor = 1e-6 }), g)", 0, NULL},
    {"p = p - mm(power(gram(g) + eye(eps, 'rows'), -1/2), g)", 0, NULL},
    {"L = lerp(L, gram(g), 0.1) + eye(eps, 'rows')\n p = p - mm(power(L, -1/2), g)", 0, NULL},
    /* it starts as the identity */
    {"X = lerp(X, gram(g), 0.1)\n p = p - mm(power(X, -1/2), g)", 0, NULL},

    /* p is never assigned */
    {"L = gram(g)", 2, "'matrix' never assigns p: matrices would never move"},
    {"L = gram(g)\n return p - mm(L, g)", 4, "the entry returns this value, and nothing uses it"},
    {"L = gram(g)\n local p = p - mm(L, g)", 4, "a local named p hides the parameter"},
    {"local p <const> = p - g", 3, "a local named p hides the parameter"},
    {"p = p - g\n return 2 * p", 4, "the entry returns this value"},
    {"p = p - g\n return p", 0, NULL},
    {"local function f(x) local p = 2 * x return p end\n p = p - f(g)", 0, NULL},
    {"if nrows > ncols then p = p - g end", 0, NULL},
    {"return step()", 0, NULL},
};

static void compile(Gen *g, const char *text)
{
    GenOptions o = {.find = find_wrapper};
    ck_assert_msg(gen_compile(g, (Source){"mine.lua", text, strlen(text)}, &o), "%s: %s", text,
                  g->diag.text);
}

static void expect(const Rule *r, const char *text, int line, const char *part)
{
    bool found = !part && !r->nwarning;
    for (int i = 0; i < r->nwarning && part; i++)
        found = found || (r->warning[i].line == line && strstr(r->warning[i].text, part) &&
                          !strncmp(r->warning[i].text, "mine.lua:", 9));
    for (int i = 1; i < r->nwarning; i++)
        ck_assert_msg(r->warning[i - 1].line <= r->warning[i].line,
                      "warnings of this are not in order: %s", text);
    ck_assert_msg(found, "%s\nline %d: %s, not %s", text, line, part ? part : "nothing",
                  r->nwarning ? r->warning[0].text : "nothing");
}

START_TEST(matrix_bodies)
{
    const Warned *w = &bodies[_i];
    Arena a = {0};
    const char *text =
        arena_printf(&a,
                     "return optimizer { name = 'x', hyper = { eps = 1e-6 }, state = { %s%s },\n"
                     "matrix = function() local A = gram(g) + eye(eps, 'rows')\n %s\nend,\n"
                     "step = function() p = p - eps * g end }",
                     strstr(w->body, "L =") ? "L = zeros 'rows', " : "",
                     strstr(w->body, "X =") ? "X = eye(1, 'rows')" : "", w->body);
    Gen g = {0};
    compile(&g, text);
    expect(g.rule, text, w->line, w->part);
    gen_free(&g);
    arena_free(&a);
}
END_TEST

/* Whole specs. */
static const Warned specs[] = {
    {"return optimizer { name = 'x',\n step = function() end,\n matrix = function() p = p - g end "
     "}",
     2, "'step' never assigns p: tensors that are no matrices would never move"},
    {"return optimizer { name = 'x',\n step = rule 'sgd',\n matrix = function() p = p - g end }", 0,
     NULL},
    /* another entry assigns p: neither `step` nor `matrix` has to */
    {"return optimizer { name = 'x', state = { m = zeros },\n step = function() m = m + g end,\n"
     " matrix = function() m = m + 2 * g end,\n apply = function() p = p - m end }",
     0, NULL},
    /* a ring that one variant reads and does not push */
    {"return optimizer { name = 'x', state = { s = ring(2) },\n step = function() s:push(g) p = p "
     "- s[2] end,\n"
     " matrix = function()\n p = p - g - s[1] end }",
     4, "this reads the ring 's', and 'matrix' has no push"},
    {"return optimizer { name = 'x', state = { s = ring(2) },\n step = function()\n"
     "  if nrows > 5 then s:push(g) end\n p = p - g - s[1] end }",
     4, "this reads the ring 's', and 'step' has no push"},
    {"return optimizer { name = 'x', state = { s = ring(2) },\n step = function() p = p - s[1] "
     "s:push(g) end,\n"
     " matrix = function()\n p = p - g end }",
     0, NULL},
};

START_TEST(whole_specs)
{
    Gen g = {0};
    compile(&g, specs[_i].body);
    expect(g.rule, specs[_i].body, specs[_i].line, specs[_i].part);
    gen_free(&g);
}
END_TEST

START_TEST(library_has_none)
{
    for (const Embedded *e = embedded_specs; e->name; e++) {
        Gen g = {0};
        Source spec = {e->name, e->text, strlen(e->text)};
        bool wrapper = !strncmp(e->name, "wrappers/", 9);
        GenOptions o = {.with = wrapper ? e->name + 9 : NULL, .find = find_wrapper};
        if (wrapper)
            ck_assert(find_spec(NULL, "adamw", &g.arena, &spec, &g.diag));
        ck_assert_msg(gen_compile(&g, spec, &o), "%s: %s", e->name, g.diag.text);
        ck_assert_msg(!g.rule->nwarning, "%s: %s", e->name, g.rule->warning[0].text);
        gen_free(&g);
    }
}
END_TEST

Suite *warnings_suite(void)
{
    Suite *s = suite_create("warnings");
    TCase *t = tcase_create("warnings");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, matrix_bodies, 0, COUNT(bodies));
    tcase_add_loop_test(t, whole_specs, 0, COUNT(specs));
    tcase_add_test(t, library_has_none);
    suite_add_tcase(s, t);
    return s;
}

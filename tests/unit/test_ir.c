/* The text form of a rule, its verifier and constant folding.
 * Text: after each pass it reads back to the same rule, plan and source. Hostile text is refused
 * and never crashes.
 * Folding: a table of expressions and results; inexact folds must not happen. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "optc.h"

#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- compiling, with a pass's text ---- */
typedef struct { Gen g; bool ok; char *text; } Run;

static Run run(Source s, bool ir, const char *with, const char *options, const char *dump)
{
    Run r = {0};
    Buf b = {0};
    GenOptions o = {.with = with,
                    .options = options,
                    .find = find_wrapper,
                    .dump = dump,
                    .dump_to = dump ? &b : NULL};
    r.ok = ir ? gen_read_ir(&r.g, s, &o) : gen_compile(&r.g, s, &o);
    r.text = dump && r.ok ? buf_take(&b) : NULL;
    buf_free(&b);
    ck_assert_msg(r.ok || r.g.diag.text, "it failed without a message");
    return r;
}

static void done(Run *r)
{
    gen_free(&r->g);
    free(r->text);
}

static Source lib(Arena *a, const char *name)
{
    Source s;
    Diag d = {0};
    ck_assert_msg(find_spec(NULL, name, a, &s, &d), "%s", d.text);
    return s;
}

static Source of(const char *text) { return (Source){"made", text, strlen(text)}; }

/* ---- text that reads back ---- */
static char *source_of(Run *r, const char *what)
{
    char *c = gen_emit(&r->g, &(EmitOptions){.target = &target_c, .command = "test"}, &r->g.diag);
    ck_assert_msg(c != NULL, "%s: %s", what, r->g.diag.text);
    return c;
}

static void same(const char *what, const char *pass, const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] && a[i] == b[i])
        i++;
    ck_assert_msg(a[i] == b[i],
                  "%s: the text after %s differs once read back, at byte %zu:\n%.120s\n---\n%.120s",
                  what, pass, i, a + i, b + i);
}

static void round_trip(const char *what, Source s, const char *with, const char *options)
{
    static const char *const passes[] = {"trace", "fold"};
    Run plan = run(s, false, with, options, "plan");
    ck_assert_msg(plan.ok, "%s: %s", what, plan.g.diag.text);
    char *source = source_of(&plan, what);
    Run last = run(s, false, with, options, "fold");
    for (int k = 0; k < COUNT(passes); k++) {
        Run a = run(s, false, with, options, passes[k]);
        Run b = run(of(a.text), true, NULL, NULL, "trace");
        ck_assert_msg(b.ok, "%s, after %s: %s", what, passes[k], b.g.diag.text);
        same(what, passes[k], a.text, b.text);
        Run c = run(of(a.text), true, NULL, NULL, "fold");      /* folding twice changes nothing */
        same(what, k ? "folding twice" : "folding", last.text, c.text);
        Run d = run(of(a.text), true, NULL, NULL, "plan");
        same(what, "planning", plan.text, d.text);
        char *again = source_of(&d, what);
        same(what, "emitting", source, again);
        free(again);
        done(&a), done(&b), done(&c), done(&d);
    }
    free(source);
    done(&plan), done(&last);
}

static const char *const withs[] = {NULL,
                                    "clip(1)",
                                    "cautious,ema(0.999)",
                                    "lookahead(5,0.5),centralize",
                                    "sam(0.05)",
                                    "clip(1),skip",
                                    "clip_norm(1),clip_value(2),ema,ema(0.9),lookahead(3)"};

START_TEST(library_reads_back)
{
    const char *name = optc_library_name(_i);
    if (!strncmp(name, "wrappers/", 9) || thinned(_i))
        return;
    Arena arena = {0};
    /* the plain rule, and one of the compositions (OPTC_ALL: each) */
    int chosen = sample(name, COUNT(withs) - 1);
    for (int k = 0; k < COUNT(withs); k++) {
        if (k > 0 && chosen >= 0 && k != 1 + chosen)
            continue;
        char *what = arena_printf(&arena, "%s with %s", name, withs[k] ? withs[k] : "nothing");
        round_trip(what, lib(&arena, name), withs[k], NULL);
    }
    arena_free(&arena);
}
END_TEST

START_TEST(options_read_back)
{
    static const char *const given[][2] = {
        {"adamw", "amsgrad=true"},        {"sgd", "nesterov=true"},
        {"sgd", "momentum_buffer=false"}, {"adafactor", "momentum=true,relative_step=false"},
        {"rmsprop", "centered=true"},     {"nadam", "decoupled=true"}};
    Arena arena = {0};
    for (int i = 0; i < COUNT(given); i++)
        round_trip(given[i][1], lib(&arena, given[i][0]), NULL, given[i][1]);
    arena_free(&arena);
}
END_TEST

#define RULE(fields, step) \
    "return optimizer { name = \"x\", " fields " step = function() " step " end }"
#define LONG "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
static const char *const strange[] = {
    RULE("cite = \"a \\\"quoted\\\" \\\\ back\\nslash\\ttab\\r\",", "p = p - g"),
    RULE("doc = \"" LONG LONG LONG LONG LONG LONG "\",", "p = p - g"),
    RULE("options = { o = \"" LONG LONG LONG LONG LONG LONG "\" },", "p = p - g"),
    RULE("options = { o = \"\" },", "p = p - g"),
    RULE("", "local " LONG " = g * 2 p = p - " LONG),
    RULE("", "p = p * lerp(inf, inf, 0.5) + where(lt(g, 0), 0 / 0, 1)"),
    RULE("", "p = p * (0 / 0) + g * (-(0 / 0))"),
    RULE("", "p = p * -0.0 + g * 0.0 - p * 5e-324 + g * 1.7976931348623157e308 - p * inf + g * "
             "-inf + p * 0.1"),
    RULE("hyper = { a = { 1, above = 0, below = 3 }, b = { -0.0, min = -inf }, c = 1e-320 },",
         "p = p * a + b - c"),
    RULE("hyper = { lr = 1 },", "p = p + random() - normal() + random \"tensor\" * normal \"row\" "
                                "+ lr * random \"col\" + normal \"slice\""),
    RULE("inputs = { h = \"elem\", r = \"row\", c = \"col\", s = \"tensor\", u = \"group\" },",
         "p = p + h * r + c * s + u"),
    RULE("state = { a = zeros(\"elem\", \"bf16\"), b = fill(-2.5, \"row\"), c = copy(p), d = zeros "
         "\"group\", e = "
         "fill(1, \"slice\") },",
         "a = g b = rowmax(g) c = c + p d = d + 1 e = slice.norm(g) p = p - a * b + c * d / e"),
    RULE(
        "state = { q = normal(), r = normal \"row\", s = normal(\"tensor\", { type = \"f32\" }) },",
        "q = q * g p = p - q * r + s * random()"),
    RULE("state = { s = ring(3), r = ring(2, \"tensor\") },",
         "s:push(g) r:push(sum(g)) p = p - s[3] * r[2]"),
    RULE("", "every(2, function() p = p - g end) every(3, function() p = p * g end)"),
    RULE("", "every(2, { offset = 1 }, function() p = p - g end) every(300, { offset = 299 }, "
             "function() p = p * g "
             "end)"),
    RULE("hyper = { d0 = 0.5 }, state = { m = fill(d0), n = fill(d0, \"group\") },",
         "m = m * g n = n + 1 p = p - m * n"),
    RULE("state = { m = zeros(\"elem\", \"bf16\"), n = zeros },",
         "m = m + g p = p - m n = stored \"m\" * stored \"p\""),
    RULE("state = { m = zeros },", "when(lt(sum(g), 1), function() m = g p = p - m end)"),
    RULE("",
         "p = where(either(isnan(g), isnt(both(isfinite(p), lt(g, p)))), p, atan2(g, cbrt(p)))"),
    RULE("",
         "p = p / numel + g / nrows - rowmean(g) * ncols + global.mean(rowsum(g)) + global.rms(g)"),
    RULE("", "p = true and 1 or 2"),
    RULE("matrix = function() p = p - rowsum(g) * global.max(g) end, view = \"last\",",
         "p = p - g * global.max(p * g)"),
    RULE("extra = function() p = p + 1 end, other = function() end,", "p = p - g"),
    RULE("", "p = 0"),
    RULE("matrix = function() p = p - (divisible(nrows, 64) and 1 or 2) end, view = \"last\",",
         "p = p - (dims(1) and 1 or 2) * g"),
    RULE("rank = { share = 0.3, of = \"rows\" }, matrix = function() local i = topk(rowsum(g)) p = "
         "put(p, i, g) - "
         "put(0, i, tanh(mm(normal \"rank\", take(g, i)))) end,",
         "p = p - g"),
    RULE("up = function() p = p + g end, gradients = { { \"up\", every = 7, offset = 3 }, \"step\" "
         "},",
         "p = p - g"),
};

START_TEST(strange_reads_back) { round_trip(strange[_i], of(strange[_i]), NULL, NULL); }
END_TEST

/* In a German locale printf writes 0,5; compiled code must not. Runs if such a locale is
 * installed. */
START_TEST(decimal_comma)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE",
                                        "fr_FR",       "ru_RU.UTF-8", "pt_BR.UTF-8"};
    Source s = of(RULE("hyper = { lr = { 0.25, max = 1.5 } }, state = { m = fill(0.5) },",
                       "m = m * 0.75 + g p = p - lr * m"));
    Run a = run(s, false, NULL, NULL, "all");
    char *want = source_of(&a, "at home");
    for (int i = 0; i < COUNT(names); i++) {
        if (!setlocale(LC_ALL, names[i]))
            continue;
        Run b = run(s, false, NULL, NULL, "all");
        ck_assert_msg(b.ok, "%s", b.g.diag.text);
        same(names[i], "all passes", a.text, b.text);
        char *got = source_of(&b, names[i]);
        same(names[i], "emitting", want, got);
        free(got);
        done(&b);
    }
    setlocale(LC_ALL, "C");
    free(want);
    done(&a);
}
END_TEST

/* ---- text that is refused ---- */
#define HEAD "optc-ir 2\nrule x\nvariant step\nhyper lr 0.1 [0 inf]\ninput h elem\n" \
    "state m elem any 0 @0:0\nstate s tensor any 0 @0:0\nnodes\n"
/* 5 nodes on lines 8 to 12 */
#define LEAVES \
    "  %0 = p elem\n  %1 = g elem\n  %2 = hyper group lr\n  %3 = lt elem:bool %0 %1\n  %4 = sum " \
    "tensor %0 from elem\n"
#define TAIL "entry step\n  step p = %0\nend\n"
#define NODE(text) HEAD LEAVES "  " text "\n" TAIL
#define WRITE(text) HEAD LEAVES "entry step\n  " text "\nend\n"
#define DECL(text) \
    "optc-ir 2\nrule x\nvariant step\nhyper lr 0.1 [0 inf]\n" text \
    "\nnodes\n  %0 = p elem\nentry step\n  step p = %0\nend\n"
typedef struct { const char *text, *part; } Hostile;
static const Hostile hostile[] = {
    {"", "optc-ir 2"},
    {"optc-ir 9\nrule x\n", "optc-ir 2"},
    {"return optimizer {}", "optc-ir 2"},
    {"optc-ir 2\n", "'end'"},
    {"optc-ir 2\nend\n", "a rule with a name"},
    {"optc-ir 2\nrule x\nvariant step\nend\n", "and an entry"},
    {"optc-ir 2\nrule 9x\nend\n", "a name"},
    {"optc-ir 2\nrule x.y\nvariant step\nnodes\n  %0 = p elem\nentry step\n  step p = %0\nend\n",
     "a name"},
    {HEAD LEAVES "entry step\n  step p = %0\n", "end"},
    {HEAD LEAVES "entry", ""},
    {HEAD LEAVES "entry\nend\n", "a name"},
    {"optc-ir 2\nrule x\nvariant step\nfrob\nend\n", "expected rule"},
    {DECL("hyper a"), "a number"},
    {DECL("hyper a 1"), "a range"},
    {DECL("hyper a 1 [0"), "end of a range"},
    {DECL("hyper a 1 0 1"), "a range"},
    {DECL("hyper a 1 [0 1] 2"), "end of the line"},
    {DECL("hyper a/b 1 [0 1]"), "a name"},
    {DECL("state m"), "a domain"},
    {DECL("state m elem f99 0"), "a storage type"},
    {DECL("state m elem any zero"), "normal, kernel or a number"},
    {DECL("state m tensor f64 kernel"), "optc-ir 3"},
    {DECL("state m elem any 0 ring 1 0"), "'optc-ir 3'"},
    {DECL("variant step !matrix_or_vector"), "'optc-ir 4'"},
    {DECL("hyper seed 0 [0 1]\nstate m elem any normal"), "'optc-ir 3'"},
    {DECL("state m elem any 0 @7:1"), "a place"},
    {DECL("state m elem any =beta"), "a hyperparameter"},
    {DECL("input h"), "a domain"},
    {DECL("input h tens"), "a domain"},
    {DECL("option"), "a name"},
    {DECL("hyper ._FILE__ 1 [0 1]"), "a name"},
    {DECL("state a..b elem any 0"), "a name"},
    {DECL("input h. elem"), "a name"},
    {DECL("option 9.x \"1\""), "a name"},
    {DECL("hyper aaaaaaaaaabbbbbbbbbbccccccccccdddddddddde 1 [0 1]"), "a name"},
    {DECL("state m row any copy"), "copy of p"},
    {DECL("state m group any copy"), "copy of p"},
    {NODE("%5 = neg elem %0 in 0"), "the number of an entry"},
    {NODE("%5 = neg elem %0 in 64"), "the number of an entry"},
    {NODE("%5 = const const 1 in 1"), "the number of an entry"},
    {DECL("hyper lr 0.2 [0 1]"), ""},
    {DECL("state m const any 0"), ""},
    {DECL("input h const"), ""},
    {DECL("input h slice"), ""},
    {DECL("state m elem any 0\nstate m elem any 0"), ""},
    {NODE("%5 = frob elem %0"), "an operation"},
    {NODE("%5 = neg planet %0"), "a domain"},
    {NODE("%5 = neg elem %5"), "an earlier node"},
    {NODE("%5 = neg elem %6"), "an earlier node"},
    {NODE("%5 = neg elem %-1"), "an earlier node"},
    {NODE("%5 = neg elem %99999999999999999999"), "an earlier node"},
    {NODE("%5 = neg elem %"), "an earlier node"},
    {NODE("%5 = neg elem 0"), "place"},
    {NODE("%5 = neg elem %0x"), "an earlier node"},
    {NODE("%6 = neg elem %0"), "%5"},
    {NODE("%5 neg elem %0"), "="},
    {NODE("%5 ="), "an operation"},
    {NODE("%5 = neg elem %0 extra"), ""},
    {NODE("%5 = neg elem %0 'a-b"), "an identifier"},
    {NODE("%5 = neg elem %0 @x:1"), "a place"},
    {NODE("%5 = neg elem %0 @9:1"), "a place"},
    {NODE("%5 = stored elem %0 v"), "p or a state"},
    {NODE("%5 = stored elem %0 s"), "its domain"},
    {NODE("%5 = stored elem %0"), "p or a state"},
    {NODE("%5 = p elem"), "differs"},
    {NODE("%5 = const const"), "a number"},
    {NODE("%5 = const const one"), "a number"},
    {NODE("%5 = hyper group rate"), "a hyperparameter"},
    {NODE("%5 = state elem v"), "a state"},
    {NODE("%5 = input elem z"), "an input"},
    {NODE("%5 = count tensor cell"), "a domain"},
    {NODE("%5 = random elem rate 0"), "the seed"},
    {NODE("%5 = random elem lr x"), "a number"},
    {NODE("%5 = sum tensor %0"), "from"},
    {NODE("%5 = sum tensor %0 from where"), "a domain"},
    {NODE("%5 = add elem %0"), "missing"},
    {NODE("%5 = add elem"), "missing"},
    {NODE("%5 = neg elem %0 %1"), "too many"},
    {NODE("%5 = add elem %0 %1 %2"), "too many"},
    {NODE("%5 = input elem %0 h"), "too many"},
    {NODE("%5 = fma elem %0 %0 %0 %0"), ""},
    {NODE("%5 = sum tensor %0 %1 from elem"), "too many"},
    {NODE("%5 = where elem %3 %0"), "missing"},
    {NODE("%5 = add elem %3 %0"), "wrong type"},
    {NODE("%5 = where elem %0 %0 %1"), "wrong type"},
    {NODE("%5 = both elem:bool %0 %3"), "wrong type"},
    {NODE("%5 = sum row %3 from elem"), "wrong type"},
    {NODE("%5 = lt elem %1 %0"), "does not fit"},
    {NODE("%5 = add elem:bool %0 %1"), "does not fit"},
    {NODE("%5 = isnt elem %3"), "does not fit"},
    {NODE("%5 = every group 5"), "does not fit"},
    {NODE("%5 = add tensor %0 %1"), "below an operand's"},
    {NODE("%5 = add group %4 %2"), "below an operand's"},
    {NODE("%5 = mul const %2 %2"), "below an operand's"},
    {NODE("%5 = add row %0 %1"), "below an operand's"},
    {NODE("%5 = sum elem %1 from elem"), "not below"},
    {NODE("%5 = sum row %4 from tensor"), "not below"},
    {NODE("%5 = sum tensor %2 from group"), "not below"},
    {NODE("%5 = sum group %0 from elem"), "not below"},
    {NODE("%5 = sum tensor %1 from row"), "not below"},
    {NODE("%5 = gsum group %0 from elem"), "per tensor"},
    {NODE("%5 = gsum tensor %4 from tensor"), "not below"},
    {NODE("%5 = gsum group from tensor"), "missing"},
    {NODE("%5 = gsum group %2 from group"), ""},
    {NODE("%5 = state tensor m"), "state's"},
    {NODE("%5 = input tensor h"), ""},
    {NODE("%5 = every group:bool 5 5"), "below its period"},
    {NODE("%5 = every group:bool 5 1x"), "an offset"},
    {NODE("%5 = every group:bool 5 4294967297"), ""},
    {NODE("%5 = every group:bool 0"), "whole number"},
    {NODE("%5 = every group:bool 2.5"), "whole number"},
    {NODE("%5 = every group:bool nan"), "whole number"},
    {NODE("%5 = every group:bool 1e300"), ""},
    {NODE("%5 = every group:bool inf"), ""},
    {NODE("%5 = every elem:bool 2"), ""},
    {NODE("%5 = random elem lr 1e300"), ""},
    {NODE("%5 = random elem lr -1"), ""},
    {NODE("%5 = random group lr 0"), ""},
    {NODE("%5 = count row tensor"), ""},
    {NODE("%5 = count elem elem"), ""},
    {NODE("%5 = p tensor"), ""},
    {NODE("%5 = g row"), ""},
    {NODE("%5 = step elem"), ""},
    {NODE("%5 = hyper elem lr"), ""},
    {NODE("%5 = const elem 1"), ""},
    {WRITE("step v = %0"), "p or a state"},
    {WRITE("step p %0"), "="},
    {WRITE("step p = %9"), "an earlier node"},
    {WRITE("step p = 0"), "an earlier node"},
    {WRITE("leap p = %0"), "expected rule"},
    {WRITE("step p = %3"), "does not fit"},
    {WRITE("step s = %0"), "does not fit"},
    {WRITE("step p = %0\n  step p = %1"), ""},
    {WRITE("step m = %0\n  step m = %1"), ""},
    {WRITE("matrix p = %1"), ""},
    {WRITE("step p = %1\nentry step\n  step p = %1"), ""},
    {WRITE("step p = %1\nentry a.b\n  step p = %1"), ""},
};

START_TEST(hostile_refused)
{
    const Hostile *h = &hostile[_i];
    Run r = run(of(h->text), true, NULL, NULL, NULL);
    const char *at = strstr(h->text, "%5") ? strstr(h->text, "%5") : h->text;
    ck_assert_msg(!r.ok, "this was accepted: %.200s", at);
    ck_assert_msg(strstr(r.g.diag.text, h->part) != NULL, "'%s' is not in: %s", h->part,
                  r.g.diag.text);
    done(&r);
}
END_TEST

/* A rule with some of everything, for damaging. */
static const char *const rich = RULE("hyper = { lr = { 0.1, min = 0 } }, options = { k = 5 }, "
                                     "inputs = { h = \"elem\" }, view = \"last\", cite = "
                                     "\"a b\", "
                                     "state = { m = zeros, v = fill(1, \"row\"), c = zeros "
                                     "\"col\", n = zeros \"group\", z = copy(p) }, "
                                     "matrix = function() v = rowmean(g * g) c = colmax(g) n = n + "
                                     "global.norm(g) p = p - lr * g * v * c * h end,",
                                     "n = n + global.norm(g) local u = where(lt(g, 0), random() * "
                                     "g, normal \"tensor\") m = lerp(m, u, 0.5) * "
                                     "slice.sum(g) every(k, function() z = lerp(z, p, 0.5) end) "
                                     "p = p - lr * m / (sqrt(abs(m)) + exp(z)) ^ t * sum(m)");

START_TEST(cut_short)
{
    Run a = run(of(rich), false, NULL, NULL, "trace");
    ck_assert_msg(a.ok, "%s", a.g.diag.text);
    size_t whole = strlen(a.text);
    for (size_t n = 0; n < whole; n++) {
        if (n && a.text[n - 1] != '\n' && n % 7)
            continue;
        Run r = run((Source){"cut", a.text, n}, true, NULL, NULL, NULL);
        ck_assert_msg(!r.ok || n + 1 >= whole, "cut after %zu of %zu bytes, it was accepted", n,
                      whole);
        done(&r);
    }
    done(&a);
}
END_TEST

/* Another word of the same kind, so that the result is often well formed. */
static void other_word(Buf *b, const char *w, size_t n, uint64_t y)
{
    static const char *const number[] = {"0",   "1",   "-1",   "2",     "3",      "0.5",       "-0",
                                         "nan", "inf", "-inf", "1e300", "5e-324", "4294967296"};
    static const char *const any[] = {
        "matrix", "step", "from", "first", "last",  "copy",  "p", "m",   "v",    "n",     "z", "h",
        "lr",     "\"",   "@0:1", "end",   "entry", "nodes", "=", "any", "bf16", ":bool", "'u"};
    char word[64], *e;
    snprintf(word, sizeof word, "%.*s", (int)n, w);
    strtod(word, &e);
    if (dom_by_name(word) >= 0 && y % 8)
        buf_puts(b, dom_info[y / 8 % NDOM].name);
    else if (op_by_name(word) >= 0 && y % 8)
        buf_puts(b, op_info[y / 8 % NOPS].name);
    else if (*word == '%' && y % 8)
        buf_printf(b, "%%%d", (int)(y / 8 % (uint64_t)(atoi(word + 1) + 1)));
    else if (e != word)
        buf_puts(b, number[y / 8 % COUNT(number)]);
    else
        buf_puts(b, any[y / 8 % COUNT(any)]);
}

/* Copies text with one to three bytes, words or lines changed. */
static char *bend(const char *text, uint64_t seed)
{
    enum { BYTES, LINES, WORDS };
    Buf b = {0};
    uint64_t x = splitmix(seed), kind = x % 8 < 2 ? x % 8 : WORDS, much = 1 + x / 8 % 3, unit = 0;
    const char *stop = kind == LINES ? "\n" : " \n";
    /* counts first, then chooses */
    for (int count = 1; count >= 0; count--) {
        uint64_t total = unit, at = 0;
        for (const char *s = text; *s; at++) {
            size_t n = kind == BYTES ? 1 : strcspn(s, stop),
                   rest = kind == BYTES ? 0 : strspn(s + n, stop);
            bool hit = false;
            for (uint64_t k = 0; !count && k < much; k++)
                hit = hit || splitmix(x + k) % total == at;
            uint64_t y = splitmix(x ^ at);
            if (hit && kind == BYTES)
                buf_add(&b, y % 4 ? &text[y / 4 % total] : (char[]){(char)(y / 4 % 255 + 1)}, 1);
            else if (hit && kind == WORDS)
                other_word(&b, s, n, y);
            else if (!count)
                /* a chosen line is dropped or doubled */
                for (uint64_t k = hit ? y % 3 : 1; k > 0; k--)
                    buf_add(&b, s, n), buf_puts(&b, k > 1 ? "\n" : "");
            if (!count)
                buf_add(&b, s + n, rest);
            s += n + rest;
        }
        unit = at;
    }
    return buf_take(&b);
}

START_TEST(bent)
{
    enum { EACH = 1000 };
    const int each = thinned(1) ? EACH / 4 : EACH;
    Run a = run(of(rich), false, NULL, NULL, _i % 2 ? "fold" : "trace");
    int fine = 0;
    for (int k = 0; k < each; k++) {
        char *text = bend(a.text, (uint64_t)(_i * EACH + k));
        Run r = run(of(text), true, NULL, NULL, "plan");
        if (r.ok) {
            char *c =
                gen_emit(&r.g, &(EmitOptions){.target = &target_c, .command = "test"}, &r.g.diag);
            ck_assert_msg(c != NULL, "seed %d: %s", _i * EACH + k, r.g.diag.text);
            free(c);
            fine++;
        }
        done(&r);
        free(text);
    }
    ck_assert_msg(fine > each / 20 && fine < each,
                  "%d of %d were accepted: too few to try the passes, or too many", fine, each);
    done(&a);
}
END_TEST

START_TEST(long_chain)           /* more values than a spec may have: refused, without deep
                                  * recursion */
{
    Buf b = {0};
    enum { N = 300000 };
    buf_puts(&b, "optc-ir 2\nrule x\nvariant step\nnodes\n  %0 = p elem\n  %1 = g elem\n");
    for (int i = 2; i < N; i++)
        buf_printf(&b, "  %%%d = add elem %%%d %%1\n", i, i - 1);
    buf_printf(&b, "entry step\n  step p = %%%d\nend\n", N - 1);
    Run r = run((Source){"chain", b.s, b.len}, true, NULL, NULL, NULL);
    ck_assert(!r.ok);
    done(&r);
    buf_free(&b);
}
END_TEST

/* ---- folding ---- */
static void show(Buf *b, const Rule *r, Ref i)
{
    const Node *n = &r->g.n[i];
    switch (n->op) {
    case OP_CONST:
        n->ty == BOOL ? buf_puts(b, n->imm != 0 ? "true" : "false") : buf_double(b, n->imm);
        return;
    case OP_HYPER: buf_puts(b, r->hyper[n->sym].name); return;
    case OP_STATE: buf_puts(b, r->state[n->sym].name); return;
    default: buf_puts(b, op_info[n->op].name);
    }
    for (int k = 0; k < n->nargs; k++) {
        buf_puts(b, k ? ", " : "(");
        show(b, r, n->arg[k]);
    }
    buf_puts(b, op_info[n->op].arity ? ")" : "");
}

static const char *const folds[][2] = {
    /* exact, so they are folded */
    {"g * 1", "g"},
    {"1 * g", "g"},
    {"g / 1", "g"},
    {"g * -1", "neg(g)"},
    {"-1 * g", "neg(g)"},
    {"g / -1", "neg(g)"},
    {"g / 4", "mul(g, 0.25)"},
    {"g / 0.5", "mul(g, 2)"},
    {"g / -8", "mul(g, -0.125)"},
    {"p + -g", "sub(p, g)"},
    {"-g + p", "sub(p, g)"},
    {"p - (-g)", "add(p, g)"},
    {"-(-g)", "g"},
    {"-(-(-g))", "neg(g)"},
    {"g - 0", "g"},
    {"g + (-0.0)", "g"},
    {"abs(abs(g))", "abs(g)"},
    {"abs(-g)", "abs(g)"},
    {"min(g, g)", "g"},
    {"max(g, g)", "g"},
    {"min(g, g, g)", "g"},
    {"where(true, g, p)", "g"},
    {"where(false, g, p)", "p"},
    {"where(lt(g, 0), g, g)", "g"},
    {"where(isnt(lt(g, 0)), p, g)", "where(lt(g, 0), g, p)"},
    {"where(isnt(isnt(lt(g, 0))), p, g)", "where(lt(g, 0), p, g)"},
    {"where(both(lt(g, 0), lt(g, 0)), p, g)", "where(lt(g, 0), p, g)"},
    {"where(either(lt(g, 0), lt(g, 0)), p, g)", "where(lt(g, 0), p, g)"},
    {"where(lt(1, 2), g, p)", "g"},
    {"g * lerp(1, 2, 0.5)", "mul(g, 1.5)"},
    {"g * clamp(5, 0, 1)", "g"},
    {"g * lerp(1, 1, lr)", "mul(g, add(1, mul(lr, 0)))"},
    {"g * 1 / 1 - 0", "g"},
    {"(g * 1) * (p / 1)", "mul(g, p)"},
    {"(-g) * -1", "g"},
    {"-(g * -1)", "g"},
    {"p + g * -1", "sub(p, g)"},
    {"p - g / -1", "add(p, g)"},
    {"abs(g * -1)", "abs(g)"},
    {"(g / 4) / 2", "mul(mul(g, 0.25), 0.5)"},
    /* not exact for every operand (signs of zero, infinities, NaN, rounding), so not folded */
    {"g * 0", "mul(g, 0)"},
    {"0 * g", "mul(0, g)"},
    {"g / 3", "div(g, 3)"},
    {"g - g", "sub(g, g)"},
    {"g + 0", "add(g, 0)"},
    {"0 + g", "add(0, g)"},
    {"0 - g", "sub(0, g)"},
    {"g - (-0.0)", "sub(g, -0)"},
    {"(p + g) - g", "sub(add(p, g), g)"},
    {"2 * (g / 2)", "mul(2, mul(g, 0.5))"},
    {"2 * (3 * g)", "mul(2, mul(3, g))"},
    {"g / g", "div(g, g)"},
    {"g * p / p", "div(mul(g, p), p)"},
    {"sqrt(g * g)", "sqrt(mul(g, g))"},
    {"g * lr + p * lr", "add(mul(g, lr), mul(p, lr))"},
    {"exp(log(g))", "exp(log(g))"},
    {"p + g + lr", "add(add(p, g), lr)"},
    {"p + (g + lr)", "add(p, add(g, lr))"},
    {"g / lr / lr", "div(div(g, lr), lr)"},
    {"-(p - g)", "neg(sub(p, g))"},
    {"g / 2 ^ 127", "div(g, 1.7014118346046923e+38)"},
    {"min(p, g)", "min(p, g)"},
    {"min(g, max(g, p))", "min(g, max(g, p))"},
    {"where(lt(g, g), p, g)", "where(lt(g, g), p, g)"},
    {"where(eq(g, g), p, g)", "where(eq(g, g), p, g)"},
    {"g / 0", "div(g, 0)"},
    {"fma(g, 1, p)", "fma(g, 1, p)"},
    {"g / 0.1", "div(g, 0.1)"},
    {"(g * 3) / 3", "div(mul(g, 3), 3)"},
    {"sign(-g)", "sign(neg(g))"},
    /* reductions keep the number of values they run over */
    {"g * sum(where(true, lr, g))", "mul(g, sum(copy(lr)))"},
    {"g * sum(where(true, 3, g))", "mul(g, sum(copy(3)))"},
    {"g * rowsum(where(false, g, lr))", "mul(g, sum(copy(lr)))"},
    {"g * max(where(true, 2, g))", "mul(g, rmax(copy(2)))"},
    {"g * global.sum(where(true, lr, sum(g)))", "mul(g, gsum(copy(lr)))"},
    {"g * sum(g * 1)", "mul(g, sum(g))"},
};

static Run folded(const char *expr)
{
    char *text = NULL;
    ck_assert(asprintf(&text, RULE("hyper = { lr = 0.1 },", "p = %s"), expr) > 0);
    Run r = run(of(text), false, NULL, NULL, "fold");
    ck_assert_msg(r.ok, "%s: %s", expr, r.g.diag.text);
    free(text);
    return r;
}

START_TEST(folding)
{
    Run r = folded(folds[_i][0]);
    const Rule *rule = r.g.rule;
    Buf b = {0};
    if (rule->entry[0].body[0].n)
        show(&b, rule, rule->entry[0].body[0].w[0].val);
    else
        buf_puts(&b, "p");
    ck_assert_msg(!strcmp(b.s, folds[_i][1]), "%s became %s, not %s", folds[_i][0], b.s,
                  folds[_i][1]);
    for (Ref i = 0; i < rule->g.len; i++)
        if (is_red(&rule->g.n[i]))
            ck_assert_msg(rule->g.n[rule->g.n[i].arg[0]].dom == rule->g.n[i].from,
                          "%s: a reduction lost its operand's domain", folds[_i][0]);
    buf_free(&b);
    done(&r);
}
END_TEST

START_TEST(one_of_each)           /* equal values are one node; unused values are removed */
{
    static const struct { const char *expr; int nodes;
    } made[] = {{"(g * g) + (g * g)", 3},
                {"sqrt(g * g) + sqrt(g * g) * sqrt(g * g)", 5},
                {"sum(g) * g + sum(g)", 4},
                {"g * lr - lr * g", 5},
                {"g + where(true, p, exp(log(g)) * random())", 3},
                {"g * 1 + g * 1", 2},
                {"(function() local dead = exp(g) * sum(p) return g + p end)()", 3},
                {"where(lt(g, 0), g + 1, g + 1)", 3}};
    for (int i = 0; i < COUNT(made); i++) {
        Run r = folded(made[i].expr);
        ck_assert_msg(r.g.rule->g.len == made[i].nodes, "%s has %d nodes, not %d:\n%s",
                      made[i].expr, r.g.rule->g.len, made[i].nodes, r.text);
        done(&r);
    }
}
END_TEST

Suite *ir_suite(void)
{
    Suite *s = suite_create("ir");
    TCase *t = tcase_create("text"), *f = tcase_create("fold");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, library_reads_back, 0, optc_library_size());
    tcase_add_test(t, options_read_back);
    tcase_add_loop_test(t, strange_reads_back, 0, COUNT(strange));
    tcase_add_test(t, decimal_comma);
    tcase_add_loop_test(t, hostile_refused, 0, COUNT(hostile));
    tcase_add_test(t, cut_short);
    tcase_add_loop_test(t, bent, 0, 6);
    tcase_add_test(t, long_chain);
    tcase_add_loop_test(f, folding, 0, COUNT(folds));
    tcase_add_test(f, one_of_each);
    suite_add_tcase(s, t);
    suite_add_tcase(s, f);
    return s;
}

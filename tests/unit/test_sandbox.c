/* The sandbox: every escape that a Lua text could try. None may succeed, crash, hang or exhaust
 * memory, and nothing that differs between runs (addresses, hash seeds, the order of tables) may
 * affect the compiled code. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* CPU seconds after which a test counts as hanging. The limits of a spec count work. */
static const double slowest = 30;
#if defined(OPTC_SANITIZED)
static const bool bound_memory = false;            /* the sanitizer reserves terabytes */
#else
static const bool bound_memory = true;
#endif

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- compiling texts ---- */
/* took: CPU seconds, which do not depend on other processes */
typedef struct { Gen g; bool ok; double took; } Run;

static Run compile_with(const char *text, const char *with)
{
    Run r = {0};
    struct timespec a, b;
    GenOptions o = {.with = with, .find = find_wrapper};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    r.ok = gen_compile(&r.g, (Source){"try.lua", text, strlen(text)}, &o);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    r.took = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    ck_assert_msg(r.ok || r.g.diag.text, "it failed without a message: %.300s", text);
    return r;
}

static Run compile(const char *text) { return compile_with(text, NULL); }

/* A spec that runs `file` when it is read and `step` when it is traced. */
static char *spec(const char *file, const char *step)
{
    return format("%s\nreturn optimizer { name = \"try\", step = function()\n%s\np = p - g end }\n",
                  file, step);
}

static void refused(char *text, const char *part)
{
    Run r = compile(text);
    ck_assert_msg(!r.ok, "this was accepted:\n%.400s", text);
    ck_assert_msg(strstr(r.g.diag.text, part) != NULL, "'%s' is not in: %s", part, r.g.diag.text);
    gen_free(&r.g);
    free(text);
}

/* ---- names ---- */
static const char *const forbidden[] = {
    "io",         "os",           "package",      "require",        "debug",     "load",
    "loadstring", "loadfile",     "dofile",       "collectgarbage", "coroutine", "pcall",
    "xpcall",     "setmetatable", "getmetatable", "rawget",         "rawset",    "rawequal",
    "rawlen",     "_G",           "_VERSION",     "print",          "warn",      "next",
    "pairs",      "table",        "string",       "utf8",           "unpack",    "arg",
    "getfenv",    "setfenv",      "module",       "newproxy",       "ffi",       "jit",
    "bit32",      "self"};

START_TEST(names)
{
    if (thinned(_i))
        return;
    static const struct { const char *before, *after; bool in_step; const char *why;
    } use[] = {{"local x = ", "", false, "not declared"},
               {"local x = ", "", true, "not declared"},
               {"local x = _ENV.", "", false, "not declared"},
               {"local x = _ENV[\"", "\"]", true, "not declared"},
               {"", " = nil", true, "not declared"},
               {"", " = sqrt", false, "assigned outside an entry"},
               {"", "(\"return 1\")", true, "not declared"}};
    for (int i = 0; i < COUNT(use); i++) {
        char *text = format("%s%s%s", use[i].before, forbidden[_i], use[i].after);
        refused(use[i].in_step ? spec("", text) : spec(text, ""), use[i].why);
        free(text);
    }
}
END_TEST

/* The parts of Lua that specs may use work; everything else of `math` is nil. */
START_TEST(what_there_is)
{
    Run r = compile(
        "assert(math.random == nil and math.randomseed == nil and math.ult == nil and math.type == "
        "nil)\n"
        "assert(math.floor(2.5) == 2 and type(sqrt) == \"function\" and select(\"#\", 1, 2) == 2)\n"
        "for i, v in ipairs({ 1, 2 }) do assert(v == i) end assert(tonumber(\"12\") == 12 and "
        "tostring(7) "
        "== \"7\")\n"
        "return optimizer { name = \"x\", step = function() p = p - g end }");
    ck_assert_msg(r.ok, "%s", r.g.diag.text);
    gen_free(&r.g);
}
END_TEST

/* ---- texts that try to get out ---- */
typedef struct { const char *file, *step, *part; } Try;
static const Try tries[] = {
    {"local s = (\"x\"):rep(10)", "", "index a string value"},
    {"", "local s = (\"%d\"):format(1)", "index a string value"},
    {"local s = (\"x\").len", "", "index a string value"},
    {"local s = \"10\" + 1", "", "arithmetic on a string"},
    {"local s = #\"abc\" .. g", "", "not declared"},
    {"", "g.__index = g", "no fields"},
    {"", "local x = g.__metatable", "no fields"},
    {"", "p.__gc = function() end", "no fields"},
    {"zeros.__call = nil", "", "index a"},
    {"local x = zeros.value", "", "index a"},
    {"local x = sqrt.x", "", "index a function"},
    {"local x = p.x", "", "index a"},
    {"p()", "", "call a"},
    {"local x <close> = {}", "", "non-closable"},
    {"", "local x <close> = g", "non-closable"},
    {"for k, v in _ENV do end", "", "call a table"},
    {"for k, v in nil, _ENV do end", "", "call a nil"},
    {"for k in ipairs(_ENV) do end", "", "not declared"},
    {"local n = #_ENV + 1 _ENV[n] = 1", "", "assigned outside"},
    {"local x = _ENV[1]", "", "is not declared"},
    {"local x = _ENV[{}]", "", "a name was expected"},
    {"local x = _ENV[nil]", "", "a name was expected"},
    {"local x = _ENV[true]", "", "a name was expected"},
    {"_ENV[{}] = 1", "", "a name was expected"},
    {"_ENV[0/0] = 1", "", "assigned outside"},
    {"", "_ENV[g] = 1", "a name was expected"},
    {"", "_ENV[nil] = 1", "a name was expected"},
    {"_ENV = nil local x = sqrt", "", "index a nil"},
    {"_ENV = 3 x = 1", "", "index a number"},
    {"_ENV = {} local f = io.open", "", "index a nil"},
    {"local _ENV <const> = {} io.write()", "", "index a nil"},
    {"local function f(_ENV) return os.time() end f({})", "", "index a nil"},
    {"", "local _ENV = { g = g } local t = sqrt(g)", "call a nil"},
    {"error(_ENV)", "", "error() called by the spec"},
    {"error(nil, 2)", "", "error() called by the spec"},
    {"error({ code = 1 })", "", "error() called by the spec"},
    {"goto out", "", "no visible label"},
    {"", "math.floor(g)", "plain numbers"},
    {"select(0)", "", "out of range"},
    {"select(-5, 1)", "", "out of range"},
    {"select(1e300)", "", "representation"},
    {"tonumber({}, 10)", "", "string expected"},
    {"tonumber(\"7\", 99)", "", "base out of range"},
    {"math.tointeger()", "", "value expected"},
    {"local x = 1 // 0", "", "divide by zero"},
    {"local x = 1 % 0", "", "attempt to perform"},
    {"local x = math.mininteger // -1 + {}", "", "arithmetic on a table"},
    {"local x = 1 << g", "", "not declared"},
    {"inner()", "", "not declared"},
    {"every(2, function() end)", "", "not declared"},
};

START_TEST(ways_out) { refused(spec(tries[_i].file, tries[_i].step), tries[_i].part); }
END_TEST

/* Unusual, but allowed or refused: it only has to return soon. */
static const char *const odd[] = {
    "local r = random()",
    "local r = random \"row\"",
    "local r = normal \"slice\"",
    "local r = rowsum(random())",
    "local r = slice.sum(random())",
    "local r = global.sum(random())",
    "local r = where(true, 1, 2)",
    "local r = rsqrt(2) ^ 3",
    "local r = sum(normal())",
    "local r = sigmoid(1)",
    "global.norm = nil slice.sum = 1 math.floor = 2",
    "_ENV = { optimizer = optimizer }",
    "optimizer(_ENV)",
    "return optimizer(_ENV)",
    "return wrapper(_ENV)",
    "local t = {} t[t] = t",
    "local t = { [1.5] = 1, [true] = 2 }",
    "local s = \"\\0\\255\"",
    "local a <const> = 1",
    "return optimizer {}",
    "return wrapper { name = \"w\", step = function() end }",
    "return optimizer { name = \"x\", step = function(...) p = select(\"#\", ...) end }",
    "local o o = optimizer { name = \"x\", step = function() o.step = nil o.matrix = sqrt p = p - "
    "g end } return o",
    "local o o = optimizer { name = \"x\", step = function() o.hyper = 1 o.a = function() end p = "
    "p - g end } return o",
    "return optimizer(optimizer { name = \"x\", step = function() p = p - g end })",
    "return (optimizer { name = \"x\", step = sqrt })",
    "return optimizer { name = \"x\", step = every }",
    "return optimizer { name = \"x\", step = optimizer }",
    "return optimizer { name = \"x\", step = error }",
    "return optimizer { name = \"x\", step = function() p = p - g end, a = optimizer }",
    "return optimizer { name = \"x\", step = function() return optimizer end }",
    "return optimizer { name = \"x\\0y\", step = function() p = p - g end }",
    "return optimizer { name = \"x\", [\"a\\0b\"] = function() end, step = function() p = g end }",
    "return optimizer { name = \"x\", hyper = { [\"lr\\0\"] = 1 }, step = function() p = p - lr * "
    "g end }",
    "return optimizer { name = \"x\", hyper = { lr = 1 / 0 }, step = function() p = p - lr * g end "
    "}",
    "return optimizer { name = \"x\", state = { m = fill(0 / 0) }, step = function() m = m + g p = "
    "p - m end }",
    "return optimizer { name = \"x\", step = function() p = p ^ g ^ p ^ t ^ -t end }",
    "return optimizer { name = \"x\", step = function() p = p ^ 1e300 end }",
    "return optimizer { name = \"x\", step = function() every(1e9, function() p = g end) end }",
};

START_TEST(odd_texts)
{
    char *text = spec(odd[_i], "");
    for (int k = 0; k < 2; k++) {
        Run r = compile_with(text, k ? "clip(1),cautious" : NULL);
        ck_assert_msg(r.took < slowest, "%.1f s for:\n%s", r.took, text);
        char *c =
            r.ok ? gen_emit(&r.g, &(EmitOptions){.target = &target_c, .command = "test"}, &r.g.diag)
                 : NULL;
        ck_assert_msg(!r.ok || c, "not emitted: %s", r.g.diag.text);
        free(c);
        gen_free(&r.g);
    }
    free(text);
}
END_TEST

/* Row values depend on a view, wherever in the file they were made. */
START_TEST(draws_outside_entries)
{
    static const char *const made[] = {"random \"row\"", "rowsum(random())", "slice.sum(normal())"};
    for (int i = 0; i < COUNT(made); i++) {
        char *text = format("local r = %s\nreturn optimizer { name = \"x\", step = function() p = "
                            "p - r * g end }\n",
                            made[i]);
        Run r = compile(text);
        ck_assert_msg(!r.ok || rule_view(r.g.rule), "no view is recorded for:\n%s", text);
        gen_free(&r.g);
        free(text);
    }
}
END_TEST

/* A rule cannot change the words of a wrapper: each file has its own environment. */
START_TEST(worlds_apart)
{
    static const char *const twist[] = {"", "global.norm = function() return 1 end",
                                        "global.norm = nil", "global.sum = global.max",
                                        "slice.sum = nil math.floor = nil"};
    for (int i = 0; i < COUNT(twist); i++) {
        char *text = spec(twist[i], "");
        Run r = compile_with(text, "clip(1)");
        Buf b = {0};
        if (r.ok)
            rule_print(&b, r.g.rule);
        ck_assert_msg(r.ok ? strstr(b.s, " = gsum ") != NULL
                           : strstr(r.g.diag.text, "try.lua") != NULL,
                      "the rule's '%s' changed the wrapper around it", twist[i]);
        buf_free(&b);
        gen_free(&r.g);
        free(text);
    }
}
END_TEST

/* ---- bombs ---- */
#define TEN ", x, x, x, x, x, x, x, x, x, x"
typedef struct { const char *file, *step; } Bomb;
static const Bomb bombs[] = {
    {"while true do end", ""},
    {"local function f() return f() end f()", ""},
    {"local function f() return 1 + f() end f()", ""},
    {"::a:: goto a", ""},
    {"local t = {} for i = 1, 1e9 do t[i] = i end", ""},
    {"local t = {} for i = 1, 1e9 do t[i] = {} end", ""},
    {"local t for i = 1, 1e9 do t = { t } end", ""},
    {"local t for i = 1, 1e9 do local u = t t = function() return u end end", ""},
    {"local s = \"x\" while true do s = s .. s end", ""},
    {"local s = \"x\" for i = 1, 1e9 do s = s .. \"y\" end", ""},
    {"local t = {} for i = 1, 1e9 do t[\"k\" .. i] = 1 end", ""},
    /* one instruction each, but an expensive one */
    {"local s = \"x\" for i = 1, 22 do s = s .. s end for i = 1, 1e9 do local y = s .. i end", ""},
    {"local s = \"x\" for i = 1, 22 do s = s .. s end local a, b, n = s .. 1, s .. 2, 0 for i = 1, "
     "1e9 do if a < b "
     "then n = n + 1 end end",
     ""},
    {"local s = \"x\" for i = 1, 22 do s = s .. s end local a, b, n = s .. 1, s .. 1, 0 for i = 1, "
     "1e9 do if a == b "
     "then n = n + 1 end end",
     ""},
    {"local s = \" \" for i = 1, 22 do s = s .. s end for i = 1, 1e9 do tonumber(s) end", ""},
    {"local s = \"9\" for i = 1, 22 do s = s .. s end for i = 1, 1e9 do tonumber(s, 10) end", ""},
    {"local function h(...) return select(\"#\", ...) end local function f(n, ...) if n > 0 then "
     "return f(n - 1, 1, 1, "
     "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
     "1, 1, 1, 1, 1, ...) end for i = 1, 1e9 do h(...) end end f(5000)",
     ""},
    /* inside functions that an entry can call */
    {"", "while true do end"},
    {"", "every(2, function() while true do end end)"},
    /* every line searches all locals */
    {"", "local x" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
         " = g for i = 1, 1e9 do\n\nx = "
         "i\n\nend"},
    {"local function f() every(2, f) end", "f()"},
    {"", "for i = 1, 1e9 do local x = g end"},
    {"", "for i = 1, 1e9 do local x = sqrt(2) end"},
    {"", "for i = 1, 1e9 do p = i end"},
    {"", "for i = 1, 1e9 do local x = lerp(i, g, 0.5) end"},
    {"", "for i = 1, 1e9 do local x = where(true, i, 0) end"},
    {"", "for i = 1, 1e9 do local x = rsqrt(i) end"},
    {"", "for i = 1, 1e9 do every(1, function() p = p end) end"},
    {"", "local x = g for i = 1, 1e9 do x = sum(x) * g end"},
    {"", "local x = g for i = 1, 1e9 do x = x + random() end"},
    {"", "local x = t for i = 1, 60 do x = x + x end p = p ^ x"},
    {"", "local x = t for i = 1, 60 do x = x * x - x end p = p * lt(x, 1) ^ x"},
    {"", "for i = 1, 1e9 do local x = max(1, 2, 3, 4, 5, 6, 7, 8, 9) end"},
    {"local s = \"x\" for i = 1, 22 do s = s .. s end error(s)", ""},
    {"local s = \"x\" for i = 1, 22 do s = s .. s end local x = _ENV[s]", ""},
    {"local s = \"x\" for i = 1, 20 do s = s .. s end return optimizer { name = s, step = "
     "function() p = g end }",
     ""},
    {"local s = \"x\" for i = 1, 20 do s = s .. s end return optimizer { name = \"x\", cite = s, "
     "step = function() p = "
     "g end }",
     ""},
    {"local h = {} for i = 1, 1e5 do h[\"h\" .. i] = 1 end return optimizer { name = \"x\", hyper "
     "= h, step = "
     "function() p = g end }",
     ""},
    {"local h = {} for i = 1, 1e5 do h[i] = \"c\" .. i end return optimizer { name = \"x\", "
     "options = { c = h }, step "
     "= function() p = g end }",
     ""},
    {"local h = { name = \"x\", step = function() p = g end } for i = 1, 1e4 do h[\"e\" .. i] = "
     "h.step end return "
     "optimizer(h)",
     ""},
};

static void limit_memory(void)
{
    struct rlimit most = {1u << 30, 1u << 30};
    if (bound_memory)
        setrlimit(RLIMIT_AS, &most);
}

static void survive(const char *text)
{
    Run r = compile(text);
    ck_assert_msg(r.took < slowest, "%.1f s for:\n%.300s", r.took, text);
    ck_assert_msg(r.ok || !strstr(r.g.diag.text, " second"),
                  "the clock ended it, no limit on work did:\n%.300s", text);
    ck_assert_msg(r.ok || !strstr(r.g.diag.text, "out of memory"),
                  "it took all memory there was:\n%.300s", text);
    ck_assert_msg(r.ok || strlen(r.g.diag.text) < 10000, "a message of %zu bytes",
                  strlen(r.g.diag.text));
    gen_free(&r.g);
}

START_TEST(bombs_at_run)
{
    if (thinned(_i) || thinned(_i / 3))
        return;
    limit_memory();
    char *text = spec(bombs[_i].file, bombs[_i].step);
    survive(text);
    free(text);
}
END_TEST

static void repeat(Buf *b, const char *s, int n)
{
    for (int i = 0; i < n; i++)
        buf_puts(b, s);
}

/* Texts that are expensive to read, up to the limit of one megabyte. */
typedef struct { const char *before, *piece, *middle, *close; int n; const char *after; } Form;
static const Form forms[] = {
    {"local x = ", "(", "1", ")", 100000, ""},
    {"local x = ", "{", "", "}", 100000, ""},
    {"local x = ", "{a=", "1", "}", 180, ""},
    {"local x = ", "{a={1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1},b=", "1", "}", 150, ""},
    {"local x = ", "- ", "1", "", 100000, ""},
    {"local x = ", "not ", "1", "", 100000, ""},
    {"local x = 1", " and 1", "", "", 100000, ""},
    {"local x = 1", "..1", "", "", 100000, ""},
    {"local x = 1", "^1", "", "", 100000, ""},
    {"local x = 1", "+1", "", "", 300000, ""},
    {"local x = sqrt", "()", "", "", 300000, ""},
    {"local x = {", "a=1,", "}", "", 200000, ""},
    {"local x = {", "1,", "}", "", 300000, ""},
    {"", "do local a=1 end ", "", "", 30000, ""},
    /* names that hold values, and others */
    {"local function f() ", "do local a=g end ", "end local function h() ", "do local q=zz end ",
     25000, "end"},
    /* work on every line */
    {"", "local a = 1\n", "while true do\nlocal z = 1\nz = z + 1\nend", "", 190, ""},
    {"", "function() ", "", " end", 50000, ""},
    {"local x = ", "function() return ", "1", " end", 50000, ""},
    {"", "if true then ", "", " end", 50000, ""},
    {"", "if true then else", "", "", 30000, ""},
    {"", "::a", "::", "", 50000, ""},
    {"local x = ", "\"a\"..", "1", "", 100000, ""},
    {"-- ", "[", "", "", 500000, ""},
    {"--[", "=", "[", "", 500000, ""},
    {"local x = [", "=", "[", "", 500000, ""},
    {"local x = \"", "\\z", "\"", "", 300000, ""},
    {"local x = \"", "\\", "\"", "", 500001, ""},
    {"local x = 0x", "f", "", "", 500000, ""},
    {"local ", "a", " = 1", "", 500000, ""},
    {"local a", ",a", " = 1", "", 150, ""},
    {"local s = \"", "\\z\nif a == b and ", "\"", "", 14000, ""},
    /* Lua walks the chain for each */
    {"local function f() local x = ", "g and ", "1 end", "", 43000, ""},
    {"local function f() local x = ", "g or ", "1 end", "", 51000, ""},
    {"local function f() if g then ", "elseif g then ", "end end", "", 18000, ""},
    {"local function f() ", "do goto a end ", "::a:: end", "", 18000, ""},
    {"local function f() while true do ", "if g then break end ", "end end", "", 13000, ""},
    {"local s = \"", "\\\nlocal a = ", "\"", "", 18000, ""},
    {"local x = {", "a = g * 1, ", "}", "", 20000, ""},
    {"local function f() if ", "nrows*", "nrows < 3 then end end", "", 43000, ""},
};

START_TEST(bombs_in_text)
{
    if (thinned(_i))
        return;
    limit_memory();
    for (int where = 0; where < 2; where++) {
        Buf b = {0};
        const Form *s = &forms[_i];
        buf_puts(&b, s->before);
        repeat(&b, s->piece, s->n);
        buf_puts(&b, s->middle);
        repeat(&b, s->close, s->n);
        buf_puts(&b, s->after);
        char *text = where ? spec("", b.s) : spec(b.s, "");
        survive(text);
        free(text);
        buf_free(&b);
    }
}
END_TEST

/* Lua's parser searches a name among the locals of every enclosing function, and Lua's instruction
 * count does not include that. */
START_TEST(parsing_has_a_price)
{
    Buf b = {0};
    for (int f = 0; f < 180; f++) {
        buf_puts(&b, "local function f() ");
        for (int i = 0; i < 190; i++)
            buf_printf(&b, "%s_%d%s", i ? "," : "local ", i, i == 189 ? " = 1 " : "");
    }
    repeat(&b, "q = q ", 100);
    repeat(&b, " end", 180);
    char *text = spec(b.s, "");
    Run r = compile(text);
    ck_assert_msg(!r.ok && strstr(r.g.diag.text, "too long to read"), "%.200s",
                  r.ok ? "it was taken" : r.g.diag.text);
    gen_free(&r.g);
    free(text);
    buf_free(&b);
}
END_TEST

/* For each further link of a chain Lua walks the chain: 43000 links took 3.4 seconds. A few hundred
 * cost nothing. */
START_TEST(chains_have_a_price)
{
    static const char *const piece[] = {"g and ", "g or "};
    for (int k = 0; k < 4; k++) {
        Buf b = {0};
        repeat(&b, piece[k % 2], k < 2 ? 43000 : 300);
        char *step = format("local function f() local x = %s1 end", b.s), *text = spec(step, "");
        Run r = compile(text);
        bool refused = !r.ok && strstr(r.g.diag.text, "too long to read");
        ck_assert_msg(refused == (k < 2), "%d: %.200s", k, r.ok ? "it was taken" : r.g.diag.text);
        gen_free(&r.g);
        free(step);
        free(text);
        buf_free(&b);
    }
}
END_TEST

/* A large rule within the limit on values: planned and emitted in bounded time and memory. */
static const char *const large[] = {
    "local x = g for i = 1, 9000 do x = x * g + 0.5 end p = x",
    "local x = g for i = 1, 9000 do x = x * g + 0.5 end p = x + sum(x)",
    "local x = lr for i = 1, 9000 do x = x * lr + 0.5 end p = x",
    "local x = g for i = 1, 500 do x = x * sum(x) end p = x",
    "local x = g for i = 1, 200 do x = x * sum(x) + rowsum(x) * colsum(x) end p = x",
    "for i = 1, 60 do p = p - g * sum(p * i) end",
    "local x = g for i = 1, 4000 do local y = x * g x = y + y * y end p = x",
    ("local x = g for i = 1, 1000 do x = x * g + 0.5 end every(2, function() p = x end) every(3, "
     "function() p = p * x "
     "end) every(5, function() p = p - x end)")};

START_TEST(large_rules)
{
    if (thinned(_i))
        return;
    limit_memory();
    char *text =
        format("return optimizer { name = \"x\", hyper = { lr = 1 }, step = function() %s end }",
               large[_i]);
    Run r = compile(text);
    ck_assert_msg(r.ok || !strstr(r.g.diag.text, "out of memory"), "it took a gigabyte: %s",
                  large[_i]);
    ck_assert_msg(r.took < slowest, "%.1f s to plan: %s", r.took, large[_i]);
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    char *c =
        r.ok ? gen_emit(&r.g, &(EmitOptions){.target = &target_c, .command = "test"}, &r.g.diag)
             : NULL;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    ck_assert_msg(!r.ok || c, "%s: %s", large[_i], r.g.diag.text);
    ck_assert_msg((double)(b.tv_sec - a.tv_sec) < slowest, "%ld s to emit: %s",
                  (long)(b.tv_sec - a.tv_sec), large[_i]);
    free(c);
    gen_free(&r.g);
    free(text);
}
END_TEST

/* Threads other than the first have small stacks: a long chain of values must not cause deep
 * recursion. */
static void *on_small_stack(void *text)
{
    Run r = compile(text);
    gen_free(&r.g);
    return NULL;
}

START_TEST(small_stack)
{
    pthread_attr_t a;
    pthread_t t;
    char *text = spec("", "local x = g for i = 1, 9000 do x = x * g + 0.5 end p = x");
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 1 << 20);
    ck_assert_int_eq(pthread_create(&t, &a, on_small_stack, text), 0);
    pthread_join(t, NULL);
    pthread_attr_destroy(&a);
    free(text);
}
END_TEST

/* ---- the same text, the same output ---- */
static char *outputs(const char *text, const char *with)
{
    Buf b = {0};
    Run r = compile_with(text, with);
    if (r.ok) {
        rule_print(&b, r.g.rule);
        plan_print(&b, r.g.plan, false);
        char *c = gen_emit(&r.g, &(EmitOptions){.target = &target_c}, &r.g.diag);
        ck_assert_msg(c != NULL, "%s", r.g.diag.text);
        buf_puts(&b, c);
        free(c);
    } else {
        buf_puts(&b, r.g.diag.text);
    }
    gen_free(&r.g);
    return buf_take(&b);
}

static const char *const repeatable[] = {
    "local t = {} return optimizer { name = \"x\", cite = tostring(t), step = function() p = p - g "
    "end }",
    "return optimizer { name = \"x\", doc = tostring(sqrt) .. tostring(zeros) .. tostring(p), step "
    "= function() p = p "
    "- g end }",
    "return optimizer { name = \"x\", options = { o = tostring({}) }, step = function() p = p - g "
    "end }",
    "local a, b = tostring({}), tostring(sqrt) return optimizer { name = \"x\", step = function() "
    "if a < b then p = p "
    "- g else p = p + g end end }",
    "error(tostring({}))",
    "return optimizer { name = \"x\", step = function() p = p - sgrt(g) end }",
    "return optimizer { name = \"x\", step = function() p = p - mox(g) end }",
    "return optimizer { name = \"x\", options = { ab = 1, ac = 2, ad = 3, ae = 4, af = 5 }, step = "
    "function() p = p - "
    "aa * g end }",
    "local h, s, o = {}, {}, {} for i = 1, 40 do h[\"h\" .. i] = i s[\"s\" .. i] = zeros o[\"o\" "
    ".. i] = i end return "
    "optimizer { name = \"x\", hyper = h, state = s, "
    "options = o, inputs = { a = \"elem\", b = \"row\", c = \"group\" }, step = function() for i = "
    "1, 40 do _ENV[\"s\" "
    ".. i] = g * _ENV[\"h\" .. i] + a + b + c end p = s1 end, "
    "e1 = function() p = g end, e2 = function() p = g * 2 end, e3 = function() p = g * 3 end, e4 = "
    "function() p = g * "
    "4 end }",
    "return optimizer { name = \"x\", hyper = { lr = { 1, min = 0, max = 2 } }, step = function() "
    "local a, b = lr * g, "
    "g * g p = a / b - random() * normal() end }",
};

START_TEST(same_again)
{
    const char *text = repeatable[_i];
    char *first = outputs(text, NULL);
    void *volatile noise[24];
    /* different addresses, hence another hash seed, each time */
    for (int k = 0; k < COUNT(noise); k++) {
        noise[k] = malloc((size_t)(1000 + 777 * k));
        char *next = outputs(text, NULL);
        ck_assert_msg(!strcmp(first, next), "compiled twice, two results:\n%.400s\n%.400s", first,
                      next);
        free(next);
    }
    for (int k = 0; k < COUNT(noise); k++)
        free(noise[k]);
    free(first);
}
END_TEST

START_TEST(library_same_again)
{
    static const char *const rules[] = {"adamw", "lamb", "adafactor", "sgd", "came"},
        *const withs[] = {NULL, "clip(1),cautious,ema(0.9)", "lookahead(5,0.5),centralize"};
    Arena arena = {0};
    for (int i = 0; i < COUNT(rules); i++) {
        Source s;
        Diag d = {0};
        ck_assert_msg(find_spec(NULL, rules[i], &arena, &s, &d), "%s", d.text);
        for (int k = 0; k < COUNT(withs); k++) {
            char *a = outputs(s.text, withs[k]), *hole = malloc(12345),
                 *b = outputs(s.text, withs[k]);
            ck_assert_msg(!strcmp(a, b), "%s with %s: two results", rules[i],
                          withs[k] ? withs[k] : "nothing");
            free(a);
            free(hole);
            free(b);
        }
    }
    arena_free(&arena);
}
END_TEST

Suite *sandbox_suite(void)
{
    Suite *s = suite_create("sandbox");
    TCase *t = tcase_create("sandbox");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, names, 0, COUNT(forbidden));
    tcase_add_test(t, what_there_is);
    tcase_add_loop_test(t, ways_out, 0, COUNT(tries));
    tcase_add_loop_test(t, odd_texts, 0, COUNT(odd));
    tcase_add_test(t, draws_outside_entries);
    tcase_add_test(t, worlds_apart);
    tcase_add_loop_test(t, bombs_at_run, 0, COUNT(bombs));
    tcase_add_loop_test(t, bombs_in_text, 0, COUNT(forms));
    tcase_add_test(t, parsing_has_a_price);
    tcase_add_test(t, chains_have_a_price);
    tcase_add_loop_test(t, large_rules, 0, COUNT(large));
    tcase_add_test(t, small_stack);
    tcase_add_loop_test(t, same_again, 0, COUNT(repeatable));
    tcase_add_test(t, library_same_again);
    suite_add_tcase(s, t);
    return s;
}

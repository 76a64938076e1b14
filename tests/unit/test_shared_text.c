/* include "NAME": where shared texts are found, what they may do, and what messages and keys
 * name. */
#include "runtime/library/library.h"
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPEC(head, step) \
    head "\nreturn optimizer { name = 'x', hyper = { lr = 0.1 }, state = { m = zeros }, step = " \
         "function() " step " end }"

typedef struct Text { const char *name, *text; } Text;

static bool find_texts(void *ctx, const char *name, Arena *a, Source *out, Diag *d)
{
    for (const Text *x = ctx; x->name; x++)
        if (!strcmp(name, arena_printf(a, SHARED_NAMED "%s", x->name))) {
            *out = (Source){arena_printf(a, "shared/%s.lua", x->name), x->text, strlen(x->text)};
            return true;
        }
    return find_wrapper(NULL, name, a, out, d);
}

/* The IR, or the message, which the caller frees. */
static char *compiled(const char *spec, const Text *texts)
{
    Gen g = {0};
    Buf b = {0};
    GenOptions o = {.find = find_texts, .find_ctx = (void *)(uintptr_t)texts};
    if (gen_compile(&g, (Source){"mine.lua", spec, strlen(spec)}, &o))
        rule_print(&b, g.rule);
    else
        buf_puts(&b, g.diag.text);
    gen_free(&g);
    return buf_take(&b);
}

START_TEST(runs_in_the_spec)
{
    static const Text texts[] = {
        {"momentum", "return function(x) m = lerp(m, x, 0.5)  return m end"},
        {"two", "local f = include 'momentum'  return { f = f, twice = function(x) return 2 * "
                "f(x) end }"},
        {NULL, NULL}};
    char *a =
        compiled(SPEC("local s = include 'two'  local f = include 'momentum'  assert(s.f == f)",
                      "p = p - lr * s.twice(g)"),
                 texts);
    char *b = compiled(SPEC("", "m = lerp(m, g, 0.5)  p = p - lr * (2 * m)"), texts);
    const char *files = strstr(a, "file \"mine.lua\"\nfile \"two.lua\"\nfile \"momentum.lua\"\n");
    ck_assert_msg(files != NULL, "%s", a);
    /* without files and positions both are the same */
    for (char **s = (char *[]){a, b, NULL}; *s; s++) {
        char *to = *s;
        for (char *from = *s; *from; from++) {
            if (from[0] == ' ' && from[1] == '@')
                from += strcspn(from, "\n");
            if (!strncmp(from, "file ", 5))
                from += strcspn(from, "\n");
            else
                *to++ = *from;
        }
        *to = 0;
    }
    ck_assert_str_eq(strstr(a, "nodes"), strstr(b, "nodes"));
    free(a);
    free(b);
}
END_TEST

static const struct { const char *spec; Text texts[7]; const char *message;
} refused[] = {
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "return include 'a'"}},
     "shared/a.lua:1: include \"a\": this text includes itself"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "return include 'b'"}, {"b", "\nreturn include 'a'"}},
     "shared/b.lua:2: include \"a\": this text includes itself through another one"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "return include 'b'"},
      {"b", "return include 'c'"},
      {"c", "return include 'd'"},
      {"d", "return include 'e'"},
      {"e", "return {}"}},
     "shared/d.lua:1: include \"e\": over 4 texts include each other"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "local x = 1"}},
     "mine.lua:1: include \"a\": shared/a.lua must return a function or a table of functions, not "
     "a nil"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "return { f = function() end, rate = 0.1 }"}},
     "mine.lua:1: include \"a\": shared/a.lua must return a table of functions with names, and "
     "rate is a number"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "return { function() end }"}},
     "shared/a.lua must return a table of functions with names, and one of its keys is a number"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "return {"}},
     "shared/a.lua:1: unexpected symbol near <eof>"},
    {SPEC("include 'a'", "p = p - g"),
     {{"a", "\033Lua"}},
     "mine.lua:1: include \"a\": shared/a.lua: this is Lua byte"},
    {SPEC("local f = include 'a'", "p = p - f(g)"),
     {{"a", "return function(x)\n return x + 'y' end"}},
     "shared/a.lua:2: +: argument 2 is a string"},
    {SPEC("local f = include 'a'", "f()  p = p - g"),
     {{"a", "return function()\n if lr then m = g end end"}},
     "shared/a.lua:2: Lua's 'if' cannot test 'lr'"},
    {SPEC("local f = include 'a'", "f()  p = p - g"),
     {{"a", "return function()\n other = g end"}},
     "shared/a.lua:2: 'other' is not declared"},
    {SPEC("include('a', 'b')", "p = p - g"),
     {{"a", "return {}"}},
     "mine.lua:1: include takes the name of a shared"},
    {SPEC("include(1)", "p = p - g"),
     {{"a", "return {}"}},
     "mine.lua:1: include takes the name of a shared text"},
    {SPEC("include '/etc/passwd'", "p = p - g"),
     {{"a", "return {}"}},
     "mine.lua:1: include takes the name of a shared"},
    {SPEC("include 'none'", "p = p - g"),
     {{"a", "return {}"}},
     "mine.lua:1: include \"none\": there is no shared text"},
    {SPEC("while true do include 'a' end", "p = p - g"),
     {{"a", "return {}"}},
     "the spec runs too long"},
};

START_TEST(is_refused)
{
    char *m = compiled(refused[_i].spec, refused[_i].texts);
    ck_assert_msg(strstr(m, refused[_i].message) != NULL, "expected: %s\ngot: %s",
                  refused[_i].message, m);
    free(m);
}
END_TEST

START_TEST(four_deep)
{
    static const Text texts[] = {{"a", "return include 'b'"},
                                 {"b", "return include 'c'"},
                                 {"c", "return include 'd'"},
                                 {"d", "return function() m = g  p = p - lr * g end"},
                                 {NULL, NULL}};
    char *m = compiled(SPEC("local f = include 'a'", "f()"), texts);
    ck_assert_msg(strstr(m, "step p = ") != NULL, "%s", m);
    free(m);
}
END_TEST

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* A spec outside of the library takes shared/ of a folder of the path, and its key changes with
 * that file. */
START_TEST(own_folder)
{
    char folder[] = "/tmp/optc-shared-XXXXXX", path[3][80], code[3][40];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path[0], sizeof path[0], "%s/shared", folder);
    snprintf(path[1], sizeof path[1], "%s/shared/mine.lua", folder);
    snprintf(path[2], sizeof path[2], "%s/rule.lua", folder);
    ck_assert_int_eq(mkdir(path[0], 0700), 0);
    put(path[2], SPEC("local f = include 'mine'", "m = g  p = p - f(lr * g)"));
    static const char *const texts[] = {"return function(x) return 2 * x end",
                                        "return function(x) return 3 * x end",
                                        "-- the same code\nreturn function(x) return 2 * x end"};
    for (int i = 0; i < 3; i++) {
        put(path[1], texts[i]);
        optc_engine *e = NULL;
        optc_rule *r = NULL;
        OK(optc_open(&(optc_engine_options){.spec_path = folder}, &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = path[2]}, &r));
        snprintf(code[i], sizeof code[i], "%s", r->library->code);
        optc_release(r);
        optc_close(e);
    }
    ck_assert_str_ne(code[0], code[1]);
    ck_assert_str_eq(code[0], code[2]);
    unlink(path[1]);
    unlink(path[2]);
    rmdir(path[0]);
    rmdir(folder);
}
END_TEST

Suite *shared_text_suite(void)
{
    Suite *s = suite_create("shared_text");
    TCase *t = tcase_create("include");
    tcase_add_test(t, runs_in_the_spec);
    tcase_add_loop_test(t, is_refused, 0, (int)(sizeof refused / sizeof *refused));
    tcase_add_test(t, four_deep);
    tcase_add_test(t, own_folder);
    suite_add_tcase(s, t);
    return s;
}

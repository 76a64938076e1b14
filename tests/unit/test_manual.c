/* Every word of the language is on one of the pages in specs/: builtins, fields, names inside
 * entries, domains. */
#include "gen/front/declare.h"

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pages[] = {"README", "COOKBOOK", "EXAMPLES", "MATRICES", NULL};

static char *all_pages(void)
{
    Buf b = {0};
    for (const char *const *page = pages; *page; page++) {
        char path[64], text[4096];
        size_t n;
        snprintf(path, sizeof path, "specs/%s.md", *page);
        FILE *f = fopen(path, "r");
        ck_assert_msg(f, "%s cannot be read", path);
        while ((n = fread(text, 1, sizeof text, f)) > 0)
            buf_add(&b, text, n);
        fclose(f);
    }
    return buf_take(&b);
}

static bool is_inside_word(int c) { return isalnum(c) || c == '_'; }

static bool page_has(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = strstr(text, word); s; s = strstr(s + 1, word))
        if ((s == text || !is_inside_word((unsigned char)s[-1])) &&
            !is_inside_word((unsigned char)s[n]))
            return true;
    return false;
}

START_TEST(every_word)
{
    char *text = all_pages();
    Trace t = {.at = -1};
    ck_assert(sandbox_open(&t));
    lua_getfield(t.L, LUA_REGISTRYINDEX, "optc.builtins");
    int n = 0;
    for (lua_pushnil(t.L); lua_next(t.L, -2); lua_pop(t.L, 1), n++)
        ck_assert_msg(page_has(text, lua_tostring(t.L, -2)), "no page has the builtin '%s'",
                      lua_tostring(t.L, -2));
    lua_close(t.L);
    ck_assert_int_gt(n, 80);
    for (const char *const *word = spec_fields; *word; word++)
        ck_assert_msg(page_has(text, *word), "no page has the field '%s'", *word);
    for (const char *const *word = spec_names; *word; word++)
        ck_assert_msg(page_has(text, *word), "no page has the name '%s'", *word);
    free(text);
}
END_TEST

/* As written in a spec: "block row". Only squares of blocks have no name of their own. */
START_TEST(every_domain)
{
    char *text = all_pages();
    for (int d = 0; d < NDOM; d++) {
        char name[64];
        snprintf(name, sizeof name, "%s", dom_info[d].name);
        for (char *c = name; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        bool named = dom_named((Dom)d, true, false) ||
                     (dom_named((Dom)d, true, true) && !dom_square((Dom)d));
        ck_assert_msg(!named || page_has(text, name), "no page has the domain '%s'", name);
    }
    free(text);
}
END_TEST

Suite *manual_suite(void)
{
    Suite *s = suite_create("manual");
    TCase *t = tcase_create("words");
    tcase_add_test(t, every_word);
    tcase_add_test(t, every_domain);
    suite_add_tcase(s, t);
    return s;
}

/* What the language says, held against plain C that does the same by hand. */
#include "gen.h"
#include "help.h"
#include "program_make.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static optc_engine *engine;
static void open_engine(void) { OK(optc_open(&(optc_engine_options){.threads = 1}, &engine)); }
static void close_engine(void) { OK(optc_close(engine)); }

static optc_rule *compile(const char *text, const char *with)
{
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "made.lua", .text = text, .with = with}, &r));
    return r;
}

/* ---- numbers that are not finite ---- */
START_TEST(infinity_is_out)
{
    optc_rule *r;
    optc_binding *b;
    float p = 1, g = 1;
    optc_tensor t = {.name = "w", .param = &p, .grad = &g, .rank = 1, .shape = (int64_t[]){1}};
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .with = "clip(inf)"}, &r));      /* clip says max = inf: it never clips */
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    FAILS(optc_set_hyper(b, 0, "lr", INFINITY), OPTC_ERROR_RANGE, "lr = inf lies outside its range [0, inf)");
    OK(optc_set_hyper(b, 0, "lr", 1e300));
    OK(optc_set_hyper(b, 0, "clip.max_norm", INFINITY));
    FAILS(optc_set_hyper(b, 0, "clip.max_norm", -1), OPTC_ERROR_RANGE, "[0, inf]");
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* Tables of a package are C: a NaN has no literal. */
START_TEST(tables_of_nan)
{
    optc_rule *r = compile("return optimizer { name = 'x', state = { m = fill(0/0), n = fill(-inf) }, step = function() m = n n = g p = p - m end }", NULL);
    Buf b = {0};
    program_print(&b, r->program, "x");
    ck_assert_msg(strstr(b.s, ", __builtin_nan(\"\"), ") && strstr(b.s, ", -__builtin_inf(), ") && !strstr(b.s, ", nan") && !strstr(b.s, ", -nan"), "%s", b.s);
    buf_free(&b);
    OK(optc_release(r));
}
END_TEST

Suite *lang_suite(void)
{
    Suite *s = suite_create("lang");
    TCase *t = tcase_create("lang");
    tcase_add_checked_fixture(t, open_engine, close_engine);
    tcase_add_test(t, infinity_is_out);
    tcase_add_test(t, tables_of_nan);
    suite_add_tcase(s, t);
    return s;
}

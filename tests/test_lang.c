/* What the language says, held against plain C that does the same by hand. */
#include "gen.h"
#include "help.h"
#include "program_make.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- wrappers of one's own ---- */
static const char halve[] = "return wrapper { name = 'halve', args = { 'by' }, hyper = { by = 0.5 }, step = function() g = g * by inner() end }";

static float one_step(optc_rule *r, float g0)
{
    optc_binding *b;
    float p = 0, g = g0;
    optc_tensor t = {.name = "w", .param = &p, .grad = &g, .rank = 1, .shape = (int64_t[]){1}};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1, .hyper = (optc_setting[]){{"lr", 1}}, .nhyper = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_unbind(b));
    return p;
}

static void composed(const optc_rule_options *o, const char *name, float moved)
{
    optc_rule *r;
    OK(optc_compile(engine, o, &r));
    ck_assert_str_eq(optc_rule_name(r), name);
    float p = one_step(r, 64);
    ck_assert_msg(p == moved, "%s moved p by %g, not %g", name, p, moved);
    OK(optc_release(r));
}

/* By path and from memory, in `with` and behind a +, mixed with the library's, under the name that the file says. */
START_TEST(wrappers_of_ones_own)
{
    char folder[] = "/tmp/optc-wrap+XXXXXX", path[64], asked[200];
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/mine.lua", folder);
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(halve, f) >= 0 && fclose(f) == 0);
    const optc_text text[] = {{"halve", halve}, {"clip", halve}};
    composed(&(optc_rule_options){.spec = "sgd", .with = path}, "sgd+halve", -32);
    snprintf(asked, sizeof asked, "%s(0.25),clip_value(8)", path);
    composed(&(optc_rule_options){.spec = "sgd", .with = asked}, "sgd+halve(0.25),clip_value(8)", -2);
    snprintf(asked, sizeof asked, "sgd+%s(by=0.25)+clip_value(8)", path);
    composed(&(optc_rule_options){.spec = asked}, "sgd+halve(by=0.25),clip_value(8)", -2);
    composed(&(optc_rule_options){.spec = asked, .with = " clip_value( 4 )"}, "sgd+halve(by=0.25),clip_value(8),clip_value(4)", -1);
    composed(&(optc_rule_options){.spec = "sgd+halve", .wrappers = text, .nwrappers = 2}, "sgd+halve", -32);
    composed(&(optc_rule_options){.spec = "sgd", .with = "clip(0.5)", .wrappers = text, .nwrappers = 2}, "sgd+clip(0.5)", -32);    /* ahead of the library's */
    composed(&(optc_rule_options){.spec = "sgd", .with = "clip(64)"}, "sgd+clip(64)", -64 * (64 / (64 + 1e-6f)));
    snprintf(asked, sizeof asked, "halve,%s(0.125)", path);                                                             /* two of one name */
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .with = asked, .wrappers = text, .nwrappers = 1}, &r));
    ck_assert(r->more->rule->nhyper >= 2 && !strcmp(r->more->rule->hyper[r->more->rule->nhyper - 1].name, "halve2.by"));
    ck_assert_msg(one_step(r, 64) == -4, "two wrappers of one name");
    OK(optc_release(r));
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .with = "./no/such.lua"}, &r), OPTC_ERROR_SPEC, "./no/such.lua: cannot read");
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd+"}, &r), OPTC_ERROR_SPEC, "expected wrapper");
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .nwrappers = 1}, &r), OPTC_ERROR_ARGUMENT, "NULL");
    unlink(path);
    rmdir(folder);
}
END_TEST

Suite *lang_suite(void)
{
    Suite *s = suite_create("lang");
    TCase *t = tcase_create("lang");
    tcase_add_checked_fixture(t, open_engine, close_engine);
    tcase_add_test(t, infinity_is_out);
    tcase_add_test(t, tables_of_nan);
    tcase_add_test(t, wrappers_of_ones_own);
    suite_add_tcase(s, t);
    return s;
}

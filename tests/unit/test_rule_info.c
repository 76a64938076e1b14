/* The library's information about a spec: text fields, options, order, wrappers that change the
 * gradient. */
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdlib.h>

/* The library reports everything that a spec declares, so that no caller has to parse Lua. */
START_TEST(rule_tells_its_spec)
{
    static const char text[] = "return optimizer { name = 'x', doc = 'Some words', cite = 'Me', "
                               "hyper = { lr = 1, a = 2 },\n"
                               "  options = { fast = true, n = 3, s = 0.5, word = 'w', form = { "
                               "'one', 'two' } }, step = rule 'sgd',\n"
                               "  matrix = function() p = p - lr * a * g end }";
    static const struct { const char *name, *value, *preset, *choices, *kind; } want[] = {
        {"fast", "false", "true", NULL, "flag"}, {"form", "two", "one", "one\ntwo", "text"},
        {"n", "3", "3", NULL, "number"},
        {"s", "0.5", "0.5", NULL, "number"}, {"word", "w", "w", NULL, "text"},
        {"sgd.nesterov", "false", "false", NULL, "flag"}};
    optc_engine *e;
    optc_rule *r, *clipped, *averaged;
    optc_option o;
    OK(optc_open(&(optc_engine_options){.device = "cpu"}, &e));
    OK(optc_compile(
        e, &(optc_rule_options){.spec = "x", .text = text, .options = "form=two,fast=false"}, &r));
    ck_assert_str_eq(optc_rule_field(r, "doc"), "Some words");
    ck_assert_str_eq(optc_rule_field(r, "cite"), "Me");
    ck_assert_str_eq(optc_rule_field(r, "fallback"), "sgd");
    ck_assert_str_eq(optc_rule_field(r, "other"), "");
    for (int i = 0; i < (int)(sizeof want / sizeof *want); i++) {
        int k = 0;
        for (; k < optc_rule_option_count(r); k++) {
            OK(optc_rule_option(r, k, &o));
            if (!strcmp(o.name, want[i].name))
                break;
        }
        ck_assert_msg(k < optc_rule_option_count(r), "no option %s", want[i].name);
        ck_assert_str_eq(o.value, want[i].value);
        ck_assert_str_eq(o.preset, want[i].preset);
        ck_assert_str_eq(o.kind, want[i].kind);
        ck_assert(!o.choices == !want[i].choices &&
                  (!o.choices || !strcmp(o.choices, want[i].choices)));
    }
    ck_assert_int_eq(optc_rule_option(r, optc_rule_option_count(r), &o), OPTC_ERROR_ARGUMENT);
    ck_assert(optc_rule_position(r, "lr") < optc_rule_position(r, "a") &&
              optc_rule_position(r, "a") < optc_rule_position(r, "form"));
    ck_assert_int_eq(optc_rule_position(r, "zz"), -1);
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd", .with = "clip(1)"}, &clipped));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd", .with = "ema(0.9)"}, &averaged));
    ck_assert(!optc_rule_changes_grad(r) && optc_rule_changes_grad(clipped) &&
              !optc_rule_changes_grad(averaged));
    ck_assert_str_eq(optc_rule_field(clipped, "fallback"), "");
    OK(optc_release(averaged));
    OK(optc_release(clipped));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Warnings of `optc check` reach C programs: about lines, then about hyperparameters that nothing
 * reads. */
START_TEST(warnings_of_a_text)
{
    static const char text[] = "return optimizer { name = 'x', hyper = { lr = 1, unused = 2 }, "
                               "options = { fast = true },\n"
                               "  step = function() p = p - lr * g  return 2 * p end }";
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .compiler = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "x.lua", .text = text}, &r));
    ck_assert_int_eq(optc_rule_warnings(r), 2);
    ck_assert_msg(!strncmp(optc_rule_warning(r, 0), "x.lua:2: ", 9), "%s", optc_rule_warning(r, 0));
    ck_assert_str_eq(optc_rule_warning(r, 1),
                     "x: nothing reads the hyperparameter 'unused' with fast=true");
    ck_assert(!optc_rule_warning(r, 2) && !optc_rule_warning(r, -1) && !optc_rule_warnings(NULL));
    OK(optc_release(r));
    /* reads beta1 with some options only */
    OK(optc_compile(e, &(optc_rule_options){.spec = "adafactor"}, &r));
    ck_assert_int_eq(optc_rule_warnings(r), 0);
    OK(optc_release(r));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd", .options = "momentum_buffer=false"},
                    &r));
    ck_assert_str_eq(
        optc_rule_unread(r, "momentum"),
        "nothing reads the hyperparameter 'momentum' with momentum_buffer=false, nesterov=false");
    ck_assert(!optc_rule_unread(r, "lr") && !optc_rule_unread(r, "none") &&
              !optc_rule_unread(r, NULL) && !optc_rule_unread(NULL, "lr"));
    OK(optc_release(r));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd"}, &r));
    ck_assert(!optc_rule_unread(r, "momentum"));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Work at some steps only, also of tensors at different steps, in an entry or in a wrapper. */
START_TEST(periods)
{
    static const struct { const char *name, *text, *with, *options; int has;
    } c[] = {
        {"adamw", NULL, NULL, NULL, 0},
        {"sgd", NULL, "lookahead(3)", NULL, 1},
        {"sgd", NULL, "lookahead(1)", NULL, 0},
        {"shampoo", NULL, NULL, "stagger=true", 1},
        {"shampoo", NULL, NULL, "stagger=false", 1},
        {"x",
         "return optimizer { name = 'x', hyper = { lr = 1 }, step = function() p = p - lr * g end, "
         "look = function() every(2, function() p = 2 * p end) end }",
         NULL, NULL, 1}};
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .cache_dir = "", .compiler = ""}, &e));
    for (int i = 0; i < (int)(sizeof c / sizeof *c); i++) {
        optc_rule *r;
        OK(optc_compile(
            e,
            &(optc_rule_options){
                .spec = c[i].name, .text = c[i].text, .with = c[i].with, .options = c[i].options},
            &r));
        ck_assert_msg(optc_rule_has_periods(r) == c[i].has, "%s, case %d", c[i].name, i);
        OK(optc_release(r));
    }
    ck_assert(!optc_rule_has_periods(NULL));
    OK(optc_close(e));
}
END_TEST

/* The tags that a rule looks for, each once, in any of its tests. */
START_TEST(tags)
{
    static const struct { const char *spec, *text, *with, *tag[3];
    } c[] = {{"scale", NULL, NULL, {"embed", "head"}},
             {"scion", NULL, "clip(1)", {"head"}},
             {"adamw", NULL, NULL, {NULL}},
             {"adam_mini", NULL, NULL, {"heads"}},          /* its other test is of a name */
             {"x",
              "return optimizer { name = 'x', step = function() if tagged 'b' or tagged 'a' then p "
              "= p - g "
              "elseif not tagged 'c' then p = p + g end end }",
              NULL,
              {"a", "b", "c"}}};
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .cache_dir = "", .compiler = ""}, &e));
    for (int i = 0; i < (int)(sizeof c / sizeof *c); i++) {
        optc_rule *r;
        OK(optc_compile(
            e, &(optc_rule_options){.spec = c[i].spec, .text = c[i].text, .with = c[i].with}, &r));
        int n = 0, wanted = 0, found = 0;
        while (optc_rule_tag(r, n))
            n++;
        for (; wanted < 3 && c[i].tag[wanted]; wanted++)
            for (int k = 0; k < n; k++)
                found += !strcmp(optc_rule_tag(r, k), c[i].tag[wanted]);
        ck_assert_msg(n == wanted && found == wanted, "case %d: %d tags, %d of %d found", i, n,
                      found, wanted);
        ck_assert(!optc_rule_tag(r, -1));
        OK(optc_release(r));
    }
    ck_assert(!optc_rule_tag(NULL, 0));
    OK(optc_close(e));
}
END_TEST

/* An entry reads gradients by a copy, a sum, a product or at some steps only; or not at all. */
START_TEST(entries_that_read_gradients)
{
    static const struct { const char *look; int reads;
    } c[] = {{"m = g", 1},
             {"m = m + mean(g)", 1},
             {"m = m + global.sum(g)", 1},
             {"m = m + mm(gram(g), m)", 1},
             {"every(7, function() m = m + g end)", 1},
             {"m = 2 * m", 0},
             {"m, p = p, m", 0}};
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .cache_dir = "", .compiler = ""}, &e));
    for (int i = 0; i < (int)(sizeof c / sizeof *c); i++) {
        optc_rule *r;
        char *text = format(
            "return optimizer { name = 'x', hyper = { lr = 1 }, state = { m = zeros }, "
            "step = rule 'sgd', matrix = function() p = p - lr * m end, look = function() %s end }",
            c[i].look);
        OK(optc_compile(e, &(optc_rule_options){.spec = "x", .text = text}, &r));
        ck_assert_str_eq(optc_rule_entry(r, 1), "look");
        ck_assert_msg(optc_rule_reads_gradient(r, 0) == 1 &&
                          optc_rule_reads_gradient(r, 1) == c[i].reads,
                      "%s", c[i].look);
        OK(optc_release(r));
        free(text);
    }
    OK(optc_close(e));
}
END_TEST

Suite *rule_info_suite(void)
{
    Suite *s = suite_create("rule_info");
    TCase *t = tcase_create("rule_info");
    tcase_add_test(t, rule_tells_its_spec);
    tcase_add_test(t, warnings_of_a_text);
    tcase_add_test(t, periods);
    tcase_add_test(t, tags);
    tcase_add_test(t, entries_that_read_gradients);
    suite_add_tcase(s, t);
    return s;
}

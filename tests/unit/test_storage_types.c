/* Storage types of states: which states a choice covers, the proof that a state is never negative,
 * refusals and warnings. */
#include "tests/harness/help.h"

#include "gen/emit/template.h"
#include "gen/gen.h"
#include "runtime/library/rule/spec_find.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static bool make(Gen *g, const char *spec, const char *with, const char *types)
{
    Source s = {"spec.lua", spec, strlen(spec)};
    GenOptions o = {.with = with, .find = find_wrapper};
    *g = (Gen){0};
    if (!strstr(spec, "return") && !find_spec(NULL, spec, &g->arena, &s, &g->diag))
        return false;
    return types_choose(&g->arena, types, -1, -1, -1, &o.types, &g->diag) && gen_compile(g, s, &o);
}

static const char *type_of(const Gen *g, const char *state)
{
    for (int i = 0; i < g->rule->nstate; i++)
        if (!strcmp(g->rule->state[i].name, state))
            return type_info[g->plan->mem[plan_mem_of_state(g->plan, i)].type].name;
    return "no such state";
}

/* ---- which states a choice covers ---- */
static const struct { const char *rule, *with, *types, *state, *is;
} covered[] = {
    {"adamw", NULL, NULL, "m", "f32"},
    {"adamw", NULL, "param=bf16", "m", "f32"},
    {"adamw", NULL, "param=f64", "m", "f64"},
    {"adamw", NULL, "state=bf16", "v", "bf16"},
    /* as before there were block codes */
    {"adamw", "ema", "state=bf16", "ema.avg", "bf16"},
    {"adamw", "ema", "state=q8", "m", "q8"},
    {"adamw", "ema", "state=q8", "v", "q8u"},
    {"adamw", "ema", "state=q8", "ema.avg", "f32"},
    {"adamw", "ema", "state=f8", "m", "f8"},
    {"adamw", "ema", "state=f8,param=f64", "v", "f8u"},
    {"adamw", "ema", "state=f8,param=f64", "ema.avg", "f64"},
    {"adamw", "ema", "state=q8,ema.avg=bf16", "ema.avg", "bf16"},
    {"adamw", NULL, "state=q8,m=bf16", "m", "bf16"},
    {"adamw", NULL, "v=q8", "v", "q8u"},
    {"adamw", NULL, "v=q8", "m", "f32"},
    {"adafactor", NULL, "state=q8", "r", "f32"},
    {"adafactor", NULL, "r=bf16", "r", "bf16"},
    {"adamw", "galore(8)", "state=q8", "m_rows_rank", "f32"},
    {"nadam", NULL, "state=q8", "mu_product", "f64"},
    {"soap", NULL, "state=q8", "v", "q8u"},
    {"soap", NULL, "state=q8", "L", "f32"},
    {"return optimizer { name = 'x', state = { a = zeros { type = 'f32' }, b = zeros, c = fill(1) "
     "},\n"
     " step = function() a = a + g  b = b + g  c = c + g  p = p - a - b - c end }",
     NULL, "state=q8", "a", "f32"},
    {"return optimizer { name = 'x', state = { a = zeros { type = 'f32' }, b = zeros, c = fill(1) "
     "},\n"
     " step = function() a = a + g  b = b + g  c = c + g  p = p - a - b - c end }",
     NULL, "state=q8", "b", "q8"},
    {"return optimizer { name = 'x', state = { a = zeros { type = 'f32' }, b = zeros, c = fill(1) "
     "},\n"
     " step = function() a = a + g  b = b + g  c = c + g  p = p - a - b - c end }",
     NULL, "state=q8", "c", "f32"},
};

START_TEST(a_choice_covers)
{
    Gen g;
    ck_assert_msg(make(&g, covered[_i].rule, covered[_i].with, covered[_i].types), "%s",
                  g.diag.text);
    ck_assert_str_eq(type_of(&g, covered[_i].state), covered[_i].is);
    /* of the choice; those about rounding are others */
    for (int i = 0; i < g.rule->nwarning; i++)
        ck_assert_msg(!strstr(g.rule->warning[i].text, "types: "), "%s", g.rule->warning[i].text);
    gen_free(&g);
}
END_TEST

/* ---- the sign of a state ---- */
#define HYPER "hyper = { lr = 0.1, b = { 0.9, min = 0, below = 1 }, c = { 1, min = 0 }, any = 1 }"
static const struct { const char *write, *is; } signs[] = {
    {"v = b * v + (1 - b) * g * g", "q8u"},
    {"v = lerp(v, g * g, 1 - b)", "q8u"},
    {"v = lerp(v, g * g, any)", "q8"},                           /* the weight may exceed 1 */
    {"v = lerp(v, g, 1 - b)", "q8"},
    {"v = v - b * (v - g * g)", "q8u"},
    /* true, but not one of the forms that are known */
    {"v = v - b * v", "q8"},
    {"v = v + g ^ 2", "q8u"},
    {"v = v + g", "q8"},
    {"v = max(b * v, abs(g))", "q8u"},
    {"v = max(v, g)", "q8u"},
    {"v = min(v, g)", "q8"},
    {"v = min(v, exp(g))", "q8u"},
    {"v = where(gt(g, 0), g * g, v)", "q8u"},
    {"v = where(gt(g, 0), g, v)", "q8"},                         /* conditions are not used */
    {"v = sqrt(v) + c * rms(g)", "q8u"},
    {"v = v + any * g * g", "q8"},
    {"v = v + any * g * g * any", "q8u"},
    {"v = v + g / p * g / p", "q8u"},
    {"v = v + g * -g", "q8"},
    {"v = v + (g - p) * (g - p) / (1 + norm(g))", "q8u"},
    {"v = lerp(v, g * g, t ^ -c)", "q8u"},
    {"v = lerp(v, g * g, 1 - b ^ t)", "q8u"},
    {"v = -v", "q8"},
    {"v = v + u  u = u + g", "q8"},                              /* u falls, and v with it */
    {"v = v + u  u = u + g * g", "q8u"},
};

START_TEST(a_sign_is_proven)
{
    Gen g;
    char *spec =
        format("return optimizer { name = 'x', " HYPER ", state = { v = zeros, u = zeros },\n"
               " step = function() %s p = p - lr * v - u end, other = function() u = u * 2 end }",
               signs[_i].write);
    ck_assert_msg(make(&g, spec, NULL, "v=q8"), "%s: %s", signs[_i].write, g.diag.text);
    ck_assert_msg(!strcmp(type_of(&g, "v"), signs[_i].is), "%s: %s", signs[_i].write,
                  type_of(&g, "v"));
    gen_free(&g);
    free(spec);
}
END_TEST

/* Every entry must keep the sign. */
START_TEST(all_entries_count)
{
    static const char *const other[] = {"v = v * 2", "v = v - 1"};
    for (int i = 0; i < 2; i++) {
        Gen g;
        char *spec = format("return optimizer { name = 'x', state = { v = zeros }, step = "
                            "function() v = v + g * g  "
                            "p = p - v end, other = function() %s end }",
                            other[i]);
        ck_assert_msg(make(&g, spec, NULL, "state=q8"), "%s", g.diag.text);
        ck_assert_str_eq(type_of(&g, "v"), i ? "q8" : "q8u");
        gen_free(&g);
        free(spec);
    }
}
END_TEST

/* ---- states of unknown sign in denominators ---- */
static const struct { const char *body, *part;
} divided[] = {
    {"m = m + g  p = p - g / m", "denominator, root or logarithm (div"},
    {"m = lerp(m, g, 0.1)  p = p - g / (abs(m) + 1e-8)", "(div"},
    {"m = m + g  p = p - sqrt(m)", "(sqrt"},
    {"m = m + g  p = p - log(m)", "(log"},
    {"m = m + g  p = p - m ^ -1", "denominator"},
    {"m = m + g  p = p - m ^ 0.5", "denominator"},
    {"m = m + g  p = p - g / max(m, 0)", "(div"},
    {"v = lerp(v, g * g, 0.1)  m = lerp(m, g, 0.1)  p = p - g / sqrt(v - m * m)", "(sqrt"},
    {"m = m + g  p = p - g / max(m, 1e-3)", NULL},
    {"m = m + g  p = p - m / (norm(m) + 1)", NULL}, /* a sum over many values */
    {"m = m + g  p = p - sqrt(abs(m)) * sign(m)", NULL},
    {"m = m + g  p = p - m ^ 3", NULL},
    {"m = m + g  p = p - g / exp(m)", NULL},
    {"m = m + g  p = p - where(gt(m, 0), 1, 2) / (1 + where(gt(m, 0), 1, 2))", NULL},
    /* AdaBelief: the difference between data and the state has the code's error and is 0 only by
     * chance */
    {"m = lerp(m, g, 0.1)  v = lerp(v, (g - m) * (g - m), 0.1)  p = p - m / (sqrt(v) + 1e-8)",
     NULL},
};

START_TEST(a_signed_code_does_not_divide)
{
    Gen g;
    char *spec = format(
        "return optimizer { name = 'x', state = { m = zeros%s },\n step = function()\n %s end }",
        strstr(divided[_i].body, "v =") ? ", v = zeros" : "", divided[_i].body);
    bool ok = make(&g, spec, NULL, "state=q8");
    ck_assert_msg(ok == !divided[_i].part, "%s: %s", divided[_i].body,
                  ok ? "accepted" : g.diag.text);
    ck_assert_msg(ok || strstr(g.diag.text, divided[_i].part), "%s: %s", divided[_i].body,
                  g.diag.text);
    ck_assert_msg(ok || strstr(g.diag.text, "spec.lua:1: types: the state 'm' may be negative"),
                  "%s", g.diag.text);
    ck_assert_msg(ok || strstr(g.diag.text, "(m=f32)"), "%s", g.diag.text);
    gen_free(&g);
    ok = make(&g, spec, NULL, "state=q8,m=f32");                 /* the remedy */
    ck_assert_msg(ok, "%s", g.diag.text);
    gen_free(&g);
    free(spec);
}
END_TEST

/* ---- refusals ---- */
static const struct { const char *rule, *with, *types, *part;
} refused[] = {
    {"adamw", NULL, "mm=q8",
     "types: the rule 'adamw' has no state 'mm'; did you mean 'm'? (its states: m, v, vmax)"},
    {"adamw", "ema", "avg=q8", "did you mean 'ema.avg' or 'v'?"},
    {"adamw", NULL, "state=q9", "types: 'state=q9': there is no such storage type"},
    {"adamw", NULL, "q8", "types: 'q8' is not KEY=TYPE, as in state=q8,ema.avg=bf16"},
    {"adamw", NULL, "param=q8", "types: param=q8: block codes are for states only; use bf16"},
    {"adamw", NULL, "grad=f8u", "types: grad=f8u: block codes are for states only"},
    {"adamw", "ema", "ema.avg=q8",
     "types: the state 'ema.avg' starts as a copy of p, and q8 is for states that start"},
    {"adafactor", NULL, "r=q8",
     "types: the state 'r' has one value per row, and q8 is for elementwise states"},
    {"soap", NULL, "L=q8",
     "types: the state 'L' has one value per pair of rows, and q8 is for elementwise states"},
    {"nadam", NULL, "mu_product=f32",
     "has one value per tensor, and such values are always stored as f64"},
    {"adashift", NULL, "grads_0=bf16",
     "has no state 'grads_0'; did you mean 'grads' or 'grad'? (its states: grads, k, m, "
     "squares, v, w)"},
    {"adashift", NULL, "squares=bf16", "the state 'squares' has one value per tensor"},
    {"adashift", "galore(2,2)", "grads_rank_cols=q8",
     "'grads_rank_cols_0' has one value per direction and column"},
    {"adamw", NULL, "m=q8u",
     "q8u is for states that are never negative, and the compiler cannot prove this of 'm': "
     "store it as q8, or declare it in the spec, m = zeros { min = 0 }"},
    {"adamw", NULL, "m=f8u", "store it as f8, or declare it"},
    {"return optimizer { name = 'x', state = { m = zeros }, step = function() m = m + g  p = p - "
     "stored 'm' end }",
     NULL, "m=q8", "the rule uses stored(m), its value after rounding, and q8 rounds whole blocks"},
};

START_TEST(a_choice_is_refused)
{
    Gen g;
    ck_assert_msg(!make(&g, refused[_i].rule, refused[_i].with, refused[_i].types),
                  "%s was accepted", refused[_i].types);
    ck_assert_msg(strstr(g.diag.text, refused[_i].part), "%s: %s", refused[_i].types, g.diag.text);
    gen_free(&g);
}
END_TEST

/* ---- warnings ---- */
#define ROOT(relative) \
    "return optimizer { name = 'x', state = { L = zeros 'rows' }, step = function() p = p - g " \
    "end,\n" \
    " matrix = function() L = lerp(L, gram(g), 0.1)  p = p - mm(power(L, -1/4, { relative " \
    "= " relative " }), g) end }"
static const struct { const char *rule, *types, *part;
} warned[] = {
    {"return optimizer { name = 'x', state = { m = zeros { type = 'f32' } },\n step = function() m "
     "= m + g  p = p - m "
     "end }",
     "m=bf16",
     "spec.lua:1: types: the spec stores the state 'm' as f32; it is stored as bf16, which was "
     "chosen by name"},
    {ROOT("1e-6"), "L=bf16",
     "types: the matrix 'L' is stored as bf16, whose rounding moves its small eigenvalues"},
    {ROOT("1e-6"), "L=f16", "stored as f16"},
    {ROOT("0.004"), "L=bf16", NULL},
    {ROOT("1e-6"), "L=f32", NULL},
    {ROOT("1e-6"), "state=q8", "types: state=q8 applies to no state of 'x'"},
};

START_TEST(a_choice_is_warned_of)
{
    Gen g;
    ck_assert_msg(make(&g, warned[_i].rule, NULL, warned[_i].types), "%s", g.diag.text);
    ck_assert_msg(g.rule->nwarning == (warned[_i].part != NULL), "%s: %d warnings: %s",
                  warned[_i].types, g.rule->nwarning,
                  g.rule->nwarning ? g.rule->warning[0].text : "");
    ck_assert_msg(!warned[_i].part || strstr(g.rule->warning[0].text, warned[_i].part), "%s",
                  g.rule->warning[0].text);
    gen_free(&g);
}
END_TEST

/* ---- the library ---- */
/* Each rule takes q8 and f8 states, and each wrapper around AdamW. Rules in `none` have no state
 * for codes and warn. */
START_TEST(all_rules_take_codes)
{
    static const char *const types[] = {"state=q8", "state=f8,param=bf16"};
    static const char none[] = " asgd dog dowg fromage lomo rmsprop_tf schedulefree_sgd ";
    for (const Embedded *e = embedded_specs; e->name; e++)
        for (int i = 0; i < COUNT(types); i++) {
            Gen g;
            bool wrapper = !strncmp(e->name, "wrappers/", 9);
            bool ok = make(&g, wrapper ? "adamw" : e->text, wrapper ? e->name + 9 : NULL, types[i]);
            /* its mean of gradients reaches AdamW's denominator */
            if (!strcmp(e->name, "wrappers/grokfast")) {
                ck_assert_msg(!ok &&
                                  strstr(g.diag.text, "the state 'grokfast.avg' may be negative"),
                              "%s", e->name);
                gen_free(&g);
                continue;
            }
            ck_assert_msg(ok, "%s, %s: %s", e->name, types[i], g.diag.text);
            char name[80];
            snprintf(name, sizeof name, " %s ", e->name);
            /* bf16 rounds updates away, and ema's exchange */
            for (int k = 0; k < g.rule->nwarning; k++) {
                const char *text = g.rule->warning[k].text;
                bool rounded = strstr(text, "rounds away") || (!strcmp(e->name, "wrappers/ema") &&
                                                               strstr(text, "rounds it for good"));
                ck_assert_msg((i && rounded) ||
                                  (strstr(none, name) && strstr(text, "applies to no state")),
                              "%s: %s", e->name, text);
            }
            gen_free(&g);
        }
}
END_TEST

/* Options that add states. A centred RMSprop divides by v - a^2, where an error of a may be as
 * large as the rest. */
START_TEST(options_take_codes)
{
    static const struct { const char *rule, *options, *part;
    } all[] = {{"adamw", "amsgrad=true", NULL},
               {"adafactor", "momentum=true", NULL},
               {"adafactor", "torch=true", NULL},
               {"adabelief", "rectify=false", NULL},
               {"adabound", "amsbound=true", NULL},
               {"soap", "start=identity", NULL},
               {"shampoo", "graft=adagrad", NULL},
               {"shampoo", "graft=none,accumulate=sum", NULL},
               {"rmsprop", "momentum_buffer=true", NULL},
               {"rmsprop", "centered=true", "the state 'a' may be negative"}};
    for (int i = 0; i < COUNT(all); i++) {
        Gen g = {0};
        Source s;
        GenOptions o = {.options = all[i].options, .find = find_wrapper,
                        .types = {.p = T_F32, .g = T_F32, .state = T_Q8}};
        ck_assert(find_spec(NULL, all[i].rule, &g.arena, &s, &g.diag));
        bool ok = gen_compile(&g, s, &o);
        ck_assert_msg(ok == !all[i].part, "%s %s: %s", all[i].rule, all[i].options, g.diag.text);
        ck_assert_msg(ok || strstr(g.diag.text, all[i].part), "%s", g.diag.text);
        gen_free(&g);
    }
}
END_TEST

/* ---- text ---- */
START_TEST(ir_text_keeps_types)
{
    Gen g;
    reads_back("return optimizer { name = 'x', state = { v = zeros { min = 0, type = 'q8' },\n"
               " L = eye(1, 'rows', { min = 0 }) }, step = function() end,\n"
               " matrix = function() v = v + g  L = L + gram(g)  p = p - mm(L, v) end }",
               NULL, 0);
    ck_assert_msg(make(&g, "adamw", NULL, "state=q8,m=bf16"), "%s", g.diag.text);
    Buf b = {0};
    rule_print(&b, g.rule);
    ck_assert(strstr(buf_text(&b), "state m elem bf16 0 ") &&
              strstr(buf_text(&b), "state v elem q8u 0 "));
    ck_assert_str_eq(g.rule->types, "m=bf16");
    Gen again = {0};
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert_msg(gen_read_ir(&again, (Source){"x.ir", buf_text(&b), b.len}, &o), "%s",
                  again.diag.text);
    ck_assert_str_eq(type_of(&again, "v"), "q8u");
    gen_free(&again);
    gen_free(&g);
    buf_free(&b);
}
END_TEST

/* ---- the C interface ---- */
static optc_engine *engine;
static void open_engine(void) { OK(optc_open(&(optc_engine_options){.threads = 1}, &engine)); }
static void close_engine(void) { OK(optc_close(engine)); }

static optc_rule *compiled(const char *types)
{
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .types = types}, &r));
    return r;
}

START_TEST(options_take_the_text)
{
    optc_rule *r = compiled("param=bf16,m=bf16,v=q8"), *old;
    optc_state_info info;
    static const optc_type want[] = {OPTC_BF16, OPTC_Q8U};
    for (int i = 0; i < 2; i++) {
        OK(optc_rule_state(r, i, &info));
        ck_assert_msg(info.type == want[i], "%s: type %d", info.name, (int)info.type);
    }
    ck_assert_int_eq((int)r->library->plan->g, T_BF16);
    optc_rule_options o = {.spec = "adamw", .state = OPTC_BF16, .types = "state=f8"};
    size_t before_types = offsetof(optc_rule_options, types);
    /* a caller that was built before `types` */
    OK(optc_compile_sized(engine, &o, before_types, &old));
    OK(optc_rule_state(old, 0, &info));
    ck_assert_int_eq(info.type, OPTC_BF16);
    OK(optc_release(old));
    /* the text comes before the members */
    OK(optc_compile(engine, &o, &old));
    OK(optc_rule_state(old, 0, &info));
    ck_assert_int_eq(info.type, OPTC_F8);
    OK(optc_release(old));
    OK(optc_release(r));
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .types = "state=x"}, &r),
          OPTC_ERROR_ARGUMENT, "optc_compile: types: 'state=x': there is no such storage type");
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .types = "w=q8"}, &r),
          OPTC_ERROR_SPEC, "has no state 'w'");
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .param = OPTC_Q8}, &r),
          OPTC_ERROR_SPEC, "param=q8: block codes are for states only");
}
END_TEST

/* Warnings about rounding reach callers of the library: by the defaults, and by their own
 * hyperparameters. */
START_TEST(warnings_of_rounding)
{
    static const struct {
        const char *types;
        optc_setting set[2];
        int n, found;
        const char *part;
    } all[] = {{"param=bf16",
                {{0}},
                0,
                2,
                "an update of lr = 0.001 rounds away on parameters in bf16 above 0.512"},
               {"param=bf16", {{"lr", 0.1}, {"weight_decay", 0.1}}, 2, 0, ""},
               {"param=bf16",
                {{"lr", 1e-4}, {"weight_decay", 0}},
                2,
                1,
                "an update of lr = 0.0001 rounds away"},
               {"state=bf16",
                {{0}},
                0,
                1,
                "state 'v' is an average that moves by 0.001 of the difference"},
               {"state=bf16", {{"beta2", 0.95}}, 1, 0, ""},
               {"state=bf16",
                {{"beta1", 0.999}},
                1,
                2,
                "state 'm' is an average that moves by 0.001 of the difference"},
               {"param=bf16,master=low16", {{0}}, 0, 0, ""},
               {"param=bf16sr,state=bf16sr", {{0}}, 0, 0, ""},
               {"state=q8", {{0}}, 0, 0, ""}};
    char text[2000];
    for (int i = 0; i < COUNT(all); i++) {
        optc_rule *r = compiled(all[i].types);
        int n = 0;
        OK(optc_type_warnings(r, all[i].set, all[i].n, text, sizeof text));
        for (const char *s = text; *s; n++)
            s = strstr(s, "\n\n") ? strstr(s, "\n\n") + 2 : "";
        ck_assert_msg(n == all[i].found && strstr(text, all[i].part), "%s: %d: %s", all[i].types, n,
                      text);
        if (!all[i].n)
            ck_assert_int_eq(optc_rule_warnings(r), n);
        if (!all[i].n && n)
            ck_assert(strstr(text, optc_rule_warning(r, 0)));
        FAILS(optc_type_warnings(r, &(optc_setting){"beta", 0}, 1, text, sizeof text),
              OPTC_ERROR_ARGUMENT, "no hyperparameter");
        FAILS(optc_type_warnings(r, NULL, 0, NULL, 0), OPTC_ERROR_ARGUMENT, "an argument is NULL");
        OK(optc_release(r));
    }
}
END_TEST

/* Entries that exchange p with a wider state round it, unless a master keeps the bits. sam's state
 * only keeps p. */
START_TEST(warnings_of_exchanges)
{
    static const struct { const char *spec, *types; bool warned;
    } all[] = {{"adamw+ema", "param=bf16,state=f32", true},
               {"adamw+ema", "param=bf16,ema.avg=f32", true},
               {"adamw+ema", "param=f16,state=f32", true},
               {"adamw+ema", "param=bf16,state=bf16,ema.avg=bf16", false},
               {"adamw+ema", "param=bf16,master=low16", false},
               {"adamw+ema", "param=bf16,master=f32", false},
               {"adamw+ema", NULL, false},
               {"sgd+sam", "param=bf16,state=f32", false},
               {"sgd+lookahead", "param=bf16,state=f32", false}};
    char text[4000];
    for (int i = 0; i < COUNT(all); i++) {
        optc_rule *r;
        OK(optc_compile(engine, &(optc_rule_options){.spec = all[i].spec, .types = all[i].types},
                        &r));
        OK(optc_type_warnings(r, NULL, 0, text, sizeof text));
        bool said = strstr(text, "puts state 'ema.avg' into the parameters"), here = false;
        for (int k = 0; k < optc_rule_warnings(r); k++)
            here =
                here || strstr(optc_rule_warning(r, k), "rounds it for good: choose types master=");
        ck_assert_msg(said == all[i].warned && here == said, "%s, %s: %s", all[i].spec,
                      all[i].types, text);
        OK(optc_release(r));
    }
}
END_TEST

/* Bytes of a state: codes padded to blocks, then scales; f32 in small tensors. */
START_TEST(bytes_of_states)
{
    static const struct { int64_t n; size_t bytes; optc_type type;
    } all[] = {{4095, 4095 * 4, OPTC_F32},
               {4096, 4096 + 32 * 4, OPTC_Q8U},
               {4097, 33 * 132, OPTC_Q8U},
               {0, 0, OPTC_F32}};
    optc_rule *r = compiled("state=q8");
    for (int i = 0; i < COUNT(all); i++) {
        optc_binding *b;
        optc_state_view v;
        size_t bytes = 1, rest = 1;
        optc_held held;
        float *p = calloc((size_t)all[i].n + 1, sizeof *p),
              *g = calloc((size_t)all[i].n + 1, sizeof *g);
        optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 1, .shape = &all[i].n};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_state_bytes(b, 0, "v", &bytes));
        OK(optc_state(b, 0, "v", &v));
        ck_assert_msg(bytes == all[i].bytes && v.type == all[i].type,
                      "%lld elements: %zu bytes of type %d", (long long)all[i].n, bytes,
                      (int)v.type);
        char *raw = malloc(bytes + 1);
        OK(optc_state_get(b, 0, "v", raw, bytes));
        OK(optc_binding_held(b, &held));
        ck_assert(held.states >= (int64_t)(2 * bytes));
        FAILS(optc_state_bytes(b, 0, "w", &rest), OPTC_ERROR_ARGUMENT, "no state 'w'");
        FAILS(optc_state_bytes(b, 0, "vmax", &rest), OPTC_ERROR_ABSENT, "keeps no state 'vmax'");
        FAILS(optc_state_bytes(b, 0, "v", NULL), OPTC_ERROR_ARGUMENT, "the result pointer is NULL");
        OK(optc_unbind(b));
        free(raw);
        free(p);
        free(g);
    }
    OK(optc_release(r));
}
END_TEST

/* After p or a state was set to a gradient, a constant or a hyperparameter, `stored` has the
 * rounded value; it had the unrounded one. Even numbers: compiled; odd ones: the evaluator. */
static const struct { const char *step; double p, m;
} assigned[] = {
    {"p = g  a = stored 'p'  m = 0 * m", 0x1.02p0, 0},
    {"p = 1.005  a = stored 'p'  m = 0 * m", 0x1.02p0, 0},
    {"p = lr  a = stored 'p'  m = 0 * m", 0x1.02p0, 0},
    {"m = g  a = stored 'm'  p = 0 * p", 0, 0x1.014p0},
    {"m = lr  a = stored 'm'  p = 0 * p", 0, 0x1.014p0},
    {"m = 0 * m  p = m  a = stored 'p'", 0, 0},
};

START_TEST(stored_rounds)
{
    char *text = format("return optimizer { name = 'x', hyper = { lr = 1.005 }, state = { a = "
                        "zeros('elem', 'f32'), "
                        "m = zeros('elem', 'f16') },\nstep = function() %s end }",
                        assigned[_i / 2].step);
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    uint16_t p[5] = {0};
    float g[5] = {1.005f, 1.005f, 1.005f, 1.005f, 1.005f};
    double a[5], m[5];
    OK(optc_open(&(optc_engine_options){.threads = 1,
                                        .compiler = _i % 2 ? "" : NULL,
                                        .cache_dir = _i % 2 ? "" : getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(
        e, &(optc_rule_options){.spec = "made.lua", .text = text, .types = "param=bf16,grad=f32"},
        &r));
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = (int64_t[]){5}};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_state_read(b, 0, "a", a, 5));
    OK(optc_state_read(b, 0, "m", m, 5));
    for (int i = 0; i < 5; i++) {
        ck_assert_msg(type_load(T_BF16, p, i) == assigned[_i / 2].p && m[i] == assigned[_i / 2].m,
                      "%g, %g", type_load(T_BF16, p, i), m[i]);
        ck_assert_msg(a[i] == assigned[_i / 2].p + assigned[_i / 2].m, "%s: stored is %.9g",
                      assigned[_i / 2].step, a[i]);
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
    free(text);
}
END_TEST

/* Pieces of tensors with coded states: ranges of whole blocks. */
static const struct { int64_t whole[2], piece[2], at[2]; const char *part;
} pieces[] = {
    {{64, 128}, {32, 128}, {32, 0}, NULL},
    {{64, 128}, {64, 128}, {0, 0}, NULL},
    {{100, 100}, {32, 100}, {0, 0}, NULL}, /* 3200 elements: 25 blocks */
    /* its last block is not full, as in the whole */
    {{100, 100}, {68, 100}, {32, 0}, NULL},
    {{100, 100},
     {50, 100},
     {0, 0},
     "(elements 0 to 5000 of 10000), and the state 'm' is stored as q8 in blocks"},
    {{100, 100}, {50, 100}, {50, 0}, "(elements 5000 to 10000 of 10000)"},
    {{64, 256}, {64, 128}, {0, 128}, NULL}, /* runs of one block */
    {{64, 200}, {64, 100}, {0, 100}, "(separate runs of elements from 100 to"},
    {{1, 8192}, {1, 128}, {0, 256}, NULL},
    {{40, 100}, {17, 100}, {3, 0}, NULL}, /* f32: fewer than 4096 elements */
    {{64, 128}, {0, 128}, {1, 0}, NULL},
};

START_TEST(pieces_are_whole_blocks)
{
    optc_rule *r = compiled("state=q8");
    optc_binding *b = NULL;
    float *p = calloc(20000, sizeof *p), *g = calloc(20000, sizeof *g);
    optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 2, .shape = pieces[_i].piece,
                     .global_shape = pieces[_i].whole, .offset = pieces[_i].at};
    optc_group group = {.tensors = &t, .ntensors = 1};
    if (pieces[_i].part)
        FAILS(optc_bind(r, &group, 1, &b), OPTC_ERROR_ARGUMENT, pieces[_i].part);
    else
        OK(optc_bind(r, &group, 1, &b));
    OK(optc_unbind(b));
    optc_rule *plain = compiled("state=bf16");
    OK(optc_bind(plain, &group, 1, &b));
    OK(optc_unbind(b));
    OK(optc_release(plain));
    OK(optc_release(r));
    free(p);
    free(g);
}
END_TEST

/* Keys of tuning results: as before for plain sets, of their own for named states. The order of
 * names does not matter. */
START_TEST(keys_of_types)
{
    static const struct { const char *types, *key; } all[] = {
        {NULL, "f32,f32,f32"}, {"param=bf16", "bf16,bf16,f32"}, {"state=q8", "f32,f32,q8"},
        {"state=q8,m=bf16", "f32,f32,q8+"}, {"m=bf16,state=q8,v=f32", "f32,f32,q8+"},
        {"v=f32,state=q8,m=bf16", "f32,f32,q8+"}};
    char key[COUNT(all)][TYPES_KEY];
    CacheNote note;
    for (int i = 0; i < COUNT(all); i++) {
        optc_rule *r = compiled(all[i].types);
        TunedKey k;
        cpu_tuned_key(r, 1000, &k);
        plan_types_key(r->library->plan, key[i]);
        ck_assert_str_eq(k.types, key[i]);
        size_t n = strlen(all[i].key);
        bool more = all[i].key[n - 1] == '+';
        ck_assert_msg(!strncmp(key[i], all[i].key, n) && strlen(key[i]) == n + (more ? 8 : 0), "%s",
                      key[i]);
        rule_note(r, "here", "cc", &note);
        OK(optc_release(r));
    }
    ck_assert_str_ne(key[3], key[4]);
    ck_assert_str_eq(key[4], key[5]);
    ck_assert_str_eq(note.types, "f32/f32/q8,m=bf16,v=f32");
}
END_TEST

Suite *storage_types_suite(void)
{
    Suite *s = suite_create("storage_types");
    TCase *t = tcase_create("storage_types");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_choice_covers, 0, COUNT(covered));
    tcase_add_loop_test(t, a_sign_is_proven, 0, COUNT(signs));
    tcase_add_test(t, all_entries_count);
    tcase_add_loop_test(t, a_signed_code_does_not_divide, 0, COUNT(divided));
    tcase_add_loop_test(t, a_choice_is_refused, 0, COUNT(refused));
    tcase_add_loop_test(t, a_choice_is_warned_of, 0, COUNT(warned));
    tcase_add_test(t, all_rules_take_codes);
    tcase_add_test(t, options_take_codes);
    tcase_add_test(t, ir_text_keeps_types);
    suite_add_tcase(s, t);
    TCase *c = tcase_create("interface");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, open_engine, close_engine);
    tcase_add_test(c, options_take_the_text);
    tcase_add_test(c, warnings_of_rounding);
    tcase_add_test(c, warnings_of_exchanges);
    tcase_add_test(c, bytes_of_states);
    tcase_add_loop_test(c, stored_rounds, 0, 2 * COUNT(assigned));
    tcase_add_loop_test(c, pieces_are_whole_blocks, 0, COUNT(pieces));
    tcase_add_test(c, keys_of_types);
    suite_add_tcase(s, c);
    return s;
}

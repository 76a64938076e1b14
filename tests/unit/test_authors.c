/* Agreement with the authors' code beyond trajectories (test_refs.c): defaults, the number of steps
 * of a set of coefficients, and tensors and hyperparameters that a rule refuses because its result
 * would silently differ from the authors'. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The values in the authors' classes, at the commits that matrix_refs.py and factor_refs.py
 * name. */
static const struct { const char *rule, *name; double value;
} hypers[] = {
    {"polargrad", "lr", 0.02},
    {"klshampoo", "lr", 1e-4},
    {"klshampoo", "beta2", 0.98},
    {"asgo", "lr", 0.01},
    {"asgo", "weight_decay", 0.1},
    {"scion", "lr", 1e-3},
    {"scion", "momentum", 1},
    {"scion", "scale", 1},
    {"ademamix", "alpha", 2},
    {"novograd", "lr", 1e-3},
    {"novograd", "beta1", 0.95},
    {"sgdw", "lr", 1e-3},
    {"normuon", "lr", 0.02},
    {"normuon", "eps", 1e-10},
    {"psgd", "lr", 1e-3},
    {"psgd", "precond_lr", 0.1},
    {"psgd", "clip_rms", 2},
    {"soap", "lr", 3e-3},
    {"splus", "lr", 0.1},
    {"adabelief", "eps", 1e-16},
    {"adabound", "base_lr", 0},
    {"lion", "lr", 1e-4},
    {"madgrad", "lr", 1e-2},
    {"adopt", "clip_power", 0.25},
    {"adai", "beta0", 0.1},
    {"mars", "gamma", 0.025},
    {"prodigy", "d0", 1e-6},
    {"came", "eps2", 1e-16},
    {"schedulefree_adamw", "lr", 0.0025},
};
static const struct { const char *rule, *name, *value; } options[] = {
    {"soap", "interval", "10"}, {"splus", "interval", "100"}, {"klshampoo", "interval", "10"},
    {"normuon", "scale", "keep"}, {"adabelief", "rectify", "true"}, {"dion", "directions", "768"},
    {"ademamix", "warmup", "false"},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static optc_rule *compiled(optc_engine *e, const char *spec, const char *with, const char *how)
{
    optc_rule *r;
    OK(optc_compile(
        e, &(optc_rule_options){.spec = spec, .with = with, .options = how, .param = OPTC_F64},
        &r));
    return r;
}

static optc_engine *evaluator(void)
{
    optc_engine *e;
    OK(optc_open(
        &(optc_engine_options){.threads = 1, .compiler = "", .cache_dir = "", .no_builtin = true},
        &e));
    return e;
}

START_TEST(defaults)
{
    optc_engine *e = evaluator();
    for (int i = 0; i < COUNT(hypers); i++) {
        optc_rule *r = compiled(e, hypers[i].rule, "", "");
        double got = -1;
        for (int k = 0; k < r->program->nhyper; k++)
            got =
                strcmp(r->program->hyper[k].name, hypers[i].name) ? got : r->program->hyper[k].def;
        ck_assert_msg(got == hypers[i].value, "%s: %s is %g, and the authors have %g",
                      hypers[i].rule, hypers[i].name, got, hypers[i].value);
        OK(optc_release(r));
    }
    for (int i = 0; i < COUNT(options); i++) {
        optc_rule *r = compiled(e, options[i].rule, "", "");
        const char *got = "missing";
        for (int k = 0; k < r->library->rule->noption; k++)
            got = strcmp(r->library->rule->option[k].name, options[i].name)
                      ? got
                      : r->library->rule->option[k].value;
        ck_assert_msg(!strcmp(got, options[i].value), "%s: %s is %s, and the authors have %s",
                      options[i].rule, options[i].name, got, options[i].value);
        OK(optc_release(r));
    }
    OK(optc_close(e));
}
END_TEST

/* turbo has four triples: a fifth step would apply the last one twice. */
START_TEST(steps_of_coefficients)
{
    static const char *const rules[] = {"muon",  "adamuon",   "normuon",
                                        "adago", "polargrad", "scion"};
    static const struct { const char *set; int steps; } sets[] = {
        {"turbo", 4}, {"jordan", 5}, {"cans", 5}};
    static const TestShape shape = {2, {6, 4}};
    for (int i = 0; i < COUNT(rules) * COUNT(sets); i++) {
        const char *rule = rules[i / COUNT(sets)];
        uint64_t hash[2];
        for (int said = 0; said < 2; said++) {
            Fixture f;
            char how[80];
            snprintf(how, sizeof how, said ? "coefficients=%s,steps=%d" : "coefficients=%s",
                     sets[i % COUNT(sets)].set, sets[i % COUNT(sets)].steps);
            optc_engine_options eo = {
                .threads = 1, .compiler = "", .cache_dir = "", .no_builtin = true};
            fix_open(&f, &eo, &(optc_rule_options){.spec = rule, .options = how, .param = OPTC_F64},
                     &shape, 1, NULL, 0);
            for (int k = 0; k < 24; k++)
                ((double *)f.g[0])[k] = ref_value(0, 1, k);
            OK(optc_step(f.binding));
            hash[said] = fix_hash(&f);
            fix_close(&f);
        }
        ck_assert_msg(hash[0] == hash[1], "%s: %s without steps is not %d steps of it", rule,
                      sets[i % COUNT(sets)].set, sets[i % COUNT(sets)].steps);
    }
}
END_TEST

/* view = "plain": kernels of one element are matrices, others are refused. */
START_TEST(kernels_are_refused)
{
    static const char text[] =
        "return optimizer { name = 'plain', view = 'plain', hyper = { lr = 1 },\n"
        "  step = function() p = p - lr * g end,\n"
        "  matrix = function() p = p - lr * polar(g) end }";
    static const struct { int rank; int64_t dim[4]; int flags; bool ok;
    } t[] = {{2, {4, 3}, 0, true},
             {4, {4, 3, 1, 1}, 0, true},
             {4, {4, 3, 2, 2}, 0, false},
             {3, {4, 3, 2}, 0, false},
             {3, {0, 3, 2}, 0, true},
             {4, {4, 3, 2, 2}, OPTC_AS_VECTOR, true},
             {4, {4, 3, 2, 2}, OPTC_USE_STEP, true},
             {1, {48}, 0, true}};
    double p[48] = {0}, g[48] = {0};
    optc_engine *e = evaluator();
    optc_rule *r[2];
    for (int i = 0; i < 2; i++)
        OK(optc_compile(
            e, &(optc_rule_options){.text = text, .with = i ? "clip(1)" : "", .param = OPTC_F64},
            &r[i]));
    for (int i = 0; i < 2 * COUNT(t); i++) {
        optc_tensor x = {.name = "conv",
                         .param = p,
                         .grad = g,
                         .rank = t[i / 2].rank,
                         .shape = t[i / 2].dim,
                         .flags = t[i / 2].flags};
        optc_group group = {.tensors = &x, .ntensors = 1};
        optc_binding *b = NULL;
        if (t[i / 2].ok) {
            OK(optc_bind(r[i % 2], &group, 1, &b));
            OK(optc_unbind(b));
        } else {
            FAILS(optc_bind(r[i % 2], &group, 1, &b), OPTC_ERROR_ARGUMENT,
                  "tensor 'conv' (number 0) has");
            FAILS(optc_bind(r[i % 2], &group, 1, &b), OPTC_ERROR_ARGUMENT,
                  "step it with another rule");
        }
    }
    OK(optc_release(r[0]));
    OK(optc_release(r[1]));
    OK(optc_close(e));
}
END_TEST

/* The rule inside a projection sees no weights: its own weight decay has an effect on matrices only
 * if it is decoupled and the wrapper takes the step apart. adan cannot be taken apart. */
START_TEST(decay_under_a_projection)
{
    static const char *const rules[] = {"adan", "adam", "sgd"}, *const with[] = {
                                                                    "galore(2,2)", "fira(2,2)",
                                                                    "galore(2,2),clip(1)",
                                                                    "galore(2,2,apart=false)"};
    static const int64_t dim[] = {4, 6};
    double p[24] = {0}, g[24] = {0};
    optc_engine *e = evaluator();
    for (int i = 0; i < COUNT(rules) * COUNT(with); i++) {
        optc_rule *r = compiled(e, rules[i / COUNT(with)], with[i % COUNT(with)], "");
        optc_tensor x = {.param = p, .grad = g, .rank = 2, .shape = dim};
        optc_setting set = {"weight_decay", 0.1};
        optc_binding *b = NULL;
        double was = 1;
        FAILS(optc_bind(r, &(optc_group){.tensors = &x, .ntensors = 1, .hyper = &set, .nhyper = 1},
                        1, &b),
              OPTC_ERROR_RANGE, "weight_decay = 0.1");
        OK(optc_bind(r, &(optc_group){.tensors = &x, .ntensors = 1}, 1, &b));
        OK(optc_get_hyper(b, 0, "weight_decay", &was));
        ck_assert_msg(was == 0, "%s: weight_decay is %g", rules[i / COUNT(with)], was);
        FAILS(optc_set_hyper(b, 0, "weight_decay", 0.1), OPTC_ERROR_RANGE,
              "set galore.decay or fira.decay to lr * weight decay, or use a rule with decoupled "
              "decay");
        OK(optc_set_hyper(b, 0, "weight_decay", 0));
        OK(optc_unbind(b));
        OK(optc_release(r));
    }
    static const struct { const char *rule, *with; bool decoupled;
    } apart[] = {{"adamw", "galore(2,2)", true},
                 {"lion", "galore(2,2)", true},
                 {"adamw", "fira(2,2)", true},
                 {"adamw", "galore(2,2,apart=true)", true},
                 {"sgd", "galore(2,2,apart=true)", false},
                 {"adamw", "galore(2,2,apart=false)", false},
                 {"sgd", "galore(2,2)", false},
                 {"adan", "galore(2,2)", false}};
    for (int i = 0; i < COUNT(apart); i++) {
        optc_rule *r = compiled(e, apart[i].rule, apart[i].with, "");
        optc_tensor x = {.param = p, .grad = g, .rank = 2, .shape = dim};
        optc_binding *b;
        OK(optc_bind(r, &(optc_group){.tensors = &x, .ntensors = 1}, 1, &b));
        optc_status s = optc_set_hyper(b, 0, "weight_decay", 0.1);
        ck_assert_msg((s == OPTC_OK) == apart[i].decoupled, "%s: %d", apart[i].rule, s);
        OK(optc_unbind(b));
        OK(optc_release(r));
    }
    OK(optc_close(e));
}
END_TEST

/* Rules whose authors count the steps of the group. late: the result for a tensor whose first
 * gradient is that of step 6, beside the sign of the gradient; bias corrections are those of step
 * 6. With one gradient v is (1 - beta2) g^2 and m is (1 - beta1) g. */
enum { LR_HALF, ADAM, RECTIFIED, BETAS, ONE_MOMENT, OLD_SQUARE };
static const struct { const char *rule, *options, *state; int late; optc_setting more[3];
} late[] = {
    {"schedulefree_adamw", "", "z", LR_HALF, {{0}}},
    {"schedulefree_radam", "", "z", RECTIFIED, {{0}}},
    {"gpa_adamw", "", "z", ADAM, {{0}}},
    {"lamb", "", NULL, ADAM, {{0}}},
    {"adan", "", NULL, ADAM, {{"beta3", 0.9}}},
    {"adagc", "", NULL, ADAM, {{0}}},
    {"yogi", "", NULL, ADAM, {{"initial_accumulator", 0}}},
    {"stable_spam", "", NULL, ADAM, {{0}}},
    {"shampoo", "", NULL, ADAM, {{"graft_eps", 0}}},
    {"prodigy", "use_bias_correction=true", NULL, ADAM, {{"d0", 1}, {"d_coef", 1e-30}}},
    {"dadapt_adam", "use_bias_correction=true", NULL, ADAM,
     {{"d0", 1}, {"growth_rate", 1 + 1e-15}}},
    {"stableadamw", "", NULL, BETAS, {{0}}},
    {"amos", "", NULL, ONE_MOMENT, {{"beta", 0.9}}},
    {"adashift", "keep_num=1", NULL, OLD_SQUARE, {{0}}},
};

/* The authors' step for a gradient g, whose mean square is 14/3 and whose largest square is 9. */
static double late_step(int kind, double g)
{
    const double b1 = 0.8, b2 = 0.9, lr = 0.5, k = 6, last = 2 / (1 - b2) - 1;
    const double c1 = 1 - pow(b1, k), c2 = 1 - pow(b2, k), root = sqrt(c2 / (1 - b2));
    const double rho = last - 2 * k * pow(b2, k) / c2;
    switch (kind) {
    case LR_HALF: return copysign(lr * root, g);
    case ADAM: return copysign(lr * (1 - b1) / c1 * root, g);
    case BETAS: return copysign(lr * (1 - b1) / c1, g);
    case ONE_MOMENT: return lr * 0.5 * root * g / sqrt(14.0 / 3);
    case OLD_SQUARE: return lr * g / sqrt(9 * (1 - b2) / (1 - pow(b2, k - 1)));
    default:
        return copysign(lr * root * sqrt((rho - 4) * (rho - 2) * last /
                                         ((last - 4) * (last - 2) * rho)), g);
    }
}

static bool has_hyper(const optc_rule *r, const char *name)
{
    optc_hyper h = {0};
    int i = 0;
    while (i < optc_rule_hypers(r) && optc_rule_hyper(r, i, &h) == OPTC_OK && strcmp(h.name, name))
        i++;
    return i < optc_rule_hypers(r);
}

START_TEST(late_tensor)
{
    static const int64_t dim[] = {3};
    double p[2][3] = {{0}}, g[3] = {1, -2, 3}, z[3];
    optc_engine *e = evaluator();
    optc_rule *r = compiled(e, late[_i].rule, "", late[_i].options);
    optc_setting set[8];
    optc_tensor x[2];
    optc_binding *b;
    int n = 0, first = late[_i].late == OLD_SQUARE ? 5 : 6;
    const optc_setting usual[] = {
        {"lr", 0.5}, {"beta1", 0.8}, {"beta2", 0.9}, {"eps", 1e-30}, {"weight_decay", 0}};
    for (int i = 0; i < COUNT(usual); i++)
        if (has_hyper(r, usual[i].name))
            set[n++] = usual[i];
    for (int i = 0; i < 3 && late[_i].more[i].name; i++)
        set[n++] = late[_i].more[i];
    for (int i = 0; i < 2; i++)
        x[i] = (optc_tensor){.param = p[i], .grad = g, .rank = 1, .shape = dim};
    OK(optc_bind(r, &(optc_group){.tensors = x, .ntensors = 2, .hyper = set, .nhyper = n}, 1, &b));
    for (int step = 1; step <= 6; step++) {
        const void *grads[] = {g, step < first ? NULL : g};
        OK(optc_set_grads(b, grads, 2));
        OK(optc_step(b));
    }
    memcpy(z, p[1], sizeof z);
    if (late[_i].state)
        OK(optc_state_read(b, 1, late[_i].state, z, 3));
    for (int i = 0; i < 3; i++)
        ck_assert_msg(fabs(z[i] + late_step(late[_i].late, g[i])) < 1e-12,
                      "%s: the result is %.15g, and the authors have %.15g", late[_i].rule, z[i],
                      -late_step(late[_i].late, g[i]));
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *authors_suite(void)
{
    Suite *s = suite_create("authors");
    TCase *t = tcase_create("authors");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, defaults);
    tcase_add_test(t, steps_of_coefficients);
    tcase_add_test(t, kernels_are_refused);
    tcase_add_test(t, decay_under_a_projection);
    tcase_add_loop_test(t, late_tensor, 0, COUNT(late));
    suite_add_tcase(s, t);
    return s;
}

/* Wrappers of the library against plain C that does the same by hand: accumulate, ema's entries,
 * log, loss_scale. */
#include "gen/gen.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const TestShape shapes[] = {{2, {33, 65}}, {1, {100}}};
enum { NT = 2 };

static void open_rule(Fixture *f, const char *spec)
{
    fix_open(f, NULL, &(optc_rule_options){.spec = spec}, shapes, NT, NULL, 0);
}

static void fill_grads(Fixture *f, int step, double scale)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            ((float *)f->g[k])[i] = (float)(scale * ref_value(k, step, i));
}

static bool same_params(const Fixture *a, const Fixture *b)
{
    bool same = true;
    for (int k = 0; k < a->n; k++)
        same = same && !memcmp(a->p[k], b->p[k], sizeof(float) * (size_t)a->count[k]);
    return same;
}

static double number(Fixture *f, int tensor, const char *name)
{
    double x;
    OK(optc_state_read(f->binding, tensor, name, &x, 1));
    return x;
}

/* Every fourth step is the rule's step with the mean; a tensor that misses steps counts its own.
 * SOAP has periods and a first step of its own. */
START_TEST(accumulates)
{
    static const char *const rule[] = {"adamw", "soap"};
    Fixture a, b;
    float sum[NT][33 * 65] = {{0}};
    open_rule(&a, format("%s+accumulate(4)", rule[_i]));
    open_rule(&b, rule[_i]);
    for (int t = 1; t <= 48; t++) {
        bool all = t < 9 || t > 12;                        /* tensor 1 misses the third round */
        fill_grads(&a, t, 1);
        OK(optc_set_grad(a.binding, 1, all ? a.g[1] : NULL, 0));
        for (int k = 0; k < NT; k++)
            for (int64_t i = 0; i < a.count[k] && (k == 0 || all); i++)
                sum[k][i] += ((float *)a.g[k])[i];
        OK(optc_step(a.binding));
        if (t % 4 == 0) {
            for (int k = 0; k < NT; k++)
                for (int64_t i = 0; i < a.count[k]; i++)
                    ((float *)b.g[k])[i] = sum[k][i] / 4;
            OK(optc_set_grad(b.binding, 1, all ? b.g[1] : NULL, 0));
            OK(optc_step(b.binding));
            memset(sum, 0, sizeof sum);
        }
        ck_assert_msg(same_params(&a, &b), "%s: they differ after %d steps", rule[_i], t);
    }
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* A step that an outer wrapper skips is left out of the mean: within a round (t = 2), at the rule's
 * own step (t = 8, so that the sum waits until t = 12), and both (13 to 16). Tensor 1 has no
 * gradient at t = 17: it counts as 0. */
START_TEST(skipped_gradients)
{
    static const char *const with[] = {"skip", "loss_scale(1)"};
    Fixture a, b;
    float sum[NT][33 * 65] = {{0}};
    int added = 0;
    open_rule(&a, format("adamw+accumulate(4),%s", with[_i]));
    open_rule(&b, "adamw");
    if (_i)
        OK(optc_set_hyper(a.binding, 0, "loss_scale.backoff", 1));
    for (int t = 1; t <= 24; t++) {
        bool bad = t == 2 || t == 8 || (t > 12 && t <= 16);
        fill_grads(&a, t, 1);
        OK(optc_set_grad(a.binding, 1, t == 17 ? NULL : a.g[1], 0));
        for (int k = 0; k < NT; k++)
            for (int64_t i = 0; i < a.count[k] && !bad && (k == 0 || t != 17); i++)
                sum[k][i] += ((float *)a.g[k])[i];
        added += !bad;
        if (bad)
            ((float *)a.g[1])[99] = NAN;
        OK(optc_step(a.binding));
        if (t % 4 == 0 && !bad) {
            for (int k = 0; k < NT; k++)
                for (int64_t i = 0; i < a.count[k]; i++)
                    ((float *)b.g[k])[i] = sum[k][i] / (float)added;
            OK(optc_step(b.binding));
            memset(sum, 0, sizeof sum);
            added = 0;
        }
        ck_assert_msg(same_params(&a, &b), "%s: they differ after %d steps", with[_i], t);
    }
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* The rule's scalar inputs are means too, as its gradient: `loss` of the rule, and `scale` of a
 * wrapper inside of accumulate; one outside reads its own at each step. `matrix` and `step` are two
 * variants. A step that skip leaves out does not count. A checkpoint within a round keeps the sums.
 * The other binding gets the means, computed here. */
static const struct { const char *with, *of_mean; int k;
} summed[] = {{"accumulate(4)", "", 4},
              {"accumulate(2),accumulate(3)", "accumulate(2)", 3},
              {"accumulate(4),skip", "", 4},
              {"scaled,accumulate(4)", "scaled", 4},
              {"accumulate(4),scaled", "", 4}};

static void open_summed(Fixture *f, const char *with)
{
    static const optc_text scaled = {
        "scaled", "return wrapper { name = 'scaled', inputs = { scale = 'group' }, "
                  "step = function() g = g * scale inner() end }"};
    fix_open(f, NULL,
             &(optc_rule_options){.spec = "by_loss.lua",
                                  .with = with,
                                  .wrappers = &scaled,
                                  .nwrappers = 1,
                                  .text =
                                      "return optimizer { name = 'by_loss', hyper = { lr = 0.1 }, "
                                      "inputs = { loss = 'group' },\n"
                                      "  matrix = function() p = descend(p, loss * g, lr) end,\n"
                                      "  step = function() p = descend(p, g, lr * loss) end }"},
             shapes, NT, NULL, 0);
}

static void set_scalars(Fixture *f, const char *with, double loss, double scale)
{
    OK(optc_set_scalar(f->binding, -1, "loss", loss));
    if (strstr(with, "scaled"))
        OK(optc_set_scalar(f->binding, -1, "scaled.scale", scale));
}

static void reopen(Fixture *f, const char *with)
{
    optc_checkpoint c = {.params = 1};
    int64_t bytes;
    OK(optc_save_bytes(&f->binding, 1, &c, &bytes));
    c.memory = malloc((size_t)bytes), c.size = bytes;
    OK(optc_save(&f->binding, 1, &c));
    fix_close(f);
    open_summed(f, with);
    OK(optc_load(&f->binding, 1, &c));
    free(c.memory);
}

START_TEST(means_of_inputs)
{
    const char *with = summed[_i].with, *of_mean = summed[_i].of_mean;
    Fixture a, b;
    float sum[NT][33 * 65] = {{0}};
    double loss = 0, scale = 0;
    int added = 0;
    open_summed(&a, with);
    open_summed(&b, of_mean);
    for (int t = 1; t <= 24; t++) {
        bool bad = strstr(with, "skip") && (t == 2 || t == 8), outside = _i == 4;
        double l = 1 + 0.25 * (t * t % 7), s = 1 + 0.5 * (t % 3);
        fill_grads(&a, t, 1);
        for (int k = 0; k < NT; k++)
            for (int64_t i = 0; i < a.count[k] && !bad; i++)
                sum[k][i] += ((float *)a.g[k])[i] * (outside ? (float)s : 1);
        loss += bad ? 0 : l, scale += bad ? 0 : s, added += !bad;
        if (bad)
            ((float *)a.g[1])[7] = NAN;
        set_scalars(&a, with, l, s);
        /* its bounds of NaN say nothing */
        char *why = bad ? NULL : step_in_bounds(&a, "step");
        if (bad)
            OK(optc_step(a.binding));
        ck_assert_msg(!why, "%s, step %d: %s", with, t, why);
        if (t % summed[_i].k == 0 && !bad) {
            for (int k = 0; k < NT; k++)
                for (int64_t i = 0; i < a.count[k]; i++)
                    ((float *)b.g[k])[i] = sum[k][i] / (float)added;
            set_scalars(&b, of_mean, loss / added, scale / added);
            OK(optc_step(b.binding));
            memset(sum, 0, sizeof sum);
            loss = scale = added = 0;
        }
        ck_assert_msg(same_params(&a, &b), "%s: they differ after %d steps", with, t);
        if (t == 6)
            reopen(&a, with);
    }
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* The sum of gradients is not narrowed with the other states, and is as wide as f64 parameters. */
START_TEST(sums_stay_wide)
{
    static const struct { const char *types; optc_type want; } row[] = {
        {"state=q8", OPTC_F32}, {"param=bf16", OPTC_F32}, {"param=f64", OPTC_F64}};
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.no_builtin = 1}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw+accumulate(2)", .types = row[_i].types},
                    &r));
    int found = 0;
    for (int i = 0; i < optc_rule_states(r); i++) {
        optc_state_info s;
        OK(optc_rule_state(r, i, &s));
        found += !strcmp(s.name, "accumulate.grads") && s.type == row[_i].want;
    }
    ck_assert_int_eq(found, 1);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* to_eval shows the average and to_train brings back the bits; twice changes nothing; tensors
 * without gradient take part; a step continues from the weights. ema_nesterov: from the look-ahead
 * point; to_eval shows the weights. */
START_TEST(average_for_evaluation)
{
    const char *rule = _i ? "adamw+ema_nesterov(0.5,0.9)" : "adamw+ema(0.9)";
    const char *state = _i ? "ema_nesterov.weights" : "ema.avg";
    Fixture a, b;
    double avg[33 * 65];
    open_rule(&a, rule);
    open_rule(&b, rule);
    for (int t = 1; t <= 9; t++) {
        fill_grads(&a, t, 1);
        fill_grads(&b, t, 1);
        OK(optc_step(a.binding));
        OK(optc_step(b.binding));
        for (int k = 0; k < NT; k++) {
            OK(optc_set_grad(a.binding, k, t % 3 == 0 ? NULL : a.g[k], 0));
            OK(optc_state_read(a.binding, 0, state, avg, a.count[0]));
        }
        for (int twice = 0; twice <= t % 2; twice++)
            OK(optc_run(a.binding, "to_eval"));
        for (int64_t i = 0; i < a.count[0]; i++)
            ck_assert_msg(((float *)a.p[0])[i] == (float)avg[i], "step %d: no average at %d", t,
                          (int)i);
        ck_assert(!same_params(&a, &b));
        for (int twice = 0; twice <= t % 2 && t < 8; twice++)
            OK(optc_run(a.binding, "to_train"));
        ck_assert(t >= 8 || same_params(&a, &b));
        for (int k = 0; k < NT; k++)
            OK(optc_set_grad(a.binding, k, a.g[k], 0));
    }
    fill_grads(&a, 10, 1);
    fill_grads(&b, 10, 1);
    /* still shows the average: the step puts the weights back */
    OK(optc_step(a.binding));
    OK(optc_step(b.binding));
    ck_assert(same_params(&a, &b) && fix_hash(&a) == fix_hash(&b));
    fix_close(&a);
    fix_close(&b);
}
END_TEST

static double norm_of(const float *x, const float *minus, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        float d = minus ? x[i] - minus[i] : x[i];
        s += (double)d * d;
    }
    return sqrt(s);
}

START_TEST(logged_norms)
{
    static const char *const rule[] = {"adamw", "muon", "adamw+clip(0.1)"};
    static const char *const value[] = {"log.gradient", "log.update", "log.weights"};
    Fixture a, b;
    float before[NT][33 * 65];
    open_rule(&a, format("%s+log", rule[_i]));
    open_rule(&b, rule[_i]);
    for (int t = 1; t <= 3; t++) {
        fill_grads(&a, t, 1);
        fill_grads(&b, t, 1);
        for (int k = 0; k < NT; k++)
            memcpy(before[k], a.p[k], sizeof(float) * (size_t)a.count[k]);
        OK(optc_step(a.binding));
        OK(optc_step(b.binding));
        ck_assert(same_params(&a, &b));
        for (int k = 0; k < NT; k++) {
            int64_t n = a.count[k];
            double got, want[] = {norm_of(a.g[k], NULL, n), norm_of(a.p[k], before[k], n),
                                  norm_of(a.p[k], NULL, n)};
            for (int j = 0; j < 3; j++) {
                OK(optc_read_value(a.binding, k, value[j], &got, 1));
                ck_assert_msg(fabs(got - want[j]) < 1e-12 * want[j],
                              "%s, step %d, %s: %.17g, not %.17g", rule[_i], t, value[j], got,
                              want[j]);
            }
        }
    }
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* As torch's GradScaler: halves the scale and skips on an infinity or NaN, doubles it after
 * `interval` good steps. */
START_TEST(scales_losses)
{
    Fixture a, b;
    double scale = 1024, good = 0, skipped = 0;
    open_rule(&a, "adamw+loss_scale(1024)");
    open_rule(&b, "adamw");
    OK(optc_set_hyper(a.binding, 0, "loss_scale.interval", 3));
    for (int t = 1; t <= 16; t++) {
        bool bad = t == 1 || t == 8 || t == 9;
        ck_assert_msg(number(&a, 0, "loss_scale.scale") == scale, "step %d: scale %g, not %g", t,
                      number(&a, 0, "loss_scale.scale"), scale);
        fill_grads(&a, t, 1);
        fill_grads(&b, t, 1);
        for (int k = 0; k < NT; k++)
            for (int64_t i = 0; i < a.count[k]; i++)
                ((float *)a.g[k])[i] *= (float)scale;      /* a power of two: exact */
        if (bad)
            ((float *)a.g[1])[99] = t == 8 ? -INFINITY : NAN;
        OK(optc_step(a.binding));
        if (!bad)
            OK(optc_step(b.binding));
        skipped += bad;
        good = bad ? 0 : good + 1;
        scale = bad ? scale / 2 : good == 3 ? scale * 2 : scale;
        good = good == 3 ? 0 : good;
        ck_assert_msg(same_params(&a, &b), "they differ after %d steps", t);
        ck_assert(number(&a, 1, "loss_scale.skipped") == skipped);
    }
    fix_close(&a);
    fix_close(&b);
}
END_TEST

static bool compiles_with(const char *rule, const char *options, const char *with)
{
    Gen g = {0};
    Source s;
    GenOptions o = {.find = find_wrapper, .options = options, .with = with};
    bool ok = find_spec(NULL, rule, &g.arena, &s, &g.diag) && gen_compile(&g, s, &o);
    gen_free(&g);
    return ok;
}

/* Rules that change p by shrink and descend alone can be taken apart. These change it in another
 * way, or have a rate that is no multiple of lr: writing them with the words would change their
 * bits. */
static const char *const not_apart[] = {"adabound",
                                        "adafactor",
                                        "adago",
                                        "adamod",
                                        "adan",
                                        "amos",
                                        "amuse",
                                        "asgd",
                                        "cocob",
                                        "dadapt_adagrad",
                                        "dadapt_adam",
                                        "dadapt_adan",
                                        "dadapt_sgd",
                                        "dog",
                                        "fromage",
                                        "ftrl",
                                        "gpa_adamw",
                                        "lars",
                                        "madgrad",
                                        "muonh",
                                        "muown",
                                        "nero",
                                        "rprop",
                                        "schedulefree_adamw",
                                        "schedulefree_radam",
                                        "schedulefree_sgd",
                                        "spel",
                                        "splus",
                                        NULL};

START_TEST(taken_apart)
{
    for (int i = 0; i < optc_library_size(); i++) {
        const char *rule = optc_library_name(i);
        bool refused = strchr(rule, '/') != NULL;
        for (const char *const *n = not_apart; *n && !strchr(rule, '/'); n++)
            refused = refused || !strcmp(*n, rule);
        if (!strchr(rule, '/'))
            ck_assert_msg(compiles_with(rule, "", "cautious_decay") == !refused, "%s is %s apart",
                          rule, refused ? "taken" : "not taken");
    }
    ck_assert(compiles_with("adafactor", "relative_step=false", "cautious_decay"));
    ck_assert(compiles_with("lars", "rate=outside", "cautious_decay"));
    ck_assert(compiles_with("adan", "proximal=false", "cautious_decay"));
    ck_assert(compiles_with("nero", "constraints=false", "cautious_decay"));
}
END_TEST

/* The page of the language lists these rules with the reasons, and no others. */
START_TEST(listed_on_the_page)
{
    static char page[1 << 17];
    FILE *f = fopen("specs/README.md", "rb");
    ck_assert_msg(f != NULL, "specs/README.md: run from the repository's root");
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    char *from = strstr(page, "| cannot be taken apart |"),
         *to = from ? strstr(from, "\n\n") : NULL;
    ck_assert_msg(to != NULL, "specs/README.md has no table of rules that cannot be taken apart");
    *to = 0;
    for (int i = 0; i < optc_library_size(); i++) {
        char name[80];
        bool refused = false;
        for (const char *const *n = not_apart; *n; n++)
            refused = refused || !strcmp(*n, optc_library_name(i));
        snprintf(name, sizeof name, "`%s`", optc_library_name(i));
        ck_assert_msg((strstr(from, name) != NULL) == refused,
                      "%s: the table of specs/README.md is not current", name);
    }
}
END_TEST

/* A rule that is taken apart and put together again steps as before, up to rounding. */
static const struct { const char *rule, *options; double decay;
} sums[] = {
    {"ademamix", NULL, 0.1},
    {"nadam", NULL, 0.1},
    {"grams", NULL, 0.1},
    {"mars", NULL, 0.1},
    {"adamp", NULL, 0.1},
    {"sgdp", NULL, 0.1},
    {"sgdp", "nesterov=true", 0.1},
    {"adamw", NULL, 0.1},
    {"adan", "proximal=false", 0.1},
    /* it decays after the step, wrappers before it */
    {"laprop", NULL, 0},
};

START_TEST(put_together)
{
    static const optc_text again = {"again",
                                    "return wrapper { name = 'again', step = function()\n"
                                    "  local x, rate, amount = inner { apart = true }\n"
                                    "  p = shrink(p, amount)  p = descend(p, x, rate) end }"};
    const optc_setting set[] = {{"weight_decay", sums[_i].decay}};
    Fixture f[2];
    optc_engine_options eo = {.compiler = "", .cache_dir = ""};
    for (int k = 0; k < 2; k++)
        fix_open(&f[k], &eo,
                 &(optc_rule_options){.spec = sums[_i].rule,
                                      .param = OPTC_F64,
                                      .with = k ? "again" : NULL,
                                      .options = sums[_i].options,
                                      .wrappers = &again,
                                      .nwrappers = 1},
                 odd_shapes, NODD, set, 1);
    for (int t = 1; t <= 4; t++)
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < f[k].n; i++)
                for (int64_t x = 0; x < f[k].count[i]; x++)
                    ((double *)f[k].g[i])[x] = ref_value(i, t, x);
            OK(optc_step(f[k].binding));
        }
    for (int i = 0; i < f[0].n; i++)
        for (int64_t x = 0; x < f[0].count[i]; x++) {
            double a = ((double *)f[0].p[i])[x], b = ((double *)f[1].p[i])[x];
            ck_assert_msg(fabs(a - b) <= 1e-12, "%s, tensor %d, element %d: %.17g and %.17g",
                          sums[_i].rule, i, (int)x, a, b);
        }
    fix_close(&f[0]);
    fix_close(&f[1]);
}
END_TEST

Suite *wrappers_suite(void)
{
    Suite *s = suite_create("wrappers");
    TCase *t = tcase_create("wrappers");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, accumulates, 0, 2);
    tcase_add_loop_test(t, skipped_gradients, 0, 2);
    tcase_add_loop_test(t, means_of_inputs, 0, (int)(sizeof summed / sizeof *summed));
    tcase_add_loop_test(t, sums_stay_wide, 0, 3);
    tcase_add_loop_test(t, average_for_evaluation, 0, 2);
    tcase_add_loop_test(t, logged_norms, 0, 3);
    tcase_add_test(t, scales_losses);
    tcase_add_test(t, taken_apart);
    tcase_add_test(t, listed_on_the_page);
    tcase_add_loop_test(t, put_together, 0, (int)(sizeof sums / sizeof *sums));
    suite_add_tcase(s, t);
    return s;
}

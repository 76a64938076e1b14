/* Contract C1 between CPU and GPU: every rule of the library and several compositions give the same
 * bits in parameters and states after some steps, on odd shapes and misaligned pointers. Needs an
 * NVIDIA GPU and NVRTC. This file also has main(), which collects the tests of the other files. */
#include "tests/harness/random_spec.h"
#include "tests/gpu/device_side.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If an eigenvalue occurs twice, any basis of its space is valid. The larger Gram matrix of one
 * gradient has the eigenvalue 0 many times. So only finiteness is checked. */
static void all_finite(const char *label, Side *g)
{
    OK(optc_sync(g->b));
    for (int k = 0; k < NSHAPES; k++) {
        ck_assert(!d->cuMemcpyDtoHAsync_v2(g->hp[k], g->p[k], (size_t)g->n[k] * g->wp, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        for (int64_t i = 0; i < g->n[k]; i++)
            ck_assert_msg(isfinite(type_load(g->tp, g->hp[k], i)),
                          "%s: p of tensor %d, element %lld", label, k, (long long)i);
    }
}

static bool has_factors(const optc_rule *r)
{
    for (int c = 0; c < NCALLEE; c++)
        if (callee_facts[c].kind == CALLEE_FACTOR && rule_has_callee(r, (Callee)c))
            return true;
    return false;
}

/* Rules with products are compared in f64, where differences from the order of sums stay small: an
 * iteration of five steps multiplies them by 3.4 each, about 500 in total, times a few hundred
 * roundings. Factors multiply them by the condition of their matrix, which roots bound by 1e6. */
static void both(optc_rule_options rule, int off)
{
    Side c, g;
    char label[200];
    open_side(&c, "cpu", rule, 0);
    bool products = rule_has_calls(c.r);
    if (products) {
        close_side(&c, 0);
        /* the emulated GPU is slow: one rule that is mostly an iteration, and one with square
         * states */
        if (getenv("OPTC_TEST_SMALL") && !getenv("OPTC_ALL") && strcmp(rule.spec, "muon") &&
            strcmp(rule.spec, "psgd"))
            return;
        rule.param = OPTC_F64;
        open_side(&c, "cpu", rule, 0);
    }
    snprintf(label, sizeof label,
             "%s --with '%s' --options '%s', %s parameters, %s gradients, offset %d", rule.spec,
             rule.with, rule.options, type_info[c.tp].name, type_info[c.tg].name, off);
    open_side(&g, "cuda", rule, off);
    for (int s = 1; s <= STEPS; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        for (int i = 0; i < optc_rule_inputs(c.r); i++) {
            OK(optc_set_scalar(c.b, -1, optc_rule_input(c.r, i), 1 + s / 3.0));
            OK(optc_set_scalar(g.b, -1, optc_rule_input(c.r, i), 1 + s / 3.0));
        }
        /* other entries first: SAM perturbs before it steps */
        for (int e = optc_rule_entries(c.r) - 1; e >= 0; e--) {
            OK(optc_run(c.b, optc_rule_entry(c.r, e)));
            OK(optc_run(g.b, optc_rule_entry(c.r, e)));
        }
    }
    if (rule_has_callee(c.r, CALL_EIGH))
        all_finite(label, &g);
    else
        compare_within(label, &c, &g, has_factors(c.r) ? 1e-8 : products ? 1e-10 : 0);
    close_side(&g, off);
    close_side(&c, 0);
}

static const char *rule_name(int i, char buf[64])
{
    for (int k = 0; k < optc_library_size(); k++)
        if (!strchr(optc_library_name(k), '/') && i-- == 0) {
            snprintf(buf, 64, "%s", optc_library_name(k));
            return buf;
        }
    return NULL;
}

/* nkernel is set at bind, on the device too. */
START_TEST(kernel_sizes)
{
    SHARED();
    both(
        (optc_rule_options){
            .spec = "kernels",
            .with = "",
            .options = "",
            .text =
                "return optimizer { name = 'kernels', hyper = { lr = 0.1 }, step = function() p = "
                "p - lr * g / nkernel end }"},
        0);
}
END_TEST

/* The sums of scalar inputs are states of groups. */
START_TEST(input_means)
{
    SHARED();
    both(
        (optc_rule_options){
            .spec = "by_loss",
            .with = "accumulate(2)",
            .options = "",
            .text = "return optimizer { name = 'by_loss', hyper = { lr = 0.1 }, inputs = { loss = "
                    "'group' }, step = function() p = p - lr * loss * g end }"},
        0);
}
END_TEST

START_TEST(library)
{
    SHARED();
    char name[64];
    rule_name(_i, name);
    /* the emulated GPU takes half a second for each */
    if (getenv("OPTC_TEST_SMALL") && sample(name, 3) > 0)
        return;
    /* roots of 1024 rows take the CPU minutes without a LAPACK */
    both((optc_rule_options){.spec = name,
                             .with = "",
                             .options = strcmp(name, "shampoo") ? "" : "side=128"},
         _i % 4);
}
END_TEST

static const struct { const char *spec, *with, *options;
} composed[] = {{"adamw", "clip(1)", ""},
                {"adamw", "clip(1),cautious,ema(0.999)", ""},
                {"lamb", "lookahead(2,0.5)", ""},
                {"sgd", "centralize", ""},
                {"adamw", "sam(0.05)", ""},
                {"adafactor", "clip(1)", ""},
                {"adamw", "clip_norm(0.1)", "amsgrad=true"},
                {"sgd", "clip_value(0.1)", ""},
                {"rmsprop", "", "centered=true"},
                {"adamw", "clip(1),skip", ""},
                {"sgd", "accumulate(2),log", ""},
                {"adamw", "loss_scale(1024)", ""},
                {"sgd", "looksam(0.1,2)", ""},
                {"adamw", "gsam(0.1)", ""}};

START_TEST(compositions)
{
    SHARED();
    if (!thinned(_i))
        both((optc_rule_options){.spec = composed[_i].spec,
                                 .with = composed[_i].with,
                                 .options = composed[_i].options},
             _i % 4);
}
END_TEST

static const optc_rule_options stored[] = {
    {.spec = "adamw", .with = "clip(1)", .options = "", .param = OPTC_F64},
    {.spec = "adafactor", .with = "", .options = "", .param = OPTC_F64},
    {.spec = "adamw", .with = "", .options = "", .param = OPTC_BF16},
    {.spec = "lamb", .with = "clip(1)", .options = "", .param = OPTC_F16},
    {.spec = "came", .with = "", .options = "", .param = OPTC_BF16},
    {.spec = "adamp", .with = "", .options = "", .param = OPTC_F32, .grad = OPTC_BF16},
    {.spec = "came",
     .with = "",
     .options = "",
     .param = OPTC_E5M2,
     .grad = OPTC_E4M3,
     .state = OPTC_E4M3}};

START_TEST(types)
{
    SHARED();
    if (thinned(_i) && _i != 2)                /* one case per type */
        return;
    both(stored[_i], _i % 4);
}
END_TEST

/* Several folds of every kind in one pass over a matrix. */
START_TEST(many_folds)
{
    SHARED();
    if (thinned(_i))
        return;
    static const char text[] =
        "return optimizer {\n"
        "  name = \"folds\", hyper = { lr = 0.1 },\n"
        "  state = { m = zeros, c = zeros \"col\", d = zeros \"col\", q = zeros \"row\", r = "
        "zeros \"row\", s = zeros \"slice\", x = zeros \"tensor\" },\n"
        "  matrix = function()\n"
        "    c = colmean(g * g); d = colmax(abs(g)); q = rowmean(g * g); r = rowmin(g); s = "
        "slice.max(g); x = norm(g)\n"
        "    m = 0.9 * m + g / (sqrt(c) + d + sqrt(q) + abs(r) + s + x + 1)\n"
        "    p = p - lr * m\n"
        "  end,\n"
        "  step = function() x = norm(g); m = 0.9 * m + g / (x + 1); p = p - lr * m end,\n"
        "}\n";
    both((optc_rule_options){.spec = "folds.lua", .text = text, .with = "", .options = ""}, _i);
}
END_TEST

/* Guarded blocks that run at some steps, one inside the rule of the other. */
START_TEST(blocks)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { m = fill(lr), n = fill(lr, "
        "'group') }, step = "
        "function()\n"
        "every(2, { offset = 1 }, function() m = m + g n = n + global.max(lr) * t end)\n"
        "when(gt(sum(g), 0), function() p = p - lr * m * (1 + n) m = m + stored 'p' end) end }";
    static const char outer[] = "return wrapper { name = 'w', step = function() every(2, { offset "
                                "= 1 }, function() inner() end) p = p * 0.5 "
                                "end }";
    both((optc_rule_options){.spec = "blocks.lua",
                             .text = text,
                             .with = "w",
                             .options = "",
                             .param = _i ? OPTC_BF16 : OPTC_F32,
                             .wrappers = &(optc_text){"w", outer},
                             .nwrappers = 1},
         _i);
}
END_TEST

/* So many folds that their strips of columns share the same shared memory in rotation. */
START_TEST(crowded)
{
    SHARED();
    char *text = crowded_spec(_i ? 7 : 13, _i ? 3 : 1);
    both((optc_rule_options){.spec = "crowd.lua", .text = text, .with = "", .options = "",
                             .param = _i ? OPTC_F64 : OPTC_F32}, _i);
    free(text);
}
END_TEST

/* One stage of each kind, and steps as graphs: few enough for compute-sanitizer, which slows
 * everything down a hundred times. */
START_TEST(under_sanitizers)
{
    SHARED();
    static const struct { const char *spec, *with;
    } r[] = {{"adamw", "clip(1)"}, {"adafactor", ""},           {"came", ""},
             {"adamp", ""},        {"sgd", "lookahead(2,0.5)"}, {"muon", ""}};
    both((optc_rule_options){.spec = r[_i].spec, .with = r[_i].with, .options = ""}, _i % 4);
}
END_TEST

int main(void)
{
    setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);       /* timeouts only end tests that hang */
    char buf[64];
    int n = 0;
    while (rule_name(n, buf))
        n++;
    Suite *s = suite_create("gpu");
    /* CK_RUN_CASE runs one of these */
    TCase *t[] = {
        tcase_create("library"),   tcase_create("compositions"),  tcase_create("graphs"),
        tcase_create("launches"),  tcase_create("memory"),        tcase_create("sanitizer"),
        tcase_create("random"),    tcase_create("live-tuning"),   tcase_create("square-matrices"),
        tcase_create("products"),  tcase_create("product-times"), tcase_create("blocks"),
        tcase_create("factors"),   tcase_create("root-times"),    tcase_create("eigen"),
        tcase_create("codes"),     tcase_create("rounding"),      tcase_create("master"),
        tcase_create("shards"),    tcase_create("nccl"),          tcase_create("types"),
        tcase_create("functions"), tcase_create("alike"),         tcase_create("sticky-error")};
    enum { STICKY = sizeof t / sizeof *t - 1 };
    for (int i = 0; i <= STICKY; i++) {
        tcase_add_checked_fixture(t[i], gpu_setup, gpu_teardown);
        tcase_set_timeout(t[i], 300);
        if (i < STICKY)
            suite_add_tcase(s, t[i]);
    }
    tcase_add_loop_test(t[0], library, 0, n);
    tcase_add_test(t[0], kernel_sizes);
    tcase_add_loop_test(t[1], compositions, 0, (int)(sizeof composed / sizeof *composed));
    tcase_add_test(t[1], input_means);
    tcase_add_loop_test(t[1], types, 0, (int)(sizeof stored / sizeof *stored));
    tcase_add_loop_test(t[1], many_folds, 0, 4);
    tcase_add_loop_test(t[1], blocks, 0, 2);
    tcase_add_loop_test(t[1], crowded, 0, 2);
    add_graphs(t[2]);
    add_guard(t[2]);
    add_profile(t[2]);
    add_cohorts(t[2]);
    add_launches(t[3]);
    add_modules(t[3]);
    add_memory(t[4]);
    add_small(t[4]);
    tcase_add_loop_test(t[5], under_sanitizers, 0, 6);
    add_random(t[6]);
    add_live(t[7]);
    add_squares(t[8]);
    add_halves(t[8]);
    add_products(t[9]);
    add_triangles(t[9]);
    add_product_rules(t[9]);
    add_product_precision(t[9]);
    add_product_times(t[10]);
    add_polar(t[9]);
    add_matrices(t[9]);
    add_blocks(t[11]);
    add_stagger(t[11]);
    add_stagger_graphs(t[11]);
    add_guarded_eigen(t[11]);
    add_factors(t[12]);
    add_columns(t[12]);
    add_roots_f32(t[12]);
    add_eigenvectors(t[14]);
    add_eigen_fails(t[14]);
    add_methods(t[14]);
    add_network(t[12]);
    add_eigen_times(t[13]);
    add_root_times(t[13]);
    add_codes(t[15]);
    add_rounding(t[16]);
    add_master(t[17]);
    add_connect(t[17]);
    add_joint(t[17]);
    add_shards(t[18]);
    add_agree(t[18]);
    add_overlap(t[18]);
    add_nccl(t[19]);
    add_types(t[20]);
    add_functions(t[21]);
    add_alike(t[22]);
    add_sticky(t[STICKY]);
    Suite *last = suite_create("gpu, the end of a context");
    suite_add_tcase(last, t[STICKY]);
    /* All tests run in one process, so that the device is opened once. Only the test that destroys
     * its context has its own process, and it runs first: a process that has used CUDA cannot fork
     * a child that uses it. */
    SRunner *r[] = {srunner_create(last), srunner_create(s)};
    int failed = 0, ran = 0;
    srunner_set_fork_status(r[1], CK_NOFORK);
    for (int i = 0; i < 2; i++) {
        srunner_run_all(r[i], CK_ENV);
        failed += srunner_ntests_failed(r[i]);
        ran += srunner_ntests_run(r[i]);
        srunner_free(r[i]);
    }
    /* no test ran: CK_RUN_CASE names no case */
    return failed || !ran ? EXIT_FAILURE : EXIT_SUCCESS;
}

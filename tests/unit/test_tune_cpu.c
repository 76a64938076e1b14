/* Tuning on the CPU: candidates, the length of samples, and the pair of tensors on which bits are
 * compared. */
#include "tests/harness/help.h"

#include "runtime/library/tune/launch_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static optc_engine *engine;
static optc_rule *rule;
static CpuTuner *tuner;
static Meter meter;

/* A wrapper around the rule's last stage: counts its runs, records infinities, and can corrupt the
 * output of one run (0: none). */
static const optc_stage_fn *real;
static optc_stage_fn watched_fn[64];
static int at, runs, infinite, spoil_at, spoil_mem;

/* A fake clock: if it is not below 0, only the watched stage advances it, by a hundred nanoseconds
 * per run. */
static double fake_ms = -1;
double __real_now_ms(void);
double __wrap_now_ms(void);
double __wrap_now_ms(void) { return fake_ms < 0 ? __real_now_ms() : fake_ms; }

/* The share of that clock's time that threads waited for a core. */
static double fake_share;
double __real_waited_ms(void);
double __wrap_waited_ms(void);
double __wrap_waited_ms(void) { return fake_ms < 0 ? __real_waited_ms() : fake_ms * fake_share; }

static void watch(const optc_view *t, long long unit)
{
    real[at](t, unit);
    fake_ms += fake_ms < 0 ? 0 : 1e-4;
    infinite += !isfinite(((float *)t->mem[0])[0]);
    if (++runs == spoil_at)
        ((float *)t->mem[spoil_mem])[0] += 1;
}

static void open_tuner(const char *spec, int threads, int64_t elements)
{
    OK(optc_open(&(optc_engine_options){.device = "cpu", .threads = threads}, &engine));
    OK(optc_compile(engine, &(optc_rule_options){.spec = spec}, &rule));
    real = rule->fn;
    ck_assert(real && rule->program->nfn <= 64);
    memcpy(watched_fn, real, sizeof *real * (size_t)rule->program->nfn);
    at = rule->program->nfn - 1;
    ck_assert_int_ne(plan_at(rule->library->plan, at).stage->kind, S_GROUP);
    watched_fn[at] = watch;
    runs = infinite = spoil_at = 0;
    if (threads == 1)
        rule->fn = watched_fn;
    OK(cpu_tuner_open(rule, elements, &tuner));
    meter = cpu_tuner_meter(tuner);
}

static void close_tuner(void)
{
    cpu_tuner_close(tuner);
    rule->fn = real;
    OK(optc_release(rule));
    OK(optc_close(engine));
}

static bool ready_one(Launch l)
{
    bool ok;
    meter.ready(meter.ctx, &l, 1, &ok);
    return ok;
}

/* If one unit is all the work, the model's launch is the only candidate. */
START_TEST(one_unit_keeps_the_model)
{
    static const int64_t sizes[] = {1, 1000, SEG};
    static const char *const specs[] = {"sgd", "adamw", "adafactor"};
    open_tuner(specs[_i / 3], 2, sizes[_i % 3]);
    Space space = cpu_tuner_space();
    Search s = {.budget = INFINITY};
    ck_assert(search_run(&space, &meter, &s) && s.finished);
    ck_assert_int_eq(s.best, s.model);
    ck_assert_int_eq(s.n, 1);
    search_free(&s);
    close_tuner();
}
END_TEST

/* Otherwise, candidates for up to the machine's threads; a unit larger than all the work occurs
 * only once. */
START_TEST(tries_what_differs)
{
    open_tuner("adamw", 2, 3 * SEG + 5);
    Space space = cpu_tuner_space();
    Search s = {.budget = INFINITY, .exhaustive = true};
    ck_assert(search_run(&space, &meter, &s) && s.finished);
    for (int i = 0; i < s.n; i++) {
        const Launch *l = &s.trial[i].launch;
        ck_assert_msg(!s.trial[i].failed && s.trial[i].samples && l->v[KNOB_THREADS] <= 2 &&
                          l->v[KNOB_ITEMS] <= 4,
                      "threads %d, items %d", l->v[KNOB_THREADS], l->v[KNOB_ITEMS]);
    }
    ck_assert_int_eq(s.n, 3 * 4);
    search_free(&s);
    close_tuner();
}
END_TEST

/* A step of a hundred nanoseconds is repeated many times per sample; values that grow meanwhile
 * (LARS' exponentially) are reset in time. */
START_TEST(samples_are_long)
{
    static const char *const specs[] = {"sgd", "lars"};
    open_tuner(specs[_i], 1, 1);
    Launch model = cpu_tuner_space().model;
    double a, b;
    int samples = 25, before = runs;
    fake_ms = 0;
    ck_assert(meter.race(meter.ctx, 0, &model, &model, samples, &a, &b));
    ck_assert_msg(runs - before >= samples * 2 * 500, "%d steps in %d samples", runs - before,
                  samples);
    ck_assert(a > 0 && b > 0);
    while (runs < 20000)
        ck_assert(meter.race(meter.ctx, 0, &model, &model, 9, &a, &b));
    ck_assert_int_eq(infinite, 0);
    ck_assert(ready_one(model));
    fake_ms = -1;
    close_tuner();
}
END_TEST

/* The report of how busy the machine was comes from the waiting times in races. */
START_TEST(waiting_is_told)
{
    open_tuner("sgd", 1, 1 << 14);
    Launch model = cpu_tuner_space().model;
    double a, b;
    fake_ms = 0;
    ck_assert(meter.busy(meter.ctx) <= 0);
    fake_share = 0.02;
    ck_assert(meter.race(meter.ctx, 0, &model, &model, 25, &a, &b));
    ck_assert(fabs(meter.busy(meter.ctx) - 0.02) < 1e-9 && meter.busy(meter.ctx) < TOO_BUSY);
    fake_share = 0.5;
    ck_assert(meter.race(meter.ctx, 0, &model, &model, 25, &a, &b));
    ck_assert(meter.busy(meter.ctx) > TOO_BUSY);
    fake_ms = -1;
    close_tuner();
}
END_TEST

/* Large tensors are stepped only for timing, once per sample of each side; bits are compared on
 * smaller ones. */
START_TEST(large_ones_are_not_stepped_in_vain)
{
    int64_t units = (1 << 23) / SEG;
    open_tuner("sgd", 1, 1 << 23);
    ck_assert_int_lt(runs, 2 * units + 1);
    Launch model = cpu_tuner_space().model;
    double a, b;
    int before = runs;
    ck_assert(meter.race(meter.ctx, 0, &model, &model, 3, &a, &b));
    ck_assert_int_eq(runs - before, 3 * 2 * units);
    before = runs;
    ck_assert(ready_one(model));
    ck_assert_int_lt(runs - before, units + 1);
    close_tuner();
}
END_TEST

/* Different bits, in the parameter or only in a state, reject that launch and no later one. */
START_TEST(other_bits_once)
{
    open_tuner("adamw", 1, 2 * SEG);
    Launch model = cpu_tuner_space().model, other = model;
    other.v[KNOB_ITEMS] = 2;
    for (spoil_mem = 0; _i && rule->library->plan->mem[spoil_mem].kind != MEM_STATE;)
        spoil_mem++;
    ck_assert(ready_one(model) && ready_one(other));
    /* of two units each: the first one's, then the second's */
    spoil_at = runs + 3;
    ck_assert_msg(!ready_one(other), "not seen");
    ck_assert_msg(ready_one(other) && ready_one(model), "those after it are ruled out too");
    close_tuner();
}
END_TEST

/* A binding that uses a result reports it like on a GPU; one that uses none clears the report; the
 * evaluator has no launches. */
START_TEST(results_are_named)
{
    static const struct { int elements, threads; const char *said;
    } cases[] = {{1 << 12, 1, "; launches tuned (user)"},
                 {1 << 10, 1, "; launches tuned (user, nearest size 2^12)"},
                 {1 << 12, 0, "; launches tuned (user), all as the model has them"},
                 {1 << 6, 1, ""}};
    static float p[1 << 12], g[1 << 12];
    OK(optc_open(&(optc_engine_options){.device = "cpu", .threads = 2}, &engine));
    OK(optc_compile(engine, &(optc_rule_options){.spec = "sgd"}, &rule));
    char path[256], want[400];
    snprintf(path, sizeof path, "%s", optc_rule_path(rule));
    for (int i = 0; i < 5; i++) {
        bool evaluated = i == 4;
        int k = evaluated ? 0 : i;
        Tuned t = {.launch = cpu_tuner_space().model, .ms = 1, .model_ms = 1, .samples = 1};
        cpu_tuned_key(rule, 1 << 12, &t.key);
        t.launch.v[KNOB_THREADS] = cases[k].threads;
        ck_assert(tuned_put(&engine->library->tuned.user, &t));
        real = rule->fn;
        rule->fn = evaluated ? NULL : real;
        optc_binding *b;
        int64_t n = cases[k].elements;
        OK(optc_bind(
            rule,
            &(optc_group){.tensors = &(optc_tensor){.param = p, .grad = g, .rank = 1, .shape = &n},
                          .ntensors = 1},
            1, &b));
        rule->fn = real;
        snprintf(want, sizeof want, "%s%s", path, evaluated ? "" : cases[k].said);
        ck_assert_str_eq(optc_rule_path(rule), want);
        ck_assert_int_eq(b->threads, *cases[k].said ? cases[k].threads : 0);
        OK(optc_unbind(b));
    }
    OK(optc_release(rule));
    OK(optc_close(engine));
}
END_TEST

/* Results are stored by the CPU's name: two different ARM machines must not share one. */
START_TEST(cpus_have_names)
{
    static const struct { const char *info, *name;
    } cases[] = {
        {"processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz\n",
         "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"},
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU "
         "part\t: 0xd0c\n",
         "Neoverse-N1"},
        {"CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n", "Ampere-1"},
        {"CPU implementer\t: 0x61\nCPU part\t: 0x022\n", "ARM core 0x61:0x022"},
        {"model name\t:\n", ""},
        {"nothing to see here\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[128];
        FILE *f = fmemopen((void *)(uintptr_t)cases[i].info, strlen(cases[i].info), "r");
        ck_assert_str_eq(cpu_model_in(f, got, sizeof got),
                         cases[i].name ? cases[i].name : isas[0].name);
        fclose(f);
    }
}
END_TEST

Suite *tune_cpu_suite(void)
{
    Suite *s = suite_create("tune_cpu");
    TCase *t = tcase_create("tune_cpu");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, one_unit_keeps_the_model, 0, 9);
    tcase_add_test(t, tries_what_differs);
    tcase_add_loop_test(t, samples_are_long, 0, 2);
    tcase_add_test(t, waiting_is_told);
    tcase_add_test(t, large_ones_are_not_stepped_in_vain);
    tcase_add_loop_test(t, other_bits_once, 0, 2);
    tcase_add_test(t, results_are_named);
    tcase_add_test(t, cpus_have_names);
    suite_add_tcase(s, t);
    return s;
}

/* Rules with roots, bases and triangles on degenerate gradients, and over a thousand steps. The
 * suite refs compares them on other gradients. */
#include "tests/harness/help.h"
#include "tests/harness/network.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *spec, *options;
} rules[] = {
    {"shampoo", "interval=3"},
    {"soap", "interval=3"},
    {"asgo", ""},
    {"klshampoo", ""},
    {"splus", ""},
    {"psgd_kron", ""},
    {"dion", ""},
    {"adamw+galore(3,3)", ""},
    {"adamw+fira(3,3)", ""},
};
enum { NRULES = sizeof rules / sizeof *rules, STEPS = 12, NTENSOR = 8 };
static const TestShape tensor[NTENSOR] = {{2, {6, 5}}, {1, {7}},       {2, {5, 12}}, {2, {1, 4}},
                                          {2, {4, 1}}, {3, {2, 4, 3}}, {2, {0, 3}},  {2, {6, 6}}};

static void open_rule(Fixture *f, int i)
{
    optc_engine_options eo = {.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")};
    fix_open(f, &eo, &(optc_rule_options){.spec = rules[i].spec, .options = rules[i].options},
             tensor, NTENSOR, NULL, 0);
}

/* Gradients of rank one, zero, tiny, huge, or alternating; sparse: all rows but one are 0. */
enum { ZERO, RANK_ONE, TINY, HUGE_, MIXED, SPARSE, NKIND };
static double gradient(int kind, int k, int step, int64_t i, int64_t cols)
{
    double x = ref_value(k, step, i), row = ref_value(k, step + 50, i / cols),
           col = ref_value(k, step + 70, i % cols);
    switch (kind) {
    case ZERO: return 0;
    case RANK_ONE: return row * col;
    case TINY: return 1e-25 * x;
    case HUGE_: return 1e12 * x;
    case MIXED: return (step % 3 == 0) * 1e-12 * x + (step % 3 == 1) * 1e6 * x;
    default: return i / cols == step % 3 ? x : 0;
    }
}

static void set_grads(Fixture *f, int kind, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            type_store(f->type, f->g[k], i,
                       gradient(kind, k, step, i,
                                tensor[k].rank > 1 ? f->count[k] / tensor[k].dim[0] : f->count[k]));
}

/* Weights stay finite; with zero gradients they do not change, except by decay. */
START_TEST(nothing_to_go_by)
{
    for (int kind = 0; kind < NKIND; kind++) {
        Fixture f;
        open_rule(&f, _i);
        for (int step = 1; step <= STEPS; step++) {
            set_grads(&f, kind, step);
            OK(optc_step(f.binding));
        }
        for (int k = 0; k < f.n; k++)
            for (int64_t i = 0; i < f.count[k]; i++) {
                double p = type_load(f.type, f.p[k], i);
                ck_assert_msg(isfinite(p), "%s, %s: gradient %d, tensor %d, element %lld: %g",
                              rules[_i].spec, rules[_i].options, kind, k, (long long)i, p);
                ck_assert(kind != ZERO || fabs(p) <= 0.5);
            }
        fix_close(&f);
    }
}
END_TEST

/* A NaN in one tensor's gradient, at a step with new roots and at one without, does not affect the
 * other tensors. */
START_TEST(nan_stays)
{
    Fixture f, g;
    open_rule(&f, _i);
    open_rule(&g, _i);
    for (int step = 1; step <= 5; step++) {
        set_grads(&f, SPARSE, step);
        set_grads(&g, SPARSE, step);
        if (step == 2 || step == 4)
            type_store(g.type, g.g[2], 3, NAN);
        OK(optc_step(f.binding));
        OK(optc_step(g.binding));
    }
    for (int k = 0; k < f.n; k++)
        ck_assert_msg(k == 2 || !memcmp(f.p[k], g.p[k], (size_t)f.count[k] * 4), "%s: tensor %d",
                      rules[_i].spec, k);
    fix_close(&f);
    fix_close(&g);
}
END_TEST

/* Copies all states into another binding. */
static void resume(const Fixture *from, Fixture *to)
{
    for (int k = 0; k < from->n; k++) {
        memcpy(to->p[k], from->p[k], (size_t)from->count[k] * 4);
        for (int i = 0; i < optc_rule_states(from->rule); i++) {
            optc_state_info info;
            optc_state_view at;
            OK(optc_rule_state(from->rule, i, &info));
            if (optc_state(from->binding, k, info.name, &at) != OPTC_OK)
                continue;                                  /* a state of other tensors */
            size_t bytes = (size_t)at.count * (at.type == OPTC_F64 ? 8 : 4);
            void *data = malloc(bytes);
            OK(optc_state_get(from->binding, k, info.name, data, bytes));
            OK(optc_state_put(to->binding, k, info.name, data, bytes));
            free(data);
        }
    }
    int64_t t;
    OK(optc_get_t(from->binding, -1, &t));
    OK(optc_set_t(to->binding, -1, t));
}

START_TEST(a_thousand_steps)
{
    static const struct { const char *spec; optc_setting set[2]; int nset; } of[] = {
        {"shampoo", {{"lr", 0.01}, {"beta2", 0.99}}, 2}, {"soap", {{"lr", 0.01}}, 1}};
    optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    Fixture f, g;
    fix_open(&f, &eo, &(optc_rule_options){.spec = of[_i].spec}, net, 3, of[_i].set, of[_i].nset);
    fix_open(&g, &eo, &(optc_rule_options){.spec = of[_i].spec}, net, 3, of[_i].set, of[_i].nset);
    double first = network(f.p, f.g), last = first;
    for (int step = 1; step <= 1000; step++) {
        last = network(f.p, f.g);
        ck_assert_msg(isfinite(last), "%s: step %d", of[_i].spec, step);
        OK(optc_step(f.binding));
        if (step == 503)
            resume(&f, &g);
        if (step > 503) {
            network(g.p, g.g);
            OK(optc_step(g.binding));
        }
    }
    ck_assert_msg(last < 0.02 * first, "%s: %g of %g", of[_i].spec, last, first);
    ck_assert(fix_hash(&f) == fix_hash(&g));
    fix_close(&f);
    fix_close(&g);
}
END_TEST

/* ---- SPlus' averaged weights ---- */
/* kvfrans/splus: after a step whose size follows from the shape, the weights enter an average that
 * begins at 0, and then decay. */
enum { EVALS = 3 };
static const int eval_after[EVALS] = {1, 4, 12};
static const double splus_ema = 0.8, splus_decay = 0.1, splus_lr = 0.1, splus_other = 0.02;

static double splus_size(const TestShape *s)
{
    return s->rank == 2 ? splus_lr * 2 / (double)(s->dim[0] + s->dim[1]) : splus_lr * splus_other;
}

static void follow(const Fixture *f, double *const *avg)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++) {
            double before =
                type_load(f->type, f->p[k], i) / (1 - splus_size(&net[k]) * splus_decay);
            avg[k][i] = splus_ema * avg[k][i] + (1 - splus_ema) * before;
        }
}

/* Weights of about 1 in f32; the average has no more error than each: 4 roundings. */
static void see_average(Fixture *f, double *const *avg, int t)
{
    static const char *const way[] = {"to_eval", "to_train"};
    float kept[3][NET_MID * NET_IN];
    double apart = 0;
    for (int k = 0; k < f->n; k++)
        memcpy(kept[k], f->p[k], (size_t)f->count[k] * 4);
    OK(optc_run(f->binding, way[0]));
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++) {
            double got = type_load(f->type, f->p[k], i),
                   want = t ? avg[k][i] / (1 - pow(splus_ema, t)) : kept[k][i];
            apart = fmax(apart, fabs(got - kept[k][i]));
            ck_assert_msg(fabs(got - want) <= 4 * 0x1p-23,
                          "after %d steps, tensor %d, %lld: %.9g, not %.9g", t, k, (long long)i,
                          got, want);
        }
    /* after one step the average differs only by the decay */
    ck_assert(t < 2 ? apart < 0.01 : apart > 0.01);
    OK(optc_run(f->binding, way[1]));
    for (int k = 0; k < f->n; k++)
        ck_assert_msg(!memcmp(kept[k], f->p[k], (size_t)f->count[k] * 4),
                      "after %d steps, tensor %d", t, k);
}

START_TEST(averaged_weights)
{
    const optc_setting set[] = {{"lr", splus_lr},
                                {"ema_rate", splus_ema},
                                {"weight_decay", splus_decay},
                                {"other_scale", splus_other}};
    optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    Fixture f, g;
    double all[3][NET_MID * NET_IN] = {{0}}, *avg[] = {all[0], all[1], all[2]};
    fix_open(&f, &eo, &(optc_rule_options){.spec = "splus"}, net, 3, set, 4);
    fix_open(&g, &eo, &(optc_rule_options){.spec = "splus"}, net, 3, set, 4);
    see_average(&f, avg, 0);
    for (int step = 1, at = 0; step <= eval_after[EVALS - 1]; step++) {
        network(f.p, f.g);
        network(g.p, g.g);
        OK(optc_step(f.binding));
        OK(optc_step(g.binding));
        follow(&f, avg);
        if (step == eval_after[at])
            see_average(&f, avg, eval_after[at++]);
    }
    /* a binding that never evaluated has the same weights */
    for (int k = 0; k < f.n; k++)
        ck_assert(!memcmp(f.p[k], g.p[k], (size_t)f.count[k] * 4));
    fix_close(&f);
    fix_close(&g);
}
END_TEST

/* splus with stagger: a matrix in slot 0 is stepped as without, the others have their bases at
 * other steps. Their columns exceed the limit, so that each matrix has one basis. */
START_TEST(staggered_bases)
{
    static const TestShape shape[] = {{2, {3, 5}}, {2, {3, 4}}, {1, {3}}, {2, {2, 6}}};
    enum { N = sizeof shape / sizeof *shape };
    optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    Fixture f, g;
    int slots = 0;
    fix_open(&f, &eo,
             &(optc_rule_options){.spec = "splus", .options = "interval=2,limit=3,stagger=true"},
             shape, N, NULL, 0);
    fix_open(&g, &eo, &(optc_rule_options){.spec = "splus", .options = "interval=2,limit=3"}, shape,
             N, NULL, 0);
    for (int step = 1; step <= 4; step++) {
        for (int k = 0; k < N; k++)
            for (int64_t i = 0; i < f.count[k]; i++) {
                type_store(f.type, f.g[k], i, ref_value(k, step, i));
                type_store(g.type, g.g[k], i, ref_value(k, step, i));
            }
        OK(optc_step(f.binding));
        OK(optc_step(g.binding));
        for (int k = 0; k < N; k++) {
            int slot = 0;
            if (shape[k].rank == 2)
                OK(optc_get_slot(f.binding, k, -1, 2, &slot));
            slots |= 1 << slot;
            bool same = !memcmp(f.p[k], g.p[k], 4 * (size_t)f.count[k]);
            ck_assert_msg(same || slot, "step %d: tensor %d of slot 0 differs", step, k);
            ck_assert_msg(!same || !slot || step < 3,
                          "step %d: tensor %d has the bases of the others", step, k);
        }
    }
    ck_assert_int_eq(slots, 3);
    fix_close(&f);
    fix_close(&g);
}
END_TEST

Suite *factor_rules_suite(void)
{
    Suite *s = suite_create("factor_rules");
    TCase *t = tcase_create("factor rules");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, nothing_to_go_by, 0, NRULES);
    tcase_add_loop_test(t, nan_stays, 0, NRULES);
    tcase_add_loop_test(t, a_thousand_steps, 0, 2);
    tcase_add_test(t, averaged_weights);
    tcase_add_test(t, staggered_bases);
    suite_add_tcase(s, t);
    return s;
}

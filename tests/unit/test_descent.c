/* Properties of every rule of the library: it descends on a quadratic and on Rosenbrock's function
 * at one of a few rates, survives gradients of zeros and of rank one, and steps at t = 10^6. Rules
 * that claim it do not depend on the scale of gradients. Gradients of all sizes are tested in
 * test_range.c. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, COLS = 8, MATRIX = ROWS * COLS, VECTOR = 7, ALL = MATRIX + VECTOR };

typedef struct {
    optc_engine *engine; optc_rule *rule; optc_binding *binding; float p[ALL], g[ALL];
} Model;

static void bind_model(Model *m)
{
    optc_tensor t[] = {
        {.param = m->p, .grad = m->g, .rank = 2, .shape = (int64_t[]){ROWS, COLS}},
        {.param = m->p + MATRIX, .grad = m->g + MATRIX, .rank = 1, .shape = (int64_t[]){VECTOR}}};
    OK(optc_bind(m->rule, &(optc_group){.tensors = t, .ntensors = 2}, 1, &m->binding));
}

/* Multiplies the rates: lr, adamw.lr, lr_1d. */
static void scale_rates(Model *m, double by)
{
    for (int k = 0; k < m->rule->program->nhyper; k++) {
        const char *name = m->rule->program->hyper[k].name, *dot = strrchr(name, '.');
        if (!strcmp(dot ? dot + 1 : name, "lr") || !strcmp(name, "lr_1d"))
            OK(optc_set_hyper(m->binding, 0, name, m->rule->program->hyper[k].def * by));
    }
}

/* Sets eps, adamw.eps, …; rules whose eps must be positive keep it. */
static void set_eps(Model *m, double value)
{
    for (int k = 0; k < m->rule->program->nhyper; k++) {
        const char *name = m->rule->program->hyper[k].name, *dot = strrchr(name, '.');
        if (!strcmp(dot ? dot + 1 : name, "eps"))
            (void)optc_set_hyper(m->binding, 0, name, value);
    }
}

/* Returns the loss and writes the gradient. The minimum of the quadratic is not at 0, where weight
 * decay leads. */
static double quadratic(Model *m)
{
    double loss = 0;
    for (int i = 0; i < ALL; i++) {
        double h = 0.5 + i % 4 * 0.5, off = m->p[i] - ref_value(0, 7, i);
        loss += 0.5 * h * off * off;
        m->g[i] = (float)(h * off);
    }
    return loss;
}

static double rosenbrock(Model *m)
{
    double loss = 0;
    for (int i = 0; i + 1 < ALL; i += 2) {
        double x = m->p[i], y = m->p[i + 1], a = 1 - x, b = y - x * x;
        loss += a * a + 100 * b * b;
        m->g[i] = (float)(-2 * a - 400 * x * b);
        m->g[i + 1] = (float)(200 * b);
    }
    m->g[ALL - 1] = 0;
    return loss;
}

/* The smallest loss within `steps` steps, relative to the first. */
static double least_loss(Model *m, double (*loss)(Model *), double rate, int steps)
{
    for (int i = 0; i < ALL; i++)
        m->p[i] = (float)(loss == quadratic ? 0.5 * ref_value(0, 0, i)
                                            : (i % 2 ? 1 : -1.2) + 0.2 * ref_value(0, 0, i));
    bind_model(m);
    scale_rates(m, rate);
    double first = loss(m), least = first;
    for (int s = 0; s < steps && least > first / 2; s++) {
        OK(optc_step(m->binding));
        least = fmin(least, loss(m));
    }
    OK(optc_unbind(m->binding));
    return least / first;
}

static void descends(Model *m, const char *rule, const char *what, double (*loss)(Model *),
                     int steps)
{
    static const double rates[] = {1, 10, 100, 0.1, 0.01, 0.001, 0.3, 3};
    double least = INFINITY;
    for (int k = 0; k < (int)(sizeof rates / sizeof *rates) && !(least <= 0.5); k++)
        least = fmin(least, least_loss(m, loss, rates[k], steps));
    ck_assert_msg(least <= 0.5,
                  "%s: the %s falls to %g of its first value in %d steps at the best rate", rule,
                  what, least, steps);
}

/* Steps with zero gradients, then with rank-one and ordinary ones, then at t = 10^6: all weights
 * stay finite. Zero gradients move weights by decay only, except in FTRL, whose weights are then 0,
 * and in Nero and SPEL, which normalise and orthogonalise. */
static void survives(Model *m, const char *rule)
{
    bool moves = !strcmp(rule, "ftrl") || !strcmp(rule, "nero") || !strcmp(rule, "spel");
    for (int i = 0; i < ALL; i++)
        m->p[i] = (float)ref_value(0, 0, i);
    bind_model(m);
    for (int s = 0; s < 9; s++) {
        for (int i = 0; i < ALL; i++)
            m->g[i] = s < 3 ? 0
                      : s < 6 && i < MATRIX
                          ? (float)(ref_value(0, s, i / COLS) * ref_value(1, s, i % COLS))
                          : (float)ref_value(0, s, i);
        if (s == 7)
            OK(optc_set_t(m->binding, -1, 1000000));
        float was[ALL];
        memcpy(was, m->p, sizeof was);
        OK(optc_step(m->binding));
        int moved = 0;
        for (int i = 0; i < ALL; i++) {
            ck_assert_msg(isfinite(m->p[i]), "%s: weight %d is %g after step %d", rule, i,
                          (double)m->p[i], s + 1);
            ck_assert_msg(s >= 3 || moves || fabsf(m->p[i] - was[i]) <= 0.1f * fabsf(was[i]),
                          "%s: a zero gradient moves %g to %g", rule, (double)was[i],
                          (double)m->p[i]);
            moved += m->p[i] != was[i];
        }
        ck_assert_msg(s < 8 || moved > ALL / 2, "%s: step %d moves %d of %d", rule, s + 1, moved,
                      ALL);
    }
    OK(optc_unbind(m->binding));
}

START_TEST(properties)
{
    const char *rule = optc_library_name(_i);
    if (strchr(rule, '/') || thinned(_i))
        return;
    Model m = {0};
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &m.engine));
    OK(optc_compile(m.engine, &(optc_rule_options){.spec = rule}, &m.rule));
    survives(&m, rule);
    descends(&m, rule, "quadratic", quadratic, 200);
    descends(&m, rule, "function of Rosenbrock", rosenbrock, 300);
    OK(optc_release(m.rule));
    OK(optc_close(m.engine));
}
END_TEST

/* Gradients times 2^10 give the same bits. All but the first COMPILED run on the evaluator, which
 * takes no compiler. An eps beside a norm of gradients changes their bits by chance, so it is 0
 * where the rule allows that. */
enum { COMPILED = 4 };
static const char *const invariant[] = {"lion",    "signum",     "rprop", "adam_atan2", "tiger",
                                        "fromage", "nero",       "muon",  "muonh",      "spel",
                                        "rmnp",    "sinkgd",     "mano",  "scale",      "dion",
                                        "dog",     "dadapt_sgd", "nora",  "aro",        "amuse"};

START_TEST(scale_of_gradients)
{
    float end[2][ALL];
    for (int k = 0; k < 2; k++) {
        Model m = {0};
        optc_engine_options eo = {.threads = 1,
                                  .cache_dir = _i < COMPILED ? getenv("OPTC_TEST_CACHE") : "",
                                  .compiler = _i < COMPILED ? NULL : "",
                                  .no_builtin = _i >= COMPILED};
        OK(optc_open(&eo, &m.engine));
        OK(optc_compile(m.engine, &(optc_rule_options){.spec = invariant[_i]}, &m.rule));
        for (int i = 0; i < ALL; i++)
            m.p[i] = (float)ref_value(0, 0, i);
        bind_model(&m);
        set_eps(&m, 0);
        for (int s = 1; s <= 10; s++) {
            for (int i = 0; i < ALL; i++)
                m.g[i] = (float)(ref_value(0, s, i) * (k ? 1024 : 1));
            OK(optc_step(m.binding));
        }
        memcpy(end[k], m.p, sizeof m.p);
        OK(optc_unbind(m.binding));
        OK(optc_release(m.rule));
        OK(optc_close(m.engine));
    }
    ck_assert_msg(!memcmp(end[0], end[1], sizeof *end), "%s depends on the scale of gradients",
                  invariant[_i]);
}
END_TEST

/* Rules that estimate a step size d have one d for all groups, also while a group waits with lr =
 * 0. */
static const char *const estimated[] = {"dadapt_adagrad", "dadapt_adam", "dadapt_adan",
                                        "dadapt_lion",    "dadapt_sgd",  "prodigy"};

static void step_often(Fixture *f)
{
    for (int s = 1; s <= 40; s++) {
        for (int k = 0; k < f->n; k++)
            for (int64_t i = 0; i < f->count[k]; i++)
                /* the same at each step: d grows */
                ((double *)f->g[k])[i] = ref_value(k, 1, i);
        OK(optc_step(f->binding));
    }
}

START_TEST(one_estimate)
{
    static const optc_setting waits[] = {{"lr", 0}};
    Fixture f;
    fix_open_groups(&f, &(optc_engine_options){.compiler = "", .cache_dir = "", .no_builtin = true},
                    &(optc_rule_options){.spec = estimated[_i], .param = OPTC_F64}, odd_shapes, 3,
                    NULL, 0, &(FixtureGroups){.second = 2, .set = waits, .nset = 1});
    double d[2], alone;
    step_often(&f);
    OK(optc_state_read(f.binding, 0, "d", &d[0], 1));
    OK(optc_state_read(f.binding, 1, "d", &d[1], 1));           /* group 1 */
    ck_assert_msg(d[0] > 1e-6 && d[0] == d[1], "%s: %g and %g", estimated[_i], d[0], d[1]);
    fix_close(&f);
    fix_open(&f, &(optc_engine_options){.compiler = "", .cache_dir = "", .no_builtin = true},
             &(optc_rule_options){.spec = estimated[_i], .param = OPTC_F64}, odd_shapes, 2, NULL,
             0);
    step_often(&f);
    OK(optc_state_read(f.binding, 0, "d", &alone, 1));
    ck_assert_msg(fabs(alone - d[0]) <= 1e-12 * alone,
                  "%s: %g beside a group that waits, %g without it", estimated[_i], d[0], alone);
    fix_close(&f);
}
END_TEST

Suite *descent_suite(void)
{
    Suite *s = suite_create("descent");
    TCase *t = tcase_create("library");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, properties, 0, optc_library_size());
    tcase_add_loop_test(t, scale_of_gradients, 0, (int)(sizeof invariant / sizeof *invariant));
    tcase_add_loop_test(t, one_estimate, 0, (int)(sizeof estimated / sizeof *estimated));
    suite_add_tcase(s, t);
    return s;
}

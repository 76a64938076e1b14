/* Every rule of the library with every wrapper. One pair in 16 is planned, and gen_compile verifies
 * each plan. A cover is stepped: every wrapper with two rules, which rotate over the library.
 * OPTC_ALL plans and steps all pairs. Only wrappers that take a step apart, or step a projection,
 * refuse rules. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, EACH = 2, STEPS = 3 };

static const TestShape shapes[] = {
    {.rank = 0}, {.rank = 1, .dim = {7}}, {.rank = 2, .dim = {6, 8}}};
static const char *rule[MOST], *wrapper[MOST];
static int nrule, nwrapper;

static void read_names(void)
{
    for (int i = 0; i < optc_library_size(); i++) {
        const char *name = optc_library_name(i);
        if (!strncmp(name, "wrappers/", 9))
            wrapper[nwrapper++] = name + 9;
        else if (!strchr(name, '/'))
            rule[nrule++] = name;
    }
}

static bool plans(const char *name, const char *with, char *why, size_t room)
{
    Gen g = {0};
    Source s;
    GenOptions o = {.find = find_wrapper, .with = with};
    bool ok = find_spec(NULL, name, &g.arena, &s, &g.diag) && gen_compile(&g, s, &o);
    snprintf(why, room, "%s", ok ? "" : g.diag.text);
    gen_free(&g);
    return ok;
}

/* Returns what the message of a refusal contains, or NULL if the pair is planned. Wrappers that
 * take the step apart refuse the rules that cautious_decay refuses. Those that step a projection
 * refuse the rules that galore refuses, for several reasons: states by row or slice, questions
 * about sizes, another rank; most_refused limits their number. */
static const char *refusal(const char *name, const char *with)
{
    static const struct { const char *wrapper, *like, *message;
    } refusing[] = {
        {"cautious_decay", "cautious_decay", "apart"},
        {"corrected_decay", "cautious_decay", "apart"},
        {"hyperball", "cautious_decay", "apart"},
        {"radial_brake", "cautious_decay", "apart"},
        {"relative_update", "cautious_decay", "apart"},
        {"uw_floor", "cautious_decay", "apart"},
        {"wsam", "cautious_decay", "apart"},
        {"galore", "galore", ""},
        {"fira", "galore", ""},
    };
    char why[512];
    for (size_t i = 0; i < sizeof refusing / sizeof *refusing; i++)
        if (!strcmp(refusing[i].wrapper, with) && !plans(name, refusing[i].like, why, sizeof why))
            return refusing[i].message;
    return NULL;
}

/* OPTC_PAIRS="nora,snoo": only pairs with one of these rules or wrappers. */
static bool chosen(const char *name)
{
    const char *list = getenv("OPTC_PAIRS");
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, n) && (!at[n] || at[n] == ','))
            return true;
    return !list;
}

START_TEST(planned)
{
    bool all = getenv("OPTC_ALL") != NULL;
    for (int w = 0; w < nwrapper; w++) {
        char why[512];
        if (all ? !chosen(rule[_i]) && !chosen(wrapper[w]) : (w + _i) % (sanitized() ? 128 : 16))
            continue;
        bool ok = plans(rule[_i], wrapper[w], why, sizeof why);
        const char *message = refusal(rule[_i], wrapper[w]);
        ck_assert_msg(message ? !ok && strstr(why, message) != NULL : ok, "%s with %s: %s",
                      rule[_i], wrapper[w], ok ? "is planned" : why);
    }
}
END_TEST

/* Steps a pair, with each entry of a step. The values must be finite, and the first tensors must
 * move. */
static void step_pair(const char *name, const char *with, bool native)
{
    optc_engine_options eo = {.threads = 1, .cache_dir = native ? getenv("OPTC_TEST_CACHE") : "",
                              .compiler = native ? NULL : "", .no_builtin = !native};
    Fixture f;
    double first[3];
    fix_open(&f, &eo, &(optc_rule_options){.spec = name, .with = with}, shapes, 3, NULL, 0);
    ck_assert_msg(optc_rule_native(f.rule) == native, "%s with %s runs as: %s", name, with,
                  optc_rule_path(f.rule));
    for (int k = 0; k < f.n; k++)
        first[k] = type_load(f.type, f.p[k], 0);
    for (int s = 1; s <= STEPS; s++)
        for (int e = 0; optc_rule_gradient(f.rule, s, e) || !e; e++) {
            const char *entry = optc_rule_gradient(f.rule, s, e);
            for (int k = 0; k < f.n; k++)
                for (int64_t i = 0; i < f.count[k]; i++)
                    type_store(f.type, f.g[k], i, ref_value(k, s + 100 * e, i));
            OK(optc_run(f.binding, entry ? entry : "step"));
        }
    /* These move no parameter in the first steps: accumulate steps every fourth gradient, mechanic
     * starts at a scale of 1e-8, adashift waits for ten gradients, schedulefree_radam until its
     * variance is bounded. */
    bool late = !strcmp(with, "accumulate") || !strcmp(with, "mechanic") ||
                !strcmp(name, "adashift") || !strcmp(name, "schedulefree_radam");
    int moved = 0;
    for (int k = 0; k < f.n; k++) {
        moved += type_load(f.type, f.p[k], 0) != first[k];
        for (int64_t i = 0; i < f.count[k]; i++)
            ck_assert_msg(isfinite(type_load(f.type, f.p[k], i)),
                          "%s with %s: tensor %d, element %d is %g", name, with, k, (int)i,
                          type_load(f.type, f.p[k], i));
    }
    ck_assert_msg(moved || late, "%s with %s does not move", name, with);
    fix_close(&f);
}

/* The number-th rule of a wrapper in the cover: rules that the wrapper refuses are left out. */
static const char *covering(int w, int number)
{
    int r = (w * EACH + number) * (nrule / EACH + 1) % nrule;
    for (int n = 0; refusal(rule[r], wrapper[w]); n++, r = (r + 1) % nrule)
        ck_assert_msg(n < nrule, "%s refuses all rules", wrapper[w]);
    return rule[r];
}

START_TEST(cover)
{
    int w = _i / EACH;
    if (sanitized() && _i % 8)
        return;
    step_pair(covering(w, _i % EACH), wrapper[w], getenv("OPTC_ALL") || _i % 14 == 0);
}
END_TEST

/* A wrapper that refused more rules than it has to would not fail the tests above. */
START_TEST(most_refused)
{
    static const struct { const char *wrapper; int most; } limit[] = {
        {"galore", 50}, {"cautious_decay", 28}};
    char why[512];
    int refused = 0;
    for (int r = 0; r < nrule && !sanitized(); r++)
        refused += !plans(rule[r], limit[_i].wrapper, why, sizeof why);
    ck_assert_msg(refused <= limit[_i].most, "%s refuses %d rules", limit[_i].wrapper, refused);
}
END_TEST

START_TEST(whole)
{
    for (int w = 0; w < nwrapper && getenv("OPTC_ALL"); w++)
        if (!refusal(rule[_i], wrapper[w]) && (chosen(rule[_i]) || chosen(wrapper[w])))
            step_pair(rule[_i], wrapper[w], false);
}
END_TEST

Suite *pairs_suite(void)
{
    Suite *s = suite_create("pairs");
    TCase *t = tcase_create("pairs");
    read_names();
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, planned, 0, nrule);
    tcase_add_loop_test(t, cover, 0, nwrapper * EACH);
    tcase_add_loop_test(t, most_refused, 0, 2);
    tcase_add_loop_test(t, whole, 0, nrule);
    suite_add_tcase(s, t);
    return s;
}

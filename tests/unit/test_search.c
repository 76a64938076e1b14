/* The search for launches on landscapes with a known minimum: no device, and a fake clock. */
#include "tests/harness/help.h"

#include "runtime/library/rule/spec_find.h"
#include "runtime/library/tune/launch_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Land {
    double (*height)(const Launch *l);
    /* times on a second layout of the work; NULL: as on the first */
    double (*other)(const Launch *l);
    /* times at a neighbouring size; NULL: there is none */
    double (*beside)(const Launch *l);
    int widened;
    bool unsteady;
    double noise;
    bool (*fails)(const Launch *l);
    uint64_t seed;
    double clock;
    /* die_at: the race at which the device fails; 0: never */
    int builds, races, samples, die_at;
    int stop_at, late; volatile int stop;      /* late: samples after the stop */
    Launch ahead[SEARCH_AHEAD]; int nahead;    /* launches announced as next … */
    int vain;                                  /* … that were not tried */
} Land;

static double uniform(Land *a) { return (double)((a->seed = splitmix(a->seed)) >> 11) * 0x1p-53; }

static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    Land *a = ctx;
    if (a->nahead >= n && !memcmp(a->ahead, l, sizeof *l * (size_t)n)) {
        a->nahead -= n;
        memmove(a->ahead, a->ahead + n, sizeof *l * (size_t)a->nahead);
    } else {
        a->vain += a->nahead;
        a->nahead = 0;
    }
    for (int i = 0; i < n; i++) {
        ok[i] = !a->fails || !a->fails(&l[i]);
        a->clock += 0.01;
        a->builds++;
    }
}

static double time_of(const Land *a, int layout, const Launch *l)
{
    double one = a->height(l), other = a->other ? a->other(l) : one;
    if (layout == (a->other ? 2 : 1)) {
        ck_assert_msg(a->widened, "a size beside was raced on before it was made ready");
        return a->beside(l);
    }
    return layout < 0 ? (one + other) / 2 : layout ? other : one;
}

static double noisy(Land *a, int layout, const Launch *l)
{
    return time_of(a, layout, l) * (1 + a->noise * (uniform(a) + uniform(a) - 1));
}
static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static bool race(void *ctx, int layout, const Launch *x, const Launch *y, int samples, double *ms_x,
                 double *ms_y)
{
    Land *a = ctx;
    /* the device's clock drifts, for both sides alike */
    double t[2][128], drift = 1 + 0.1 * sin(a->clock);
    a->samples += samples;
    a->late += a->stop ? samples : 0;
    for (int i = 0; i < samples; i++) {
        t[0][i] = noisy(a, layout, x) * drift;
        t[1][i] = noisy(a, layout, y) * drift;
        a->clock += (t[0][i] + t[1][i]) * 1e-3;
    }
    qsort(t[0], (size_t)samples, sizeof(double), by_value);
    qsort(t[1], (size_t)samples, sizeof(double), by_value);
    *ms_x = t[0][samples / 2];
    *ms_y = t[1][samples / 2];
    if (++a->races == a->stop_at)
        a->stop = 1;
    return a->races != a->die_at;
}

static double now(void *ctx) { return ((Land *)ctx)->clock; }

static void prepare(void *ctx, const Launch *l, int n)
{
    Land *a = ctx;
    ck_assert_msg(n > 0 && n <= SEARCH_AHEAD && n >= a->nahead &&
                      !memcmp(a->ahead, l, sizeof *l * (size_t)a->nahead),
                  "others were said to come next");
    memcpy(a->ahead, l, sizeof *l * (size_t)n);
    a->nahead = n;
}

static int widen(void *ctx)
{
    Land *a = ctx;
    a->widened++;
    return (a->other ? 2 : 1) + (a->beside != NULL);
}

static Meter meter_of(Land *a)
{
    return (Meter){a, a->other ? 2 : 1, !a->unsteady, widen, prepare, ready, race, now, NULL, NULL};
}

/* ---- landscapes over the launches of a map ---- */
static double off(int v, int best, double per) { return 1 + per * fabs(log2((double)v / best)); }

static double smooth(const Launch *l)
{
    return 2.0 * off(l->v[KNOB_THREADS], 512, 0.05) * off(l->v[KNOB_VECTOR], 2, 0.03) *
           off(l->v[KNOB_ITEMS], 4, 0.04) * (l->v[KNOB_STORE] ? 1 : 1.03) *
           (l->v[KNOB_LOAD] == 1 ? 1 : 1.02) * (l->v[KNOB_GRID] ? 1 : 1.04) *
           (1 + 0.01 * fabs(l->v[KNOB_BLOCKS] - 4.0));
}

/* The best value of one knob depends on the others: bytes in flight and registers. */
static double coupled(const Launch *l)
{
    double regs = 20 + 6.0 * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS],
        cap = l->v[KNOB_BLOCKS] ? 65536.0 / (l->v[KNOB_BLOCKS] * l->v[KNOB_THREADS]) : 255;
    double spills = regs > cap ? 0.02 * (regs - cap) : 0,
           resident =
               fmin(2048, floor(65536 / fmin(regs, cap) / l->v[KNOB_THREADS]) * l->v[KNOB_THREADS]);
    double bytes = resident * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS] * 16, need = 90e3;
    return 1.0 + spills + (bytes < need ? 0.8 * (need / bytes - 1) : 0.02 * (bytes / need - 1)) +
        (l->v[KNOB_LOAD] == 2 ? 0.01 : 0) + (l->v[KNOB_GRID] ? 0.06 : 0);
}

static double rugged(const Launch *l)
{
    uint64_t h = 1;
    for (int k = 0; k < NKNOB; k++)
        h = splitmix(h ^ (uint64_t)(l->v[k] + 7 * k));
    return coupled(l) * (1 + 0.03 * (double)(h >> 40) * 0x1p-24);
}

static double flat(const Launch *l) { return 1.0 + 0 * l->v[0]; }
static bool wide_fails(const Launch *l)
{
    return l->v[KNOB_VECTOR] == 8 || l->v[KNOB_THREADS] == 512;
}

static Gen gen;
static Space space;

static void open_space(void)
{
    Source s;
    memset(&gen, 0, sizeof gen);
    ck_assert(
        find_spec(NULL, "adamw", &gen.arena, &s, &gen.diag) &&
        gen_compile(&gen, s, &(GenOptions){.types = {.p = T_F32, .g = T_F32, .state = T_F32}}));
    for (int f = 0; f < gen.plan->nfn; f++)
        if (stage_form(plan_at(gen.plan, f).stage) == FORM_MAP)
            space = search_stage_space(gen.plan, plan_at(gen.plan, f).stage, 0);
    ck_assert_int_eq(space.form, FORM_MAP);
}

static void close_space(void) { gen_free(&gen); }

static int apart(const Launch *a, const Launch *b)
{
    int n = 0;
    for (int k = 0; k < NKNOB; k++)
        n += a->v[k] != b->v[k];
    return n;
}

/* A minimum near the launch on the other side of the model's, which cannot be reached from this
 * side. */
static double beyond(const Launch *l)
{
    int far = apart(l, &space.rival);
    return !far                                  ? 0.9
           : far == 1 && l->v[KNOB_BLOCKS] == 10 ? 0.85
           : apart(l, &space.model)              ? 1.1
                                                 : 1;
}

static double lowest(const Land *a, Launch *at)
{
    Launch *all;
    int n = search_space(&space, &all);
    double least = INFINITY;
    for (int i = 0; i < n; i++)
        if ((!a->fails || !a->fails(&all[i])) && a->height(&all[i]) < least) {
            least = a->height(&all[i]);
            *at = all[i];
        }
    free(all);
    return least;
}

static Search run(Land *a, double budget, bool exhaustive)
{
    Search s = {.budget = budget, .exhaustive = exhaustive, .stop = &a->stop};
    Meter m = meter_of(a);
    ck_assert(search_run(&space, &m, &s));
    ck_assert_msg(!s.trial[s.best].failed &&
                      launch_valid(space.plan, space.stage, &s.trial[s.best].launch),
                  "the winner was not fit to win");
    ck_assert_msg(!s.finished || !(a->vain + a->nahead), "%d were said to come next and did not",
                  a->vain + a->nahead);
    return s;
}

static const struct { const char *name; double (*height)(const Launch *); double noise, within;
    bool (*fails)(const Launch *); } lands[] = {
    {"smooth", smooth, 0, 0.001, NULL}, {"smooth, noisy", smooth, 0.02, 0.02, NULL},
    {"coupled", coupled, 0, 0.01, NULL}, {"coupled, noisy", coupled, 0.02, 0.02, NULL},
    {"rugged", rugged, 0.005, 0.02, NULL}, {"coupled, some fail", coupled, 0.005, 0.02, wide_fails},
    {"flat, noisy", flat, 0.01, 0.001, NULL}};

/* More seeds run the same code with other numbers: the sanitizers get a few. */
static uint64_t seeds(int n) { return (uint64_t)(thinned(1) ? (n + 4) / 5 : n); }

/* Finds a launch near the minimum after a fraction of all trials. */
START_TEST(finds)
{
    for (uint64_t seed = 1; seed <= seeds(10); seed++) {
        Land a = {.height = lands[_i].height,
                  .noise = lands[_i].noise,
                  .fails = lands[_i].fails,
                  .seed = seed,
                  .unsteady = seed % 2};
        Launch at = {{0}}, *all;
        double least = lowest(&a, &at);
        int total = search_space(&space, &all);
        Search s = run(&a, 60, false);
        double got = a.height(&s.trial[s.best].launch);
        ck_assert_msg(got <= least * (1 + lands[_i].within),
                      "%s, seed %d: %.4f is %.1f %% above the lowest (%d of %d tried)",
                      lands[_i].name, (int)seed, got, 100 * (got / least - 1), s.n, total);
        ck_assert_msg(got <= a.height(&space.model) * 1.001, "%s: worse than the model",
                      lands[_i].name);
        ck_assert_msg(a.builds < total * 2 / 3, "%s: %d of %d built", lands[_i].name, a.builds,
                      total);
        ck_assert_msg(s.finished, "%s: not finished after %.0f s", lands[_i].name, s.spent);
        for (int i = 0; i < s.n; i++)
            ck_assert(!s.trial[i].samples || !a.fails || !a.fails(&s.trial[i].launch));
        search_free(&s);
        free(all);
    }
}
END_TEST

START_TEST(finds_what_lies_beyond_the_border)
{
    ck_assert_int_gt(apart(&space.model, &space.rival), 2);
    for (uint64_t seed = 1; seed <= seeds(10); seed++) {
        Land a = {.height = beyond, .noise = 0.01, .seed = seed};
        Search s = run(&a, 60, false);
        ck_assert_msg(beyond(&s.trial[s.best].launch) < 0.87, "seed %d: %.2f", (int)seed,
                      beyond(&s.trial[s.best].launch));
        search_free(&s);
    }
    const Stage *st = space.stage;
    for (int64_t n = 1 << 10; n <= 1 << 30; n *= 4) {
        Launch model = launch_model(space.plan, st, n), rival = launch_rival(space.plan, st, n);
        ck_assert(launch_valid(space.plan, st, &rival));
        ck_assert_msg(!apart(&rival, n < 1 << 23 ? &space.model : &space.rival) &&
                          !apart(&model, n < 1 << 23 ? &space.rival : &space.model),
                      "2^23 is where this side and the other meet");
    }
}
END_TEST

START_TEST(flat_keeps_the_model)
{
    for (uint64_t seed = 1; seed <= seeds(20); seed++) {
        Land a = {.height = flat, .noise = 0.005, .seed = seed};
        Search s = run(&a, 60, false);
        ck_assert_msg(s.best == s.model, "seed %d: noise won", (int)seed);
        search_free(&s);
    }
}
END_TEST

/* A launch that gains on one layout and loses on the other is rejected, however large the total
 * gain; a small gain on both is accepted. */
static double wide(const Launch *l) { return l->v[KNOB_VECTOR] == 8 ? 0.98 : 1; }
static double grids_gain(const Launch *l) { return wide(l) * (l->v[KNOB_GRID] ? 0.8 : 1); }
static double grids_lose(const Launch *l) { return wide(l) * (l->v[KNOB_GRID] ? 1.06 : 1); }

static void wide_wins(Land a)
{
    for (int exhaustive = 0; exhaustive < 2; exhaustive++)
        for (uint64_t seed = 1; seed <= seeds(5); seed++) {
            Land fresh = a;
            fresh.noise = 0.004;
            fresh.seed = seed;
            Search s = run(&fresh, exhaustive ? 1e9 : 60, exhaustive);
            const Launch *l = &s.trial[s.best].launch;
            ck_assert_msg(!l->v[KNOB_GRID] && l->v[KNOB_VECTOR] == 8, "seed %d: vector %d, grid %d",
                          (int)seed, l->v[KNOB_VECTOR], l->v[KNOB_GRID]);
            search_free(&s);
        }
}

START_TEST(no_layout_loses) { wide_wins((Land){.height = grids_gain, .other = grids_lose}); }
END_TEST

/* A launch that loses at a size that would use the result is rejected too. If nothing gains, no
 * other size is prepared. */
START_TEST(no_size_beside_loses)
{
    wide_wins((Land){.height = grids_gain, .beside = grids_lose});
    for (uint64_t seed = 1; seed <= seeds(5); seed++) {
        Land b = {.height = flat, .beside = flat, .noise = 0.002, .seed = seed};
        Search s = run(&b, 60, false);
        ck_assert(s.best == s.model && !b.widened);
        search_free(&s);
        Land c = {.height = smooth, .beside = smooth, .noise = 0.002, .seed = seed};
        s = run(&c, 60, false);
        ck_assert_msg(smooth(&s.trial[s.best].launch) < smooth(&space.model) && c.widened,
                      "seed %d: what gains everywhere was not kept", (int)seed);
        search_free(&s);
    }
}
END_TEST

/* Many launches gain the same: whichever remains, none loses at the neighbouring size. */
static double hints_gain(const Launch *l)
{
    return l->v[KNOB_LOAD] || l->v[KNOB_STORE] ? 0.9965 : 1;
}
static double streams_lose(const Launch *l) { return l->v[KNOB_LOAD] == 1 ? 1.2 : hints_gain(l); }

START_TEST(no_second_loses_beside)
{
    int kept = 0, lands = thinned(1) ? 15 : 300;
    for (uint64_t seed = 1; seed <= (uint64_t)lands; seed++) {
        Land a = {.height = hints_gain, .beside = streams_lose, .noise = 0.004, .seed = seed};
        Search s = run(&a, 60, false);
        kept += s.best != s.model;
        ck_assert_msg(streams_lose(&s.trial[s.best].launch) <= 1,
                      "seed %d: a launch that is 20 %% slower beside", (int)seed);
        search_free(&s);
    }
    ck_assert_int_gt(kept, lands / 3);
}
END_TEST

/* Small losses against each predecessor add up against the model: the search ends with a valid
 * launch, not with none. */
static int gains(const Launch *l)
{
    return (l->v[KNOB_THREADS] == 512) + (l->v[KNOB_VECTOR] == 8) + (l->v[KNOB_LOAD] == 2);
}
static double gain_each(const Launch *l) { return pow(0.96, gains(l)); }
static double lose_each(const Launch *l) { return pow(1.004, gains(l)); }

START_TEST(losses_add_up)
{
    for (uint64_t seed = 1; seed <= seeds(5); seed++) {
        Land a = {.height = gain_each, .other = lose_each, .noise = 0.001, .seed = seed};
        Search s = run(&a, 60, false);
        ck_assert_msg(gains(&s.trial[s.best].launch) == 1 + gains(&space.model),
                      "seed %d: %d gains", (int)seed, gains(&s.trial[s.best].launch));
        search_free(&s);
    }
}
END_TEST

START_TEST(exhaustive_tries_all)
{
    Land a = {.height = rugged, .noise = 0.002, .seed = 3};
    Launch at, *all;
    double least = lowest(&a, &at);
    int total = search_space(&space, &all);
    Search s = run(&a, 1e9, true);
    ck_assert_int_eq(s.n, total);
    ck_assert(a.height(&s.trial[s.best].launch) <= least * 1.005);
    search_free(&s);
    free(all);
}
END_TEST

START_TEST(budget_and_stop)
{
    Land a = {.height = coupled, .seed = 1};
    Search s = run(&a, 0.4, false);
    ck_assert(!s.finished && s.n > 1 && s.spent < 1.5);
    ck_assert(a.height(&s.trial[s.best].launch) <= a.height(&space.model));
    search_free(&s);
    Land b = {.height = coupled, .seed = 1, .stop_at = 12};
    s = run(&b, 60, false);
    ck_assert(!s.finished && b.races <= 14);
    search_free(&s);
    Land c = {.height = coupled, .seed = 1, .die_at = 5};
    Search d = {.budget = 60};
    Meter m = meter_of(&c);
    ck_assert_msg(!search_run(&space, &m, &d), "a device that fails went unnoticed");
    ck_assert_int_eq(c.races, 5);
    search_free(&d);
}
END_TEST

/* Long steps give few samples: a short budget still tries some launches and keeps the best, and
 * stop works. Nothing is compiled that is not timed. */
static double slow(const Launch *l)
{
    return 200 * (l->v[KNOB_THREADS] == 512 ? 0.8 : l->v[KNOB_THREADS] < 256 ? 1.1 : 1);
}

START_TEST(long_steps)
{
    for (uint64_t seed = 1; seed <= seeds(10); seed++) {
        Land a = {.height = slow, .noise = 0.02, .seed = seed, .unsteady = true};
        Meter m = meter_of(&a);
        m.prepare = NULL;
        Search s = {.budget = 4};
        ck_assert(search_run(&space, &m, &s));
        int tried = 0;
        for (int i = 0; i < s.n; i++)
            tried += s.trial[i].samples > 0;
        ck_assert_msg(!s.finished && tried >= 4 && s.spent < 5.5, "seed %d: %d tried in %.1f s",
                      (int)seed, tried, s.spent);
        ck_assert_msg(a.builds <= tried + 1, "%d made ready, %d tried", a.builds, tried);
        ck_assert_msg(s.trial[s.best].launch.v[KNOB_THREADS] == 512,
                      "seed %d: the best of them was lost", (int)seed);
        search_free(&s);
        Land less = {.height = slow, .noise = 0.02, .seed = seed, .unsteady = true};
        s = run(&less, 0.7, false);
        ck_assert_msg(s.model_ms > 0 && less.samples <= 5, "seed %d: %d samples", (int)seed,
                      less.samples);
        int other = 0;
        for (int i = 0; i < s.n; i++)
            other += i != s.model && s.trial[i].samples;
        ck_assert_msg(other, "seed %d: none but the model was tried in time for two", (int)seed);
        search_free(&s);
        Land b = {
            .height = slow, .noise = 0.02, .seed = seed, .unsteady = true, .stop_at = (int)seed};
        s = run(&b, 60, false);
        ck_assert_msg(!s.finished && b.late <= 3, "stopped at race %d: %d samples more", (int)seed,
                      b.late);
        search_free(&s);
        Land c = {.height = flat, .seed = seed};
        s = run(&c, 0.02, false);
        /* short steps are sampled as before */
        ck_assert_int_eq(c.samples, 9 + 25);
        search_free(&s);
    }
}
END_TEST

/* A number of trials instead of a time: exactly that many are compiled and tried, none in vain, and
 * the clock has no effect. */
START_TEST(trials_bound_a_search)
{
    static const int most[] = {1, 2, 16, 17, 40, 100};
    for (int k = 0; k < (int)(sizeof most / sizeof *most); k++) {
        Land a = {.height = smooth, .fails = k % 2 ? wide_fails : NULL, .seed = 1, .clock = 1e9};
        Search s = {.budget = INFINITY, .trials = most[k]};
        Meter m = meter_of(&a);
        ck_assert(search_run(&space, &m, &s) && !s.finished);
        int tried = 0;
        for (int i = 0; i < s.n; i++)
            tried += s.trial[i].samples || s.trial[i].failed;
        ck_assert_int_eq(tried, most[k]);
        ck_assert_int_eq(a.builds, most[k]);
        ck_assert_int_eq(a.vain + a.nahead, 0);
        ck_assert(smooth(&s.trial[s.best].launch) <= smooth(&space.model));
        search_free(&s);
    }
}
END_TEST

/* Launches that are ruled out are neither proposed nor counted, known from before or not; all
 * others are. */
static bool only_the_model(void *ctx, const Launch *l)
{
    return ctx && !memcmp(l, &space.model, sizeof *l);
}
static bool narrow(void *ctx, const Launch *l)
{
    return only_the_model(ctx, l) || l->v[KNOB_VECTOR] < 8;
}

START_TEST(only_what_is_worth_it)
{
    Launch *all, known = space.model;
    int want = 0, n = search_space(&space, &all);
    for (int i = 0; i < n; i++) {
        want += narrow(&n, &all[i]);
        known = narrow(&n, &all[i]) ? known : all[i];
    }
    ck_assert(want > 1 && want < n && !narrow(&n, &known));
    for (int way = 0; way < 4; way++) {
        Land a = {.height = wide, .seed = 1};
        Meter m = meter_of(&a);
        m.worth = way & 2 ? only_the_model : narrow;
        Search s = {.budget = 1e9, .exhaustive = way & 1, .known = &known};
        ck_assert(search_run(&space, &m, &s) && s.finished);
        for (int i = 0; i < s.n; i++)
            ck_assert(m.worth(&a, &s.trial[i].launch));
        ck_assert_int_le(s.n, way & 2 ? 1 : want);
        ck_assert(!(way & 1) || s.n == (way & 2 ? 1 : want));
        search_free(&s);
    }
    free(all);
}
END_TEST

/* The result of an earlier run is tried first, so a short budget does not lose it. */
START_TEST(goes_on_from_before)
{
    Land a = {.height = smooth, .seed = 1};
    Launch best;
    double least = lowest(&a, &best);
    Search s = {.budget = 1.2, .known = &best};
    Meter m = meter_of(&a);
    ck_assert(search_run(&space, &m, &s));
    ck_assert_msg(a.height(&s.trial[s.best].launch) == least, "the best one known was lost");
    search_free(&s);
}
END_TEST

/* The launch in use is compared with the best one once more, side by side. */
START_TEST(stands_to_what_is_used)
{
    Land a = {.height = coupled, .noise = 0.01, .seed = 1};
    Launch best;
    double least = lowest(&a, &best);
    for (int i = 0; i < 2; i++) {
        Launch known[2] = {best, i ? best : space.model};
        Search s = {
            .budget = 1e9, .exhaustive = true, .known = known, .used = &known[1]};
        Meter m = meter_of(&a);
        ck_assert(search_run(&space, &m, &s));
        double want = i ? 1 : coupled(&space.model) / least, got = s.used_ms / s.trial[s.best].ms;
        ck_assert_msg(fabs(got / want - 1) < 0.01, "%g, not %g", got, want);
        search_free(&s);
    }
    Search s = run(&a, 60, false);
    /* no results: the launch in use is the model's */
    ck_assert(fabs(s.used_ms / s.model_ms - 1) < 0.02);
    search_free(&s);
    /* no time at all: the model's time is still reported */
    Search late = run(&a, 0, false);
    ck_assert(!late.finished && late.best == late.model && late.model_ms > 0);
    search_free(&late);
}
END_TEST

Suite *search_suite(void)
{
    Suite *s = suite_create("search");
    TCase *t = tcase_create("search");
    tcase_add_checked_fixture(t, open_space, close_space);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, finds, 0, (int)(sizeof lands / sizeof *lands));
    tcase_add_test(t, finds_what_lies_beyond_the_border);
    tcase_add_test(t, flat_keeps_the_model);
    tcase_add_test(t, no_layout_loses);
    tcase_add_test(t, no_size_beside_loses);
    tcase_add_test(t, no_second_loses_beside);
    tcase_add_test(t, losses_add_up);
    tcase_add_test(t, exhaustive_tries_all);
    tcase_add_test(t, budget_and_stop);
    tcase_add_test(t, long_steps);
    tcase_add_test(t, trials_bound_a_search);
    tcase_add_test(t, only_what_is_worth_it);
    tcase_add_test(t, goes_on_from_before);
    tcase_add_test(t, stands_to_what_is_used);
    suite_add_tcase(s, t);
    return s;
}

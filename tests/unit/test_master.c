/* Rules that keep what 16-bit parameters round away (gen/ir/master_pass.c), against the same rules
 * with f32 parameters: bit for bit where nothing is lost, else within the bounds of the formats. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const TestShape shapes[] = {{1, {37}}, {2, {9, 13}}, {2, {24, 16}}};
enum { NSHAPE = sizeof shapes / sizeof *shapes };

static void open_rule(Fixture *f, const char *spec, const char *with, optc_type param,
                      const char *types)
{
    optc_engine_options eo = {.cache_dir = getenv("OPTC_TEST_CACHE"), .threads = 1};
    optc_rule_options ro = {
        .spec = spec, .with = with, .param = param, .grad = OPTC_BF16, .types = types};
    fix_open(f, &eo, &ro, shapes, NSHAPE, NULL, 0);
    for (int k = 0; k < f->n; k++)             /* numbers that bf16 has, in both runs */
        for (int64_t i = 0; i < f->count[k]; i++) {
            unsigned short x;
            type_store(T_BF16, &x, 0, 0.5 * ref_value(k, 0, i));
            type_store(f->type, f->p[k], i, type_load(T_BF16, &x, 0));
        }
}

/* States that start as a copy of p were filled before open_rule wrote p. */
static void restart(Fixture *f)
{
    OK(optc_params_changed(f->binding, -1));
    for (int s = 0; s < optc_rule_states(f->rule); s++) {
        optc_state_info about;
        OK(optc_rule_state(f->rule, s, &about));
        const Rule *r = f->rule->library->rule;
        for (int i = 0; i < r->nstate; i++)
            for (int k = 0; k < f->n && !strcmp(r->state[i].name, about.name) &&
                            r->state[i].init == INIT_COPY_P;
                 k++) {
                optc_state_view v;
                int has = 0;
                OK(optc_has_state(f->binding, k, about.name, &has));
                if (!has)
                    continue;
                OK(optc_state(f->binding, k, about.name, &v));
                for (int64_t x = 0; x < v.count; x++)
                    type_store((int)v.type - 1, v.data, x, type_load(f->type, f->p[k], x));
            }
    }
}

static void step(Fixture *f, int t)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            type_store(T_BF16, f->g[k], i, ref_value(k, t, i) * (i % 5 ? 1 : 1e-4));
    /* SAM perturbs before it steps */
    for (int e = optc_rule_entries(f->rule) - 1; e >= 0; e--)
        OK(optc_run(f->binding, optc_rule_entry(f->rule, e)));
}

static float bits_as_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The number that p and its state hold: by hand, from the bytes. */
static float whole(const Fixture *f, int k, int64_t i, const char *state)
{
    optc_state_view v;
    OK(optc_state(f->binding, k, state, &v));
    if (!strcmp(state, "master"))
        return ((const float *)v.data)[i];
    uint32_t high = (uint32_t)((const uint16_t *)f->p[k])[i] << 16;
    return bits_as_f32(high + (uint32_t)(int32_t)((const int16_t *)v.data)[i]);
}

static void same_states(const char *label, const Fixture *a, const Fixture *b)
{
    for (int s = 0; s < optc_rule_states(a->rule); s++) {
        optc_state_info about;
        OK(optc_rule_state(a->rule, s, &about));
        /* one value per group */
        for (int k = 0; k < (strcmp(about.domain, "group") ? a->n : 1); k++) {
            optc_state_view x, y;
            int has = 0;
            OK(optc_has_state(a->binding, k, about.name, &has));
            if (!has)
                continue;
            OK(optc_state(a->binding, k, about.name, &x));
            OK(optc_state(b->binding, k, about.name, &y));
            ck_assert_msg(
                x.count == y.count && x.type == y.type &&
                    !memcmp(x.data, y.data, (size_t)x.count * (size_t)type_info[x.type - 1].bytes),
                "%s: state %s of tensor %d", label, about.name, k);
        }
    }
}

/* bf16 parameters that keep everything are f32 parameters. */
static void equals_f32(const char *spec, const char *with, const char *types, const char *state,
                       int steps)
{
    Fixture wide, narrow;
    char *label = format("%s+%s, %s", spec, with, types);
    open_rule(&wide, spec, with, OPTC_F32, NULL);
    open_rule(&narrow, spec, with, OPTC_BF16, types);
    restart(&wide);
    restart(&narrow);
    for (int t = 1; t <= steps; t++) {
        step(&wide, t);
        step(&narrow, t);
        for (int k = 0; k < wide.n && (t == steps || t % 50 == 1); k++)
            for (int64_t i = 0; i < wide.count[k]; i++) {
                float want = ((const float *)wide.p[k])[i], got = whole(&narrow, k, i, state);
                ck_assert_msg(!memcmp(&want, &got, 4),
                              "%s: step %d, tensor %d, element %lld: %a, in f32 %a", label, t, k,
                              (long long)i, (double)got, (double)want);
                double p = type_load(T_BF16, narrow.p[k], i), off = fabs(p - (double)want);
                ck_assert_msg(off <= 0x1p-8 * fabs((double)want) + 0x1p-134, "%s: p is %a, not %a",
                              label, p, (double)want);
            }
    }
    same_states(label, &wide, &narrow);
    fix_close(&wide);
    fix_close(&narrow);
    free(label);
}

START_TEST(thousand_steps)
{
    equals_f32("adamw", "", _i ? "master=f32" : "master=low16", _i ? "master" : "low", 1000);
}
END_TEST

static const struct { const char *spec, *with;
} composed[] = {{"sgd", ""},
                {"lion", "clip(1)"},
                {"adamw", "clip(1),ema(0.99)"},
                {"adamw", "lookahead(2,0.5)"},
                {"adamw", "sam(0.05)"},
                {"adamw", "galore(4)"},
                {"adamw", "clip(1),skip"},
                {"muon", ""},
                {"adafactor", ""},
                {"shampoo", ""}};
enum { NCOMPOSED = sizeof composed / sizeof *composed };

START_TEST(wrappers_and_entries)
{
    if (thinned(_i))
        return;
    equals_f32(composed[_i].spec, composed[_i].with, "master=low16", "low", 7);
    if (_i % 4 == 3)
        equals_f32(composed[_i].spec, composed[_i].with, "master=f32", "master", 7);
}
END_TEST

/* ---- one number at a time ---- */
/* `step` sets p to any f32 number, `look` shows what the rule reads, `hold` writes p unchanged. */
static const char probe[] = "return optimizer { name = \"probe\", state = { seen = zeros },\n"
                            "  step = function() p = g end,\n"
                            "  look = function() seen = p + 0 * g end,\n"
                            "  hold = function() p = where(lt(g, g), 0, p) end,\n"
                            "}\n";
enum { NPROBE = 40000 };

typedef struct Probe { Fixture f; uint32_t *x; } Probe;

static void open_probe(Probe *o, const char *types)
{
    static const uint32_t edge[] = {
        0,          0x80000000, 1,          0x80000001, 0x7fff,     0x8000,     0x8001,
        0x80008000, 0xffff,     0x10000,    0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
        0x7f7f8000, 0x7f7f7fff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001,
        0x3f800000, 0x3f808000, 0x3f818000, 0xbf807fff, 0x3f7fffff};
    static const TestShape shape = {1, {NPROBE}};
    optc_engine_options eo = {.cache_dir = getenv("OPTC_TEST_CACHE"), .threads = 1};
    optc_rule_options ro = {
        .spec = "probe", .text = probe, .param = OPTC_BF16, .grad = OPTC_F32, .types = types};
    fix_open(&o->f, &eo, &ro, &shape, 1, NULL, 0);
    o->x = o->f.g[0];
    for (int i = 0; i < NPROBE; i++)
        o->x[i] = i < (int)(sizeof edge / sizeof *edge) ? edge[i] : (uint32_t)splitmix((uint64_t)i);
    OK(optc_run(o->f.binding, "step"));
}

static const float *looked(Probe *o)
{
    optc_state_view v;
    uint32_t *x = malloc(NPROBE * 4);
    memcpy(x, o->x, NPROBE * 4);
    for (int i = 0; i < NPROBE; i++)
        o->x[i] = 0x80000000;                  /* p + 0 * -0 has p's sign */
    OK(optc_run(o->f.binding, "look"));
    memcpy(o->x, x, NPROBE * 4);
    free(x);
    OK(optc_state(o->f.binding, 0, "seen", &v));
    return v.data;
}

/* A write of the same number changes no byte. */
static void holds(Probe *o, const char *state)
{
    optc_state_view v;
    OK(optc_state(o->f.binding, 0, state, &v));
    size_t n = NPROBE * (size_t)type_info[v.type - 1].bytes;
    char *p = malloc(NPROBE * 2), *s = malloc(n);
    memcpy(p, o->f.p[0], NPROBE * 2);
    memcpy(s, v.data, n);
    OK(optc_run(o->f.binding, "hold"));
    for (int i = 0; i < NPROBE; i++)
        ck_assert_msg(!memcmp(p + 2 * i, (char *)o->f.p[0] + 2 * i, 2) &&
                          !memcmp(s + (size_t)i * n / NPROBE,
                                  (char *)v.data + (size_t)i * n / NPROBE, n / NPROBE),
                      "%s of %08x: a write of the same number changed it", state, o->x[i]);
    free(p);
    free(s);
}

START_TEST(any_bits)
{
    Probe o;
    open_probe(&o, "master=low16");
    const uint16_t *p = o.f.p[0];
    const float *seen = looked(&o);
    for (int i = 0; i < NPROBE; i++) {
        float x = bits_as_f32(o.x[i]);
        uint32_t nearest = (o.x[i] + 0x8000u) >> 16;                   /* ties away from zero */
        ck_assert_msg(isnan(x) ? isnan(seen[i]) : !memcmp(&x, &seen[i], 4), "%08x came back as %a",
                      o.x[i], (double)seen[i]);
        ck_assert_msg(isnan(x) ? p[i] == 0x7fff : p[i] == nearest, "%08x: p is %04x", o.x[i], p[i]);
    }
    holds(&o, "low");
    fix_close(&o.f);
}
END_TEST

/* Half a step of bf16 in 127ths: the code is off by at most half a 127th, and the sum is rounded to
 * f32. */
START_TEST(eight_bits)
{
    Probe o;
    open_probe(&o, "master=low8");
    const float *seen = looked(&o);
    for (int i = 0; i < NPROBE; i++) {
        float x = bits_as_f32(o.x[i]);
        double p = type_load(T_BF16, o.f.p[0], i);
        int e = 0;
        (void)frexp(p, &e);
        double half = ldexp(1, (p == 0 || e < -125 ? -125 : e) - 9),
               off = fabs((double)seen[i] - (double)x);
        if (isnan(x) || isinf(p)) {
            ck_assert_msg(isnan(x) ? isnan(seen[i]) : (double)seen[i] == p, "%08x came back as %a",
                          o.x[i], (double)seen[i]);
            continue;
        }
        ck_assert_msg(off <= half / 254 + fabs((double)x) * 0x1p-23 + 0x1p-149,
                      "%08x came back as %a, off by %a", o.x[i], (double)seen[i], off);
    }
    holds(&o, "low");
    fix_close(&o.f);
}
END_TEST

START_TEST(f32_and_kahan_hold)
{
    static const char *const types[][2] = {{"master=f32", "master"},
                                           {"master=kahan", "compensation"}};
    Probe o;
    open_probe(&o, types[_i][0]);
    holds(&o, types[_i][1]);
    fix_close(&o.f);
}
END_TEST

/* Steps that bf16 alone rounds away. Kahan: each step loses at most half a step of what bf16 stores
 * for the compensation, which is at most half a step of p: 2^-16 |p|. low8: 2^-8 |p| / 254 in each
 * step. */
START_TEST(small_steps)
{
    static const struct { const char *types; double each; } row[] = {
        {"master=kahan", 0x1p-16}, {"master=low8", 0x1p-8 / 254}};
    static const char text[] = "return optimizer { name = \"walk\", hyper = { lr = 1e-4 },\n"
                               "  step = function() p = p - lr * g end }\n";
    static const TestShape shape = {1, {64}};
    enum { STEPS = 1000 };
    optc_engine_options eo = {.cache_dir = getenv("OPTC_TEST_CACHE"), .threads = 1};
    optc_rule_options ro = {.spec = "walk", .text = text, .param = OPTC_BF16, .grad = OPTC_BF16};
    Fixture f[2];
    for (int k = 0; k < 2; k++) {
        ro.types = k ? NULL : row[_i].types;
        fix_open(&f[k], &eo, &ro, &shape, 1, NULL, 0);
        for (int64_t i = 0; i < 64; i++) {
            type_store(T_BF16, f[k].p[0], i, 1 + (double)i / 64);
            type_store(T_BF16, f[k].g[0], i, 0.5);
        }
        for (int t = 0; t < STEPS; t++)
            OK(optc_run(f[k].binding, "step"));
    }
    for (int64_t i = 0; i < 64; i++) {
        double from = 1 + (double)i / 64, want = from - STEPS * (double)(float)1e-4 * 0.5;
        double lost = type_load(T_BF16, f[1].p[0], i), got = type_load(T_BF16, f[0].p[0], i);
        ck_assert_msg(lost == from, "without a remainder p moved to %a", lost);
        /* p itself is rounded, and the f32 sums of 1000 steps are too */
        double bound = from * (STEPS * (row[_i].each + 0x1p-24) + 0x1p-8);
        ck_assert_msg(fabs(got - want) <= bound, "%s: element %d is %a, wanted %a within %a",
                      row[_i].types, (int)i, got, want, bound);
        ck_assert_msg(fabs(got - want) < 0.5 * fabs(lost - want), "%s: element %d is not better",
                      row[_i].types, (int)i);
    }
    fix_close(&f[0]);
    fix_close(&f[1]);
}
END_TEST

/* ---- the evaluator ---- */
START_TEST(in_bounds)
{
    static const char *const types[] = {"master=f32", "master=low16", "master=low8", "master=kahan",
                                        "master=low16,copy=f16"};
    for (int w = 0; w < 3; w++) {
        Fixture f;
        open_rule(&f, "adamw", w == 1 ? "clip(1)" : w ? "ema(0.9)" : "", OPTC_BF16, types[_i]);
        restart(&f);
        for (int t = 1; t < 4; t++) {
            step(&f, t);
            char *bad = step_in_bounds(&f, "step");
            ck_assert_msg(!bad, "%s: %s", types[_i], bad);
        }
        fix_close(&f);
    }
}
END_TEST

/* ---- parameters that the caller writes ---- */
START_TEST(written_between_steps)
{
    static const char *const row[][2] = {{"master=low16,copy=bf16", "low"},
                                         {"master=f32", "master"},
                                         {"master=kahan", "compensation"},
                                         {"master=low8", "low"}};
    Fixture f;
    open_rule(&f, "adamw", "", OPTC_BF16, row[_i][0]);
    restart(&f);
    for (int t = 1; t < 6; t++)
        step(&f, t);
    optc_state_view v[NSHAPE], w;
    char *before[NSHAPE];
    for (int k = 0; k < NSHAPE; k++) {
        size_t n;
        OK(optc_state(f.binding, k, row[_i][1], &v[k]));
        n = (size_t)v[k].count * (size_t)type_info[v[k].type - 1].bytes;
        before[k] = malloc(n);
        memcpy(before[k], v[k].data, n);
        for (int64_t i = 0; i < f.count[k]; i++)
            type_store(T_BF16, f.p[k], i, 3 + (double)i);
    }
    for (int one = 1; one >= -1; one -= 2) {                           /* tensor 1, then all */
        OK(optc_params_changed(f.binding, one));
        for (int k = 0; k < NSHAPE; k++)
            for (int64_t i = 0; i < f.count[k]; i++) {
                bool set = one < 0 || k == one;
                double got = type_load((int)v[k].type - 1, v[k].data, i),
                       p = type_load(T_BF16, f.p[k], i),
                       want = !set      ? type_load((int)v[k].type - 1, before[k], i)
                              : _i == 1 ? p
                                        : 0;
                ck_assert_msg(got == want, "%s of tensor %d, element %d: %g, not %g", row[_i][1], k,
                              (int)i, got, want);
                if (_i == 0 && set) {
                    OK(optc_state(f.binding, k, "copy", &w));
                    ck_assert_double_eq(type_load((int)w.type - 1, w.data, i), p);
                }
            }
    }
    for (int k = 0; k < NSHAPE; k++)
        free(before[k]);
    FAILS(optc_params_changed(f.binding, NSHAPE), OPTC_ERROR_ARGUMENT, "there is no tensor 3");
    fix_close(&f);
}
END_TEST

/* A remainder that the caller made stale by setting p to 0 is no NaN. */
START_TEST(zeroed_without_a_call)
{
    Probe o;
    open_probe(&o, "master=low16");
    memset(o.f.p[0], 0, NPROBE * 2);
    const float *seen = looked(&o);
    for (int i = 0; i < NPROBE; i++)
        ck_assert_msg(fabs((double)seen[i]) < 0x1p-126, "%08x, then 0: %a", o.x[i],
                      (double)seen[i]);
    fix_close(&o.f);
}
END_TEST

/* ---- the copy ---- */
START_TEST(copy_of_p)
{
    static const struct { const char *types; optc_type param;
    } row[] = {{"copy=bf16", OPTC_F32},
               {"copy=f16", OPTC_F64},
               {"copy=f32", OPTC_F32},
               {"master=low16,copy=f32", OPTC_BF16}};
    Fixture f;
    open_rule(&f, "adamw", "", row[_i].param, row[_i].types);
    restart(&f);
    for (int s = 0; s < optc_rule_states(f.rule); s++) {
        optc_state_info about;
        OK(optc_rule_state(f.rule, s, &about));
        /* not part of a checkpoint */
        ck_assert_str_ne(about.name, "copy");
    }
    for (int t = 0; t < 4; t++) {
        for (int k = 0; k < f.n; k++) {
            optc_state_view v;
            OK(optc_state(f.binding, k, "copy", &v));
            for (int64_t i = 0; i < f.count[k]; i++) {
                double room = 0,
                       p = _i == 3 ? (double)whole(&f, k, i, "low") : type_load(f.type, f.p[k], i);
                type_store((int)v.type - 1, &room, 0, p);
                ck_assert_double_eq(type_load((int)v.type - 1, v.data, i),
                                    type_load((int)v.type - 1, &room, 0));
            }
        }
        step(&f, t + 1);
    }
    fix_close(&f);
}
END_TEST

/* edits=find: elements that the caller wrote are taken from p, the others keep their master;
 * without it all are undone. Where nothing is written, the bits are those of master=f32. */
static void edited(const char *spec, const char *with, optc_type param)
{
    Fixture f[2];
    for (int e = 0; e < 2; e++) {
        open_rule(&f[e], spec, with, param, e ? "master=f32,edits=find" : "master=f32");
        restart(&f[e]);
        for (int t = 1; t < 6; t++)
            step(&f[e], t);
    }
    same_states(spec, &f[0], &f[1]);
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < f[e].n; k++)
            for (int64_t i = 0; i < f[e].count[k]; i += 3) {
                double x = (double)(3 + i % 64);
                optc_state_view v;
                type_store(f[e].type, f[e].p[k], i, x);
                OK(optc_state(f[e].binding, k, "master", &v));
                if (!e)                            /* by hand */
                    ((float *)v.data)[i] = (float)x;
            }
    for (int t = 6; t < 9; t++)
        for (int e = 0; e < 2; e++)
            step(&f[e], t);
    for (int k = 0; k < f[0].n; k++)
        ck_assert_msg(!memcmp(f[0].p[k], f[1].p[k], (size_t)f[0].count[k] * 2), "%s+%s: tensor %d",
                      spec, with, k);
    same_states(spec, &f[0], &f[1]);
    fix_close(&f[0]);
    fix_close(&f[1]);
}

START_TEST(edits_are_found)
{
    static const char *const row[][2] = {
        {"adamw", ""}, {"lamb", "clip(1.0)"}, {"sgd", "ema(0.9)"}, {"muon", ""}};
    edited(row[_i][0], row[_i][1], _i % 2 ? OPTC_F16 : OPTC_BF16);
}
END_TEST

/* Values whose rounding is no finite number of its own: f16 overflows to infinity, NaN differs from
 * itself. */
START_TEST(edits_of_odd_values)
{
    static const float masters[] = {1e30f, -1e30f, 1e-30f, -0.0f, 65519.99f, NAN, 0x1p-25f};
    enum { N = sizeof masters / sizeof *masters };
    Fixture f;
    optc_state_view v;
    open_rule(&f, "sgd", "", OPTC_F16, "master=f32,edits=find");
    restart(&f);
    OK(optc_state(f.binding, 0, "master", &v));
    for (int i = 0; i < N; i++) {
        ((float *)v.data)[i] = masters[i];
        type_store(T_F16, f.p[0], i, (double)masters[i]);
    }
    for (int k = 0; k < f.n; k++)
        memset(f.g[k], 0, (size_t)f.count[k] * 2);
    OK(optc_step(f.binding));
    for (int i = 0; i < N; i++) {
        float got = ((const float *)v.data)[i];
        ck_assert_msg(got == masters[i] || (isnan(got) && isnan(masters[i])), "%g became %g",
                      (double)masters[i], (double)got);
    }
    fix_close(&f);
}
END_TEST

/* ---- what is refused, and what it costs ---- */
START_TEST(refusals)
{
    static const char taken[] =
        "return optimizer { name = \"taken\", hyper = { low = 1 }, state = { master = zeros },"
        "  step = function() master = g; p = p - low * master end }\n";
    static const char pinned[] =
        "return optimizer { name = \"pinned\", state = { m = zeros(\"elem\", \"i16\") },\n"
        "  step = function() m = g; p = p - m end }\n";
    static const struct { const char *text, *types; optc_type param; const char *says;
    } row[] = {
        {NULL, "master=f32", OPTC_F32, "types: master=f32: parameters in f32 round nothing away"},
        {NULL, "master=kahan", OPTC_F64,
         "types: master=kahan: parameters in f64 round nothing away"},
        {NULL, "master=low16", OPTC_F16,
         "master=low16: the remainder belongs to parameters in bf16, not in f16"},
        {NULL, "master=low8", OPTC_F16,
         "master=low8: the remainder belongs to parameters in bf16, not in f16"},
        {taken, "master=low16", OPTC_BF16,
         "master=low16 needs a state 'low', but rule 'taken' has a hyperparameter"},
        {taken, "master=f32", OPTC_BF16,
         "master=f32 needs a state 'master', but rule 'taken' has a state of"},
        {NULL, "copy=q8", OPTC_F32,
         "copy=q8: a copy of the parameters needs a type that rounds each number by itself"},
        {NULL, "param=i16", OPTC_F32, "i16 and i8 hold only what bf16 parameters round away"},
        {NULL, "state=i8", OPTC_F32, "i16 and i8 hold only what bf16 parameters round away"},
        {NULL, "m=i16", OPTC_F32, "i16 and i8 hold only what bf16 parameters round away"},
        {NULL, "master=low16,m=bf16,low=f32", OPTC_BF16,
         "low=f32: the type of 'low' follows from master=low16"},
        {NULL, "master=low16,edits=find", OPTC_BF16,
         "edits=find compares parameters with master=f32"},
        {NULL, "edits=find", OPTC_F32, "edits=find compares parameters with master=f32"},
        {pinned, NULL, OPTC_F32, "i16 and i8 hold only what bf16 parameters round away"}};
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.cache_dir = getenv("OPTC_TEST_CACHE"), .threads = 1}, &e));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        optc_rule *r = NULL;
        optc_rule_options o = {.spec = row[i].text ? "mine" : "adamw",
                               .text = row[i].text,
                               .types = row[i].types,
                               .param = row[i].param};
        FAILS(optc_compile(e, &o, &r), OPTC_ERROR_SPEC, row[i].says);
    }
    optc_rule *none = NULL;
    optc_rule_options all = {.spec = "adamw", .types = "master=f32,edits=all", .param = OPTC_BF16};
    FAILS(optc_compile(e, &all, &none), OPTC_ERROR_ARGUMENT,
          "there is no such choice for edits (none, find)");
    OK(optc_close(e));
}
END_TEST

START_TEST(bytes)
{
    static const struct { const char *types; int bytes;
    } row[] = {{NULL, 22},
               {"master=low16", 26},
               {"master=low8", 24},
               {"master=f32", 28},
               {"master=kahan", 26},
               {"master=f32,edits=none", 28},
               {"master=f32,edits=find", 30},
               {"copy=bf16", 24}};
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.cache_dir = getenv("OPTC_TEST_CACHE"), .threads = 1}, &e));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        optc_rule *r = NULL;
        char *want = format("1 pass over the elements, %d bytes per element", row[i].bytes);
        OK(optc_compile(
            e, &(optc_rule_options){.spec = "adamw", .types = row[i].types, .param = OPTC_BF16},
            &r));
        ck_assert_msg(strstr(optc_rule_plan(r), want), "%s: no '%s' in %s", row[i].types, want,
                      optc_rule_plan(r));
        free(want);
        OK(optc_release(r));
    }
    OK(optc_close(e));
}
END_TEST

/* The text of a rule with these states reads back. */
START_TEST(text)
{
    Gen g = {0}, back = {0};
    Buf a = {0}, b = {0};
    static const char spec[] =
        "return optimizer { name = \"x\", step = function() p = p - g end }\n";
    GenOptions o = {.types = {.p = T_BF16,
                              .g = T_BF16,
                              .state = T_F32,
                              .master = MASTER_LOW16,
                              .copy = 1 + T_F16},
                    .rule_only = true};
    ck_assert_msg(gen_compile(&g, (Source){"x.lua", spec, strlen(spec)}, &o), "%s", g.diag.text);
    rule_print(&a, g.rule);
    ck_assert_msg(
        gen_read_ir(&back, (Source){"x.ir", buf_text(&a), a.len}, &(GenOptions){.rule_only = true}),
        "%s", back.diag.text);
    rule_print(&b, back.rule);
    ck_assert_str_eq(buf_text(&a), buf_text(&b));
    ck_assert_msg(strstr(buf_text(&a), "state low elem i16 0 follows") &&
                      strstr(buf_text(&a), "value copy elem follows f16"), "%s", buf_text(&a));
    buf_free(&a);
    buf_free(&b);
    gen_free(&g);
    gen_free(&back);
}
END_TEST

Suite *master_suite(void)
{
    Suite *s = suite_create("master");
    TCase *t = tcase_create("master");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, thousand_steps, 0, 2);
    tcase_add_loop_test(t, wrappers_and_entries, 0, NCOMPOSED);
    tcase_add_test(t, any_bits);
    tcase_add_test(t, eight_bits);
    tcase_add_loop_test(t, f32_and_kahan_hold, 0, 2);
    tcase_add_loop_test(t, small_steps, 0, 2);
    tcase_add_loop_test(t, in_bounds, 0, 5);
    tcase_add_loop_test(t, written_between_steps, 0, 4);
    tcase_add_test(t, zeroed_without_a_call);
    tcase_add_loop_test(t, edits_are_found, 0, 4);
    tcase_add_test(t, edits_of_odd_values);
    tcase_add_loop_test(t, copy_of_p, 0, 4);
    tcase_add_test(t, refusals);
    tcase_add_test(t, bytes);
    tcase_add_test(t, text);
    suite_add_tcase(s, t);
    return s;
}

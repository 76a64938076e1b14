/* States in block codes: codes, scales and parameters have the same bytes on CPU and GPU, for all
 * rules that store them, at any launch and alignment, and for every code at scales over the range
 * of f32. */
#include "tests/gpu/device_side.h"
#include "tests/harness/code_blocks.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 6 };
static const TestShape sizes[NSHAPES] = {{0, {0}},         {1, {1}},       {1, {127}},
                                         {1, {4095}},      {1, {4096}},    {1, {4097}},
                                         {1, {100003}},    {2, {64, 65}},  {2, {129, 37}},
                                         {3, {3, 50, 41}}, {2, {3, 4100}}, {4, {20, 30, 3, 3}}};

/* The emulated GPU takes seconds for the large tensor: one test has it there. */
static void use_sizes(bool large)
{
    static TestShape small[NSHAPES];
    memcpy(small, sizes, sizeof small);
    small[LARGE].dim[0] = 8195;
    use_shapes(large || !getenv("OPTC_TEST_SMALL") ? sizes : small);
}

/* Bytes of all states, and bits of all parameters. */
static void same_bytes(const char *what, Side *c, Side *g)
{
    OK(optc_sync(g->b));
    fetch_params(g);
    for (int k = 0; k < NSHAPES; k++) {
        for (size_t i = 0; i < (size_t)c->n[k]; i++) {
            const char *x = (const char *)c->hp[k] + i * c->wp,
                       *y = (const char *)g->hp[k] + i * c->wp;
            EACH(!memcmp(x, y, c->wp), "%s: p of tensor %d, element %zu: CPU %.17g, GPU %.17g",
                 what, k, i, type_load(c->r->program->p, x, 0), type_load(c->r->program->p, y, 0));
        }
        for (int s = 0; s < optc_rule_states(c->r); s++) {
            optc_state_info info;
            optc_state_view v;
            int has;
            OK(optc_rule_state(c->r, s, &info));
            if (!strcmp(info.domain, "group"))
                continue;
            OK(optc_has_state(c->b, k, info.name, &has));
            if (!has)
                continue;
            OK(optc_state(c->b, k, info.name, &v));
            size_t bytes =
                (size_t)stored_bytes(c->r->program->type, (int)v.type - 1, v.count, c->n[k]);
            unsigned char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
            OK(optc_state_get(c->b, k, info.name, x, bytes));
            OK(optc_state_get(g->b, k, info.name, y, bytes));
            for (size_t i = 0; i < bytes; i++)
                EACH(x[i] == y[i],
                     "%s: state %s of tensor %d (%lld values), byte %zu: CPU %d, GPU %d", what,
                     info.name, k, (long long)v.count, i, x[i], y[i]);
            free(x);
            free(y);
        }
    }
}

#define STATES \
    "state = { m = zeros('elem', 'q8'), v = zeros('elem', 'q8u'), a = zeros('elem', 'f8'), " \
    "b = zeros('elem', 'f8u') }"
#define BODY \
    "m = lerp(m, g, 0.1)  v = lerp(v, g * g, 0.1)  a = lerp(a, g, 0.1)  b = lerp(b, g * g, 0.1) "
#define APPLY "p = p - lr * (m / (sqrt(v) + 1e-6) + a / (sqrt(b) + 1e-6)) "
static const struct { const char *with, *text; optc_type param;
} rules[] = {
    {"",
     "return optimizer { name = 'x', hyper = { lr = 0.1 }, " STATES
     ", step = function() " BODY APPLY "end }",
     0},
    {"clip(1),skip",
     "return optimizer { name = 'x', hyper = { lr = 0.1 }, " STATES ",\n"
     "  step = function() " BODY APPLY "end }",
     OPTC_BF16},
    {"",
     "return optimizer { name = 'x', hyper = { lr = 0.1 }, " STATES ",\n"
     "  matrix = function() every(2, { offset = 1 }, function() " BODY " end) " APPLY "\n"
     "    p = p - lr * a / (1 + rownorm(m)) * colmax(abs(m)) end,\n"
     "  step = function() " BODY APPLY "end }",
     OPTC_F64},
    {"",
     "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { m = zeros('elem', 'q8'), r = "
     "zeros 'row',\n"
     "    c = zeros 'col' },\n"
     "  matrix = function() r = lerp(r, rowmean(g * g), 0.1)  c = lerp(c, colmean(g * g), 0.1)\n"
     "    m = lerp(m, g / sqrt(r * c / mean(r) + 1e-8), 0.1)  p = p - lr * m end,\n"
     "  step = function() m = lerp(m, g, 0.1)  p = p - lr * m end }",
     0},
};
enum { NRULES = sizeof rules / sizeof *rules };

static optc_rule_options rule_options(int i)
{
    return (optc_rule_options){.spec = "x.lua",
                               .text = rules[i].text,
                               .with = rules[i].with,
                               .options = "",
                               .param = rules[i].param};
}

START_TEST(steps)
{
    SHARED();
    if (thinned(_i) && _i != 3)                /* all types, and a pass more */
        return;
    Side c, g;
    int off = (_i + 1) % 4;
    use_sizes(_i == 0);
    open_side(&c, "cpu", rule_options(_i), 0);
    open_side(&g, "cuda", rule_options(_i), off);
    for (int s = 1; s <= STEPS; s++) {
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        same_bytes(rules[_i].text, &c, &g);
    }
    close_side(&g, off);
    close_side(&c, 0);
}
END_TEST

START_TEST(launches_of_codes)
{
    SHARED();
    if (thinned(_i))
        return;
    Side c, g;
    uint64_t dice = 7 + (uint64_t)_i;
    use_sizes(false);
    open_side(&c, "cpu", rule_options(2 * _i), 0);
    open_side(&g, "cuda", rule_options(2 * _i), _i);
    for (int s = 1; s <= (getenv("OPTC_TEST_SMALL") ? 4 : 12); s++) {
        use_random_launches(&g, &dice, s % 2);
        set_grads(&c, s);
        set_grads(&g, s);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        same_bytes("random launches", &c, &g);
    }
    close_side(&g, _i);
    close_side(&c, 0);
}
END_TEST

/* Puts all codes into the states of the largest tensor, with magnitudes from `floor` on, and takes
 * a step that keeps
 * them: it decodes and encodes every block. Then a step that changes them, with denormal results
 * among them. Gradients are 0; without them the compiler proves that m is never negative. */
static void put_codes(Side *x, const CodeType *t, int64_t n, unsigned char *state, const char *name,
                      int round)
{
    for (int64_t i = 0; i < n; i++)
        state[i] = (unsigned char)(i % 128              ? (unsigned)(i * 131 + round)
                                   : t->sign && i % 256 ? 127u
                                                        : 255u);
    for (int64_t k = 0; k < (n + 127) / 128; k++) {
        const float fixed[] = {t->floor, fmaxf(t->floor, 1e-30f), 1, 1e30f, FLT_MAX};
        float y = (float)ldexp(1 + fabs(ref_value(1, round, k)), (int)(k * 7 % 220) - 93);
        float scale = (k < 5 ? fixed[k] : y) * t->per_top;
        memcpy(state + (n + 127) / 128 * 128 + 4 * k, &scale, sizeof scale);
    }
    OK(optc_state_put(x->b, LARGE, name, state, state_size(n)));
}

START_TEST(all_codes)
{
    SHARED();
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1, on = 0 }, " STATES ",\n"
        "  step = function() local f = gt(on, 0)\n"
        "    m = where(f, (m + g) * 1e-30, m)  v = where(f, v * 1e-30, v)\n"
        "    a = where(f, (a + g) * 1e-30, a)  b = where(f, b * 1e-30, b)\n"
        "    p = p + where(isfinite(a), a, 0) end }";
    static const char *const names[] = {"m", "v", "a", "b"};
    Side c, g;
    optc_rule_options ro = {.spec = "x.lua", .text = text, .with = "", .options = ""};
    use_sizes(false);
    open_side(&c, "cpu", ro, 0);
    open_side(&g, "cuda", ro, 0);
    int64_t n = c.n[LARGE];
    for (int k = 0; k < NSHAPES; k++)
        ck_assert(!d->cuMemcpyHtoDAsync_v2(g.g[k], g.hg[k], (size_t)g.n[k] * g.wg, NULL));
    d->cuStreamSynchronize(NULL);
    for (int round = 0; round < 3; round++) {
        unsigned char *was[4], *now = malloc(state_size(n));
        OK(optc_set_hyper(c.b, -1, "on", 0));
        OK(optc_set_hyper(g.b, -1, "on", 0));
        for (int s = 0; s < 4; s++) {
            was[s] = calloc(1, state_size(n));
            put_codes(&c, &code_types[s], n, was[s], names[s], round);
            put_codes(&g, &code_types[s], n, was[s], names[s], round);
        }
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        same_bytes("all codes", &c, &g);
        for (int s = 0; s < 4; s++) {
            OK(optc_state_get(g.b, LARGE, names[s], now, state_size(n)));
            for (size_t i = 0; i < state_size(n); i++)
                EACH(was[s][i] == now[i],
                     "%s: decoding and encoding changed byte %zu from %d to %d", names[s], i,
                     was[s][i], now[i]);
            free(was[s]);
        }
        free(now);
        OK(optc_set_hyper(c.b, -1, "on", 1));
        OK(optc_set_hyper(g.b, -1, "on", 1));
        for (int s = 0; s < 3; s++) {
            OK(optc_step(c.b));
            OK(optc_step(g.b));
            same_bytes("smaller values", &c, &g);
        }
    }
    close_side(&g, 0);
    close_side(&c, 0);
}
END_TEST

/* The walk through shared memory, with every number of vectors. */
static bool use_staged(Side *g, int vector, int items)
{
    const Plan *p = g->r->library->plan;
    const GpuCode *code;
    Launch *l = calloc((size_t)p->nfn + 1, sizeof *l);
    bool any = false;
    for (int f = 0; f < p->nfn; f++) {
        const Stage *s = plan_at(p, f).stage;
        if (!s)
            continue;
        Launch staged = {{128, vector, items, 4, 3, 0, 0}};
        bool valid = stage_form(s) == FORM_MAP && launch_valid(p, s, &staged);
        l[f] = valid ? staged : launch_model(p, s, 0);
        any = any || valid;
    }
    if (any) {
        OK(gpu_code_with(g->r, l, &code));
        gpu_enter(g->e->gpu);
        g->b->gpu->code = code;
        OK(gpu_leave(g->e->gpu, gpu_build_lists(g->b)));
    }
    free(l);
    return any;
}

/* 16-bit parameters at the end of the range and beyond, and from 2 on, where stochastic rounding
 * looks closer. */
static void set_extremes(Side *c, Side *g)
{
    static const unsigned short bits[] = {0x7f7f, 0xff7f, 0x7f80, 0xff80,
                                          0x7fc0, 0x4020, 0xc3c0, 0x7e00};
    unsigned short *x = c->hp[LARGE], *y = g->hp[LARGE];
    for (int i = 0; i < 8 && c->wp == 2; i++)
        x[40 + 97 * i] = y[40 + 97 * i] = bits[i];
    ck_assert(!d->cuMemcpyHtoDAsync_v2(g->p[LARGE], y, (size_t)g->n[LARGE] * g->wp, NULL));
    d->cuStreamSynchronize(NULL);
}

/* Blocks with and without zeros: at the first steps some gradients are 0. */
static void clear_grads(Side *c, Side *g)
{
    memset(c->hg[LARGE], 0, 300 * c->wg);
    memset((char *)c->hg[LARGE] + 700 * c->wg, 0, 3 * c->wg);
    memcpy(g->hg[LARGE], c->hg[LARGE], (size_t)c->n[LARGE] * c->wg);
    ck_assert(
        !d->cuMemcpyHtoDAsync_v2(g->g[LARGE], g->hg[LARGE], (size_t)g->n[LARGE] * g->wg, NULL));
    d->cuStreamSynchronize(NULL);
}

START_TEST(staged)
{
    SHARED();
    if (thinned(_i))
        return;
    static const char *const types[] = {"param=bf16sr,grad=bf16,state=q8", "param=f32,state=q8",
                                        "param=bf16,grad=bf16,state=bf16"};
    static const struct { int vector, items; } all[] = {{8, 1}, {8, 2}, {8, 4}, {4, 2}, {4, 8}};
    int used = 0;
    Side c, g;
    optc_rule_options ro = {.spec = "adamw", .with = "", .types = types[_i]};
    use_sizes(false);
    open_side(&c, "cpu", ro, 0);
    open_side(&g, "cuda", ro, 0);
    set_extremes(&c, &g);
    for (int k = 0; k < 5; k++) {
        if (!use_staged(&g, all[k].vector, all[k].items))
            continue;
        used++;
        set_grads(&c, k + 1);
        set_grads(&g, k + 1);
        if (used < 3)
            clear_grads(&c, &g);
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        same_bytes(types[_i], &c, &g);
    }
    ck_assert_int_ge(used, 2);
    close_side(&g, 0);
    close_side(&c, 0);
}
END_TEST

void add_codes(TCase *t)
{
    tcase_add_loop_test(t, staged, 0, 3);
    tcase_add_loop_test(t, steps, 0, NRULES);
    tcase_add_loop_test(t, launches_of_codes, 0, 2);
    tcase_add_loop_test(t, all_codes, 0, 1);
}

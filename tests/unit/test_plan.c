/* The cost of planning, and the plans of some rules.
 * Cost: the largest rules that the language allows, each with a limit on the steps of work and the
 * bytes of the arenas. These are counted, so the result does not depend on the load of the
 * machine. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "optc.h"
#include "tests/harness/random_spec.h"

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* Repeats a text with %1$d as the running number. */
static void each(Buf *b, int from, int to, const char *fmt, const char *between)
{
    for (int i = from; i < to; i++) {
        if (i > from)
            buf_puts(b, between);
        for (const char *s = fmt; *s; s++)
            if (*s == '#')
                buf_printf(b, "%d", i);
            else
                buf_add(b, s, 1);
    }
}

#define EVERY \
    "every(2, function() p = p * 2 end) every(3, function() p = p + 1 end) every(5, function() p " \
    "= p * g end)"

/* stages: lower bound; the rest: upper bounds */
typedef struct {
    const char *name, *body; int states, stages, cheaper; double mwork, mbytes;
} Worst;
static const Worst worst[] = {
    {"chained sums", "local s = 1 for i = 1, 400 do s = sum(g * s) end p = p - s", 0, 801, 0, 0.1,
     8},
    {"more chained sums", "local s = 1 for i = 1, 1600 do s = sum(g * s) end p = p - s", 0, 3201, 0,
     0.2, 16},
    {"chained sums that are all needed again",
     "local s, u = 1, 0 for i = 1, 1600 do s = sum(g * s) u = u + s end p = p - u", 0, 3201, 0, 0.2,
     20},
    {"as many as fit, in eight phases",
     "local s = 1 for i = 1, 9800 do s = sum(g * s) end p = p - s " EVERY, 0, 8 * 19601, 0, 2, 160},
    {"operations", "local x = g for i = 1, 1000 do x = x * g + 0.5 end p = x", 0, 1, 0, 0.1, 6},
    {"operations, in eight phases, two passes",
     "local x = g for i = 1, 9800 do x = x * g + 0.5 end p = x * sum(x) " EVERY, 0, 24, 0, 3, 80},
    {"a chain through every pass", "local x = g for i = 1, 6000 do x = x * sum(x) end p = x", 0,
     12001, 1, 6, 80},
    {"truth values through every pass",
     "local b, s = lt(g, p), 0 for i = 1, 3000 do b = both(b, lt(g, p * s)) s = sum(where(b, g, "
     "s)) end p = p - s",
     0, 6001, 1, 6, 60},
    {"rows and columns",
     "local x = g for i = 1, 2000 do x = x * sum(x) + rowsum(x) * colsum(x) end p = x", 0, 8001, 1,
     6, 60},
    {"lists", "local x = rowsum(g) for i = 1, 3000 do x = x * sum(x) end p = p - g * x", 0, 6003, 0,
     0.5, 30},
    {"global sums", "local x = sum(g) for i = 1, 3000 do x = x * global.sum(x) end p = p - g * x",
     0, 6003, 0, 0.5, 30},
    {"fan-out",
     "local t, s, u = {}, 0, 0 for i = 1, 1500 do t[i] = g * (p + i) end for i = 1, 1500 do s = s "
     "+ sum(t[i]) end "
     "for i = 1, 1500 do u = u + sum(t[i] * s) end p = p - u",
     0, 5, 0, 2, 40},
    {"a dense web",
     "local t, s = {g}, 1 for i = 1, 4000 do t[i+1] = t[i] * s + t[(i * 7919) % i + 1] "
     "if i % 40 == 0 then s = sum(t[i+1] * t[(i * 31) % i + 1]) end end p = p - s * t[#t]",
     0, 201, 1, 26, 40},
    {"products in a chain",
     "local A = gram(g) local x = g for i = 1, 900 do x = mm(A, x) + g end p = p - x", 0, 1801, 0,
     6, 40},
    {"products and sums",
     "local A, x = gram(g), g for i = 1, 900 do for k = 1, 8 do x = x * g + 0.5 end x = mm(A, x) + "
     "sum(x) end p = p - "
     "x",
     0, 2702, 0, 24, 80},
    {"products of products",
     "local A = gram(g) for i = 1, 900 do A = mm(A, A) end p = p - mm(A, g)", 0, 902, 0, 4, 20},
    {"states", "SUM", 60, 8, 8, 26, 10},
    {"states that wait for each other", "CHAIN", 60, 8 * 200, 8, 26, 20},
};

static char *worst_spec(const Worst *w)
{
    Buf b = {0}, s = {0};
    each(&s, 0, w->states, "m# = zeros", ", ");
    if (!strcmp(w->body, "SUM") || !strcmp(w->body, "CHAIN")) {
        bool chain = !strcmp(w->body, "CHAIN");
        buf_puts(&b, chain ? "local s = 1 for i = 1, 100 do s = sum(g * s) end " : "local s = 1 ");
        static const char *const after[] = {" end) every(3, function() p = p * sum(",
                                            ") end) every(5, function() p = p - norm(p) * (",
                                            ") end)"};
        const char *one =
            chain ? "m# = lerp(m#, g * s, 0.1) s = s + sum(m#)" : "m# = lerp(m#, g * (# + 1), 0.1)";
        each(&b, 0, w->states, one, " ");
        buf_puts(&b, " every(2, function() p = p - s * ");
        for (int k = 0; k < 3; k++) {
            each(&b, k * w->states / 3, (k + 1) * w->states / 3, "m#", " + ");
            buf_puts(&b, after[k]);
        }
    } else {
        buf_puts(&b, w->body);
    }
    const char *states = s.s ? s.s : "";
    char *text = format(
        "return optimizer { name = \"x\", state = { %s }, step = function() %s end }", states, b.s);
    buf_free(&b);
    buf_free(&s);
    return text;
}

/* Also plans rules that are refused for their number of stages. */
static bool compile(Gen *g, const char *text)
{
    PlanLimits any = plan_limits;
    any.stages = INT_MAX;
    GenOptions o = {.find = find_wrapper, .limits = &any};
    return gen_compile(g, (Source){"made", text, strlen(text)}, &o);
}

/* Sixteen hundred chained sums are planned and emitted; thousands more are refused before anything
 * is emitted. */
START_TEST(stages_have_a_limit)
{
    static const struct { int sums; bool ok; } c[] = {{1600, true}, {4900, false}};
    for (int i = 0; i < 2; i++) {
        char *text = format("return optimizer { name = \"x\", step = function() local x = g for i "
                            "= 1, %d do x = x * sum(x) end "
                            "p = x end }",
                            c[i].sums);
        Gen g = {0};
        GenOptions o = {.find = find_wrapper};
        bool ok = gen_compile(&g, (Source){"made", text, strlen(text)}, &o);
        ck_assert_msg(ok == c[i].ok && (ok || strstr(g.diag.text, "stages, over 4000")), "%d: %s",
                      c[i].sums, ok ? "taken" : g.diag.text);
        gen_free(&g);
        free(text);
    }
}
END_TEST

START_TEST(price)
{
    if (thinned(_i))
        return;
    const Worst *w = &worst[_i];
    char *text = worst_spec(w);
    Gen g = {0};
    ck_assert_msg(compile(&g, text), "%s: %s", w->name, g.diag.text);
    int stages = 0, cheaper = 0;
    for (int m = 0; m < g.plan->entry[0].nphase; m++) {
        stages += g.plan->entry[0].phase[m].nstage;
        cheaper += g.plan->entry[0].phase[m].cheaper;
    }
    double work = (double)g.plan->work / 1e6,
           bytes = (double)(arena_bytes(&g.arena) + g.plan->scratch) / 1e6;
    ck_assert_msg(stages >= w->stages, "%s: %d stages, not %d", w->name, stages, w->stages);
    ck_assert_msg(work <= w->mwork, "%s: %.2f million steps, not %.2f", w->name, work, w->mwork);
    ck_assert_msg(bytes <= w->mbytes, "%s: %.1f MB, not %.1f", w->name, bytes, w->mbytes);
    ck_assert_msg(cheaper <= w->cheaper, "%s: a cheaper search in %d phases, not %d", w->name,
                  cheaper, w->cheaper);
    Buf b = {0};
    plan_print(&b, g.plan, true);
    ck_assert_msg(!strstr(b.s, "cheaper search") == !cheaper, "%s: the plan's text and flag differ",
                  w->name);
    buf_free(&b);
    gen_free(&g);
    free(text);
}
END_TEST

/* The library's rules need no cheaper search, and far less than the limit. */
START_TEST(library_price)
{
    if (thinned(_i))
        return;
    const char *name = optc_library_name(_i);
    if (!strncmp(name, "wrappers/", 9))
        return;
    static const char *const withs[] = {"", "clip(1),cautious,ema(0.999)", "sam(0.05),centralize",
                                        "clip_norm(1),clip_value(2),ema,ema(0.9),lookahead(3)"};
    for (int k = 0; k < COUNT(withs); k++) {
        Arena arena = {0};
        Source s;
        Gen g = {0};
        GenOptions o = {.find = find_wrapper, .with = withs[k]};
        bool ok = find_spec(NULL, name, &arena, &s, &g.diag) && gen_compile(&g, s, &o);
        ck_assert_msg(ok, "%s: %s", name, g.diag.text);
        ck_assert_msg(g.plan->work < plan_limits.work / 20, "%s with '%s': %lld steps", name,
                      withs[k], (long long)g.plan->work);
        for (int e = 0; e < g.plan->nentry; e++)
            for (int m = 0; m < g.plan->entry[e].nphase; m++)
                ck_assert_msg(!g.plan->entry[e].phase[m].cheaper, "%s with '%s'", name, withs[k]);
        gen_free(&g);
        arena_free(&arena);
    }
}
END_TEST

/* Each entry has each combination of periods; their number has its own limit. */
START_TEST(too_many_phases)
{
    if (thinned(1))
        return;
    Buf b = {0};
    buf_puts(&b, "local function f(k) return function()\n"
                 "local x = g for i = 1, 4000 do x = x * g + 0.5 end p = x + k " EVERY " end end\n"
                 "return optimizer { name = \"x\", step = f(0), ");
    each(&b, 1, 20, "e# = f(#)", ", ");
    buf_puts(&b, " }");
    Gen g = {0};
    ck_assert(!compile(&g, b.s));
    ck_assert_msg(strstr(g.diag.text, "values together"), "%s", g.diag.text);
    gen_free(&g);
    buf_free(&b);
}
END_TEST

/* ---- small states ---- */
/* A small state has one array: later stages read the new value there, unless the old value is
 * needed later or the state is rounded. */
#define SMALL(state, step) \
    "return optimizer { name = \"x\", state = { " state " }, step = function() " step " end }"
/* last: stages after the last pass, which only copy */
static const struct { const char *text; int temps, last;
} small[] = {
    {SMALL("r = zeros \"row\"", "r = lerp(r, rowmean(g * g), 0.1) p = p - g * r"), 0, 0},
    {SMALL("r = zeros \"row\", c = zeros \"col\"",
           "r = rowmean(g) + r c = colmean(g) + c p = p - g * r * c"),
     0, 0},
    {SMALL("x = zeros \"tensor\"", "x = max(x, norm(g)) p = p - g / x"), 0, 0},
    {SMALL("k = zeros \"group\"", "k = k + 1 p = p - g * k"), 0, 0},
    /* rounded in r */
    {SMALL("r = zeros(\"row\", \"bf16\")", "r = lerp(r, rowmean(g * g), 0.1) p = p - g * r"), 1, 0},
    /* the old value is needed */
    {SMALL("r = zeros \"row\"", "local old = r r = rowmean(g) p = p - g * r - p * old"), 1, 1},
    /* p reads the old y */
    {SMALL("x = zeros \"tensor\", y = zeros \"tensor\"", "x, y = y, x p = p - g * x"), 1, 1},
    /* x and k are the same */
    {SMALL("x = zeros \"tensor\", k = zeros \"group\"", "k = k + 1 x = k p = p - g * x"), 0, 0},
};

START_TEST(small_states)
{
    Gen g = {0};
    ck_assert_msg(compile(&g, small[_i].text), "%s", g.diag.text);
    int temps = 0, last = 0;
    for (int m = 0; m < g.plan->nmem; m++)
        temps += g.plan->mem[m].kind == MEM_TEMP;
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int i = ph->nstage - 1; i >= 0 && !is_elem(ph->stage[i].kind); i--, last++)
        ck_assert_msg(!ph->stage[i].nbody && ph->stage[i].nload == 1,
                      "%s: the last stages only copy", small[_i].text);
    bool right = temps == small[_i].temps && last == small[_i].last;
    ck_assert_msg(right, "%s: %d temporaries and %d copies", small[_i].text, temps, last);
    gen_free(&g);
}
END_TEST

/* An array is reused after its last read: a chain of sums needs a few arrays, however long it
 * is. */
START_TEST(arrays_again)
{
    int few = 0;
    for (int n = 50; n <= 400; n += 350) {
        char *text = format("return optimizer { name = \"x\", step = function() local s = 1 "
                            "for i = 1, %d do s = sum(g * s) end p = p - s end }", n);
        Gen g = {0};
        ck_assert_msg(compile(&g, text), "%s", g.diag.text);
        ck_assert_msg(g.plan->nmem < 8 && (!few || g.plan->nmem == few), "%d sums: %d arrays", n,
                      g.plan->nmem);
        few = g.plan->nmem;
        gen_free(&g);
        free(text);
    }
}
END_TEST

/* ---- with and without a search ---- */
/* Every plan is verified: random specs, with wrappers, with the full search and with almost none. A
 * smaller search never gives fewer bytes. */
static double bytes_of_plan(const Plan *p)
{
    double bytes = 0;
    for (int f = 0; f < p->nfn; f++) {
        const Stage *s = plan_at(p, f).stage;
        bytes += is_elem(s->kind) ? s->bytes_read + s->bytes_written : 0;
    }
    return bytes;
}

static double bytes_planned(uint64_t seed, const char *text, const PlanLimits *limits)
{
    Gen g = {0};
    GenOptions o = {.find = find_wrapper, .with = random_wrapper(seed), .limits = limits};
    o.types =
        (Types){.p = seed % 3 ? T_F32 : T_BF16, .g = T_F32, .state = seed % 2 ? T_F32 : T_BF16};
    o.types.master = seed % 3 ? MASTER_NONE : (Master)(seed / 3 % NMASTER);
    bool ok = gen_compile(&g, (Source){"made", text, strlen(text)}, &o);
    ck_assert_msg(ok, "seed %llu, %s: %s\n%s", (unsigned long long)seed, limits ? "no search" : "",
                  g.diag.text, text);
    double bytes = bytes_of_plan(g.plan);
    gen_free(&g);
    return bytes;
}

START_TEST(random_plans)
{
    static const PlanLimits none = {0, 0, 0, INT_MAX, INT_MAX};
    double most = 0, least = 0;
    for (uint64_t seed = 1000; seed < 1060; seed++) {
        char *text = random_spec(seed, true);
        least += bytes_planned(seed, text, NULL);
        most += bytes_planned(seed, text, &none);
        free(text);
    }
    ck_assert_msg(least < most, "%.0f bytes with a search, %.0f without", least, most);
}
END_TEST

/* ---- products ---- */
typedef struct {
    const char *state, *body; int calls, stages, straight; const char *what;
} Products;
static const Products products[] = {
    {"L = zeros 'rows'", "L = gram(g) p = p - mm(L, g)", 2, 3, 1,
     "a result goes straight to its state, and is read from there"},
    {"L = zeros 'rows'", "local A = gram(g) p = p - mm(L, g) L = A", 2, 4, 0,
     "the old state is an operand: the new one waits"},
    {"L = zeros 'rows'", "p = p - mm(L, g) L = L + gram(g)", 2, 4, 0, "likewise, made by a pass"},
    {"L = zeros 'rows', M = zeros 'rows'", "L = gram(g) M = L p = p - g", 1, 3, 1,
     "two states of one result: one of them by a copy"},
    {"m = zeros", "m = 0.9 * m + g p = p - mm(gram(m), m)", 2, 4, 0,
     "an operand is read from the state that holds it"},
    {"m = zeros",
     "local x = m * 0.5 m = m + g p = p - mm(gram(x), x) * where(lt(x, 0.5 * m), 1, 2)", 2, 4, 0,
     "what a state held is kept where it is wanted later"},
    {"R = zeros 'cols'", "R = gram(g.T) p = p - mm(g, R + R.T)", 2, 4, 1,
     "a symmetric value turned is itself"},
    {"L = zeros 'rows'", "L = triu(gram(g)) p = p - mm(L + L.T, g) * rowsum(L)", 2, 6, 0,
     "a turned load, a fold along an axis"},
};

START_TEST(products_are_placed)
{
    const Products *x = &products[_i];
    char *text = format("return optimizer { name = 'x', state = { %s }, matrix = function() %s "
                        "end, step = function() p = p - g "
                        "end }",
                        x->state, x->body);
    Gen g = {0};
    ck_assert_msg(compile(&g, text), "%s: %s", x->what, g.diag.text);
    int calls = 0, straight = 0, stages = 0;
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int i = 0; i < ph->nstage; i++) {
        bool call = is_called(ph->stage[i].kind);
        calls += call;
        stages += strcmp(g.rule->variant[ph->stage[i].variant].name, "step") != 0;
        straight += call && g.plan->mem[ph->stage[i].store[0].mem].kind == MEM_STATE;
    }
    Buf b = {0};
    plan_print(&b, g.plan, false);
    ck_assert_msg(calls == x->calls && stages == x->stages && straight == x->straight,
                  "%s: %d calls, %d straight, %d stages:\n%s", x->what, calls, straight, stages,
                  b.s);
    buf_free(&b);
    gen_free(&g);
    free(text);
}
END_TEST

/* The caller's memory may be misaligned: operands for tensor cores are copied to aligned memory. */
START_TEST(callers_memory_is_copied)
{
    static const struct { const char *products; Type p; bool gpu, copied; } c[] =
        {{"bf16", T_BF16, true, true}, {"f16", T_F16, true, true}, {"tf32", T_F32, true, true},
         {"f32", T_F32, true, false}, {"f32", T_F32, false, false}, {"f64", T_F64, true, false}};
    for (int i = 0; i < COUNT(c); i++) {
        char *text = format("return optimizer { name = 'x', products = '%s', matrix = function() p "
                            "= p - mm(gram(g), g) end, "
                            "step = function() p = p - g end }",
                            c[i].products);
        Gen g = {0};
        GenOptions o =
            {.find = find_wrapper, .target = c[i].gpu ? &target_cuda : &target_c,
             .types = {.p = c[i].p, .g = c[i].p, .state = T_F32}};
        ck_assert_msg(gen_compile(&g, (Source){"made", text, strlen(text)}, &o), "%s", g.diag.text);
        const Phase *ph = &g.plan->entry[0].phase[0];
        bool direct = false;
        for (int k = 0; k < ph->nstage; k++)
            for (int a = 0; a < ph->stage[k].nload && is_called(ph->stage[k].kind); a++)
                direct = direct || g.plan->mem[ph->stage[k].load[a].mem].kind == MEM_G;
        ck_assert_msg(direct == !c[i].copied, "%s", c[i].products);
        gen_free(&g);
        free(text);
    }
}
END_TEST

/* beta * r needs no stage of its own before the pass that colsum needs. */
START_TEST(small_values_wait_for_users)
{
    Gen g = {0};
    ck_assert(compile(
        &g, "return optimizer { name = \"x\", state = { r = zeros \"col\" }, step = function() "
            "r = 0.9 * r + 0.1 * colsum(g * g) p = p - g / sqrt(r) end }"));
    ck_assert_int_eq(g.plan->entry[0].phase[0].nstage, 3);
    gen_free(&g);
}
END_TEST

/* The largest of the row sums of a square has a stage of its own: with the sums it would run in one
 * thread block. */
START_TEST(sums_are_folded_later)
{
    Gen g = {0};
    int sums = 0, folds = 0;
    ck_assert(compile(
        &g, "return optimizer { name = \"x\", step = function() p = p - g end, matrix = function() "
            "p = p - g / slice.max(rowsum(abs(gram(g)))) end }"));
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int k = 0; k < ph->nstage; k++) {
        const Stage *s = &ph->stage[k];
        ck_assert_msg(!s->folds_arrays || !s->nfold, "stage %d sums whole rows and folds the sums",
                      k);
        sums += s->folds_arrays;
        folds += s->kind == S_ROW && s->nfold;
    }
    ck_assert_int_eq(sums, 1);
    ck_assert_int_eq(folds, 1);
    gen_free(&g);
}
END_TEST

/* ---- bytes, passes and phases of plans ---- */
typedef struct { const char *spec, *with, *options; int phases, phase, vec, mat, passes; } Fact;
static const Fact facts[] = {
    /* p g m v read, p m v written: the minimum */
    {"adamw", NULL, NULL, 1, 0, 28, 0, 1},
    {"adamw", NULL, "amsgrad=true", 1, 0, 36, 0, 1},
    {"adamw", "clip(1)", NULL, 1, 0, 32, 0, 2},         /* g again, for its norm */
    {"adamw", "clip_value(1)", NULL, 1, 0, 28, 0, 1},
    {"adamw", "ema(0.999)", NULL, 1, 0, 36, 0, 1},
    {"adamw", "clip(1),ema(0.999)", NULL, 1, 0, 40, 0, 2},
    {"adam", NULL, NULL, 1, 0, 28, 0, 1},
    {"sgd", NULL, NULL, 1, 0, 20, 0, 1},
    {"sgd", NULL, "momentum_buffer=false", 1, 0, 12, 0, 1},
    {"sgd", NULL, "nesterov=true", 1, 0, 20, 0, 1},
    {"lion", NULL, NULL, 1, 0, 20, 0, 1},
    {"signum", NULL, NULL, 1, 0, 20, 0, 1},
    /* 24 for m, v and both norms, then p m v read and p written: u is computed again */
    {"lamb", NULL, NULL, 1, 0, 40, 0, 2},
    {"sgd", "lookahead(5,0.5)", NULL, 2, 0, 20, 0, 1},  /* slow weights are not touched … */
    {"sgd", "lookahead(5,0.5)", NULL, 2, 1, 28, 0, 1},  /* … except every fifth step */
    /* matrices: p and g folded, g for the update's size, then g, p and p */
    {"adafactor", NULL, NULL, 1, 0, 32, 24, 5},
    {"sgd", "centralize", NULL, 1, 0, 20, 24, 3},
};

START_TEST(bytes_and_passes)
{
    const Fact *f = &facts[_i];
    Arena arena = {0};
    Gen g = {0};
    Source src;
    GenOptions o = {.with = f->with, .options = f->options, .find = find_wrapper};
    ck_assert_msg(find_spec(NULL, f->spec, &arena, &src, &g.diag) && gen_compile(&g, src, &o), "%s",
                  g.diag.text);
    const PlanEntry *e = &g.plan->entry[0];
    ck_assert_str_eq(e->name, "step");
    ck_assert_int_eq(e->nphase, f->phases);
    int bytes[MAX_VARIANTS] = {0}, passes = 0;
    for (int i = 0; i < e->phase[f->phase].nstage; i++) {
        const Stage *s = &e->phase[f->phase].stage[i];
        if (!is_elem(s->kind))
            continue;
        bytes[s->variant] += s->bytes_read + s->bytes_written;
        passes++;
    }
    ck_assert_msg(bytes[0] == f->vec && bytes[1] == f->mat && passes == f->passes,
                  "%s with %s: %d and %d bytes in %d passes, not %d and %d in %d", f->spec,
                  f->with ? f->with : "nothing", bytes[0], bytes[1], passes, f->vec, f->mat,
                  f->passes);
    gen_free(&g);
    arena_free(&arena);
}
END_TEST

START_TEST(phases)
{
    static const char text[] =
        "return optimizer { name = 'x', state = { m = zeros, n = zeros }, step = function()\n"
        "every(2, function() m = m + g end) every(1, function() p = p - g end)\n"
        "every(3, function() n = n + m end) end }";
    Gen g = {0};
    ck_assert_msg(compile(&g, text), "%s", g.diag.text);
    const Plan *p = g.plan;
    ck_assert_int_eq(p->nperiod, 2);
    ck_assert_int_eq(p->entry[0].nphase, 4);
    for (int t = 1; t <= 24; t++) {
        int phase = 0;
        for (int k = 0; k < 2; k++)
            phase |= (t % p->period[k].every == p->period[k].offset) << k;
        const Phase *ph = &p->entry[0].phase[phase];
        bool wrote[2] = {false, false};                  /* m, n */
        for (int i = 0; i < ph->nstage; i++)
            for (int k = 0; k < ph->stage[i].nstore; k++)
                if (p->mem[ph->stage[i].store[k].mem].kind == MEM_STATE)
                    wrote[p->mem[ph->stage[i].store[k].mem].sym] = true;
        ck_assert_msg(wrote[0] == (t % 2 == 0) && wrote[1] == (t % 3 == 0),
                      "step %d writes m: %d, n: %d", t, wrote[0], wrote[1]);
    }
    gen_free(&g);
}
END_TEST

/* Every second pass walks backwards, also if clip's norm is an entry of its own because bindings
 * share it. */
START_TEST(directions)
{
    Arena arena = {0};
    Gen g = {0};
    Source src;
    GenOptions o = {.with = "clip(1)", .find = find_wrapper, .bindings = 1 + _i};
    ck_assert_msg(find_spec(NULL, "adamw", &arena, &src, &g.diag) && gen_compile(&g, src, &o), "%s",
                  g.diag.text);
    int forward = 0, back = 0;
    for (int e = 0; e < g.plan->nentry; e++)
        for (int i = 0; i < g.plan->entry[e].phase[0].nstage; i++) {
            const Stage *s = &g.plan->entry[e].phase[0].stage[i];
            if (!is_elem(s->kind))
                continue;
            ck_assert_int_eq(s->back, s->nstore > 0);        /* the norm writes only partials */
            *(s->back ? &back : &forward) += 1;
        }
    ck_assert(forward == 1 && back == 1);
    gen_free(&g);
    arena_free(&arena);
}
END_TEST

Suite *plan_suite(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("price");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, small_values_wait_for_users);
    tcase_add_test(t, sums_are_folded_later);
    tcase_add_test(t, stages_have_a_limit);
    tcase_add_loop_test(t, price, 0, COUNT(worst));
    tcase_add_loop_test(t, library_price, 0, optc_library_size());
    tcase_add_test(t, too_many_phases);
    suite_add_tcase(s, t);
    TCase *c = tcase_create("states");
    tcase_add_loop_test(c, small_states, 0, COUNT(small));
    tcase_add_test(c, arrays_again);
    tcase_add_loop_test(c, products_are_placed, 0, COUNT(products));
    tcase_add_test(c, callers_memory_is_copied);
    suite_add_tcase(s, c);
    TCase *f = tcase_create("figures");
    tcase_add_loop_test(f, bytes_and_passes, 0, COUNT(facts));
    tcase_add_loop_test(f, directions, 0, 2);
    tcase_add_test(f, phases);
    suite_add_tcase(s, f);
    TCase *v = tcase_create("search");
    tcase_set_timeout(v, 60);
    tcase_add_test(v, random_plans);
    suite_add_tcase(s, v);
    return s;
}

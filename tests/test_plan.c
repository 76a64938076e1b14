/* What planning costs. The largest rules the language allows, each with a cap on the steps of work and the bytes of the arenas: counted,
 * so that the verdict does not depend on how busy the machine is. */
#include "find.h"
#include "gen.h"
#include "optc.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *fmt, ...)
{
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return buf_take(&b);
}

/* Pieces with %1$d for a running number, side by side. */
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

#define EVERY "every(2, function() p = p * 2 end) every(3, function() p = p + 1 end) every(5, function() p = p * g end)"

/* stages: at least; the rest: at most */
typedef struct { const char *name, *body; int states, stages, cheaper; double mwork, mbytes; } Worst;
static const Worst worst[] = {
    {"chained sums", "local s = 1 for i = 1, 400 do s = sum(g * s) end p = p - s", 0, 801, 0, 0.1, 8},
    {"more chained sums", "local s = 1 for i = 1, 1600 do s = sum(g * s) end p = p - s", 0, 3201, 0, 0.2, 16},
    {"as many as fit, in eight phases", "local s = 1 for i = 1, 9800 do s = sum(g * s) end p = p - s " EVERY, 0, 8 * 19601, 0, 2, 160},
    {"operations", "local x = g for i = 1, 1000 do x = x * g + 0.5 end p = x", 0, 1, 0, 0.1, 6},
    {"operations, in eight phases, two passes", "local x = g for i = 1, 9800 do x = x * g + 0.5 end p = x * sum(x) " EVERY, 0, 24, 0, 3, 80},
    {"a chain through every pass", "local x = g for i = 1, 6000 do x = x * sum(x) end p = x", 0, 12001, 1, 6, 80},
    {"truth values through every pass", "local b, s = lt(g, p), 0 for i = 1, 3000 do b = both(b, lt(g, p * s)) s = sum(where(b, g, s)) end p = p - s", 0, 6001, 1, 6, 60},
    {"rows and columns", "local x = g for i = 1, 2000 do x = x * sum(x) + rowsum(x) * colsum(x) end p = x", 0, 8001, 1, 6, 60},
    {"lists", "local x = rowsum(g) for i = 1, 3000 do x = x * sum(x) end p = p - g * x", 0, 6003, 0, 0.5, 30},
    {"global sums", "local x = sum(g) for i = 1, 3000 do x = x * global.sum(x) end p = p - g * x", 0, 6003, 0, 0.5, 30},
    {"fan-out", "local t, s, u = {}, 0, 0 for i = 1, 1500 do t[i] = g * (p + i) end for i = 1, 1500 do s = s + sum(t[i]) end for i = 1, 1500 do u = u + sum(t[i] * s) end p = p - u",
     0, 5, 0, 2, 40},
    {"a dense web", "local t, s = {g}, 1 for i = 1, 4000 do t[i+1] = t[i] * s + t[(i * 7919) % i + 1] if i % 40 == 0 then s = sum(t[i+1] * t[(i * 31) % i + 1]) end end p = p - s * t[#t]",
     0, 201, 1, 26, 40},
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
        each(&b, 0, w->states, chain ? "m# = lerp(m#, g * s, 0.1) s = s + sum(m#)" : "m# = lerp(m#, g * (# + 1), 0.1)", " ");
        static const char *const after[] = {" end) every(3, function() p = p * sum(", ") end) every(5, function() p = p - norm(p) * (", ") end)"};
        buf_puts(&b, " every(2, function() p = p - s * ");
        for (int k = 0; k < 3; k++) {
            each(&b, k * w->states / 3, (k + 1) * w->states / 3, "m#", " + ");
            buf_puts(&b, after[k]);
        }
    } else {
        buf_puts(&b, w->body);
    }
    char *text = format("return optimizer { name = \"x\", state = { %s }, step = function() %s end }", s.s ? s.s : "", b.s);
    buf_free(&b);
    buf_free(&s);
    return text;
}

static bool compile(Gen *g, const char *text)
{
    GenOptions o = {.find = find_wrapper};
    return gen_compile(g, (Source){"made", text, strlen(text)}, &o);
}

START_TEST(price)
{
    const Worst *w = &worst[_i];
    char *text = worst_spec(w);
    Gen g = {0};
    ck_assert_msg(compile(&g, text), "%s: %s", w->name, g.diag.text);
    int stages = 0, cheaper = 0;
    for (int m = 0; m < g.plan->entry[0].nphase; m++) {
        stages += g.plan->entry[0].phase[m].nstage;
        cheaper += g.plan->entry[0].phase[m].cheaper;
    }
    double work = (double)g.plan->work / 1e6, bytes = (double)(g.arena.bytes + g.plan->scratch) / 1e6;
    ck_assert_msg(stages >= w->stages, "%s: %d stages, not %d", w->name, stages, w->stages);
    ck_assert_msg(work <= w->mwork, "%s: %.2f million steps, not %.2f", w->name, work, w->mwork);
    ck_assert_msg(bytes <= w->mbytes, "%s: %.1f MB, not %.1f", w->name, bytes, w->mbytes);
    ck_assert_msg(cheaper <= w->cheaper, "%s: a cheaper search in %d phases, not %d", w->name, cheaper, w->cheaper);
    Buf b = {0};
    plan_print(&b, g.plan, true);
    ck_assert_msg(!strstr(b.s, "cheaper search") == !cheaper, "%s: the plan does not say how it was searched for", w->name);
    buf_free(&b);
    gen_free(&g);
    free(text);
}
END_TEST

/* The library needs no cheaper search, and far less than it may take. */
START_TEST(library_price)
{
    const char *name = optc_library_name(_i);
    if (!strncmp(name, "wrappers/", 9))
        return;
    static const char *const withs[] = {NULL, "clip(1),cautious,ema(0.999)", "clip_norm(1),clip_value(2),ema,ema(0.9),lookahead(3)", "sam(0.05),centralize"};
    for (int k = 0; k < COUNT(withs); k++) {
        Arena arena = {0};
        Source s;
        Gen g = {0};
        GenOptions o = {.find = find_wrapper, .with = withs[k]};
        ck_assert_msg(find_spec(NULL, name, &arena, &s, &g.diag) && gen_compile(&g, s, &o), "%s: %s", name, g.diag.text);
        ck_assert_msg(g.plan->work < MOST_WORK / 20, "%s with %s: %lld steps", name, withs[k] ? withs[k] : "nothing", (long long)g.plan->work);
        for (int e = 0; e < g.plan->nentry; e++)
            for (int m = 0; m < g.plan->entry[e].nphase; m++)
                ck_assert_msg(!g.plan->entry[e].phase[m].cheaper, "%s with %s", name, withs[k] ? withs[k] : "nothing");
        gen_free(&g);
        arena_free(&arena);
    }
}
END_TEST

/* Each entry has each combination of periods: what that comes to has a limit of its own. */
START_TEST(too_many_phases)
{
    Buf b = {0};
    buf_puts(&b, "local function f(k) return function() local x = g for i = 1, 9000 do x = x * g + 0.5 end p = x + k " EVERY " end end\n"
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

Suite *plan_suite(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("price");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, price, 0, COUNT(worst));
    tcase_add_loop_test(t, library_price, 0, optc_library_size());
    tcase_add_test(t, too_many_phases);
    suite_add_tcase(s, t);
    return s;
}

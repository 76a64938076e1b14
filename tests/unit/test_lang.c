/* The language against plain C that does the same by hand. */
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "gen/emit/program_make.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static optc_engine *engine;
static void open_engine(void) { OK(optc_open(&(optc_engine_options){.threads = 1}, &engine)); }
static void close_engine(void) { OK(optc_close(engine)); }

static optc_rule *compile(const char *text, const char *with)
{
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "made.lua", .text = text, .with = with},
                    &r));
    return r;
}

/* ---- numbers that are not finite ---- */
START_TEST(infinity_is_out)
{
    optc_rule *r;
    optc_binding *b;
    float p = 1, g = 1;
    optc_tensor t = {.name = "w", .param = &p, .grad = &g, .rank = 1, .shape = (int64_t[]){1}};
    /* clip's maximum is inf: it never clips */
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .with = "clip(inf)"}, &r));
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    FAILS(optc_set_hyper(b, 0, "lr", INFINITY), OPTC_ERROR_RANGE,
          "lr = inf is outside its range [0, inf)");
    OK(optc_set_hyper(b, 0, "lr", 1e300));
    OK(optc_set_hyper(b, 0, "clip.max_norm", INFINITY));
    FAILS(optc_set_hyper(b, 0, "clip.max_norm", -1), OPTC_ERROR_RANGE, "[0, inf]");
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* Tables of a package are C, where NaN has no literal. */
START_TEST(tables_of_nan)
{
    optc_rule *r = compile("return optimizer { name = 'x', state = { m = fill(0/0), n = fill(-inf) "
                           "}, step = function() m = n n = "
                           "g p = p - m end }",
                           NULL);
    Buf b = {0};
    program_print(&b, r->program, "x");
    ck_assert_msg(strstr(b.s, ", __builtin_nan(\"\"), ") && strstr(b.s, ", -__builtin_inf(), ") &&
                  !strstr(b.s, ", nan") && !strstr(b.s, ", -nan"), "%s", b.s);
    buf_free(&b);
    OK(optc_release(r));
}
END_TEST

/* ---- wrappers of one's own ---- */
static const char halve[] = "return wrapper { name = 'halve', args = { 'by' }, hyper = { by = 0.5 "
                            "}, step = function() g = g * by inner() end "
                            "}";

static float one_step(optc_rule *r, float g0)
{
    optc_binding *b;
    float p = 0, g = g0;
    optc_tensor t = {.name = "w", .param = &p, .grad = &g, .rank = 1, .shape = (int64_t[]){1}};
    OK(optc_bind(
        r,
        &(optc_group){
            .tensors = &t, .ntensors = 1, .hyper = (optc_setting[]){{"lr", 1}}, .nhyper = 1},
        1, &b));
    OK(optc_step(b));
    OK(optc_unbind(b));
    return p;
}

static void composed(const optc_rule_options *o, const char *name, float moved)
{
    optc_rule *r;
    OK(optc_compile(engine, o, &r));
    ck_assert_str_eq(optc_rule_name(r), name);
    float p = one_step(r, 64);
    ck_assert_msg(p == moved, "%s moved p by %g, not %g", name, p, moved);
    OK(optc_release(r));
}

/* Wrappers by path and from memory, in `with` and after a +, mixed with the library's, under the
 * name in the file. */
START_TEST(wrappers_of_ones_own)
{
    char folder[] = "/tmp/optc-wrap+XXXXXX", path[64], asked[200];
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/mine.lua", folder);
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(halve, f) >= 0 && fclose(f) == 0);
    const optc_text text[] = {{"halve", halve}, {"clip", halve}};
    composed(&(optc_rule_options){.spec = "sgd", .with = path}, "sgd+halve", -32);
    snprintf(asked, sizeof asked, "%s(0.25),clip_value(8)", path);
    composed(&(optc_rule_options){.spec = "sgd", .with = asked}, "sgd+halve(0.25),clip_value(8)",
             -2);
    snprintf(asked, sizeof asked, "sgd+%s(by=0.25)+clip_value(8)", path);
    composed(&(optc_rule_options){.spec = asked}, "sgd+halve(by=0.25),clip_value(8)", -2);
    composed(&(optc_rule_options){.spec = asked, .with = " clip_value( 4 )"},
             "sgd+halve(by=0.25),clip_value(8),clip_value(4)", -1);
    composed(&(optc_rule_options){.spec = "sgd+halve", .wrappers = text, .nwrappers = 2},
             "sgd+halve", -32);
    /* before the library's wrapper of that name */
    composed(
        &(optc_rule_options){.spec = "sgd", .with = "clip(0.5)", .wrappers = text, .nwrappers = 2},
        "sgd+clip(0.5)", -32);
    composed(&(optc_rule_options){.spec = "sgd", .with = "clip(64)"}, "sgd+clip(64)",
             -64 * (64 / (64 + 1e-6f)));
    /* two wrappers of one name */
    snprintf(asked, sizeof asked, "halve,%s(0.125)", path);
    optc_rule *r;
    OK(optc_compile(
        engine,
        &(optc_rule_options){.spec = "sgd", .with = asked, .wrappers = text, .nwrappers = 1}, &r));
    ck_assert(r->library->rule->nhyper >= 2 &&
              !strcmp(r->library->rule->hyper[r->library->rule->nhyper - 1].name, "halve2.by"));
    ck_assert_msg(one_step(r, 64) == -4, "two wrappers of one name");
    OK(optc_release(r));
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .with = "./no/such.lua"}, &r),
          OPTC_ERROR_SPEC, "./no/such.lua: cannot read");
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd+"}, &r), OPTC_ERROR_SPEC,
          "expected wrapper");
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .nwrappers = 1}, &r),
          OPTC_ERROR_ARGUMENT, "NULL");
    unlink(path);
    rmdir(folder);
}
END_TEST

/* ---- steps that are not all alike ---- */
enum { N = 37 };
typedef struct { optc_rule *rule; optc_binding *b; float p[N], g[N]; } One;

static void one_open(One *o, optc_engine *e, const optc_rule_options *ro)
{
    OK(optc_compile(e, ro, &o->rule));
    for (int i = 0; i < N; i++)
        o->p[i] = (float)ref_value(0, 0, i), o->g[i] = 0;
    optc_tensor t = {.name = "w", .param = o->p, .grad = o->g, .rank = 1, .shape = (int64_t[]){N}};
    OK(optc_bind(o->rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &o->b));
}

static void one_close(One *o)
{
    OK(optc_unbind(o->b));
    OK(optc_release(o->rule));
}

static double read_one(One *o, const char *name)
{
    double x;
    OK(optc_state_read(o->b, 0, name, &x, 1));
    return x;
}

/* The compiled rule, or the evaluator. */
static optc_engine *engine_of(int evaluator)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = 1,
                                        .compiler = evaluator ? "" : NULL,
                                        .cache_dir = evaluator ? "" : NULL,
                                        .no_builtin = evaluator},
                 &e));
    return e;
}

START_TEST(every_with_an_offset)
{
    static const char text[] =
        "return optimizer { name = 'x', options = { k = 1 }, state = { a = zeros 'group', b = "
        "zeros 'group', c = zeros "
        "'group', d = zeros 'group' },\n"
        "step = function() every(3, { offset = 1 }, function() a = a + t end) every(3, { offset "
        "= 6 }, function() b = b + t end)\n"
        "every(4, { offset = 7 }, function() c = c + t end) every(k, { offset = 1 }, function() "
        "d = d + t end) p = p - g end }";
    optc_engine *e = engine_of(_i);
    One o;
    double a = 0, b = 0, c = 0, d = 0;                     /* offsets are taken modulo the period */
    one_open(&o, e, &(optc_rule_options){.spec = "made.lua", .text = text});
    for (int t = 1; t <= 26; t++) {
        OK(optc_step(o.b));
        a += t % 3 == 1 ? t : 0, b += t % 3 == 0 ? t : 0, c += t % 4 == 3 ? t : 0, d += t;
        ck_assert_msg(read_one(&o, "a") == a && read_one(&o, "b") == b && read_one(&o, "c") == c &&
                      read_one(&o, "d") == d, "step %d", t);
    }
    one_close(&o);
    OK(optc_close(e));
}
END_TEST

/* `first`: step 1 as well, or (c) not step 1; alone and with other periods, and in a rule whose own
 * first step comes later. */
START_TEST(every_first)
{
    static const char *const rule[] = {"return optimizer { name = 'x', state = { a = zeros "
                                       "'group', b = zeros 'group', c = zeros 'group' }, step = "
                                       "function()\nevery(4, { first = true }, function() a = a + "
                                       "t end) every(3, { first = true, offset = 1 }, "
                                       "function() b = b + t end) every(3, { first = false, offset "
                                       "= 1 }, function() c = c + t end) p = p - g end }",
                                       "return optimizer { name = 'x', state = { a = zeros "
                                       "'group', b = zeros 'group', c = zeros 'group' }, step = "
                                       "function()\nevery(4, { first = true }, function() a = a + "
                                       "t end) b = b + 1 c = c + 0 * t p = p - g end }",
                                       "return optimizer { name = 'x', state = { a = zeros "
                                       "'group', b = zeros 'group', c = zeros 'group' }, step = "
                                       "function()\nevery(3, { first = false, offset = 1 }, "
                                       "function() c = c + t end) b = b + 1 a = a + 0 * t p = p - "
                                       "g end }"};
    static const char outer[] =
        "return wrapper { name = 'w', step = function() every(3, function() inner() end) end }";
    optc_engine *e = engine_of(_i % 2);
    int inside = _i / 2;
    One o;
    double a = 0, b = 0, c = 0;
    one_open(&o, e,
             &(optc_rule_options){.spec = "made.lua",
                                  .text = rule[inside],
                                  .with = inside ? "w" : "",
                                  .wrappers = &(optc_text){"w", outer},
                                  .nwrappers = 1});
    for (int step = 1; step <= 40; step++) {
        int t = inside ? step / 3 : step;
        OK(optc_step(o.b));
        if (!inside || step % 3 == 0)
            a += inside != 2 && (t == 1 || t % 4 == 0) ? t : 0,
                b += inside       ? 1
                     : t % 3 == 1 ? t
                                  : 0,
                c += inside != 1 && t > 1 && t % 3 == 1 ? t : 0;
        ck_assert_msg(read_one(&o, "a") == a && read_one(&o, "b") == b && read_one(&o, "c") == c,
                      "step %d: %g %g %g, not %g %g %g", step, read_one(&o, "a"), read_one(&o, "b"),
                      read_one(&o, "c"), a, b, c);
    }
    one_close(&o);
    OK(optc_close(e));
}
END_TEST

/* A rule inside every() counts its own steps: its t and its periods. */
START_TEST(inner_counts_its_own)
{
    static const char rule[] =
        "return optimizer { name = 'x', state = { n = zeros 'group', a = zeros 'group', b = zeros "
        "'group' }, step = "
        "function()\n"
        "n = t every(2, function() a = a + t end) every(3, { offset = 1 }, function() b = b + t "
        "end) p = p - g end }";
    static const struct { int every, offset; } at[] = {{1, 0}, {3, 0}, {3, 1}, {5, 4}};
    optc_engine *e = engine_of(_i % 2);
    int k = at[_i / 2].every, off = at[_i / 2].offset, n = 0;
    char outer[200];
    snprintf(outer, sizeof outer,
             "return wrapper { name = 'w', step = function() every(%d, { offset = %d }, function() "
             "inner() end) end }",
             k, off);
    One o;
    double a = 0, b = 0;
    one_open(&o, e, &(optc_rule_options){.spec = "made.lua", .text = rule, .with = "w",
                                         .wrappers = &(optc_text){"w", outer}, .nwrappers = 1});
    for (int t = 1; t <= 40; t++) {
        OK(optc_step(o.b));
        n += t % k == off;
        if (t % k == off)
            a += n % 2 == 0 ? n : 0, b += n % 3 == 1 ? n : 0;
        ck_assert_msg(read_one(&o, "n") == n && read_one(&o, "a") == a && read_one(&o, "b") == b,
                      "every %d, offset %d, step %d: n %g a %g b %g, not %d %g %g", k, off, t,
                      read_one(&o, "n"), read_one(&o, "a"), read_one(&o, "b"), n, a, b);
    }
    one_close(&o);
    OK(optc_close(e));
}
END_TEST

/* Periods follow the binding and t each tensor: t inside every() is right only for tensors that
 * never miss a step. A wrapper that counts gives the right t to all. */
START_TEST(inner_of_a_tensor_left_out)
{
    static const char rule[] = "return optimizer { name = 'x', state = { n = zeros 'tensor' },\n"
                               "step = function() n = t p = p - g end }";
    static const char divides[] = "return wrapper { name = 'w', step = function()\n"
                                  "every(3, function() inner() end) end }";
    static const char counts[] =
        "return wrapper { name = 'w', state = { made = zeros 'tensor' }, step = function()\n"
        "every(3, function() made = made + 1 inner { t = made } end) end }";
    optc_engine *e = engine_of(_i % 2);
    bool counting = _i / 2;
    One o;
    int own = 0, made = 0;
    double want = 0;
    one_open(&o, e,
             &(optc_rule_options){.spec = "made.lua",
                                  .text = rule,
                                  .with = "w",
                                  .nwrappers = 1,
                                  .wrappers = &(optc_text){"w", counting ? counts : divides}});
    for (int t = 1; t <= 60; t++) {
        bool there = splitmix((uint64_t)t) % 3 != 0;
        OK(optc_set_grad(o.b, 0, there ? o.g : NULL, 0));
        OK(optc_step(o.b));
        own += there;
        made += there && t % 3 == 0;
        if (there && t % 3 == 0)
            want = counting ? made : (own + 2) / 3;
        ck_assert_msg(read_one(&o, "n") == want, "step %d: t is %g, not %g", t, read_one(&o, "n"),
                      want);
    }
    one_close(&o);
    OK(optc_close(e));
}
END_TEST

/* Gradients accumulated over four steps, then one step of Adam: the bits of Adam on their means. */
START_TEST(accumulation)
{
    static const char gather[] = "return wrapper { name = 'gather', state = { all = zeros }, step "
                                 "= function() all = all + g\n"
                                 "every(4, function() g = all / 4 inner() all = 0 end) end }";
    One a, b;
    float sum[N] = {0};
    one_open(&a, engine,
             &(optc_rule_options){.spec = "adam",
                                  .with = "gather",
                                  .wrappers = &(optc_text){"gather", gather},
                                  .nwrappers = 1});
    one_open(&b, engine, &(optc_rule_options){.spec = "adam"});
    for (int t = 1; t <= 20; t++) {
        for (int i = 0; i < N; i++)
            sum[i] += a.g[i] = (float)ref_value(0, t, i);
        OK(optc_step(a.b));
        for (int i = 0; i < N && t % 4 == 0; i++)
            b.g[i] = sum[i] * 0.25f, sum[i] = 0;
        if (t % 4 == 0)
            OK(optc_step(b.b));
        ck_assert_msg(!memcmp(a.p, b.p, sizeof a.p), "they differ after %d steps", t);
    }
    one_close(&a);
    one_close(&b);
}
END_TEST

/* One NaN or infinity anywhere: nothing changes, and the other steps equal a run without the
 * skipped ones. */
START_TEST(nonfinite_steps_are_skipped)
{
    static const struct { int step; float value; } spoilt[] = {
        {1, NAN}, {4, INFINITY}, {5, -INFINITY}, {9, -NAN}};
    optc_engine *e = engine_of(_i);
    One a, b;
    int left = 0, nspoilt = sizeof spoilt / sizeof *spoilt;
    one_open(&a, e, &(optc_rule_options){.spec = "adamw+clip(1)+skip"});
    one_open(&b, e, &(optc_rule_options){.spec = "adamw+clip(1)"});
    for (int t = 1; t <= 12; t++) {
        bool bad = false;
        for (int i = 0; i < N; i++)
            /* large, but not infinite */
            a.g[i] = b.g[i] = (float)ref_value(0, t, i) * (t == 7 ? 1e30f : 1);
        for (int k = 0; k < nspoilt; k++)
            if (spoilt[k].step == t)
                a.g[t * 3] = spoilt[k].value, bad = true;
        left += bad;
        OK(optc_step(a.b));
        if (!bad)
            OK(optc_step(b.b));
        double flag, m[2][N];
        OK(optc_read_value(a.b, 0, "skip.nonfinite", &flag, 1));
        OK(optc_state_read(a.b, 0, "m", m[0], N));
        OK(optc_state_read(b.b, 0, "m", m[1], N));
        int64_t steps, taken;
        OK(optc_get_t(a.b, 0, &steps));                /* the rule's t: without the skipped steps */
        OK(optc_get_t(b.b, 0, &taken));
        ck_assert(steps == t && steps - left == taken);
        ck_assert_msg(flag == bad && read_one(&a, "skip.skipped") == left,
                      "step %d: %g, %g left out", t, flag, read_one(&a, "skip.skipped"));
        ck_assert_msg(!memcmp(a.p, b.p, sizeof a.p) && !memcmp(m[0], m[1], sizeof m[0]),
                      "they differ after %d steps: %.17g %.17g, %.17g %.17g", t, a.p[0], b.p[0],
                      m[0][0], m[1][0]);
    }
    one_close(&a);
    one_close(&b);
    OK(optc_close(e));
}
END_TEST

/* The same with a flag of the caller, like a loss scaler's. */
START_TEST(skipped_by_a_flag)
{
    static const char guard[] =
        "return wrapper { name = 'guard', inputs = { found_inf = 'group' }, state = { skipped = "
        "zeros 'group' }, step "
        "= function()\n"
        "local ok = eq(found_inf, 0) skipped = skipped + where(ok, 0, 1) when(ok, function() "
        "inner { t = t - skipped } end) end }";
    One a, b;
    one_open(&a, engine,
             &(optc_rule_options){.spec = "lamb",
                                  .with = "guard",
                                  .wrappers = &(optc_text){"guard", guard},
                                  .nwrappers = 1});
    one_open(&b, engine, &(optc_rule_options){.spec = "lamb"});
    for (int t = 1; t <= 10; t++) {
        for (int i = 0; i < N; i++)
            a.g[i] = b.g[i] = (float)ref_value(0, t, i);
        OK(optc_set_scalar(a.b, 0, "guard.found_inf", t % 3 == 0));
        OK(optc_step(a.b));
        if (t % 3)
            OK(optc_step(b.b));
        ck_assert_msg(!memcmp(a.p, b.p, sizeof a.p), "they differ after %d steps", t);
    }
    one_close(&a);
    one_close(&b);
}
END_TEST

/* ---- sam ---- */
/* where its next step starts, and its current value */
typedef struct { double at, p; } Climber;
enum { IN_NONE, IN_PERTURB, IN_STEP };

/* One entry of sam(60) around sgd with lr = 1, by hand; `there` says which tensors have a
 * gradient. */
static void sam_by_hand(Climber c[2], const float g[2], int there, bool step, bool skips_inside,
                        bool skips_outside)
{
    double square = 0;
    for (int i = 0; i < 2; i++)
        square += there >> i & 1 ? (double)g[i] * g[i] : 0;
    bool finite = isfinite(square);
    for (int i = 0; i < 2; i++) {
        if (!(there >> i & 1) || (step && skips_outside && !finite))
            continue;
        if (step)
            c[i].p = c[i].at -= skips_inside && !finite ? 0 : g[i];
        else
            c[i].p = c[i].at + (finite ? 60 / sqrt(square) * g[i] : 0);
    }
}

/* Tensors excluded from either entry or both, and gradients that are not finite: each step starts
 * where the tensor's last step ended. Norms are 3, 4 and 5, so everything is exact. */
START_TEST(sam_with_some_left_out)
{
    static const char *const with[] = {"sam(60)", "skip,sam(60)", "sam(60),skip"};
    optc_engine *e = engine_of(_i % 2);
    optc_rule *r;
    optc_binding *b;
    float p[2] = {7, -9}, g[2];
    Climber c[2] = {{7, 7}, {-9, -9}};
    optc_tensor t[2] = {{.param = &p[0], .grad = &g[0]}, {.param = &p[1], .grad = &g[1]}};
    optc_group group = {
        .tensors = t, .ntensors = 2, .hyper = (optc_setting[]){{"lr", 1}}, .nhyper = 1};
    optc_rule_options ro = {
        .spec = "sgd", .with = with[_i / 2], .options = "momentum_buffer=false"};
    OK(optc_compile(e, &ro, &r));
    OK(optc_bind(r, &group, 1, &b));
    for (int k = 0; k < 96; k++) {
        int round = k * 7 % 48, spoilt = round / 16;
        for (int step = 0; step < 2; step++) {
            int there = round >> 2 * step & 3;
            bool bad = spoilt == (step ? IN_STEP : IN_PERTURB) && (!step || _i / 2 > 0);
            g[0] = bad ? (k % 2 ? INFINITY : -INFINITY) : k % 3 ? 3 : -3;
            g[1] = k % 5 ? 4 : -4;
            OK(optc_set_grads(
                b, (const void *const[]){there & 1 ? &g[0] : NULL, there & 2 ? &g[1] : NULL}, 2));
            OK(step ? optc_step(b) : optc_run(b, "perturb"));
            sam_by_hand(c, g, there, step, _i / 2 == 1, _i / 2 == 2);
            for (int i = 0; i < 2; i++)
                ck_assert_msg(p[i] == (float)c[i].p, "%s, round %d, %s: p %d is %g, not %g",
                              with[_i / 2], k, step ? "step" : "perturb", i, p[i], c[i].p);
        }
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* With all gradients present: the bits of the rule as written in the paper. */
START_TEST(sam_with_all_there)
{
    static const char plain[] =
        "return wrapper { name = 'plain', hyper = { rho = 0.05, eps = 1e-12 },\n"
        "state = { saved = copy(p) },\n"
        "perturb = function() saved = p p = p + (rho / (global.norm(g) + eps)) * g end,\n"
        "step = function() p = saved inner() end }";
    One a, b;
    one_open(&a, engine, &(optc_rule_options){.spec = "adamw", .with = "sam"});
    one_open(&b, engine, &(optc_rule_options){.spec = "adamw", .with = "plain", .nwrappers = 1,
                                              .wrappers = &(optc_text){"plain", plain}});
    for (int t = 1; t <= 16; t++) {
        for (int i = 0; i < N; i++)
            a.g[i] = b.g[i] = (float)ref_value(0, t, i);
        OK(t % 2 ? optc_run(a.b, "perturb") : optc_step(a.b));
        OK(t % 2 ? optc_run(b.b, "perturb") : optc_step(b.b));
        ck_assert_msg(!memcmp(a.p, b.p, sizeof a.p), "they differ after %d entries", t);
    }
    one_close(&a);
    one_close(&b);
}
END_TEST

/* A hyperparameter of a wrapper needs its prefix; without it the message says so. */
START_TEST(without_the_prefix)
{
    optc_rule *r;
    optc_binding *b;
    float p = 1, g = 1;
    optc_tensor t = {.name = "w", .param = &p, .grad = &g, .rank = 1, .shape = (int64_t[]){1}};
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw+clip(1)+ema(0.9)"}, &r));
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    FAILS(optc_set_hyper(b, 0, "max_norm", 1), OPTC_ERROR_ARGUMENT,
          "did you mean 'clip.max_norm'?");
    double x;
    FAILS(optc_state_read(b, 0, "avg", &x, 1), OPTC_ERROR_ARGUMENT, "did you mean 'ema.avg'");
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

Suite *lang_suite(void)
{
    Suite *s = suite_create("lang");
    TCase *t = tcase_create("lang");
    tcase_add_checked_fixture(t, open_engine, close_engine);
    tcase_add_test(t, infinity_is_out);
    tcase_add_test(t, tables_of_nan);
    tcase_add_test(t, wrappers_of_ones_own);
    tcase_add_test(t, without_the_prefix);
    tcase_add_loop_test(t, every_with_an_offset, 0, 2);
    tcase_add_loop_test(t, inner_counts_its_own, 0, 8);
    tcase_add_loop_test(t, every_first, 0, 6);
    tcase_add_loop_test(t, inner_of_a_tensor_left_out, 0, 4);
    tcase_add_test(t, accumulation);
    tcase_add_loop_test(t, nonfinite_steps_are_skipped, 0, 2);
    tcase_add_test(t, skipped_by_a_flag);
    tcase_add_loop_test(t, sam_with_some_left_out, 0, 6);
    tcase_add_test(t, sam_with_all_there);
    suite_add_tcase(s, t);
    return s;
}

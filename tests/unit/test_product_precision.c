/* Precision of single products: mm(a, b, { products = "tf32" }) in IR text, plans, programs and the
 * evaluator's bounds, and the user's choice, which replaces it. gpu/test_gpu_product_precision.c
 * has the numbers on a GPU. */
#include "gen/emit/emit.h"
#include "gen/gen.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* One product in f32 and one in tf32 of the same operands, and one that follows. */
static const char mixed[] =
    "return optimizer { name = 'mixed', state = { A = zeros 'rows', B = zeros 'rows' },\n"
    "step = function() p = p - g end, matrix = function()\n"
    "A = gram(g) B = gram(g, { products = 'tf32' }) p = p - mm(B, g, { products = 'f32' }) end }";

static void compile_text(Gen *g, const char *text, GenOptions o)
{
    o.find = find_wrapper;
    ck_assert_msg(gen_compile(g, (Source){"x.lua", text, strlen(text)}, &o), "%s", g->diag.text);
}

static char *printed(const char *text)
{
    Gen g = {0};
    Buf b = {0};
    compile_text(&g, text, (GenOptions){.rule_only = true});
    rule_print(&b, g.rule);
    gen_free(&g);
    return buf_take(&b);
}

/* ---- text ---- */
START_TEST(text_has_it)
{
    static const Damage bad[] = {
        {"optc-ir 3", "optc-ir 2", "no precision of a single product"},
        {"symmetric tf32", "symmetric f32 tf32", "a product has two precisions"},
        {"symmetric tf32", "symmetric bf16", "expected"},
        {"\nstate A", "\nproducts f16\nstate A", "whose products are not stored in f32"}};
    char *text = printed(mixed);
    ck_assert_msg(!strncmp(text, "optc-ir 3\n", 10) && strstr(text, " trans_b symmetric tf32 @") &&
                  strstr(text, " trans_b symmetric @"), "%s", text);
    free(text);
    reads_back(mixed, bad, COUNT(bad));
}
END_TEST

/* Rules without it have text that older readers know. */
START_TEST(version_stays)
{
    static const char plain[] =
        "return optimizer { name = 'x', products = '%s', step = function() p = p - g end, "
        "matrix = function() p = p - mm(gram(g), g, { products = '%s' }) end }";
    static const char *const names[] = {"f32", "tf32", "f64"};
    for (int i = 0; i < 6; i++) {
        const char *head = names[i % 2], *own = names[i / 2];
        char *spec = format(plain, head, own), *text = printed(spec);
        const char *version = i / 2 == 2          ? "optc-ir 4"
                              : strcmp(head, own) ? "optc-ir 3"
                                                  : "optc-ir 2";
        ck_assert_msg(!strncmp(text, version, 9), "%s", text);
        free(text), free(spec);
    }
}
END_TEST

/* ---- plans ---- */
typedef struct { unsigned flags[16]; int n; } Calls;

static Calls calls_of(const Plan *p)
{
    Calls c = {.n = 0};
    const Phase *ph = &p->entry[0].phase[0];
    for (int i = 0; i < ph->nstage && c.n < COUNT(c.flags); i++)
        if (is_called(ph->stage[i].kind))
            c.flags[c.n++] = plan_call_flags(p, ph->g, &ph->stage[i]) & (IN_F32 | IN_TF32);
    return c;
}

/* The user's choice replaces that of every call, and f64 parameters have f64 products. Gram
 * matrices that then have one precision are one product. */
START_TEST(user_decides)
{
    static const struct { int chosen; Type p; Product precision; int calls; unsigned any;
    } c[] = {{0, T_F32, PRODUCT_F32, 3, IN_TF32},
             {0, T_BF16, PRODUCT_F32, 3, IN_TF32},
             {0, T_F64, PRODUCT_F64, 2, 0},
             {1 + PRODUCT_F32, T_F32, PRODUCT_F32, 2, 0},
             {1 + PRODUCT_TF32, T_F32, PRODUCT_TF32, 2, 0},
             {1 + PRODUCT_BF16, T_F32, PRODUCT_BF16, 2, 0},
             {1 + PRODUCT_F64, T_F32, PRODUCT_F64, 2, 0}};
    for (int i = 0; i < 2 * COUNT(c); i++) {
        Gen g = {0};
        Type p = c[i / 2].p;
        compile_text(&g, mixed,
                     (GenOptions){.product = c[i / 2].chosen,
                                  .types = {.p = p, .g = p, .state = T_F32},
                                  .target = i % 2 ? &target_cuda : &target_c});
        Calls x = calls_of(g.plan);
        unsigned any = 0;
        for (int k = 0; k < x.n; k++)
            any |= x.flags[k];
        ck_assert_msg(
            x.n == c[i / 2].calls && any == c[i / 2].any && g.plan->precision == c[i / 2].precision,
            "%d: %d calls, flags %u, %s", i, x.n, any, product_info[g.plan->precision].name);
        gen_free(&g);
    }
}
END_TEST

/* The command in emitted files has the user's choice, also one that equals the rule's precision. */
START_TEST(command_has_choice)
{
    for (int chosen = 0; chosen < 2; chosen++) {
        Gen g = {0};
        Diag d = {0};
        compile_text(&g, mixed,
                     (GenOptions){.product = chosen ? 1 + PRODUCT_F32 : 0,
                                  .target = &target_cuda,
                                  .types = {.p = T_F32, .g = T_F32, .state = T_F32}});
        char *text = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &d);
        ck_assert_msg(text && (strstr(text, "--products f32") != NULL) == chosen, "%s",
                      text ? text : d.text);
        ck_assert((strstr(text, "optc_mm_tf32") == NULL) == chosen && strstr(text, "optc_mm_f32"));
        free(text);
        diag_free(&d);
        gen_free(&g);
    }
}
END_TEST

/* Checkpoints name all options but those that choose a precision: those whose choices are all
 * precisions. */
START_TEST(identity)
{
    static const char text[] =
        "return optimizer { name = 'x', options = { apply = { 'f32', 'tf32' }, kind = { 'f32', "
        "'other' }, word = 'bf16' },\n  step = function() p = p - g end }";
    Gen g = {0};
    compile_text(&g, text, (GenOptions){.types = {.p = T_F32, .g = T_F32, .state = T_F32}});
    ck_assert_str_eq(program_make(&g.arena, g.plan, NULL)->options, "kind=f32,word=bf16");
    gen_free(&g);
}
END_TEST

/* Only the tf32 product reads a copy of the gradient: the caller's array may be misaligned for
 * tensor cores. A plan in which it reads the gradient itself is refused. */
START_TEST(alignment)
{
    Gen g = {0};
    Buf b = {0};
    Diag d = {0};
    int copied = 0, direct = 0;
    compile_text(&g, mixed, (GenOptions){.target = &target_cuda});
    plan_print(&b, g.plan, false);
    ck_assert_msg(strstr(b.s, "mm(g, g.T), rows x cols x rows in f32") &&
                      strstr(b.s, " x rows in tf32, symmetric") && strstr(b.s, "in f32\n"),
                  "%s", b.s);
    const Phase *ph = &g.plan->entry[0].phase[0];
    for (int i = 0; i < ph->nstage; i++) {
        Stage *s = &ph->stage[i];
        if (!is_called(s->kind))
            continue;
        bool tf32 = plan_call_flags(g.plan, ph->g, s) & IN_TF32;
        copied += tf32 && g.plan->mem[s->load[0].mem].kind == MEM_TEMP;
        direct += !tf32 && g.plan->mem[s->load[0].mem].kind == MEM_G;
        for (int k = 0; tf32 && k < s->nload; k++)
            s->load[k].mem = 1;
    }
    ck_assert_int_eq(copied, 1);
    ck_assert_int_eq(direct, 1);
    ck_assert(!plan_verify(g.plan, &d) &&
              strstr(d.text, "tensor cores would read an array of the caller"));
    diag_free(&d);
    buf_free(&b);
    gen_free(&g);
}
END_TEST

/* The new parameters are in the caller's array when a product reads them; tensor cores need a
 * copy. */
START_TEST(new_parameters_are_copied)
{
    static const char text[] =
        "return optimizer { name = 'x', products = '%s', state = { L = zeros 'rows' }, "
        "step = function() p = p - g end, matrix = function() p = p - mm(gram(g), g) L = gram(p) "
        "end }";
    static const char *const products[] = {"f32", "tf32"};
    for (int i = 0; i < 2; i++) {
        Gen g = {0};
        char *spec = format(text, products[i]);
        bool callers = false;
        compile_text(&g, spec, (GenOptions){.target = &target_cuda});
        const Phase *ph = &g.plan->entry[0].phase[0];
        for (int k = 0; k < ph->nstage; k++)
            for (int a = 0; a < ph->stage[k].nload && is_called(ph->stage[k].kind); a++)
                callers = callers || g.plan->mem[ph->stage[k].load[a].mem].kind == MEM_P;
        ck_assert_msg(callers == (i == 0), "%s", products[i]);
        gen_free(&g);
        free(spec);
    }
}
END_TEST

/* ---- programs ---- */
/* The tables of a package have the call's precision. Options that choose a precision are no part of
 * the rule's
 * identity: a checkpoint goes on in another one. */
START_TEST(programs)
{
    static const char *const options[] = {"apply=f32", ""};
    char *identity[2];
    for (int i = 0; i < 2; i++) {
        Gen g = {0};
        Source src;
        Buf b = {0};
        ck_assert(find_spec("", "soap", &g.arena, &src, &g.diag));
        ck_assert_msg(gen_compile(&g, src,
                                  &(GenOptions){.options = options[i],
                                                .find = find_wrapper,
                                                .find_ctx = "",
                                                .target = &target_cuda}),
                      "%s", g.diag.text);
        const Program *p = program_make(&g.arena, g.plan, "soap_");
        int products = 0, tf32 = 0, grams = 0;
        for (int k = 0; k < p->nstage; k++) {
            const ProgCall *c = p->stage[k].call;
            products += c && c->callee == CALL_MM;
            tf32 += c && c->flags & IN_TF32;
            grams += c && c->flags & IN_TF32 && c->flags & SYMMETRIC;
        }
        ck_assert_msg(i ? tf32 && tf32 < products && !grams : !tf32,
                      "%s: %d of %d products, %d Gram matrices", options[i], tf32, products, grams);
        ck_assert_uint_eq(plan_needs(g.plan).products,
                          i ? 1u << PRODUCT_F32 | 1u << PRODUCT_TF32 : 1u << PRODUCT_F32);
        program_print(&b, p, "soap");
        ck_assert_msg(!strstr(b.s, "{(Callee)0, 2048, ") == !i, "%s", options[i]);
        identity[i] = strdup(p->options);
        buf_free(&b);
        gen_free(&g);
    }
    ck_assert_str_eq(identity[0], identity[1]);
    ck_assert(strstr(identity[0], "interval=10") && !strstr(identity[0], "apply"));
    free(identity[0]), free(identity[1]);
}
END_TEST

/* ---- the evaluator ---- */
static Vals room(int n)
{
    return (Vals){calloc((size_t)n, 8), calloc((size_t)n, 8), calloc((size_t)n, 8), n};
}

/* Bounds follow the call: on a GPU those of B are those of tf32, on a CPU those of f32. */
START_TEST(bounds_follow)
{
    enum { N = 6, K = 33 };
    static const double hyper[1] = {0};
    for (int gpu = 0; gpu < 2; gpu++) {
        Gen gen = {0};
        Vals g = room(N * K), p = room(N * K), state[2] = {room(N * N), room(N * N)};
        compile_text(&gen, mixed, (GenOptions){.rule_only = true});
        for (int i = 0; i < N * K; i++)
            g.v[i] = g.lo[i] = g.hi[i] = (double)(float)ref_value(0, 1, i);
        EvalTensor t = {.shape = {N * K, 1, N, K, 0, 0},
                        .whole = {N * K, 1, N, K, 0, 0},
                        .variant = 1,
                        .p = p,
                        .g = g,
                        .state = state};
        EvalGroup group = {.hyper = hyper};
        EvalJob j = {.rule = gen.rule,
                     .t = 1,
                     .tensor = &t,
                     .ntensor = 1,
                     .group = &group,
                     .ngroup = 1,
                     .bounds = true,
                     .real = T_F32,
                     .product = PRODUCT_F32,
                     .target = gpu ? &target_cuda : &target_c};
        ck_assert(eval_entry(&j));
        for (int i = 0; i < N * N; i++) {
            double mag = 0, wide[2];
            for (int k = 0; k < K; k++)
                mag += fabs(g.v[i / N * K + k] * g.v[i % N * K + k]);
            for (int s = 0; s < 2; s++)
                wide[s] = (state[s].hi[i] - state[s].lo[i]) / mag;
            ck_assert_msg(wide[0] <= 0x1p-16 &&
                              (gpu ? wide[1] >= 0x1p-10 && wide[1] <= 0x1p-7 : wide[1] == wide[0]),
                          "value %d: %g in f32, %g in tf32", i, wide[0], wide[1]);
        }
        for (int s = 0; s < 2; s++)
            free(state[s].v), free(state[s].lo), free(state[s].hi);
        free(g.v), free(g.lo), free(g.hi), free(p.v), free(p.lo), free(p.hi);
        gen_free(&gen);
    }
}
END_TEST

/* ---- on a CPU ---- */
/* A CPU computes tf32 products in f32, so the bits are those of f32. */
START_TEST(cpu_has_the_bits_of_f32)
{
    static const struct { const char *spec, *options[2];
    } c[] = {{"soap", {"interval=2,apply=f32", "interval=2"}},
             {"shampoo", {"interval=1,apply=f32", "interval=1"}}};
    static const TestShape shapes[] = {{2, {9, 7}}, {2, {5, 12}}, {1, {8}}};
    for (int i = 0; i < COUNT(c); i++) {
        uint64_t hash[2];
        for (int k = 0; k < 2; k++) {
            Fixture f;
            fix_open(&f, &(optc_engine_options){.device = "cpu"},
                     &(optc_rule_options){.spec = c[i].spec, .options = c[i].options[k]}, shapes,
                     COUNT(shapes), NULL, 0);
            for (int step = 1; step <= 4; step++) {
                for (int t = 0; t < f.n; t++)
                    for (int64_t x = 0; x < f.count[t]; x++)
                        ((float *)f.g[t])[x] = (float)ref_value(t, step, x);
                OK(optc_step(f.binding));
            }
            hash[k] = fix_hash(&f);
            fix_close(&f);
        }
        ck_assert_msg(hash[0] == hash[1], "%s: other bits with apply=f32", c[i].spec);
    }
}
END_TEST

Suite *product_precision_suite(void)
{
    Suite *s = suite_create("product_precision");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, text_has_it);
    tcase_add_test(t, version_stays);
    tcase_add_test(t, user_decides);
    tcase_add_test(t, command_has_choice);
    tcase_add_test(t, identity);
    tcase_add_test(t, alignment);
    tcase_add_test(t, new_parameters_are_copied);
    tcase_add_test(t, programs);
    tcase_add_test(t, bounds_follow);
    tcase_add_test(t, cpu_has_the_bits_of_f32);
    suite_add_tcase(s, t);
    return s;
}

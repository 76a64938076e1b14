/* Emission: deterministic text, no leaks, and an error when memory runs out. */
#include "gen/emit/emit.h"
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The linker redirects every allocation of the library to these. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

/* number of the allocation that fails (0: none), allocations so far, allocations held */
static _Thread_local int nth, asked, held;
static _Thread_local bool for_ever;            /* and all later ones */
static bool refused(void) { return ++asked == nth || (for_ever && nth && asked > nth); }
static void *kept(void *p) { held += p != NULL; return p; }
void *__wrap_malloc(size_t n) { return refused() ? NULL : kept(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : kept(__real_calloc(n, size));
}
void *__wrap_realloc(void *p, size_t n)
{
    return refused() ? NULL : p ? __real_realloc(p, n) : kept(__real_realloc(p, n));
}
void __wrap_free(void *p) { held -= p != NULL; __real_free(p); }

static void fail_at(int n, bool all) { nth = n, asked = 0, for_ever = all; }
void memory_fails(int n) { fail_at(n, false); }
int memory_asked(void) { return asked; }
int memory_held(void) { return held; }

static void open_rule(Gen *g, const char *spec, const char *with)
{
    Source s;
    GenOptions o = {
        .with = with, .types = {.p = T_F32, .g = T_F32, .state = T_F32}, .find = find_wrapper};
    ck_assert_msg(find_spec(NULL, spec, &g->arena, &s, &g->diag) && gen_compile(g, s, &o), "%s",
                  g->diag.text);
}

static const Target *const targets[] = {&target_c, &target_cuda};
static const struct { const char *spec, *with; } rules[] =
    {{"adamw", "clip(1)"}, {"came", NULL}, {"sgd", "lookahead(5)"}};

START_TEST(leaves_nothing)
{
    Gen g = {0};
    open_rule(&g, rules[_i / 2].spec, rules[_i / 2].with);
    EmitOptions o = {.target = targets[_i % 2], .cite = true};
    char *first = gen_emit(&g, &o, &g.diag), hex[2][33];
    ck_assert(first && emit_cuda_stage_hash(&g, g.plan->nfn - 1, hex[0]));
    size_t bytes = arena_bytes(&g.arena), used = g.arena.used;
    int before = held;
    bool same = true;
    for (int i = 0; i < (thinned(1) ? 10 : 100); i++) {
        char *text = gen_emit(&g, &o, &g.diag);
        same = same && text && !strcmp(text, first) &&
               emit_cuda_stage_hash(&g, g.plan->nfn - 1, hex[1]) && !strcmp(hex[0], hex[1]);
        free(text);
    }
    int left = held - before;                  /* before Check allocates */
    ck_assert(same);
    ck_assert_int_eq(left, 0);
    ck_assert(arena_bytes(&g.arena) == bytes && g.arena.used == used);
    free(first);
    gen_free(&g);
}
END_TEST

/* The n-th allocation fails, alone or with all later ones: an error, or the right text. */
START_TEST(memory_ends)
{
    Gen g = {0};
    open_rule(&g, rules[_i / 2].spec, rules[_i / 2].with);
    EmitOptions o = {.target = targets[_i % 2], .cite = true};
    char *right = gen_emit(&g, &o, &g.diag), *text;
    size_t bytes = arena_bytes(&g.arena);
    ck_assert(right != NULL);
    for (int all = 0; all < 2; all++)
        for (int n = 1, done = 0; !done; n++) {
            Diag d = {0};
            int before = held;
            fail_at(n, all);
            text = gen_emit(&g, &o, &d);
            done = asked < n;
            fail_at(0, false);
            /* before Check allocates */
            int left = held - before - (text != NULL) - (d.text != NULL);
            ck_assert_msg(n < 10000, "it never came through");
            ck_assert_msg(left == 0, "%d pieces are left where allocation %d fails", left, n);
            if (text)
                ck_assert_msg(!strcmp(text, right), "other text where allocation %d fails", n);
            else
                ck_assert_msg(!done && (!d.text || strstr(d.text, "out of memory")), "%s",
                              d.text ? d.text : "no memory was missing");
            free(text);
            diag_free(&d);
        }
    ck_assert(arena_bytes(&g.arena) == bytes);
    free(right);
    gen_free(&g);
}
END_TEST

START_TEST(keys_fail)
{
    Gen g = {0};
    open_rule(&g, "lamb", NULL);
    char *source = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &g.diag),
         right[2][DIGEST_HEX], got[DIGEST_HEX];
    ck_assert(source && emit_key(source, right[0]) && emit_cuda_stage_hash(&g, 0, right[1]));
    for (int which = 0; which < 2; which++)
        for (int n = 1, done = 0; !done; n++) {
            fail_at(n, false);
            bool ok = which ? emit_cuda_stage_hash(&g, 0, got) : emit_key(source, got);
            done = asked < n;
            fail_at(0, false);
            ck_assert(ok ? !strcmp(got, right[which]) : !done);
        }
    free(source);
    gen_free(&g);
}
END_TEST

/* Any number of threads may emit from one rule. */
typedef struct { const Gen *g; const char *right; bool same; } Emitting;
static void *emit_often(void *arg)
{
    Emitting *e = arg;
    e->same = true;
    for (int i = 0; i < (thinned(1) ? 6 : 20); i++) {
        char *text = gen_emit(e->g, &(EmitOptions){.target = &target_cuda}, NULL);
        e->same = e->same && text && !strcmp(text, e->right);
        free(text);
    }
    return NULL;
}

START_TEST(side_by_side)
{
    Gen g = {0};
    open_rule(&g, "adafactor", NULL);
    char *right = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &g.diag);
    Emitting e[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        e[i] = (Emitting){&g, right, false};
        ck_assert_int_eq(pthread_create(&t[i], NULL, emit_often, &e[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        ck_assert(e[i].same);
    }
    free(right);
    gen_free(&g);
}
END_TEST

/* No value or array is named by a number, and the plan's text uses the same names. */
START_TEST(readable_names)
{
    Gen g = {0};
    open_rule(&g, rules[_i / 2].spec, rules[_i / 2].with);
    char *text = gen_emit(&g, &(EmitOptions){.target = targets[_i % 2]}, &g.diag);
    Buf plan = {0};
    plan_print(&plan, g.plan, false);
    ck_assert(text && plan.s);
    for (const char *s = strstr(text, "---- the stages"); *s; s++) {
        bool begins =
            !(s[-1] == '_' || (s[-1] >= 'a' && s[-1] <= 'z') || (s[-1] >= '0' && s[-1] <= '9'));
        if (begins &&
            ((s[0] == 'x' && s[1] >= '0' && s[1] <= '9') ||
             (!strncmp(s, "tmp", 3) && s[3] >= '0' && s[3] <= '9') || !strncmp(s, "mem[", 4)))
            ck_assert_msg(!strncmp(s, "mem[at_", 7), "%.60s", s);
    }
    for (int f = 0; f < g.plan->nfn; f++) {
        const Stage *s = plan_at(g.plan, f).stage;
        for (int i = 0; s && i < s->nload + s->nstore + s->nfold; i++) {
            const Access *a = i < s->nload               ? &s->load[i]
                              : i < s->nload + s->nstore ? &s->store[i - s->nload]
                                                         : &s->fold[i - s->nload - s->nstore];
            ck_assert_msg(strlen(a->name) <= LONGEST_NAME + 4 && strstr(plan.s, a->name), "%s",
                          a->name);
        }
    }
    buf_free(&plan);
    free(text);
    gen_free(&g);
}
END_TEST

/* Whether the CUDA of a rule in f32 contains a text. */
/* Whether the CUDA source has `part`, from the first place of `from` to the end of that
 * function. */
static bool cuda_has_from(const char *rule, const char *from, const char *part)
{
    Gen g = {0};
    Source spec;
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}, .find = find_wrapper};
    ck_assert_msg(find_spec(NULL, rule, &g.arena, &spec, &g.diag) && gen_compile(&g, spec, &o),
                  "%s", g.diag.text);
    char *text = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &g.diag);
    ck_assert(text != NULL);
    char *start = strstr(text, from), *end = *from && start ? strstr(start, "\n}\n") : NULL;
    if (end)
        *end = 0;
    bool has = start && strstr(start, part) != NULL;
    free(text);
    gen_free(&g);
    return has;
}

static bool cuda_has(const char *rule, const char *part) { return cuda_has_from(rule, "", part); }

/* A map loads complete vectors without conditions. In branches the compiler may make each load wait
 * for the one before (ScheduleFree reached 83 % of the copy rate). Folds that write nothing load
 * complete segments the same way; bands load several vectors before they use one. */
START_TEST(complete_vectors)
{
    ck_assert(cuda_has("schedulefree_sgd", "walk(optc_full());"));
    ck_assert(cuda_has("novograd", "if (aligned && start + OPTC_SEG <= self->n)"));
    ck_assert(cuda_has_from("sinkgd", "_band_matrix_3(",
                            "optc_get<1>(g_in[k], g + offset, left, wide);"));
}
END_TEST

/* 1 / sqrt(x) of elements is one function without branches (SM3: 82 % of copy with them, 88 %
 * without). */
START_TEST(reciprocal_roots)
{
    ck_assert(cuda_has("sm3", "g_i * optc_rsqrtf(nu + eps)") && !cuda_has("sm3", "1.0f / sqrtf("));
    ck_assert(!cuda_has("adamw", "optc_rsqrtf"));
}
END_TEST

/* A warp walks two rows of a band at once, unless the sums of a second row would take too many
 * registers. */
START_TEST(rows_of_bands)
{
    ck_assert(cuda_has("sinkgd", "constexpr int lines = optc_steps<decltype(wide)>(2),"));
    ck_assert(cuda_has("adamp", "constexpr int lines = optc_steps<decltype(wide)>(1),"));
}
END_TEST

/* A kernel with two powers (FTRL) calls a function for them; with one it is inlined. */
START_TEST(powers)
{
    ck_assert(cuda_has("ftrl", "optc_call_powf(") && !cuda_has("padam", "optc_call_pow"));
}
END_TEST

/* Code does not depend on the order in which the library's compiler evaluates arguments: gcc on
 * aarch64 and clang take the first one first. With other code the GPU code of a wheel is not
 * found. */
START_TEST(order_of_indices)
{
    Gen g = {0};
    Source spec;
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}, .find = find_wrapper};
    ck_assert_msg(find_spec(NULL, "shampoo", &g.arena, &spec, &g.diag) && gen_compile(&g, spec, &o),
                  "%s", g.diag.text);
    char *text = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &g.diag);
    ck_assert(text != NULL);
    const char *across = strstr(text, "int across_in["), *down = strstr(text, "int down_in[");
    ck_assert(across && down && across < down);
    free(text);
    gen_free(&g);
}
END_TEST

/* With 16-bit types, full vectors are rounded two values at a time, and all loads come before the
 * unpacking: unpacking between loads made each load wait for the one before. */
START_TEST(sixteen_bits)
{
    static const char *const needs[] =
        {"cvt.rn.bf16x2.f32", "optc_to_bf16_all(p_stored, p_out);", "walk(optc_full());"};
    Gen g = {0};
    Source spec;
    GenOptions o = {.types = {.p = T_BF16, .g = T_BF16, .state = T_BF16}, .find = find_wrapper};
    ck_assert_msg(find_spec(NULL, "adamw", &g.arena, &spec, &g.diag) && gen_compile(&g, spec, &o),
                  "%s", g.diag.text);
    char *text = gen_emit(&g, &(EmitOptions){.target = &target_cuda}, &g.diag);
    ck_assert(text != NULL);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        ck_assert_msg(strstr(text, needs[i]) != NULL, "%s is missing", needs[i]);
    free(text);
    gen_free(&g);
}
END_TEST

/* A file contains only functions that the rule calls: adamw's CUDA once had 594 lines before its
 * first stage. */
START_TEST(only_what_is_called)
{
    static const char *const foreign[] = {"optc_expf",      "optc_uniform", "optc_from_bf16",
                                          "optc_tree",      "OPTC_FOLDS",   "optc_fold_rows",
                                          "OPTC_TILE_ROWS", "optc_even",    "//@"};
    Gen g = {0};
    open_rule(&g, "adamw", NULL);
    char *text = gen_emit(&g, &(EmitOptions){.target = targets[_i]}, &g.diag);
    ck_assert(text != NULL);
    int lines = 0;
    for (const char *s = text, *end = strstr(text, "---- the stages"); s < end; s++)
        lines += *s == '\n';
    ck_assert_int_lt(lines, 260);              /* lines of at most 100 columns */
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        ck_assert_msg(!strstr(text, foreign[i]), "%s is of no use to adamw", foreign[i]);
    free(text);
    gen_free(&g);
}
END_TEST

/* Emitted files are for readers: at most 120 columns, states under their own names, one spelling of
 * exponents, no unused shared memory. */
START_TEST(readable)
{
    for (int i = 0; i < optc_library_size(); i++) {
        if (strchr(optc_library_name(i), '/') || (sanitized() && i % 8))
            continue;
        Gen g = {0};
        open_rule(&g, optc_library_name(i), NULL);
        char *text = gen_emit(&g, &(EmitOptions){.target = targets[_i]}, &g.diag);
        ck_assert(text != NULL);
        for (const char *s = text, *end; *s; s = *end ? end + 1 : end) {
            size_t columns = 0;
            end = s + strcspn(s, "\n");
            for (const char *c = s; c < end; c++)
                columns += ((unsigned char)*c & 0xc0) != 0x80;
            ck_assert_msg(columns <= 120, "%s: %.*s", optc_library_name(i), (int)(end - s), s);
        }
        free(text);
        gen_free(&g);
    }
}
END_TEST

START_TEST(names_and_numbers)
{
    static const char spec[] =
        "return optimizer { name = \"x\", state = { v = zeros }, step = function()\n"
        "local s = lerp(v, g, 1e-8)  v = s  p = p - 1e10 * s end }";
    Gen g = {0};
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert_msg(gen_compile(&g, (Source){"x.lua", spec, sizeof spec - 1}, &o), "%s", g.diag.text);
    char *text = gen_emit(&g, &(EmitOptions){.target = targets[_i]}, &g.diag);
    ck_assert(text && strstr(text, "v_new = v_i + 1e-8f * (") && strstr(text, " 1e10f * v_new"));
    free(text);
    gen_free(&g);
    open_rule(&g, "adamw", NULL);
    text = gen_emit(&g, &(EmitOptions){.target = targets[_i]}, &g.diag);
    ck_assert(text != NULL);
    /* this kernel, ahead of the stages, uses shared memory */
    const char *stages = strstr(text, "optc_agree(const");
    stages = stages ? strstr(stages, "extern \"C\"") : text;
    ck_assert(stages && !strstr(stages, "__shared__"));
    free(text);
    gen_free(&g);
}
END_TEST

/* Wrapping changes only white space; each part of a wrapped line after a #line directive cites the
 * same line. */
START_TEST(long_lines_break)
{
    static const char text[] =
        "#line 7 \"a.lua\"\n"
        "    const float aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb * "
        "ccccccccccccccccccc + "
        "dddddddddddddd * (eeeeeeeeeeeeeeeeeee - 1.0f);\n"
        "#line 0\n"
        "/* Words words words words words words words words words words words words words words "
        "words words words "
        "words words words words */\n"
        "#define WORDS wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww + "
        "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww + wwwwwwwwwwwwwwwwwwwwwwwww\n";
    static const char want[] =
        "#line 7 \"a.lua\"\n"
        "    const float aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa =\n"
        "#line 7 \"a.lua\"\n"
        "            bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb * ccccccccccccccccccc + dddddddddddddd * "
        "(eeeeeeeeeeeeeeeeeee - "
        "1.0f);\n"
        "#line 0\n"
        "/* Words words words words words words words words words words words words words words "
        "words words words "
        "words "
        "words\n"
        " * words words */\n"
        "#define WORDS wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww + "
        "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww + wwwwwwwwwwwwwwwwwwwwwwwww\n";
    jmp_buf end;
    Arena a = {.out = &end};
    ck_assert(!setjmp(end));
    Buf b = {.arena = &a};
    emit_wrap(&b, text);
    ck_assert_str_eq(buf_text(&b), want);
    arena_free(&a);
}
END_TEST

/* The longest program bounds the time of a first step: none has more than four stages, and each
 * stage has one. */
START_TEST(short_programs)
{
    Gen g = {0};
    open_rule(&g, "mousse", NULL);
    int of[200], stages[200] = {0}, most = 0, all = 0, present = 0;
    ck_assert(g.plan->nfn <= 200);
    int n = emit_divide(g.plan, of);
    for (int f = 0; f < g.plan->nfn; f++) {
        ck_assert(of[f] < n);
        all += of[f] >= 0;
        present += plan_at(g.plan, f).stage != NULL;
        most = of[f] >= 0 && ++stages[of[f]] > most ? stages[of[f]] : most;
    }
    ck_assert_msg(most == 4 && n < all && all == present,
                  "%d programs of up to %d stages, %d of %d", n, most, all, present);
    gen_free(&g);
}
END_TEST

Suite *emit_suite(void)
{
    Suite *s = suite_create("emit");
    TCase *t = tcase_create("emit");
    tcase_add_loop_test(t, leaves_nothing, 0, 6);
    tcase_add_loop_test(t, memory_ends, 0, 6);
    tcase_add_test(t, keys_fail);
    tcase_add_loop_test(t, readable_names, 0, 6);
    tcase_add_test(t, complete_vectors);
    tcase_add_test(t, order_of_indices);
    tcase_add_test(t, powers);
    tcase_add_test(t, reciprocal_roots);
    tcase_add_test(t, rows_of_bands);
    tcase_add_test(t, sixteen_bits);
    tcase_add_loop_test(t, only_what_is_called, 0, 2);
    tcase_add_test(t, side_by_side);
    tcase_add_loop_test(t, readable, 0, 2);
    tcase_add_loop_test(t, names_and_numbers, 0, 2);
    tcase_add_test(t, long_lines_break);
    tcase_add_test(t, short_programs);
    suite_add_tcase(s, t);
    return s;
}

/* Contract C1 on the CPU: the bits do not depend on the number of threads, the vector level, the
 * compiler, the alignment or the other tensors. Shapes cross the ends of segments, tiles and
 * lanes. */
#include "tests/harness/help.h"
#include "runtime/library/rule/spec_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const TestShape shapes[] = {{0, {0}},        {1, {129}},      {1, {70001}},
                                   {2, {300, 701}}, {2, {67, 4100}}, {3, {5, 130, 66}},
                                   {2, {5000, 3}}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };
/* for rules with products, whose blocking the suite calls tests */
static const TestShape fewer[NSHAPES] = {{0, {0}},       {1, {129}},     {1, {70001}},
                                         {2, {70, 131}}, {2, {67, 300}}, {3, {5, 33, 9}},
                                         {2, {300, 3}}};

static void grads(Fixture *f, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            ((float *)f->g[k])[i] = (float)ref_value(k, step, i);
}

static uint64_t hash_after(const optc_engine_options *eo, const char *spec, const char *with,
                           int steps, char *path, size_t npath)
{
    Fixture f;
    optc_rule_options ro = {.spec = spec, .with = with};
    fix_open(&f, eo, &ro, shapes, NSHAPES, NULL, 0);
    if (rule_has_calls(f.rule)) {
        fix_close(&f);
        fix_open(&f, eo, &ro, fewer, NSHAPES, NULL, 0);
    }
    if (path)
        snprintf(path, npath, "%s", optc_rule_path(f.rule));
    for (int s = 1; s <= steps; s++) {
        grads(&f, s);
        OK(optc_step(f.binding));
    }
    uint64_t h = fix_hash(&f);
    fix_close(&f);
    return h;
}

static const char *rule_name(int i, char buf[64])
{
    for (int k = 0; k < optc_library_size(); k++)
        if (!strchr(optc_library_name(k), '/') && i-- == 0) {
            snprintf(buf, 64, "%s", optc_library_name(k));
            return buf;
        }
    return NULL;
}

static int rule_count(void)
{
    char buf[64];
    int n = 0;
    while (rule_name(n, buf))
        n++;
    return n;
}

/* Rules that are not built in are compiled here: for the levels below this machine's only with
 * OPTC_ALL. */
START_TEST(threads_and_levels)
{
    if (thinned(_i))
        return;
    char name[64], path[256];
    rule_name(_i, name);
    if (!sampled_rule(name, 3))
        return;
    bool built = false;
    for (const BuiltinName *b = library_builtin; b->rule; b++)
        built = built || !strcmp(b->rule, name);
    const char *cache = built ? "" : getenv("OPTC_TEST_CACHE");
    optc_engine_options one = {.threads = 1, .cache_dir = cache};
    uint64_t want = hash_after(&one, name, NULL, 3, path, sizeof path);
    ck_assert_msg(!strncmp(path, "built in", 8) == built, "%s runs as: %s", name, path);
    /* the levels below run in two */
    optc_engine_options three = {.threads = 3, .cache_dir = cache};
    ck_assert_msg(hash_after(&three, name, NULL, 3, NULL, 0) == want,
                  "%s: 3 threads give other bits than 1", name);
    for (int isa = 0; isa < optc_isas() && (built || getenv("OPTC_ALL")); isa++) {
        optc_engine_options eo = {.threads = 2, .cache_dir = cache, .isa = optc_isa_name(isa)};
        if (optc_isa_usable(isa))
            ck_assert_msg(hash_after(&eo, name, NULL, 3, NULL, 0) == want,
                          "%s: %s gives other bits", name, optc_isa_name(isa));
    }
}
END_TEST

/* A built-in rule costs a second of build time; a user without a compiler looks for the names on
 * this page. */
START_TEST(built_in_names)
{
    char page[8192], word[80];
    FILE *f = fopen("runtime/CACHE.md", "r");
    ck_assert_ptr_nonnull(f);
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    int n = 0;
    for (const BuiltinName *b = library_builtin; b->rule; b++, n++) {
        snprintf(word, sizeof word, "`%s`", b->rule);
        ck_assert_msg(strstr(page, word), "runtime/CACHE.md does not name %s", word);
    }
    ck_assert_int_eq(n, 25);
}
END_TEST

/* Compiles the library's rules with each compiler that is available: the same bits as at build
 * time. */
START_TEST(compilers)
{
    static const char *const rules[] = {"adamw", "lamb", "adafactor", "came", "adopt", "radam"};
    static const char *const cc[] = {"gcc", "clang"};
    unsetenv("OPTC_CFLAGS");                   /* the level that users get */
    for (int i = 0; i < 6; i++) {
        optc_engine_options b = {.threads = 2, .cache_dir = ""};
        uint64_t want = hash_after(&b, rules[i], NULL, 3, NULL, 0);
        for (int k = 0; k < 2; k++) {
            char path[256];
            HostCompiler found;
            bool there = compiler_find(cc[k], &found);
            compiler_free(&found);
            if (!there)
                continue;
            optc_engine_options eo = {
                .threads = 2, .cache_dir = "", .compiler = cc[k], .no_builtin = 1};
            uint64_t got = hash_after(&eo, rules[i], NULL, 3, path, sizeof path);
            ck_assert_msg(!strncmp(path, "compiled", 8), "%s by %s runs as: %s", rules[i], cc[k],
                          path);
            ck_assert_msg(got == want, "%s: %s gives other bits", rules[i], cc[k]);
        }
    }
}
END_TEST

/* A program that flushes denormals does not change the results. */
START_TEST(float_mode)
{
#if defined(__x86_64__)
    optc_engine_options eo = {.threads = 2, .cache_dir = ""};
    uint64_t want = hash_after(&eo, "adam", NULL, 2, NULL, 0);
    Fixture f;
    fix_open(&f, &eo, &(optc_rule_options){.spec = "adam"}, shapes, NSHAPES, NULL, 0);
    unsigned was = __builtin_ia32_stmxcsr();
    for (int s = 1; s <= 2; s++) {
        grads(&f, s);
        __builtin_ia32_ldmxcsr(was | 0x8040);
        OK(optc_step(f.binding));
        ck_assert_uint_eq(__builtin_ia32_stmxcsr() & 0x8040, 0x8040);
        __builtin_ia32_ldmxcsr(was);
    }
    ck_assert(fix_hash(&f) == want);
    /* a rule whose result is denormal */
    ((float *)f.g[1])[5] = 0x1p-140f;
    ((float *)f.p[1])[5] = 0x1p-140f;
    __builtin_ia32_ldmxcsr(was | 0x8040);
    OK(optc_step(f.binding));
    __builtin_ia32_ldmxcsr(was);
    ck_assert(((float *)f.p[1])[5] != 0);
    fix_close(&f);
#endif
}
END_TEST

/* A tensor's bits do not depend on its address or on other tensors (unless a rule reduces over
 * all). */
START_TEST(alignment_and_company)
{
    static const char *const rules[] = {"adamw", "lamb", "adafactor"};
    for (int i = 0; i < 3; i++) {
        optc_engine *e;
        optc_rule *r;
        OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = ""}, &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = rules[i]}, &r));
        int64_t dim[2] = {77, 131}, n = 77 * 131, other[1] = {50000};
        float *want = NULL;
        for (int off = 0; off < 6; off++) {
            float *p = aligned_alloc(64, 4 * 11072), *g = aligned_alloc(64, 4 * 11072),
                  *q = calloc(50000, 4), *h = calloc(50000, 4);
            for (int64_t k = 0; k < n; k++)
                p[off + k] = (float)ref_value(1, 0, k),
                        g[(off * 3) % 7 + k] = (float)ref_value(1, 1, k);
            optc_tensor t[2] = {
                {.param = p + off, .grad = g + (off * 3) % 7, .rank = 2, .shape = dim},
                {.param = q, .grad = h, .rank = 1, .shape = other}};
            optc_binding *b;
            OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = off % 2 ? 2 : 1}, 1, &b));
            for (int s = 0; s < 3; s++)
                OK(optc_step(b));
            OK(optc_unbind(b));
            if (!want) {
                want = malloc((size_t)n * 4);
                memcpy(want, p + off, (size_t)n * 4);
            }
            ck_assert_msg(!memcmp(want, p + off, (size_t)n * 4), "%s: offset %d gives other bits",
                          rules[i], off);
            free(p), free(g), free(q), free(h);
        }
        free(want);
        OK(optc_release(r));
        OK(optc_close(e));
    }
}
END_TEST

/* Storage types other than f32: stored values lie in the evaluator's bounds, rounded to the
 * type. */
START_TEST(storage_types)
{
    static const struct { optc_type p, g, state;
    } ty[] = {{OPTC_BF16, OPTC_BF16, OPTC_BF16}, {OPTC_F16, OPTC_F32, OPTC_F32},
              {OPTC_F32, OPTC_BF16, OPTC_F16},   {OPTC_F64, OPTC_F32, OPTC_F32},
              {OPTC_F64, OPTC_F64, OPTC_F64},    {OPTC_F32, OPTC_E5M2, OPTC_E4M3},
              {OPTC_E5M2, OPTC_E4M3, OPTC_E5M2}};
    static const char *const rules[] = {"adamw", "lamb", "adafactor"};
    optc_engine_options eo = {.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")};
    for (int i = 0; i < 3; i++) {
        Fixture f;
        fix_open(&f, &eo,
                 &(optc_rule_options){
                     .spec = rules[i], .param = ty[_i].p, .grad = ty[_i].g, .state = ty[_i].state},
                 odd_shapes, NODD, NULL, 0);
        ck_assert_msg(optc_rule_native(f.rule), "%s", optc_rule_path(f.rule));
        for (int step = 1; step <= 3; step++) {
            for (int k = 0; k < f.n; k++)
                for (int64_t x = 0; x < f.count[k]; x++)
                    type_store(f.rule->library->plan->g, f.g[k], x, ref_value(k, step, x));
            char *m = step_in_bounds(&f, "step");
            ck_assert_msg(!m, "%s, types %d, step %d: %s", rules[i], _i, step, m);
        }
        fix_close(&f);
    }
}
END_TEST

Suite *bits_suite(void)
{
    Suite *s = suite_create("bits");
    TCase *t = tcase_create("same bits");
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, threads_and_levels, 0, rule_count());
    tcase_add_test(t, float_mode);
    tcase_add_test(t, alignment_and_company);
    suite_add_tcase(s, t);
    /* these compile rules themselves: a library whose rules were built by another compiler runs
     * only the case above */
    TCase *c = tcase_create("compiled now");
    tcase_set_timeout(c, 240);
    tcase_add_loop_test(c, storage_types, 0, 7);
    tcase_add_test(c, compilers);
    tcase_add_test(c, built_in_names);
    suite_add_tcase(s, c);
    return s;
}

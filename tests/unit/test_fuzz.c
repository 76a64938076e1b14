/* Random specs: stored values lie in the evaluator's bounds, and printing and reading the IR loses
 * nothing. A run generates OPTC_FUZZ_SPECS specs of several entries each (or as many as
 * OPTC_FUZZ_SECONDS allow). OPTC_FUZZ_SEED repeats one; OPTC_FUZZ_WRITE=FOLDER only writes them
 * there. */
#include "tests/harness/help.h"
#include "tests/harness/random_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const TestShape shapes[] = {{0, {0}},        {1, {9}},    {2, {3, 130}},
                                   {3, {2, 66, 5}}, {1, {4300}}, {2, {70, 3}}};

static void ir_round_trip(const Gen *g, const char *text)
{
    Buf a = {0}, b = {0};
    Arena arena = {0};
    Diag d = {0};
    rule_print(&a, g->rule);
    Rule *r = rule_parse(&arena, (Source){"fuzz.ir", a.s, a.len}, &d);
    ck_assert_msg(r != NULL, "%s\n%s\n%s", d.text ? d.text : "", a.s, text);
    rule_print(&b, r);
    ck_assert_msg(!strcmp(a.s, b.s), "the IR changes when it is read back:\n%s\n%s", a.s, b.s);
    buf_free(&a);
    buf_free(&b);
    diag_free(&d);
    arena_free(&arena);
}

static int write_spec(uint64_t seed, const char *folder, char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/random%llu.lua", folder, (unsigned long long)seed);
    FILE *f = fopen(path, "w");
    ck_assert_msg(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
    free(text);
    return RANDOM_ENTRIES;
}

static int one_spec(uint64_t seed)
{
    char *text = random_spec(seed, true);
    if (getenv("OPTC_FUZZ_WRITE"))
        return write_spec(seed, getenv("OPTC_FUZZ_WRITE"), text);
    const char *with = random_wrapper(seed);
    Fixture f;
    optc_engine_options eo = {.threads = 2, .cache_dir = "", .compiler = ""};
    optc_rule_options ro = {.spec = "fuzz.lua",
                            .text = text,
                            .with = with,
                            .param = splitmix(seed ^ 5) % 4 ? OPTC_F32 : OPTC_F64};
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&eo, &e));
    optc_status st = optc_compile(e, &ro, &r);
    ck_assert_msg(st == OPTC_OK, "seed %llu: %s\n%s", (unsigned long long)seed, optc_message(),
                  text);
    ir_round_trip(&r->library->gen, text);
    OK(optc_release(r));
    OK(optc_close(e));
    eo.compiler = NULL;
    fix_open(&f, &eo, &ro, shapes, 6, NULL, 0);
    ck_assert_msg(optc_rule_native(f.rule), "seed %llu: %s\n%s", (unsigned long long)seed,
                  optc_rule_path(f.rule), text);
    double *h = malloc(8 * 5000);
    for (int k = 0; k < 6; k++) {
        for (int64_t i = 0; i < 5000; i++)
            type_store(f.type, h, i, ref_value(7, 7, i));
        OK(optc_set_input(f.binding, k, "h", h, 0));
    }
    int cases = 0;
    for (int round = 1; round <= 3; round++)
        for (int en = 0; en < optc_rule_entries(f.rule); en++) {
            for (int k = 0; k < f.n; k++)
                for (int64_t i = 0; i < f.count[k]; i++)
                    type_store(f.type, f.g[k], i, ref_value(k, round * 16 + en, i));
            char *m = step_in_bounds(&f, optc_rule_entry(f.rule, en));
            ck_assert_msg(!m, "seed %llu, with '%s', round %d, entry %s: %s\n%s",
                          (unsigned long long)seed, with, round, optc_rule_entry(f.rule, en), m,
                          text);
            cases++;
        }
    fix_close(&f);
    free(h);
    free(text);
    return cases / 3;
}

START_TEST(random_specs)
{
    setenv("OPTC_CFLAGS", "-O1", 0);      /* hundreds of compilations: the bits do not depend on the
                                           * level */
    const char *specs = getenv("OPTC_FUZZ_SPECS"), *seconds = getenv("OPTC_FUZZ_SECONDS"),
        *seed = getenv("OPTC_FUZZ_SEED");
    uint64_t s0 = seed && *seed ? strtoull(seed, NULL, 10) : 1;
    long n = specs ? atol(specs) : 24;
    time_t end = seconds && *seconds ? time(NULL) + atol(seconds) : 0;
    int cases = 0;
    for (long i = 0; end ? time(NULL) < end : i < n; i++) {
        cases += one_spec(s0 + (uint64_t)i);
        if (end && i % 50 == 49)
            fprintf(stderr, "fuzz: %d rules of %ld specs, next seed %llu\n", cases, i + 1,
                    (unsigned long long)(s0 + (uint64_t)i + 1));
    }
    ck_assert_int_ge(cases, end ? 1 : (int)n * RANDOM_ENTRIES);
}
END_TEST

Suite *fuzz_suite(void)
{
    Suite *s = suite_create("fuzz");
    TCase *t = tcase_create("random specs");
    tcase_set_timeout(t, getenv("OPTC_FUZZ_SECONDS") ? 0 : 600);
    tcase_add_test(t, random_specs);
    suite_add_tcase(s, t);
    return s;
}

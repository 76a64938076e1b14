/* Random specs with random launches: the same bits on CPU and GPU. Runs OPTC_FUZZ_SPECS specs (or
 * as many as OPTC_FUZZ_SECONDS allow), starting at OPTC_FUZZ_SEED; by default one. NVRTC compiles
 * it three times, which takes a minute or more. */
#include "tests/gpu/device_side.h"

#include "tests/harness/random_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 3 };

/* Sets the spec's input to the same numbers for all tensors. Returns the GPU's copy, which the
 * caller frees; 0 on the CPU. */
static CUdeviceptr set_input(Side *s, const void *h, size_t bytes)
{
    CUdeviceptr at = 0;
    if (s->p[0])
        ck_assert(!d->cuMemAlloc_v2(&at, bytes) && !d->cuMemcpyHtoDAsync_v2(at, h, bytes, NULL) &&
                  !d->cuStreamSynchronize(NULL));
    for (int k = 0; k < NSHAPES; k++)
        OK(optc_set_input(s->b, k, "h", at ? (void *)(uintptr_t)at : (void *)(uintptr_t)h, 0));
    return at;
}

static int one_spec(uint64_t seed)
{
    static const char *const masters[] = {NULL, "master=low16", "master=low8", "master=kahan",
                                          "master=f32,edits=find"};
    static const struct { optc_type param, grad;
    } types[] = {{OPTC_F32, OPTC_DEFAULT},  {OPTC_F64, OPTC_DEFAULT}, {OPTC_F32, OPTC_DEFAULT},
                 {OPTC_BF16, OPTC_DEFAULT}, {OPTC_F16, OPTC_DEFAULT}, {OPTC_F32, OPTC_BF16}};
    Side c, g;
    char *text = random_spec(seed, false), label[160];
    uint64_t dice = splitmix(seed ^ 11);
    int off = (int)(seed % 4), entries;
    int64_t most = 1;
    optc_rule_options rule = {.spec = "fuzz.lua", .text = text, .with = random_wrapper(seed),
                              .param = types[seed % 6].param, .grad = types[seed % 6].grad,
                              .types = seed % 6 == 3 ? masters[seed / 6 % 5] : NULL};
    open_side(&c, "cpu", rule, 0);
    open_side(&g, "cuda", rule, off);
    for (int k = 0; k < NSHAPES; k++)
        most = c.n[k] > most ? c.n[k] : most;
    void *h = malloc((size_t)most * 8);
    for (int64_t i = 0; i < most; i++)
        type_store(c.tp, h, i, ref_value(7, 7, i));
    set_input(&c, h, (size_t)most * 8);
    CUdeviceptr at = set_input(&g, h, (size_t)most * 8);
    entries = optc_rule_entries(c.r);
    for (int round = 1; round <= (thinned(1) ? 2 : ROUNDS); round++) {
        if (round > 1)                             /* the first round uses the model's launches */
            use_random_launches(&g, &dice, round % 2);
        set_grads(&c, round);
        set_grads(&g, round);
        for (int e = 0; e < entries; e++) {
            OK(optc_run(c.b, optc_rule_entry(c.r, e)));
            OK(optc_run(g.b, optc_rule_entry(c.r, e)));
            snprintf(label, sizeof label,
                     "seed %llu, with '%s', %s parameters, %s gradients, round %d, entry %s",
                     (unsigned long long)seed, rule.with, type_info[c.tp].name,
                     type_info[c.tg].name, round, optc_rule_entry(c.r, e));
            compare(label, &c, &g);
        }
    }
    close_side(&g, off);
    close_side(&c, 0);
    d->cuMemFree_v2(at);
    free(h);
    free(text);
    return entries;
}

START_TEST(random_specs)
{
    /* each CPU rule is compiled for few steps; the bits do not depend on the level */
    setenv("OPTC_CFLAGS", "-O1", 0);
    const char *specs = getenv("OPTC_FUZZ_SPECS"), *seconds = getenv("OPTC_FUZZ_SECONDS"),
        *seed = getenv("OPTC_FUZZ_SEED");
    uint64_t s0 = seed && *seed ? strtoull(seed, NULL, 10) : 1;
    long n = specs ? atol(specs) : 1, i = 0;
    time_t end = seconds && *seconds ? time(NULL) + atol(seconds) : 0;
    int rules = 0;
    for (; end ? time(NULL) < end : i < n; i++)
        rules += one_spec(s0 + (uint64_t)i);
    printf("random: %d rules of %ld specs\n", rules, i);
    ck_assert_int_ge(rules, (int)i * RANDOM_ENTRIES);
}
END_TEST

/* States that start as draws, and rings of past values: initial bits, and those of each step over
 * two rounds of the ring, also with random launches. */
START_TEST(kept_values)
{
    static const struct { const char *text, *types; optc_type param;
    } specs[] = {
        {"return optimizer { name = 'x',\n"
         "state = { q = normal(), u = normal 'tensor', s = ring(3), w = ring(2, 'tensor') },\n"
         "step = function() q = 0.5 * q + u * s[2] + 0.1 * s.count s:push(g) w:push(sum(s[1]))\n"
         "p = p - 0.1 * q + s[3] - 1e-3 * w[2] end }",
         NULL, OPTC_F32},
        {"return optimizer { name = 'x', state = { q = normal 'row', s = ring(3), w = ring(4, "
         "'row') },\n"
         "step = function() s:push(2 * g + q) w:push(rowmax(abs(g))) p = p - s[3] * w[4] end }",
         NULL, OPTC_F64},
        {"return optimizer { name = 'x', state = { q = normal(), s = ring(3) },\n"
         "step = function() s:push(g * q) p = p - s[3] + s[2] end }",
         "s=bf16sr", OPTC_BF16}};
    Side c, g;
    char label[80];
    uint64_t dice = 5;
    optc_rule_options rule = {.spec = "kept.lua", .text = specs[_i].text, .param = specs[_i].param,
                              .types = specs[_i].types};
    open_side(&c, "cpu", rule, 0);
    open_side(&g, "cuda", rule, _i);
    for (int round = 0; round <= 7; round++) {
        if (round == 3)
            use_random_launches(&g, &dice, true);
        set_grads(&c, round);
        set_grads(&g, round);
        if (round) {                               /* 0: the initial values */
            OK(optc_step(c.b));
            OK(optc_step(g.b));
        }
        snprintf(label, sizeof label, "spec %d, step %d", _i, round);
        compare(label, &c, &g);
    }
    close_side(&g, _i);
    close_side(&c, 0);
}
END_TEST

void add_random(TCase *t)
{
    tcase_set_timeout(t, getenv("OPTC_FUZZ_SECONDS") ? 0 : 600);
    tcase_add_test(t, random_specs);
    tcase_add_loop_test(t, kept_values, 0, 3);
}

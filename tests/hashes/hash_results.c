/* Prints a hash of the results of every rule of the library, for each storage type and wrapper. Two
 * builds whose outputs are equal compute the same bits. It needs optc.h only, so it compiles
 * against older versions too.
 *
 *   hash-results [--schedules] [--device cpu|cuda] [--isa NAME] [PREFIX…]
 *
 * PREFIX: only rules whose names start with it. --schedules: other cases, those of
 * hash_schedules.c. One line per case: rule+wrapper parameter/state shapes device hash. The device
 * is "any" for rules without matrix
 * products: their hashes are the same on every device. Rules with products depend on the device and
 * its libraries. A composition that the compiler refuses has the hash "refused". */
#include "tests/hashes/hash_schedules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

typedef struct { int rank; int64_t dim[4]; const char *tags; } Shape;
static const Shape shapes[] = {
    {0, {0}, NULL},      {1, {129}, NULL},      {2, {1, 70}, NULL},
    {2, {37, 65}, NULL}, {2, {33, 33}, "head"}, {4, {6, 5, 3, 3}, NULL},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };
static const char shape_set[] = "scalar,129,1x70,37x65,33x33,6x5x3x3";

typedef struct { const char *name; optc_type param, state; } Types;
static const Types all_types[] = {
    {"f32/f32", OPTC_F32, OPTC_F32},   {"f64/f64", OPTC_F64, OPTC_F64},
    {"bf16/f32", OPTC_BF16, OPTC_F32}, {"bf16/bf16", OPTC_BF16, OPTC_BF16},
    {"f16/f32", OPTC_F16, OPTC_F32},   {"f16/f16", OPTC_F16, OPTC_F16},
};
static const char *const wrappers[] = {
    "cautious",         "centralize", "clip(1)",     "clip_norm(1)",
    "clip_value(0.5)",  "ema(0.9)",   "fira(3,2,1)", "galore(3,2,0.25)",
    "lookahead(2,0.5)", "sam(0.05)",  "skip",
};
static const char *const wrapped[] = {"adamw", "adafactor", "muon"};

static int failures;

/* ---- one case ---- */
typedef struct {
    optc_binding *binding;
    optc_rule *rule;
    const Types *types;
    int64_t count[NSHAPES];
    void *p[NSHAPES], *g[NSHAPES];
    unsigned char *host;
} Case;

static void fill(Case *c, void *at, int k, uint64_t seed)
{
    for (int64_t i = 0; i < c->count[k]; i++)
        store_value(c->host, i, c->types->param, seed + (uint64_t)k);
    memory_put(at, c->host, (size_t)c->count[k] * width(c->types->param));
}

static optc_status bind_all(Case *c, unsigned flags_of_kernels)
{
    optc_tensor t[NSHAPES] = {{0}};
    for (int k = 0; k < NSHAPES; k++) {
        const Shape *s = &shapes[k];
        t[k] = (optc_tensor){
            .param = c->p[k], .grad = c->g[k], .rank = s->rank, .shape = s->dim, .tags = s->tags};
        t[k].flags = s->rank > 2 ? flags_of_kernels : 0;
    }
    optc_group g = {.tensors = t, .ntensors = NSHAPES};
    return optc_bind(c->rule, &g, 1, &c->binding);
}

static uint64_t hash_case(Case *c, uint64_t h)
{
    for (int k = 0; k < NSHAPES; k++) {
        size_t bytes = (size_t)c->count[k] * width(c->types->param);
        memory_get(c->host, c->p[k], bytes);
        h = hash_bytes(h, c->host, bytes, c->types->param);
    }
    for (int i = 0; i < optc_rule_states(c->rule); i++) {
        optc_state_info s;
        must(optc_rule_state(c->rule, i, &s), "state");
        int n = strcmp(s.domain, "group") ? NSHAPES : 1;
        for (int k = 0; k < n; k++)
            h = hash_state(c->binding, h, k, &s);
    }
    return h;
}

/* Four steps, each after `perturb` where the rule has it; then every other entry once. */
static uint64_t run_case(Case *c)
{
    for (int step = 1; step <= STEPS; step++) {
        for (int k = 0; k < NSHAPES; k++)
            fill(c, c->g[k], k, 100 * (uint64_t)step);
        for (int i = 0; i < optc_rule_entries(c->rule); i++)
            if (!strcmp(optc_rule_entry(c->rule, i), "perturb"))
                must(optc_run(c->binding, "perturb"), "perturb");
        must(optc_step(c->binding), optc_rule_name(c->rule));
    }
    must(optc_sync(c->binding), "sync");
    uint64_t h = hash_case(c, 1);
    for (int i = 0; i < optc_rule_entries(c->rule); i++) {
        const char *entry = optc_rule_entry(c->rule, i);
        if (!strcmp(entry, "perturb") || !strcmp(entry, "step"))
            continue;
        must(optc_run(c->binding, entry), entry);
        must(optc_sync(c->binding), "sync");
        h = hash_case(c, h);
    }
    return h;
}

static void bind_case(Case *c)
{
    int64_t most = 1;
    for (int k = 0; k < NSHAPES; k++) {
        c->count[k] = 1;
        for (int d = 0; d < shapes[k].rank; d++)
            c->count[k] *= shapes[k].dim[d];
        most = c->count[k] > most ? c->count[k] : most;
    }
    size_t bytes = (size_t)most * 8;
    if (!(c->host = malloc(bytes)))
        die("memory", "none left");
    for (int k = 0; k < NSHAPES; k++) {
        c->p[k] = memory_alloc(bytes);
        c->g[k] = memory_alloc(bytes);
        fill(c, c->p[k], k, 7);
    }
    /* some rules refuse matrices of rank 4 */
    if (bind_all(c, 0) != OPTC_OK)
        must(bind_all(c, OPTC_USE_STEP), optc_rule_name(c->rule));
}

static void print_case(optc_engine *e, const char *rule, const char *with, const Types *types)
{
    Case c = {.types = types};
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", rule, with ? "+" : "", with ? with : "");
    optc_rule_options o = {
        .spec = rule, .with = with, .param = types->param, .state = types->state};
    optc_status s = optc_compile(e, &o, &c.rule);
    if (s == OPTC_ERROR_SPEC) {
        printf("%s %s %s any refused\n", name, types->name, shape_set);
        return;
    }
    must(s, name);
    if (!optc_rule_native(c.rule)) {
        fprintf(stderr, "hash-results: %s %s: %s\n", name, types->name, optc_rule_path(c.rule));
        failures++;
    }
    bind_case(&c);
    optc_held held;
    must(optc_binding_held(c.binding, &held), name);
    const char *device = !held.batches ? "any" : gpu ? "cuda" : "cpu";
    printf("%s %s %s %s %016llx\n", name, types->name, shape_set, device,
           (unsigned long long)run_case(&c));
    fflush(stdout);
    must(optc_unbind(c.binding), name);
    must(optc_release(c.rule), name);
    for (int k = 0; k < NSHAPES; k++) {
        memory_free(c.p[k]);
        memory_free(c.g[k]);
    }
    free(c.host);
}

static bool chosen(const char *rule, int n, char **prefix)
{
    for (int i = 0; i < n; i++)
        if (!strncmp(rule, prefix[i], strlen(prefix[i])))
            return true;
    return n == 0;
}

int main(int argc, char **argv)
{
    optc_engine_options o = {.threads = 1, .device = "cpu", .untuned = 1};
    int first = 1;
    const bool schedules = argc > 1 && !strcmp(argv[1], "--schedules");
    for (first += schedules; first + 1 < argc && !strncmp(argv[first], "--", 2); first += 2) {
        if (!strcmp(argv[first], "--device"))
            o.device = argv[first + 1];
        else if (!strcmp(argv[first], "--isa"))
            o.isa = argv[first + 1];
        else
            die(argv[first], "not an option; --device and --isa are");
    }
    if (!strncmp(o.device, "cuda", 4))
        use_gpu();
    /* products by optc's own loops: every machine has those */
    setenv("OPTC_BLAS", "none", 0);
    optc_engine *e;
    must(optc_open(&o, &e), "open");
    for (int i = 0; i < optc_library_size(); i++) {
        const char *rule = optc_library_name(i);
        if (strchr(rule, '/') || !chosen(rule, argc - first, argv + first))
            continue;
        if (schedules)
            print_schedules(e, &o, rule);
        for (size_t k = 0; k < sizeof all_types / sizeof *all_types && !schedules; k++)
            print_case(e, rule, NULL, &all_types[k]);
    }
    for (size_t r = 0; !schedules && r < sizeof wrapped / sizeof *wrapped; r++)
        if (chosen(wrapped[r], argc - first, argv + first))
            for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++)
                /* f32, f64 and bf16 with states in f32 */
                for (size_t k = 0; k < 3; k++)
                    print_case(e, wrapped[r], wrappers[w], &all_types[k]);
    must(optc_close(e), "close");
    return failures != 0;
}

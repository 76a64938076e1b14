/* Scenarios that use optc.h: open an engine, compile a rule, bind and step tensors, read states,
 * free everything. */
#include "tests/faults/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 12, COLS = 9, COUNT = ROWS * COLS };

static void fill(float *p, float *g)
{
    for (int i = 0; i < COUNT; i++) {
        p[i] = 0.01f * (float)(i % 17 - 8);
        g[i] = 0.003f * (float)(i % 23 - 11);
    }
}

/* Parameters and gradients in memory of the device. */
static optc_status put_tensors(optc_engine *e, float **p, float **g)
{
    static float here[2][COUNT];
    fill(here[0], here[1]);
    optc_status s = optc_alloc(e, sizeof here[0], NULL, (void **)p);
    if (s == OPTC_OK)
        s = optc_alloc(e, sizeof here[1], NULL, (void **)g);
    if (s == OPTC_OK)
        s = optc_fill(e, *p, COUNT, OPTC_F32, 0.5, 0, NULL);
    if (s == OPTC_OK)
        s = optc_fill(e, *g, 36, OPTC_F32, 1, 6, NULL);
    if (s == OPTC_OK)
        s = optc_copy(e, *p, here[0], sizeof here[0], NULL);
    return s == OPTC_OK ? optc_copy(e, *g, here[1], sizeof here[1], NULL) : s;
}

static optc_status read_states(optc_rule *r, optc_binding *b, Outcome *out)
{
    optc_status s = OPTC_OK;
    for (int k = 0; s == OPTC_OK && k < 2 * optc_rule_states(r); k++) {
        optc_state_info info;
        optc_state_view v;
        double x[COUNT];
        s = optc_rule_state(r, k / 2, &info);
        if (s == OPTC_OK && optc_state(b, k % 2, info.name, &v) != OPTC_OK)
            continue;                          /* this rule has no such state with these options */
        if (s == OPTC_OK)
            s = optc_state_read(b, k % 2, info.name, x, v.count);
        if (s == OPTC_OK)
            out->result = mix(out->result, x, sizeof *x * (size_t)v.count);
        if (s == OPTC_OK)
            s = optc_state_write(b, k % 2, info.name, x, v.count);
    }
    return s;
}

/* Saves to a file, whose bytes are part of the result, and loads it. Only one file is left. */
static optc_status save_and_load(optc_binding *b, Outcome *out)
{
    char path[4096];
    fresh_folder("saved");
    snprintf(path, sizeof path, "%s/run.safetensors", below("saved"));
    const optc_checkpoint c = {.path = path};
    optc_status s = optc_save(&b, 1, &c);
    if (s == OPTC_OK)
        s = optc_load(&b, 1, &c);
    inject_rest(true);
    struct dirent *f;
    DIR *d = opendir(below("saved"));
    while (d && (f = readdir(d)))
        out->left = out->left || strstr(f->d_name, ".tmp");
    if (d)
        closedir(d);
    if (s == OPTC_OK)
        out->result = mix_files(out->result, path);
    inject_rest(false);
    return s;
}

/* A sharded binding of one rank. The loopback lives as long as the binding. */
static optc_status bind_one_rank(optc_engine *e, optc_rule *r, const optc_group *all,
                                 optc_loopback **l, optc_binding **b)
{
    optc_comm comm;
    optc_status s = optc_loopback_open(1, e, l);
    if (s == OPTC_OK)
        s = optc_loopback_comm(*l, 0, &comm);
    return s == OPTC_OK ? optc_bind_sharded(r, all, 1, &comm, b) : s;
}

/* A function of the emulated driver that a caller uses itself. false: it failed. */
static bool calls(const char *name, void *a, void *b, void *c)
{
    int (*f)(void *, void *, void *);
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(&f, &found, sizeof f);
    return f && !f(a, b, c);
}

/* Captures a step and runs the graph twice. If optc_step fails, the capture is ended. */
static optc_status capture(optc_binding *b)
{
    void *stream = NULL, *graph = NULL, *exec = NULL;
    bool ok = calls("cuStreamCreate", &stream, (void *)1, NULL);
    optc_status s = ok ? optc_set_stream(b, stream) : OPTC_OK;
    if (ok && s == OPTC_OK && (ok = calls("cuStreamBeginCapture_v2", stream, (void *)1, NULL))) {
        s = optc_step(b);
        ok = calls("cuStreamEndCapture", stream, &graph, NULL);
    }
    if (ok && s == OPTC_OK)
        ok = calls("cuGraphInstantiateWithFlags", &exec, graph, NULL) &&
             calls("cuGraphLaunch", exec, stream, NULL) &&
             calls("cuGraphLaunch", exec, stream, NULL);
    ok = (!stream || calls("cuStreamSynchronize", stream, NULL, NULL)) && ok;
    if (exec)
        ok = calls("cuGraphExecDestroy", exec, NULL, NULL) && ok;
    if (graph)
        ok = calls("cuGraphDestroy", graph, NULL, NULL) && ok;
    optc_status back = optc_set_stream(b, NULL);
    if (stream)
        ok = calls("cuStreamDestroy_v2", stream, NULL, NULL) && ok;
    s = s == OPTC_OK ? back : s;
    return s == OPTC_OK && !ok ? OPTC_ERROR_DEVICE : s;
}

/* Two tensors. One is excluded from a step and is one step behind from then on. */
static optc_status step(const Scene *scene, optc_engine *e, optc_rule *r, float *p, float *g,
                        Outcome *out)
{
    static float back[COUNT];
    optc_binding *b = NULL;
    int64_t shape[2] = {scene->wide ? 2 : ROWS / 2, scene->wide ? 27 : COLS}, t = 0;
    float *half = g + COUNT / 2, *guard = NULL;
    optc_tensor w[2] = {
        {.name = "w", .param = p, .grad = g, .rank = 2, .shape = shape},
        {.name = "u", .param = p + COUNT / 2, .grad = half, .rank = 2, .shape = shape}};
    optc_group all = {.tensors = w, .ntensors = 2};
    optc_loopback *l = NULL;
    optc_status s =
        scene->sharded ? bind_one_rank(e, r, &all, &l, &b) : optc_bind(r, &all, 1, &b);
    if (s == OPTC_OK && scene->guarded)
        s = optc_alloc(e, sizeof *guard, NULL, (void **)&guard);
    if (guard)
        s = optc_set_guard(b, guard, OPTC_F32);
    for (int i = 0; i < 3 && s == OPTC_OK; i++) {
        s = optc_set_hyper(b, -1, "lr", 0.01 * (i + 1));
        if (s == OPTC_OK && guard)
            s = optc_fill(e, guard, 1, OPTC_F32, i == 2, 0, NULL);
        if (s == OPTC_OK)
            s = optc_set_grad(b, 0, g, COUNT / 2);
        if (s == OPTC_OK)
            s = optc_set_grad(b, 1, i == 1 ? NULL : half, 0);
        if (s == OPTC_OK)
            s = optc_step(b);
    }
    if (s == OPTC_OK && guard)
        s = optc_fill(e, guard, 1, OPTC_F32, 0, 0, NULL);
    if (s == OPTC_OK && scene->captured)
        s = capture(b);
    if (s == OPTC_OK)
        s = optc_sync(b);
    if (s == OPTC_OK)
        s = optc_get_t(b, 1, &t);
    if (s == OPTC_OK)
        s = optc_copy(e, back, p, sizeof back, NULL);
    out->result = mix(mix(7, &t, sizeof t), back, sizeof back);
    if (s == OPTC_OK)
        s = read_states(r, b, out);
    if (s == OPTC_OK && scene->saves)
        s = save_and_load(b, out);
    /* a call of the caller itself has no message of optc */
    const char *why = s == OPTC_OK || *optc_message() ? optc_message() : "the caller's call failed";
    snprintf(out->message, sizeof out->message, "%s", s == OPTC_OK ? "" : why);
    (void)optc_unbind(b);
    optc_loopback_close(l);
    return guard && optc_free(e, guard, NULL) != OPTC_OK && s == OPTC_OK ? OPTC_ERROR_ARGUMENT : s;
}

/* The tensors are two connected bindings. They are a joint graph from the third step on. One has no
 * gradient for a step. */
static optc_status step_connected(optc_engine *e, optc_rule *r, float *p, float *g, Outcome *out)
{
    static float back[COUNT];
    optc_binding *b[2] = {NULL, NULL};
    int64_t shape[2] = {ROWS / 2, COLS};
    optc_status s = OPTC_OK;
    for (int i = 0; i < 2 && s == OPTC_OK; i++) {
        optc_tensor w = {
            .param = p + i * COUNT / 2, .grad = g + i * COUNT / 2, .rank = 2, .shape = shape};
        s = optc_bind(r, &(optc_group){.tensors = &w, .ntensors = 1}, 1, &b[i]);
    }
    if (s == OPTC_OK)
        s = optc_connect(b, 2);
    for (int i = 0; i < 7 && s == OPTC_OK; i++) {
        s = optc_set_grad(b[1], 0, i == 4 ? NULL : g + COUNT / 2, 0);
        if (s == OPTC_OK)
            s = optc_run_all(b, 2, "step");
    }
    if (s == OPTC_OK)
        s = optc_sync(b[0]);
    if (s == OPTC_OK)
        s = optc_copy(e, back, p, sizeof back, NULL);
    out->result = mix(7, back, sizeof back);
    snprintf(out->message, sizeof out->message, "%s", s == OPTC_OK ? "" : optc_message());
    (void)optc_unbind(b[1]);
    (void)optc_unbind(b[0]);
    return s;
}

static void whole(const Scene *s, const optc_engine_options *eo, Outcome *out)
{
    optc_engine *e = NULL;
    optc_rule *r = NULL;
    float *p = NULL, *g = NULL;
    *out = (Outcome){.status = optc_open(eo, &e)};
    if (out->status == OPTC_OK)
        out->status = optc_compile(e, &(optc_rule_options){.spec = s->spec, .with = s->with,
                                                           .bindings = s->connected ? 2 : 0}, &r);
    if (out->status == OPTC_OK)
        out->status = put_tensors(e, &p, &g);
    snprintf(out->message, sizeof out->message, "%s", out->status == OPTC_OK ? "" : optc_message());
    if (out->status == OPTC_OK)
        out->status = s->connected   ? step_connected(e, r, p, g, out)
                      : s->two_ranks ? step_two_ranks(s, e, r, p, g, out)
                                     : step(s, e, r, p, g, out);
    if (e && (optc_free(e, p, NULL) != OPTC_OK || optc_free(e, g, NULL) != OPTC_OK)) {
        out->status = OPTC_ERROR_ARGUMENT;
        snprintf(out->message, sizeof out->message, "optc_free failed: %.500s", optc_message());
    }
    out->evaluator = r && !optc_rule_native(r) && strstr(optc_rule_path(r), "bits");
    (void)optc_release(r);
    (void)optc_close(e);
}

static void built_in(const Scene *s, Outcome *out)
{
    whole(s, &(optc_engine_options){.threads = 1, .cache_dir = ""}, out);
}
static void from_file(const Scene *s, Outcome *out)
{
    Scene by_path = *s;
    inject_rest(true);
    by_path.spec = below(s->spec);
    FILE *f = fopen(by_path.spec, "w");
    if (f) {
        fputs(optc_library_text("sgd"), f);
        fclose(f);
    }
    inject_rest(false);
    built_in(&by_path, out);
}
static void evaluated(const Scene *s, Outcome *out)
{
    whole(s, &(optc_engine_options){.threads = 1, .cache_dir = "", .compiler = "", .no_builtin = 1},
          out);
}

/* A compiler that compiles once and then returns the stored result, so that only optc's calls
 * fail. */
static const char *stub(void)
{
    const char *path = below("stub");
    inject_rest(true);
    FILE *f = access(path, X_OK) == 0 ? NULL : fopen(path, "w");
    if (f) {
        fprintf(f,
                "#!/bin/sh\nfor x; do [ \"$last\" = -o ] && out=$x; last=$x; done\n"
                "[ -f '%s/stub.so' ] || { cc \"$@\" && cp \"$out\" '%s/stub.new' && mv "
                "'%s/stub.new' '%s/stub.so'; "
                "exit; }\ncp '%s/stub.so' \"$out\"\n",
                scratch, scratch, scratch, scratch, scratch);
        fclose(f);
        chmod(path, 0700);
    }
    inject_rest(false);
    return path;
}

static void compiled(const Scene *s, Outcome *out)
{
    char cc[4096];
    snprintf(cc, sizeof cc, "%s", stub());
    fresh_folder("cold");
    whole(s,
          &(optc_engine_options){
              .threads = 1, .cache_dir = below("cold"), .compiler = cc, .no_builtin = 1},
          out);
}

static void from_cache(const Scene *s, Outcome *out)
{
    char cc[4096];
    snprintf(cc, sizeof cc, "%s", stub());
    whole(s,
          &(optc_engine_options){
              .threads = 1, .cache_dir = below("cache"), .compiler = cc, .no_builtin = 1},
          out);
}

static void on_gpu(const Scene *s, Outcome *out)
{
    whole(s, &(optc_engine_options){.device = "cuda", .threads = 1, .cache_dir = below("cache")},
          out);
}
static void by_spec(const Scene *s, const char *text, optc_engine_options o, Outcome *out)
{
    Scene by_path = *s;
    inject_rest(true);
    by_path.spec = below(s->spec);
    FILE *f = fopen(by_path.spec, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    inject_rest(false);
    o.device = s->gpu ? "cuda" : NULL;
    o.threads = 1;
    o.cache_dir = below("cache");
    whole(&by_path, &o, out);
}

/* Products of a state and of the gradients themselves, in one batch. */
static void products(const Scene *s, Outcome *out)
{
    by_spec(s,
            "return optimizer { name = 'products', products = 'f32', hyper = { lr = 0.1 }, state = "
            "{ m = zeros, l = "
            "eye(1, 'rows') },\n"
            "  matrix = function() m = 0.5 * m + g l = 0.5 * l + gram(m) p = p - lr * mm(l, "
            "mm(gram(g), m)) end,\n"
            "  step = function() m = 0.5 * m + g p = p - lr * m end }\n",
            (optc_engine_options){.workspace = 1 << 16}, out);
}

/* Every kind of op: stages, a product for the tensor whose turn it is, and with ranks exchanges
 * beside stages, for which the workspace is small. */
static void ops(const Scene *s, Outcome *out)
{
    by_spec(s,
            "return optimizer { name = 'ops', products = 'f32', hyper = { lr = 0.1 }, state = { m "
            "= zeros, l = eye(1, 'rows') },\n"
            "  matrix = function() every(2, { stagger = true }, function() l = 0.5 * l + gram(g) "
            "end) m = 0.5 * m + g p = p - lr * mm(l, m) end,\n"
            "  step = function() p = p - lr * g end }\n",
            (optc_engine_options){.workspace = 1 << 12}, out);
}

/* Eigenvectors by cuSOLVER and a power computed from them, for more matrices than one call
 * takes. */
static void eigenvectors(const Scene *s, Outcome *out)
{
    by_spec(s,
            "return optimizer { name = 'eigenvectors', products = 'f32', hyper = { lr = 0.1 }, "
            "state = { m = zeros },\n"
            "  matrix = function() local l, w, V = gram(g.T) + eye(1, 'cols') w, V = eigh(l) m = "
            "mm(mm(g, V), V.T) "
            "p = p - lr * mm(m, power(l, -0.3)) end,\n"
            "  step = function() p = p - lr * g end }\n",
            (optc_engine_options){.workspace = 1 << 17}, out);
}

static void on_gpu_cold(const Scene *s, Outcome *out)
{
    fresh_folder("cold");
    whole(s, &(optc_engine_options){.device = "cuda", .threads = 1, .cache_dir = below("cold")},
          out);
}

/* ---- functions of matrices without a rule ---- */
enum { SIDE = 4, SQUARE = SIDE * SIDE, SQUARES = 2 * SQUARE };

/* A failed call must leave its result as it was, except products whose device failed. more: the
 * rest of the functions. */
static optc_status call_functions(optc_engine *e, float *a, float *x, bool more, Outcome *out)
{
    static const float before = -7;
    double residual = before;
    optc_function f = {.a = {a, 0, 0},
                       .x = {x, 0, 0},
                       .y = {x + SQUARES, 0, 0},
                       .m = SIDE,
                       .n = SIDE,
                       .batch = 2,
                       .exponent = -0.5,
                       .ridge = 0.25,
                       .residual = &residual};
    optc_product p = {.a = a, .c = x, .m = SIDE, .k = SIDE, .batch = 2};
    optc_kron_vector k = {
        .a = a, .b = a + SQUARE, .x = a, .y = x, .m = SIDE, .n = SIDE, .p = SIDE, .q = SIDE};
    optc_linear l = {.act = a,
                     .out = a,
                     .batch = 2,
                     .rows = SIDE,
                     .in = SIDE,
                     .outs = SIDE,
                     .norm = (double *)(void *)(x + SQUARES),
                     .sum = x,
                     .clip = 1,
                     .a = x,
                     .g = x + SQUARE};
    f.b = f.a;
    optc_status s = OPTC_OK;
    for (int i = 0; i < SQUARES; i++)
        a[i] = (float)(i % SQUARE / SIDE == i % SIDE) +
               0.1f * (float)(i % SQUARE / SIDE + i % SIDE) / SIDE;
    for (int call = 0; call < (more ? 7 : 5) && s == OPTC_OK; call++) {
        for (int i = 0; i < 2 * SQUARES; i++)
            x[i] = before;
        residual = before;
        if (more)
            s = call == 0   ? optc_eigh(e, &f)
                : call == 1 ? optc_solve(e, &f)
                : call == 2 ? optc_polar(e, &f)
                : call == 3 ? optc_kron_apply(e, &k)
                : call == 4 ? optc_sample_norms(e, &l)
                : call == 5 ? optc_clipped_sum(e, &l)
                            : optc_kfac_factors(e, &l);
        else
            s = call == 0   ? optc_matrix_power(e, &f)
                : call == 1 ? optc_cholesky(e, &f)
                : call == 2 ? optc_qr(e, &f)
                : call == 3 ? optc_multiply(e, &p)
                            : optc_functions_drop(e);
        if (s == OPTC_OK)
            out->result =
                mix(mix(out->result, x, sizeof *x * 2 * SQUARES), &residual, sizeof residual);
        else
            out->left = out->left || residual != before;
        /* optc_multiply, or optc_kron_apply */
        bool product = call == 3 && s == OPTC_ERROR_DEVICE;
        for (int i = 0; i < 2 * SQUARES && s != OPTC_OK && !product; i++)
            out->left = out->left || x[i] != before;
    }
    snprintf(out->message, sizeof out->message, "%s", s == OPTC_OK ? "" : optc_message());
    return s;
}

/* The host can access the memory of the emulated GPU too. */
static void functions(const Scene *s, Outcome *out)
{
    float *at = NULL;
    optc_engine *e = NULL;
    optc_engine_options o = {
        .device = s->gpu ? "cuda" : NULL, .threads = 1, .cache_dir = below("cache")};
    *out = (Outcome){.status = optc_open(&o, &e)};
    if (out->status == OPTC_OK)
        out->status = optc_alloc(e, sizeof *at * 3 * SQUARES, NULL, (void **)&at);
    snprintf(out->message, sizeof out->message, "%s", out->status == OPTC_OK ? "" : optc_message());
    if (out->status == OPTC_OK)
        out->status = call_functions(e, at, at + SQUARES, s->other_functions, out);
    if (e)
        (void)optc_free(e, at, NULL);
    (void)optc_close(e);
}

enum { HOST = 1 << ALLOCATIONS | 1 << MEMORY_ENDS | 1 << FILES, ALL = HOST | 1 << DRIVER };
static void from_package(const Scene *s, Outcome *out)
{
    make_package();
    char base[4096];
    snprintf(base, sizeof base, "%s", below("shipped"));
    whole(
        s,
        &(optc_engine_options){.device = "cuda", .threads = 1, .cache_dir = "", .cache_base = base},
        out);
}

const Scene api_scenes[] = {
    {.name = "built in", .run = built_in, .kinds = HOST, .spec = "adamw", .with = "clip(1)"},
    {.name = "checkpoint",
     .run = built_in,
     .kinds = HOST,
     .spec = "adamw",
     .with = "clip(1)",
     .saves = true},
    {.name = "products", .run = built_in, .kinds = HOST, .spec = "muon", .samples = 20},
    {.name = "sharded",
     .run = built_in,
     .kinds = HOST,
     .spec = "adamw",
     .with = "clip(1)",
     .samples = 20,
     .sharded = true},
    {.name = "sharded products",
     .run = built_in,
     .kinds = HOST,
     .spec = "muon",
     .samples = 20,
     .sharded = true},
    {.name = "from a file", .run = from_file, .kinds = HOST, .spec = "rule.lua"},
    {.name = "evaluated", .run = evaluated, .kinds = HOST, .spec = "adafactor", .with = "clip(1)"},
    {.name = "compiled", .run = compiled, .kinds = HOST, .spec = "lion", .with = "clip(1)"},
    {.name = "from the cache", .run = from_cache, .kinds = HOST, .spec = "lion", .with = "clip(1)"},
    {.name = "on a GPU",
     .run = on_gpu,
     .kinds = ALL,
     .spec = "adamw",
     .with = "clip(1)",
     .samples = 20,
     .gpu = true},
    {.name = "connected on a GPU",
     .run = on_gpu,
     .kinds = 1 << ALLOCATIONS | 1 << DRIVER,
     .spec = "adamw",
     .with = "clip(1)",
     .samples = -1,
     .gpu = true,
     .connected = true},
    {.name = "checkpoint on a GPU",
     .run = on_gpu,
     .kinds = ALL,
     .spec = "adamw",
     .samples = 20,
     .gpu = true,
     .saves = true},
    {.name = "on a GPU, compiled",
     .run = on_gpu_cold,
     .kinds = HOST | 1 << NVRTC,
     .spec = "adamw",
     .with = "clip(1)",
     .samples = 10,
     .gpu = true},
    {.name = "products on a GPU",
     .run = products,
     .kinds = ALL | 1 << CUBLAS,
     .spec = "products.lua",
     .samples = 10,
     .gpu = true},
    {.name = "eigenvectors on a GPU",
     .run = eigenvectors,
     .kinds = 1 << ALLOCATIONS | 1 << DRIVER | 1 << CUBLAS | 1 << CUSOLVER,
     .spec = "eigenvectors.lua",
     .samples = 5,
     .gpu = true,
     .wide = true},
    {.name = "ops on a GPU",
     .run = ops,
     .kinds = 1 << ALLOCATIONS | 1 << DRIVER,
     .spec = "ops.lua",
     .samples = 15,
     .gpu = true,
     .guarded = true,
     .captured = true},
    {.name = "ops of ranks",
     .run = ops,
     .kinds = 1 << ALLOCATIONS,
     .spec = "ops.lua",
     .samples = 15,
     .two_ranks = true},
    {.name = "ops of ranks on a GPU",
     .run = ops,
     .kinds = 1 << ALLOCATIONS | 1 << DRIVER,
     .spec = "ops.lua",
     .samples = 15,
     .gpu = true,
     .two_ranks = true,
     .guarded = true},
    {.name = "functions", .run = functions, .kinds = 1 << ALLOCATIONS, .samples = 25},
    {.name = "functions on a GPU",
     .run = functions,
     .kinds = 1 << ALLOCATIONS | 1 << DRIVER | 1 << CUBLAS,
     .samples = 10,
     .gpu = true},
    {.name = "more functions",
     .run = functions,
     .kinds = 1 << ALLOCATIONS,
     .samples = 10,
     .other_functions = true},
    {.name = "more functions on a GPU",
     .run = functions,
     .kinds = 1 << ALLOCATIONS | 1 << DRIVER | 1 << CUBLAS,
     .samples = 5,
     .gpu = true,
     .other_functions = true},
    {.name = "from a package",
     .run = from_package,
     .kinds = ALL,
     .spec = "adamw",
     .with = "clip(1)",
     .samples = 10,
     .gpu = true},
    {.name = NULL},
};

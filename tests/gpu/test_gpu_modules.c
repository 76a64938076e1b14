/* Which programs are compiled when: bindings load the kernels that they launch, choices of launches
 * and rules share programs, and products wait for a binding that needs them. */
#include "tests/gpu/device_side.h"

#include "gen/gen.h"
#include "runtime/library/cache/cache.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int loaded(const optc_engine *e)
{
    int n = 0;
    for (const LoadedProgram *p = e->library->programs; p; p = p->next)
        n++;
    return n;
}

static bool has_variant(const optc_rule *r, int fn, const char *name)
{
    const Stage *s = plan_at(r->library->plan, fn).stage;
    return s && s->kind != S_GROUP && !strcmp(r->library->rule->variant[s->variant].name, name);
}

/* Muon's launches for 2^28 and for 2^24 elements differ in some stages: only their programs are
 * built again. */
START_TEST(other_sizes)
{
    SHARED();
    const GpuCode *code[3];
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
    /* the kernels before a step, and the first stage */
    ck_assert_int_eq(loaded(e), 2);
    OK(gpu_code_for(r, (int64_t)1 << 28, &code[0]));
    OK(gpu_code_for(r, (int64_t)1 << 24, &code[1]));
    OK(gpu_code_for(r, (int64_t)1 << 24, &code[2]));
    ck_assert(code[0] != code[1] && code[1] == code[2]);
    bool *all = malloc((size_t)r->library->plan->nfn);
    memset(all, true, (size_t)r->library->plan->nfn);
    int n[2], others = 0;
    for (int f = 0; f < r->library->plan->nfn; f++)
        others += memcmp(&code[0]->launch[f], &code[1]->launch[f], sizeof(Launch)) != 0;
    ck_assert(others > 0 && others < r->library->plan->nfn);
    for (int i = 0; i < 2; i++) {
        OK(gpu_code_load(r, code[i], &(KernelNeeds){.fn = all, .nfn = r->library->plan->nfn},
                         "optc_bind"));
        n[i] = loaded(e);
        for (int f = 0; f < r->library->plan->nfn; f++)
            ck_assert(!plan_at(r->library->plan, f).stage || code[i]->fn[f]);
    }
    ck_assert_int_eq(n[0], r->library->gpu->nprogram + 1);
    ck_assert_int_eq(n[1], n[0] + others);
    free(all);
    OK(optc_release(r));
    ck_assert_int_eq(loaded(e), 0);
    OK(optc_close(e));
}
END_TEST

/* A rule with products and roots, and another one that computes the same way. */
static const char root_rule[] = "return optimizer { name = '%s', products = 'f32', state = { L = "
                                "zeros 'rows' }, hyper = { lr = 0.1 },\n"
                                "  matrix = function() L = L + gram(g)  if nrows > 30 then p = p - "
                                "%s * lr * g else p = p - %s * lr * mm(power(L, "
                                "-1/4, { ridge = 1e-6 }), g) end end,\n"
                                "  step = function() p = p - %s * lr * g end }\n";

/* Steps a matrix of 8 x 12. Returns the number of programs in the cache. */
static int step_alone(optc_engine *e, const char *name, const char *factor, const char *cache,
                      optc_rule **r, optc_binding **b)
{
    char text[1000];
    CacheList list;
    static const int64_t dim[] = {8, 12};
    void *p = device_take(8 * 12 * 4), *g = device_take(8 * 12 * 4);
    float host[8 * 12];
    for (int i = 0; i < 8 * 12; i++)
        host[i] = (float)(i % 7) - 3;
    device_put(p, host, sizeof host);
    device_put(g, host, sizeof host);
    snprintf(text, sizeof text, root_rule, name, factor, factor, factor);
    OK(optc_compile(e, &(optc_rule_options){.spec = name, .text = text}, r));
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = dim};
    OK(optc_bind(*r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, b));
    OK(optc_step(*b));
    OK(optc_sync(*b));
    ck_assert(cache_list(cache, &list));
    int n = list.entries;
    free(list.entry);
    return n;
}

/* Kernels of variants without tensors are not compiled. A second rule compiles its stages only. */
START_TEST(first_step)
{
    SHARED();
    char dir[] = "/tmp/optc-programs-XXXXXX", command[100];
    optc_engine *e;
    optc_rule *r[2];
    optc_binding *b[2];
    ck_assert(mkdtemp(dir));
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = dir}, &e));
    int first = step_alone(e, "one", "2", dir, &r[0], &b[0]), stages[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        int second = i ? step_alone(e, "two", "3", dir, &r[1], &b[1]) : 0;
        const GpuRule *g = r[i]->library->gpu;
        const BuiltKernels *c = (const BuiltKernels *)b[i]->gpu->code;
        for (int k = 0; k < g->nprogram; k++)
            stages[i] += c->program[k] != NULL;
        for (int f = 0; f < r[i]->library->plan->nfn; f++)
            ck_assert(!has_variant(r[i], f, "vector") || !c->code.fn[f]);
        ck_assert_int_lt(stages[i], g->nprogram);
        for (int k = 0; k < NFIXED && i; k++)
            ck_assert(
                c->program[g->nprogram + k] ==
                ((const BuiltKernels *)b[0]->gpu->code)->program[r[0]->library->gpu->nprogram + k]);
        ck_assert(!c->code.call[KERNEL_EIGEN_ROTATE] && !c->code.call[KERNEL_FACTOR_TILE]);
        ck_assert_int_eq(i ? second - first : 0, i ? stages[1] : 0);
    }
    ck_assert_int_gt(first, stages[0] + 1);
    ck_assert_int_eq(loaded(e), first + stages[1]);
    for (int i = 0; i < 2; i++) {
        OK(optc_unbind(b[i]));
        OK(optc_release(r[i]));
    }
    ck_assert_int_eq(loaded(e), 0);
    OK(optc_close(e));
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* With cuBLAS no kernel for products is compiled. Without it the first binding loads one; later
 * choices of launches have it too. */
START_TEST(products_on_demand)
{
    SHARED();
    static const TestShape even[NSHAPES] = {{2, {16, 24}},
                                            {2, {8, 8}},
                                            {2, {32, 16}},
                                            {1, {40}},
                                            {2, {16, 24}},
                                            {2, {64, 8}},
                                            {1, {8}},
                                            {2, {8, 64}},
                                            {1, {1}},
                                            {2, {16, 16}},
                                            /* cuBLAS takes all of these */
                                            {2, {24, 16}},
                                            {2, {16, 8}}};
    const GpuCode *code;
    Side a, b;
    use_shapes(even);
    open_side(&a, "cuda", (optc_rule_options){.spec = "muon"}, 0);
    ck_assert(!a.b->gpu->code->call[KERNEL_MM_F16]);
    use_cublas(false);
    open_side(&b, "cuda", (optc_rule_options){.spec = "muon"}, 0);
    ck_assert(b.b->gpu->code->call[KERNEL_MM_F16]);
    OK(gpu_code_for(b.r, 85054464, &code));
    ck_assert(code != b.b->gpu->code);
    int n = loaded(b.e);
    KernelNeeds need = {.fn = NULL};
    need.call[KERNEL_MM_F16] = true;
    OK(gpu_code_load(b.r, code, &need, "optc_bind"));
    ck_assert(code->call[KERNEL_MM_F16]);
    ck_assert_int_eq(loaded(b.e), n);
    for (int s = 1; s <= 2; s++) {
        set_grads(&a, s);
        set_grads(&b, s);
        OK(optc_step(a.b));
        OK(optc_step(b.b));
    }
    fetch_params(&a);
    compare_within("muon by our products", &a, &b, 1e-2);
    close_side(&b, 0);
    use_cublas(true);
    close_side(&a, 0);
}
END_TEST

static int spares(const optc_engine *e)
{
    int n = 0;
    for (int i = 0; i < MOST_SPARE; i++)
        n += e->gpu->spare[i] != NULL;
    return n;
}

/* While other threads compile, optc_compile creates the cuBLAS handle of the first binding. A
 * second rule needs no other handle, and a rule without products none. A capture of another stream
 * goes on. */
START_TEST(handle_ahead)
{
    SHARED();
    static const int64_t dim[] = {16, 24};
    optc_engine *e;
    optc_rule *r[3];
    optc_binding *b;
    int ahead = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    CUstream other;
    CUgraph graph;
    void *p = device_take(16 * 24 * 4), *g = device_take(16 * 24 * 4);
    float host[16 * 24] = {1};
    device_put(p, host, sizeof host);
    device_put(g, host, sizeof host);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd"}, &r[0]));
    ck_assert_int_eq(spares(e), 0);
    ck_assert(!d->cuStreamCreate(&other, 1) && !d->cuStreamBeginCapture_v2(other, 0));
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r[1]));
    ck_assert_msg(!d->cuStreamEndCapture(other, &graph), "the capture of another stream was ended");
    ck_assert_int_eq(spares(e), ahead);
    d->cuGraphDestroy(graph);
    d->cuStreamDestroy_v2(other);
    OK(optc_compile(e, &(optc_rule_options){.spec = "adago"}, &r[2]));
    ck_assert_int_eq(spares(e), ahead);
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = dim};
    OK(optc_bind(r[1], &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    ck_assert_int_eq(spares(e), 0);
    OK(optc_step(b));
    OK(optc_sync(b));
    OK(optc_unbind(b));
    ck_assert_int_eq(spares(e), 1);
    for (int i = 0; i < 3; i++)
        OK(optc_release(r[i]));
    OK(optc_close(e));
}
END_TEST

/* The emulated driver keeps a file open for each loaded module. */
static int module_files(void)
{
    int n = 0;
    char path[300], file[40];
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t got = readlink(path, file, sizeof file - 1);
        file[got < 0 ? 0 : got] = 0;
        n += !strncmp(file, "/memfd:kernel", 13);
    }
    if (d)
        closedir(d);
    return n;
}

/* Lets each call of the driver in a compilation fail. The thread has no context. Returns how many
 * compilations failed, or -1 if a failed one left a module loaded or its file open. */
static int (*driver_calls)(void), (*driver_modules)(void);

static void *fail_builds(void *engine)
{
    intptr_t failed = 0;
    char text[40];
    int was = driver_modules(), before = driver_calls();
    optc_rule *r;
    if (optc_compile(engine, &(optc_rule_options){.spec = "adamw"}, &r) || optc_release(r))
        return NULL;
    for (int n = 1, most = driver_calls() - before; n <= most; n++) {
        snprintf(text, sizeof text, "libcuda.so.1 %d", driver_calls() + n);
        setenv("EMU_FAIL", text, 1);
        optc_status s = optc_compile(engine, &(optc_rule_options){.spec = "adamw"}, &r);
        setenv("EMU_FAIL", "- 0", 1);
        failed += s != OPTC_OK;
        if ((s == OPTC_OK && optc_release(r)) || driver_modules() != was || module_files() != was)
            return (void *)(intptr_t)-1;
    }
    return (void *)failed;
}

/* A compilation that fails after it loaded modules unloads them. Only the emulated driver can fail
 * this way. */
START_TEST(failed_build)
{
    SHARED();
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *failed;
    *(void **)&driver_calls = library ? dlsym(library, "emu_calls") : NULL;
    *(void **)&driver_modules = library ? dlsym(library, "emu_modules") : NULL;
    if (!driver_calls || !driver_modules)
        return;
    optc_engine *e;
    pthread_t thread;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    ck_assert(!pthread_create(&thread, NULL, fail_builds, e) && !pthread_join(thread, &failed));
    unsetenv("EMU_FAIL");
    ck_assert_int_gt((int)(intptr_t)failed, 0);
    OK(optc_close(e));
}
END_TEST

void add_modules(TCase *t)
{
    tcase_add_test(t, failed_build);
    tcase_add_test(t, other_sizes);
    tcase_add_test(t, first_step);
    tcase_add_test(t, products_on_demand);
    tcase_add_test(t, handle_ahead);
}

/* Engines: without a compiler, with a damaged cache, and shared by threads. */
#include "tests/harness/help.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static double step_once(optc_engine_options eo, const char *spec, char *path, size_t n)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[5] = {1, 2, 3, 4, 5}, g[5] = {.5f, .5f, -1, 2, 0};
    int64_t d[1] = {5};
    OK(optc_open(&eo, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "mine.lua", .text = spec}, &r));
    snprintf(path, n, "%s", optc_rule_path(r));
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = d};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
    return (double)p[3];
}

static const char own_spec[] = "return optimizer { name = \"own\", hyper = { lr = 0.1 }, state = { "
                               "m = zeros }, step = function() m = m + g * g; "
                               "p = p - lr * g / (sqrt(m) + 1) end }";

START_TEST(no_compiler)
{
    char path[256];
    double want = 4 - 0.1 * 2 / 3.0;
    ck_assert_double_eq_tol(step_once((optc_engine_options){.cache_dir = "", .compiler = ""},
                                      own_spec, path, sizeof path),
                            want, 1e-6);
    ck_assert_msg(strstr(path, "reference evaluator (the compiler is turned off)"), "%s", path);
    ck_assert_double_eq_tol(
        step_once((optc_engine_options){.cache_dir = "", .compiler = "/no/such/cc"}, own_spec, path,
                  sizeof path),
        want, 1e-6);
    ck_assert_msg(strstr(path, "reference evaluator (no C compiler"), "%s", path);
    ck_assert_double_eq_tol(step_once((optc_engine_options){.cache_dir = "", .compiler = "false"},
                                      own_spec, path, sizeof path),
                            want, 1e-6);
    ck_assert_msg(strstr(path, "reference evaluator (") && strstr(path, "false failed"), "%s",
                  path);
    ck_assert_double_eq_tol(
        step_once((optc_engine_options){.cache_dir = ""}, own_spec, path, sizeof path), want, 1e-6);
    ck_assert_msg(strstr(path, "compiled by"), "%s", path);
}
END_TEST

static void entry_file(const char *dir, char *out, size_t n)
{
    char cmd[600];
    snprintf(cmd, sizeof cmd, "ls %s/*.so", dir);
    FILE *f = popen(cmd, "r");
    ck_assert(f && fgets(out, (int)n, f));
    out[strcspn(out, "\n")] = 0;
    pclose(f);
}

/* A damaged cache entry costs a compilation, never an error; a folder that others can write is not
 * used. */
START_TEST(cache)
{
    char dir[] = "/tmp/optc-cache-XXXXXX", path[256], file[512];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    optc_engine_options eo = {.cache_dir = dir};
    double want = step_once(eo, own_spec, path, sizeof path);
    ck_assert_msg(strstr(path, "compiled by"), "%s", path);
    ck_assert(step_once(eo, own_spec, path, sizeof path) == want);
    ck_assert_msg(strstr(path, "from the cache"), "%s", path);
    entry_file(dir, file, sizeof file);
    for (int how = 0; how < 3; how++) {
        int fd = open(file, O_RDWR);
        ck_assert_int_ge(fd, 0);
        struct stat st;
        fstat(fd, &st);
        char byte = 0x55;
        if (how == 0)
            ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size / 2), 1);
        else
            ck_assert_int_eq(ftruncate(fd, how == 1 ? st.st_size / 3 : 0), 0);
        close(fd);
        ck_assert(step_once(eo, own_spec, path, sizeof path) == want);
        ck_assert_msg(strstr(path, "compiled by"), "damage %d: %s", how, path);
        ck_assert(step_once(eo, own_spec, path, sizeof path) == want);
        ck_assert_msg(strstr(path, "from the cache"), "%s", path);
    }
    chmod(dir, 0777);
    ck_assert(step_once(eo, own_spec, path, sizeof path) == want);
    ck_assert_msg(strstr(path, "compiled by"), "%s", path);
    unlink(file);
    snprintf(file, sizeof file, "%s/.lock", dir);
    unlink(file);
    rmdir(dir);
}
END_TEST

/* Threads share engines and rules; bindings run in parallel. */
static optc_engine *shared;

static void *worker(void *arg)
{
    intptr_t seed = (intptr_t)arg;
    float *p = calloc(50000, 4), *g = calloc(50000, 4);
    int64_t d[1] = {50000};
    optc_rule *r;
    optc_binding *b;
    for (int i = 0; i < 50000; i++)
        g[i] = (float)ref_value(1, 1, i);
    OK(optc_compile(shared, &(optc_rule_options){.spec = "lamb"}, &r));
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = d};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    for (int i = 0; i < 20; i++)
        OK(optc_step(b));
    FAILS(optc_set_hyper(b, 0, seed % 2 ? "nope" : "nada", 1), OPTC_ERROR_ARGUMENT,
          seed % 2 ? "nope" : "nada");
    OK(optc_unbind(b));
    OK(optc_release(r));
    uint64_t *h = malloc(8);
    *h = hash64(1, p, 200000);
    free(p);
    free(g);
    return h;
}

START_TEST(side_by_side)
{
    pthread_t t[4];
    uint64_t first = 0;
    OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = ""}, &shared));
    for (intptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, worker, (void *)i), 0);
    for (int i = 0; i < 4; i++) {
        void *h;
        pthread_join(t[i], &h);
        first = i ? first : *(uint64_t *)h;
        ck_assert(*(uint64_t *)h == first);
        free(h);
    }
    OK(optc_close(shared));
}
END_TEST

Suite *engines_suite(void)
{
    Suite *s = suite_create("engines");
    TCase *t = tcase_create("engines");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, no_compiler);
    tcase_add_test(t, cache);
    tcase_add_test(t, side_by_side);
    suite_add_tcase(s, t);
    return s;
}

/* Threads of a step: who runs small stages, how often threads meet at a barrier, and that waiting
 * costs no CPU time. */
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/cpu/cpu.h"
#include "tests/harness/help.h"

#include <omp.h>
#include <time.h>
#include <unistd.h>

/* OMP_THREAD_LIMIT and OMP_DYNAMIC can reduce a region of two threads to one: then there is no
 * barrier. */
static bool alone(const char *what)
{
    int threads = 1;
#pragma omp parallel num_threads(2)
#pragma omp master
    threads = omp_get_num_threads();
    bool one = threads < 2 || omp_get_dynamic();
    if (one)
        fprintf(stderr, "skipped: %s (OpenMP gives one thread)\n", what);
    return one;
}

extern void *optc_blas_loaded;                 /* blas.c */

static int meetings;
void __real_barrier_wait(Barrier *t, int threads);
void __wrap_barrier_wait(Barrier *t, int threads);
void __wrap_barrier_wait(Barrier *t, int threads)
{
    __atomic_add_fetch(&meetings, 1, __ATOMIC_RELAXED);
    __real_barrier_wait(t, threads);
}

static int regions;                            /* OpenMP parallel regions, as gcc starts them */
void __real_GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
void __wrap_GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
void __wrap_GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags)
{
    __atomic_add_fetch(&regions, 1, __ATOMIC_RELAXED);
    __real_GOMP_parallel(fn, data, threads, flags);
}

/* Out of memory, OpenMP's runtime ends the process: a single thread binds, steps and multiplies
 * without it. */
START_TEST(one_thread_without_openmp)
{
    enum { SIDE = 600, N = SIDE * SIDE };
    static float p[N], g[N], c[N];
    static const char *const rules[] = {"adamw", "muon"};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .threads = 1}, &e));
    for (int i = 0; i < 2; i++) {
        optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = (int64_t[]){SIDE, SIDE}};
        OK(optc_compile(e, &(optc_rule_options){.spec = rules[i]}, &r));
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        OK(optc_unbind(b));
        OK(optc_release(r));
    }
    OK(optc_multiply(e, &(optc_product){.a = p, .b = g, .c = c, .m = SIDE, .n = SIDE, .k = SIDE}));
    OK(optc_kron(e, &(optc_kronecker){.a = p, .b = g, .c = c, .m = 20, .n = 20, .p = 30, .q = 30}));
    OK(optc_close(e));
    ck_assert_int_eq(regions, 0);
}
END_TEST

/* A rule with products loads its BLAS when it is compiled. */
START_TEST(blas_is_loaded_by_compiling)
{
    optc_engine *e;
    optc_rule *r;
    Blas x;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .threads = 1}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    ck_assert_ptr_null(optc_blas_loaded);
    OK(optc_release(r));
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
    void *loaded = optc_blas_loaded;
    ck_assert(blas_open(&x, "test") == OPTC_OK && loaded == optc_blas_loaded);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* A wrapper around the rule's first stage that records whether a team runs it. */
static const optc_stage_fn *real;
static int in_team;
static void watch(const optc_view *t, long long unit)
{
    in_team += omp_in_parallel();
    real[0](t, unit);
}

/* Small stages run on the calling thread before the team starts and after it ends, or on one thread
 * of the team, consecutive ones together. After the last stage there is no barrier. */
START_TEST(few_meetings)
{
    static const struct { const char *spec, *with; int meetings;
    } cases[] = {{"sgd", NULL, 0},
                 {"adamw", NULL, 0},
                 {"adan", NULL, 0},
                 {"lamb", NULL, 2},
                 {"adamw", "clip(1)", 2}};
    enum { THREADS = 2, N = 1 << 17 };
    static float p[N], g[N];
    if (alone("how often threads meet"))
        return;
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .threads = THREADS}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = cases[_i].spec, .with = cases[_i].with}, &r));
    ck_assert_int_eq(r->program->stage[0].kind, S_GROUP);
    optc_stage_fn fn[64];
    ck_assert_int_le(r->program->nfn, 64);
    memcpy(fn, r->fn, sizeof *fn * (size_t)r->program->nfn);
    real = r->fn;
    fn[0] = watch;
    r->fn = fn;
    int64_t n = N;
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = &n};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    in_team = meetings = 0;
    OK(optc_step(b));
    ck_assert_int_eq(in_team, 0);
    ck_assert_int_eq(meetings, THREADS * cases[_i].meetings);
    OK(optc_unbind(b));
    r->fn = real;
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* No thread passes the barrier before all have arrived, with more threads than cores and late
 * ones. */
START_TEST(all_meet)
{
    enum { THREADS = 7, ROUNDS = 300 };
    Barrier t = {0};
    int came[ROUNDS] = {0}, early = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : early)
    {
        int threads = omp_get_num_threads(), me = omp_get_thread_num();
        for (int i = 0; i < ROUNDS; i++) {
            if (i % 50 == me)
                usleep(2000);
            __atomic_add_fetch(&came[i], 1, __ATOMIC_RELAXED);
            barrier_wait(&t, threads);
            early += __atomic_load_n(&came[i], __ATOMIC_RELAXED) != threads;
        }
    }
    ck_assert_int_eq(early, 0);
}
END_TEST

static double spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* A thread that waits long releases its core, measured by its own CPU clock. */
START_TEST(waiting_is_free)
{
    Barrier t = {0};
    double ms = 0;
    if (alone("what waiting costs"))
        return;
#pragma omp parallel num_threads(2)
    {
        int threads = omp_get_num_threads();
        double before = spent();
        if (omp_get_thread_num())
            usleep(200000);
        barrier_wait(&t, threads);
        if (!omp_get_thread_num())
            ms = spent() - before;
    }
    ck_assert_msg(ms < 50, "%g of 200 ms were spent waiting", ms);
}
END_TEST

Suite *thread_barrier_suite(void)
{
    Suite *s = suite_create("thread_barrier");
    TCase *t = tcase_create("thread_barrier");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, few_meetings, 0, 5);
    tcase_add_test(t, all_meet);
    tcase_add_test(t, one_thread_without_openmp);
    tcase_add_test(t, blas_is_loaded_by_compiling);
    tcase_add_test(t, waiting_is_free);
    suite_add_tcase(s, t);
    return s;
}

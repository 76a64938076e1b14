/* Kernels of an OpenBLAS that takes the CPU for an old one (preload/fake_blas.c): a library that
 * optc opens gets those of the CPU's vector level, and what has other kernels is told apart by its
 * reason. Each case in a process of its own, because a BLAS is loaded once. */
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/library/internal.h"

#include <check.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__aarch64__)
static const char *const best_cores[] = {"armv8", "ARMV8SVE"};
#else
static const char *const best_cores[] = {"Prescott", "Haswell", "SkylakeX"};
#endif

/* Kernels of the widest vectors of this CPU. */
static const char *best_core(void)
{
    const char *best = best_cores[0];
    for (int i = 1; i < (int)(sizeof best_cores / sizeof *best_cores); i++)
        if (optc_isa_usable(i))
            best = best_cores[i];
    return best;
}

static const char *fake_library(void)
{
    static char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 40);
    ck_assert(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/fake/libfakeblas.so");
    ck_assert_msg(access(path, R_OK) == 0, "%s is not built", path);
    return path;
}

typedef struct Case {
    const char *set[2][2];     /* variables */
    bool loaded;               /* the process loads it first */
    const char *core;          /* the kernels that optc uses; NULL: best_core */
    const char *warning;       /* a part of it; NULL: none */
} Case;

/* Returns 0, or the number of a line. */
static int opened(const Case *c)
{
    char found[80];
    int line = 0;
    setenv("OPTC_BLAS", fake_library(), 1);
    unsetenv("OPENBLAS_CORETYPE");
    for (int i = 0; i < 2 && c->set[i][0]; i++)
        setenv(c->set[i][0], c->set[i][1], 1);
    void *process = c->loaded ? dlopen(fake_library(), RTLD_LAZY | RTLD_LOCAL) : NULL;
    const char *(*core)(void) = NULL;
    *(void **)&core = process ? dlsym(process, "openblas_get_corename") : NULL;
    char *text = optc_doctor(NULL);
    snprintf(found, sizeof found, "; %s kernels)", c->core ? c->core : best_core());
    if (!text)
        return __LINE__;
    if (!strstr(text, found))
        line = __LINE__;
    else if (!strstr(text, "warning: its ") != !c->warning ||
             (c->warning && !strstr(text, c->warning)))
        line = __LINE__;
    else if (getenv("OPENBLAS_CORETYPE") && strcmp(c->set[0][0], "OPENBLAS_CORETYPE"))
        line = __LINE__;
    else if (process && strcmp(core(), best_cores[0]))
        line = __LINE__;
    if (line)
        fprintf(stderr, "%s wanted%s%s: %s", found, c->warning ? ", warning: " : "",
                c->warning ? c->warning : "",
                strstr(text, "\nblas") ? strstr(text, "\nblas") : text);
    free(text);
    return line;
}

static void check_case(const Case *c)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(opened(c) ? 1 : 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ended with %x",
                  (unsigned)status);
}

START_TEST(best_kernels)
{
    check_case(&(Case){.core = NULL});
    check_case(&(Case){.set = {{"FAKE_PARALLEL", "0"}}});
    /* its own choice is kept */
    check_case(&(Case){.set = {{"FAKE_CORE", "Newlake"}}, .core = "Newlake"});
    if (!sanitized())                              /* a sanitizer allows no copies */
        check_case(&(Case){.loaded = true});       /* with threads of its own: a copy */
}
END_TEST

/* A variable that is set while the library loads again stays set. */
static int set_meanwhile(void)
{
    Blas x;
    setenv("OPTC_BLAS", fake_library(), 1);
    setenv("FAKE_LOADS", "0", 1);
    unsetenv("OPENBLAS_CORETYPE");
    if (blas_open(&x, "test") != OPTC_OK || getenv("OPENBLAS_CORETYPE"))
        return __LINE__;
    return strcmp(getenv("FAKE_LOADS"), best_core() == best_cores[0] ? "1" : "2") != 0;
}

START_TEST(variables)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(set_meanwhile() ? 1 : 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ended with %x",
                  (unsigned)status);
}
END_TEST

START_TEST(other_kernels)
{
    if (best_core() == best_cores[0])
        return;
    char newest[40], ask[120];
    snprintf(newest, sizeof newest, "%s", best_core());
    snprintf(ask, sizeof ask,
             "the process loaded this library before optc; set OPENBLAS_CORETYPE=%s", newest);
    const char *old = best_cores[0];
    check_case(&(Case){.set = {{"OPENBLAS_CORETYPE", old}}, .core = old,
                       .warning = "OPENBLAS_CORETYPE chooses them; unset it"});
    check_case(&(Case){.set = {{"OPENBLAS_CORETYPE", "Newlake"}}, .core = "Newlake"});
    check_case(&(Case){.set = {{"FAKE_PARALLEL", "0"}}, .loaded = true, .core = old,
                       .warning = ask});
    check_case(&(Case){.set = {{"FAKE_BUILD", "OpenBLAS 0.3.99 MAX_THREADS=64"}}, .core = old,
                       .warning = "this OpenBLAS has no others; install one that is built with"});
    check_case(&(Case){.set = {{"FAKE_STAYS", "1"}}, .core = old,
                       .warning = "it could not be loaded again with others; set OPENBLAS_"});
    check_case(&(Case){.set = {{"FAKE_NEWEST", newest}}, .core = old,
                       .warning = "this OpenBLAS has no others"});
}
END_TEST

/* Threads that open it at the same time get one library, and others that read variables meanwhile
 * find theirs. */
static volatile int stop_reading, lost;
static void *reads(void *arg)
{
    while (!stop_reading)
        lost += !getenv("OPTC_BLAS");
    return arg;
}
static void *opens(void *arg)
{
    return blas_open(arg, "test") == OPTC_OK ? arg : NULL;
}

static int opened_together(void)
{
    enum { THREADS = 4 };
    Blas x[THREADS];
    pthread_t t[THREADS], reader;
    void *ok;
    int wrong = 0;
    setenv("OPTC_BLAS", fake_library(), 1);
    unsetenv("OPENBLAS_CORETYPE");
    wrong += pthread_create(&reader, NULL, reads, NULL) != 0;
    for (int i = 0; i < THREADS; i++)
        wrong += pthread_create(&t[i], NULL, opens, &x[i]) != 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], &ok);
        wrong += !ok || x[i].gemm[0] != x[0].gemm[0] || !strstr(x[i].about, best_core());
    }
    stop_reading = 1;
    pthread_join(reader, NULL);
    return wrong + (lost != 0);
}

START_TEST(by_threads)
{
    for (int again = 0; again < 8; again++) {
        int status = 0;
        pid_t pid = fork();
        if (!pid)
            _exit(opened_together());
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ended with %x",
                      (unsigned)status);
    }
}
END_TEST

/* A child that is forked while another thread opens it opens it too. */
static int forked_meanwhile(void)
{
    int told[2], status = 0;
    char number[16], byte;
    pthread_t thread;
    Blas x;
    void *ok;
    if (pipe(told))
        return __LINE__;
    snprintf(number, sizeof number, "%d", told[1]);
    setenv("FAKE_SLOW", number, 1);
    setenv("OPTC_BLAS", fake_library(), 1);
    if (pthread_create(&thread, NULL, opens, &x) || read(told[0], &byte, 1) != 1)
        return __LINE__;
    pid_t pid = fork();
    if (!pid) {
        alarm(20);                                 /* ends a child that waits for ever */
        _exit(blas_open(&x, "test") != OPTC_OK);
    }
    pthread_join(thread, &ok);
    return !ok || waitpid(pid, &status, 0) != pid || status ? __LINE__ : 0;
}

START_TEST(by_children)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(forked_meanwhile() != 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "it ended with %x", (unsigned)status);
}
END_TEST

Suite *blas_kernels_suite(void)
{
    Suite *s = suite_create("blas_kernels");
    TCase *t = tcase_create("blas_kernels");
    tcase_add_test(t, best_kernels);
    tcase_add_test(t, variables);
    tcase_add_test(t, other_kernels);
    tcase_add_test(t, by_threads);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, by_children);
    suite_add_tcase(s, t);
    return s;
}

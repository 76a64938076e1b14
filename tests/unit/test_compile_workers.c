/* NVRTC in worker processes (runtime/library/tune/compile_workers.c): results, dropped jobs, killed
 * workers. Needs a real NVRTC. */
#include "tests/harness/help.h"
#include "tests/harness/real_nvrtc.h"
#include "tests/harness/suites.h"

#include "runtime/library/tune/compile_workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS = 6 };
static const char program[] =
    "extern \"C\" __global__ void k%d(float *p) { p[threadIdx.x] += %d; }";
static void check_jobs(Workers *w, const Nvrtc *n, int arch)
{
    Job *job[JOBS], *vain[JOBS];
    char source[JOBS][200];
    for (int i = 0; i < JOBS; i++) {
        snprintf(source[i], sizeof source[i],
                 i ? program : "extern \"C\" __global__ void k%d() { no_such_name = %d; }", i, i);
        job[i] = workers_begin(w, source[i], "job", arch, false);
        vain[i] = workers_begin(w, source[i], "vain", arch, false);
        ck_assert(job[i] && vain[i]);
    }
    for (int i = 0; i < JOBS; i++)                 /* some are running, some wait */
        workers_drop(vain[i]);
    workers_hurry(job[JOBS - 1]);
    for (int i = 0; i < JOBS; i++) {
        char *log, *as_here = NULL;
        size_t size, want = 0;
        char *code = workers_result(job[i], &size, &log),
            *here = nvrtc_build(n, source[i], "job", arch, false, &want, &as_here);
        ck_assert_msg(i ? code && here && size == want && !memcmp(code, here, size)
                        : !code && log && !strcmp(log, as_here),
                      "job %d: %s", i, log ? log : "other code");
        free(code);
        free(here);
        free(log);
        free(as_here);
    }
}

/* A dropped job that waits is never started: it would read a pipe without a writer. */
static void check_dropped(Workers *w, int arch)
{
    static const char slow[] = "extern \"C\" __global__ void k(float *p)\n{\n#pragma unroll\n    "
                               "for (int i = 0; i < 4000; i++)\n        p[i] "
                               "= sqrtf(p[i + 1]) + i;\n}\n";
    char dir[] = "/tmp/optc-test-XXXXXX", pipe[64], text[100], *log;
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(pipe, sizeof pipe, "%s/pipe", dir);
    snprintf(text, sizeof text, "#include \"%s\"\n", pipe);
    ck_assert(!mkfifo(pipe, 0600));
    Job *busy[2], *waiting[4];
    for (int i = 0; i < 2; i++)                    /* for both processes */
        busy[i] = workers_begin(w, slow, "slow", arch, false);
    for (int i = 0; i < 4; i++)
        waiting[i] = workers_begin(w, text, "never", arch, false);
    for (int i = 0; i < 4; i++)
        workers_drop(waiting[i]);
    for (int i = 0; i < 2; i++) {
        size_t size;
        char *code = workers_result(busy[i], &size, &log);
        ck_assert_msg(code != NULL, "%s", log);
        free(code);
        free(log);
    }
    check_jobs(w, nvrtc_get(NULL), arch);
    ck_assert_int_eq(open(pipe, O_WRONLY | O_NONBLOCK), -1);
    ck_assert_int_eq(errno, ENXIO);                /* no process has it open */
    ck_assert(!unlink(pipe) && !rmdir(dir));
}

/* More jobs than processes: the same bytes as in this process. If the workers are killed, this
 * process compiles; when they end, no trace is left. */
START_TEST(workers)
{
    int arch[64];
    const Nvrtc *n = forked() ? real_nvrtc("NVRTC in worker processes") : NULL;
    if (!n)
        return;
    ck_assert_int_gt(nvrtc_archs(n, arch, 64), 0);
    Workers *w = workers_start(2);
    ck_assert(w && workers_alive(w) == 2);
    check_jobs(w, n, arch[0]);
    check_dropped(w, arch[0]);
    ck_assert_int_eq(workers_alive(w), 2);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);                               /* the group of this test: its workers */
    check_jobs(w, n, arch[0]);
    ck_assert_int_eq(workers_alive(w), 0);
    workers_end(w);
    /* A program that kills NVRTC kills neither this process nor all workers. */
    int err = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    /* a sanitizer in the workers prints much */
    ck_assert(err >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    w = workers_start(4);
    ck_assert(dup2(err, STDERR_FILENO) >= 0 && !close(err) && !close(nowhere));
    ck_assert(w && workers_alive(w) == 4);
    size_t deep = 400000, size = 0;
    char *source = malloc(deep + 40), *log = NULL;
    ck_assert(source != NULL);
    memset(source + sprintf(source, "int x = "), '(', deep);
    source[8 + deep] = 0;
    ck_assert(!workers_result(workers_begin(w, source, "deep", arch[0], false), &size, &log) &&
              log && *log);
    ck_assert_msg(workers_alive(w) >= 2, "%s", log);
    free(log);
    free(source);
    check_jobs(w, n, arch[0]);
    workers_end(w);
    ck_assert_msg(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a worker was left");
    workers_end(NULL);
    check_jobs(NULL, n, arch[0]);
}
END_TEST

Suite *compile_workers_suite(void)
{
    Suite *s = suite_create("compile_workers");
    TCase *t = tcase_create("compile_workers");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, workers);
    suite_add_tcase(s, t);
    return s;
}

/* Profiles: times that add up, planned bytes, bounded memory, files, other processes, threads. */
#include "tests/harness/help.h"

#include "runtime/library/profile/profile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_rule(Fixture *f, const char *spec, int threads, int64_t rows, int64_t cols)
{
    const TestShape shape = {2, {rows, cols}};
    fix_open(f, &(optc_engine_options){.threads = threads, .cache_dir = getenv("OPTC_TEST_CACHE")},
             &(optc_rule_options){.spec = spec}, &shape, 1, NULL, 0);
}

static void take_steps(Fixture *f, int n)
{
    for (int i = 0; i < n; i++)
        OK(optc_step(f->binding));
}

/* NULL: there is no such row. The recording is stopped. */
static ProfileRow *find_row(const char *name)
{
    const Recording *r = profile_lock();
    profile_unlock();
    for (int i = 0; i < r->nrow; i++)
        if (strstr(r->row[i].name, name))
            return &r->row[i];
    return NULL;
}

/* ---- times ---- */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The stages of a step are consecutive intervals inside the step. A loaded machine may interrupt a
 * step between two stages, but not most of the steps: the median decides. */
START_TEST(adds_up)
{
    static const struct { const char *spec; int threads; } c[] = {
        {"adamw", 1}, {"adamw", 2}, {"muon", 1}, {"muon", 2},
                                                                  {"adafactor", 2}};
    enum { N = 21 };
    Fixture f;
    double share[N];
    int steps = 0;
    /* the sanitizers slow the code between stages, not the rule's own */
    int side = sanitized() ? 512 : 256;
    open_rule(&f, c[_i].spec, c[_i].threads, side, side);
    take_steps(&f, 2);
    OK(optc_profile_start());
    take_steps(&f, N);
    OK(optc_profile_stop());
    take_steps(&f, 1);                                         /* not recorded */
    const Recording *r = profile_lock();
    profile_unlock();
    for (int i = 0, first = 0; i < r->nevent; i++) {
        const ProfileEvent *e = &r->event[i];
        int64_t sum = 0;
        if (r->row[e->row].kind != ROW_ENTRY)
            continue;
        for (int k = first; k < i; k++) {
            const ProfileEvent *x = &r->event[k];
            ck_assert_int_eq(r->row[x->row].of, e->row);
            ck_assert(x->begin >= e->begin && x->ns >= 0 && x->begin + x->ns <= e->begin + e->ns);
            for (int j = first; j < k; j++)
                ck_assert(r->event[j].begin + r->event[j].ns <= x->begin ||
                          x->begin + x->ns <= r->event[j].begin);
            sum += x->ns;
        }
        ck_assert_int_lt(steps, N);
        share[steps++] = (double)sum / (double)e->ns;
        first = i + 1;
    }
    ck_assert_int_eq(steps, N);
    qsort(share, N, sizeof *share, by_value);
    ck_assert_msg(share[N / 2] >= 0.95 && share[N - 1] <= 1,
                  "%s, %d threads: stages are %.3f of the step", c[_i].spec, c[_i].threads,
                  share[N / 2]);
    ck_assert_int_eq(find_row(" step")->count, N);
    fix_close(&f);
}
END_TEST

/* ---- bytes and flops ---- */
START_TEST(planned_work)
{
    static const char *const spec[] = {"adamw", "muon", "lamb"};
    Fixture f;
    optc_bytes plan;
    open_rule(&f, spec[_i], 1, 40, 24);
    OK(optc_profile_start());
    take_steps(&f, 3);
    OK(optc_profile_stop());
    const ProfileRow *all = find_row(" step");
    OK(optc_plan_bytes(f.binding, "step", 1, &plan));
    ck_assert_msg(all && all->bytes == 3 * (plan.read + plan.written),
                  "%s: %.0f bytes instead of %.0f", spec[_i], all ? all->bytes : 0,
                  3 * (plan.read + plan.written));
    const ProfileRow *mm = find_row("mm (");
    ck_assert((mm != NULL) == !strcmp(spec[_i], "muon"));
    ck_assert(!mm || (mm->flops > 0 && mm->flops == all->flops));
    ck_assert(mm || all->flops == 0);
    char *table = optc_profile_text(0);
    ck_assert(table && strstr(table, spec[_i]) && strstr(table, "memory of cpu") &&
              strstr(table, "GB/s"));
    free(table);
    fix_close(&f);
}
END_TEST

/* Compilations and cache lookups. The second compilation finds the first one's code. */
START_TEST(compilations)
{
    char dir[] = "/tmp/optc-profile-XXXXXX", command[100];
    ck_assert(mkdtemp(dir));
    OK(optc_profile_start());
    for (int i = 0; i < 2; i++) {
        optc_engine *e;
        optc_rule *r;
        OK(optc_open(&(optc_engine_options){.cache_dir = dir, .no_builtin = 1}, &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = "sgd"}, &r));
        OK(optc_release(r));
        OK(optc_close(e));
    }
    OK(optc_profile_stop());
    const ProfileRow *whole = find_row("optc_compile sgd"), *cc = find_row("C compiler: sgd");
    ck_assert(whole && whole->count == 2 && cc && cc->count == 1 && cc->ns < whole->ns);
    ck_assert(find_row("cache miss: so") && find_row("cache miss: so")->count == 1);
    ck_assert(find_row("cache hit: so") && find_row("cache hit: so")->count == 1);
    snprintf(command, sizeof command, "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* The reference evaluator has no stages: its run is one interval. */
START_TEST(evaluator)
{
    Fixture f;
    const TestShape shape = {1, {7}};
    fix_open(&f, &(optc_engine_options){.cache_dir = "", .compiler = "", .no_builtin = 1},
             &(optc_rule_options){.spec = "sgd"}, &shape, 1, NULL, 0);
    OK(optc_profile_start());
    take_steps(&f, 2);
    OK(optc_profile_stop());
    const ProfileRow *x = find_row("reference evaluator");
    ck_assert(x && x->count == 2 && x->ns == find_row("sgd step")->ns);
    fix_close(&f);
}
END_TEST

/* ---- bounds and refusals ---- */
START_TEST(bounded)
{
    Fixture f;
    open_rule(&f, "sgd", 1, 1, 1);
    OK(optc_profile_start());
    int steps = 0;
    const Recording *r = profile_lock();
    profile_unlock();
    for (; r->nevent < MOST_EVENTS && steps < MOST_EVENTS; steps++)
        OK(optc_step(f.binding));
    take_steps(&f, 1000);
    OK(optc_profile_stop());
    ck_assert_int_eq(r->nevent, MOST_EVENTS);
    ck_assert(r->dropped >= 1000);
    ck_assert_int_eq(find_row("sgd step")->count, steps + 1000);
    char *table = optc_profile_text(0);
    ck_assert(table && strstr(table, "later ones are only in this table"));
    free(table);
    fix_close(&f);
}
END_TEST

START_TEST(refused)
{
    FAILS(optc_profile_stop(), OPTC_ERROR_ARGUMENT, "no profile is recording");
    OK(optc_profile_start());
    FAILS(optc_profile_start(), OPTC_ERROR_BUSY, "a profile is recording already");
    ck_assert(optc_profile_active());
    OK(optc_profile_stop());
    ck_assert(!optc_profile_active());
    FAILS(optc_profile_save(NULL), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_profile_save(""), OPTC_ERROR_ARGUMENT, "empty");
    FAILS(optc_profile_save("/"), OPTC_ERROR_IO, "'/' cannot be written: Is a directory");
    FAILS(optc_profile_save("/dev/full"), OPTC_ERROR_IO, "No space left on device");
    FAILS(optc_profile_save("/no such folder/x"), OPTC_ERROR_IO, "No such file");
}
END_TEST

/* ---- threads: recordings start and stop while other threads run ---- */
static int stepping;
static void *step_on(void *arg)
{
    Fixture *f = arg;
    while (__atomic_load_n(&stepping, __ATOMIC_SEQ_CST))
        if (optc_step(f->binding) != OPTC_OK)
            return f;
    return NULL;
}

START_TEST(threads)
{
    Fixture f[2];
    pthread_t t[2];
    void *failed;
    __atomic_store_n(&stepping, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++) {
        open_rule(&f[i], i ? "adamw" : "lamb", 1, 3, 5);
        ck_assert(!pthread_create(&t[i], NULL, step_on, &f[i]));
    }
    for (int i = 0; i < 50; i++) {
        OK(optc_profile_start());
        usleep(500);
        char *text = optc_profile_text(i % 2);
        ck_assert(text != NULL);
        free(text);
        OK(optc_profile_stop());
    }
    __atomic_store_n(&stepping, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++) {
        ck_assert(!pthread_join(t[i], &failed) && !failed);
        fix_close(&f[i]);
    }
}
END_TEST

/* ---- NVTX ---- */
START_TEST(nvtx_ranges)
{
    char dir[] = "/tmp/optc-nvtx-XXXXXX", text[400];
    ck_assert(mkdtemp(dir));
    snprintf(text, sizeof text,
             "echo 'int depth, most; int nvtxRangePushA(const char *s) { most += *s == 115; return "
             "depth++; } "
             "int nvtxRangePop(void) { return --depth; }' | "
             "cc -shared -fPIC -x c - -Wl,-soname,libnvToolsExt.so.1 -o %s/libnvToolsExt.so.1",
             dir);
    ck_assert_int_eq(system(text), 0);
    snprintf(text, sizeof text, "%s/libnvToolsExt.so.1", dir);
    void *h = dlopen(text, RTLD_NOW);
    ck_assert_msg(h, "%s", dlerror());
    Fixture f;
    open_rule(&f, "sgd", 1, 4, 4);
    OK(optc_profile_start());
    take_steps(&f, 5);
    OK(optc_profile_stop());
    take_steps(&f, 2);
    int *depth = dlsym(h, "depth"), *most = dlsym(h, "most");
    ck_assert(depth && most && *depth == 0 && *most == 5);
    fix_close(&f);
    ck_assert(!unlink(text) && !rmdir(dir));
}
END_TEST

/* ---- $OPTC_PROFILE: other processes run the case `profiled process` below ---- */
static char folder[64];

/* the caller frees it; NULL: no such file */
static char *file_text(const char *name)
{
    char path[128], *text = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f || !text) {
        free(text);
        return NULL;
    }
    text[fread(text, 1, (1 << 20) - 1, f)] = 0;
    fclose(f);
    return text;
}

/* Runs the case with OPTC_PROFILE=value, a name in the folder if it does not begin with '/'.
 * Returns what it printed to stderr. Suites need the current folder, so it stays. */
static char *run_process(const char *value, const char *more)
{
    char exe[1000], command[1600];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    ck_assert(n > 0);
    exe[n] = 0;
    bool inside = *value && *value != '/';
    snprintf(command, sizeof command,
             "OPTC_PROFILE='%s%s%s' CK_FORK=no CK_RUN_SUITE=profile CK_RUN_CASE='profiled process' "
             "%s '%s' "
             ">/dev/null 2>%s/said",
             inside ? folder : "", inside ? "/" : "", value, more, exe, folder);
    ck_assert_int_eq(system(command), 0);
    return file_text("said");
}

static int count_text(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

START_TEST(environment)
{
    strcpy(folder, "/tmp/optc-profile-XXXXXX");
    ck_assert(mkdtemp(folder));
    char *said = run_process("out.json", ""), *trace = file_text("out.json"), name[40], path[160];
    ck_assert_msg(said && count_text(said, "optc profile of process") == 1 &&
                      strstr(said, "/out.json\n") && strstr(said, "adamw step"),
                  "%s", said);
    ck_assert(trace && !strncmp(trace, "{\"displayTimeUnit\"", 18) &&
              strstr(trace, "\"cat\":\"stage\"") && !strcmp(trace + strlen(trace) - 2, "}\n"));
    free(said);
    free(trace);
    /* a second process while another one has the file; the first one's file stays */
    snprintf(path, sizeof path, "%s/out.json", folder);
    int fd = open(path, O_RDWR);
    ck_assert(fd >= 0 && !flock(fd, LOCK_EX) && !ftruncate(fd, 0));
    said = run_process("out.json", "");
    int pid = 0;
    const char *at = strstr(said, "/out.");
    ck_assert_msg(at && sscanf(at, "/out.%d.json", &pid) == 1, "%s", said);
    snprintf(name, sizeof name, "out.%d.json", pid);
    ck_assert((trace = file_text(name)) && *trace);
    free(trace);
    ck_assert((trace = file_text("out.json")) && !*trace);
    free(trace);
    free(said);
    close(fd);
    /* a child of fork writes its own file */
    said = run_process("forked", "PROFILE_FORKS=1");
    ck_assert_msg(said && count_text(said, "optc profile of process") == 2 &&
                      count_text(said, "/forked") == 2 && count_text(said, "/forked.") == 1,
                  "%s", said);
    free(said);
    snprintf(path, sizeof path, "rm -r %s", folder);
    ck_assert_int_eq(system(path), 0);
}
END_TEST

/* Values that name no file give one warning, and the program runs. */
START_TEST(hostile_values)
{
    static const struct { const char *value, *says; int tables; } c[] = {
        {"", "optc: OPTC_PROFILE is empty", 0},
        {"/", "optc: OPTC_PROFILE: '/' cannot be written: Is a directory; only the table", 1},
        {"/no such folder/x", "cannot be written: No such file or directory; only the table", 1},
        {"fifo", "cannot be written: it is not a file; only the table", 1},
        {"/dev/full", "cannot be written: No space left on device; only the table", 1}};
    char path[160];
    strcpy(folder, "/tmp/optc-profile-XXXXXX");
    ck_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/fifo", folder);
    ck_assert(!mkfifo(path, 0600));
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char *said = run_process(c[i].value, "");
        ck_assert_msg(said && strstr(said, c[i].says) && count_text(said, "optc: ") == 1 &&
                          count_text(said, "optc profile of") == c[i].tables,
                      "'%s': %s", c[i].value, said);
        free(said);
    }
    snprintf(path, sizeof path, "rm -r %s", folder);
    ck_assert_int_eq(system(path), 0);
}
END_TEST

START_TEST(profiled_process)
{
    Fixture f;
    open_rule(&f, "adamw", 1, 4, 4);
    take_steps(&f, 3);
    pid_t child = getenv("PROFILE_FORKS") ? fork() : -1;
    if (!child) {
        take_steps(&f, 2);
        exit(0);
    }
    int status = 0;
    ck_assert(child < 0 || (waitpid(child, &status, 0) == child && !status));
    fix_close(&f);
}
END_TEST

Suite *profile_suite(void)
{
    Suite *s = suite_create("profile");
    TCase *t = tcase_create("profile"), *process = tcase_create("profiled process");
    tcase_add_loop_test(t, adds_up, 0, 5);
    tcase_add_loop_test(t, planned_work, 0, 3);
    tcase_add_test(t, compilations);
    tcase_add_test(t, evaluator);
    tcase_add_test(t, bounded);
    tcase_add_test(t, refused);
    tcase_add_test(t, threads);
    tcase_add_test(t, nvtx_ranges);
    tcase_add_test(t, environment);
    tcase_add_test(t, hostile_values);
    tcase_add_test(process, profiled_process);
    suite_add_tcase(s, t);
    suite_add_tcase(s, process);
    return s;
}

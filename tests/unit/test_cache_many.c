/* The cache under concurrency: processes and threads that want the same entry, locks of every kind,
 * builders that are killed, fail or take too long. */
#include "tests/harness/cache_home.h"

/* A lock timeout of forever: a process that would wait for it is ended by the test's timeout. */
static Cache open_patient(void)
{
    Cache c = open_in(dir, NULL, 0);
    c.wait_ms = 1000000000;
    return c;
}

static void crowd(int n, int want_builds_at_most, void (*prepare)(void))
{
    int gate[2], failed = 0;
    pid_t pid[200];
    ck_assert_int_eq(pipe(gate), 0);
    for (int i = 0; i < n; i++)
        if ((pid[i] = fork()) == 0) {
            char c;
            if (prepare)
                prepare();
            Cache mine = open_patient();
            close(gate[1]);
            (void)!read(gate[0], &c, 1);           /* all start when the other end closes */
            _exit(obtain(&mine, key, 30) >= 0 ? 0 : 1);
        }
    close(gate[0]);
    nap(200);
    close(gate[1]);
    for (int i = 0; i < n; i++) {
        int st = -1;
        ck_assert_int_gt(pid[i], 0);
        waitpid(pid[i], &st, 0);
        failed += st != 0;
    }
    ck_assert_msg(failed == 0, "%d of %d processes failed", failed, n);
    ck_assert_msg(count_runs() >= 1 && count_runs() <= want_builds_at_most, "%d builds",
                  count_runs());
    Cache c = open_in(dir, NULL, 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    ck_assert_int_eq(files_in(dir), 2);
    cache_close(&c);
}

START_TEST(two_hundred_processes) { crowd(200, 1, NULL); }
END_TEST

/* Builds that take no time: sometimes an entry appears between another process's lookup and its
 * lock. */
START_TEST(one_build_a_key)
{
    enum { PROCESSES = 8, KEYS = 300 };
    pid_t pid[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        if ((pid[p] = fork()) == 0) {
            Cache c = open_patient();
            int bad = 0;
            char k[33];
            for (int i = 0; i < KEYS; i++) {
                snprintf(k, sizeof k, "%08x%024x", i, i);
                bad += obtain(&c, k, 0) < 0;
            }
            _exit(bad != 0);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int st = -1;
        waitpid(pid[p], &st, 0);
        ck_assert_int_eq(st, 0);
    }
    ck_assert_int_eq(count_runs(), KEYS);
}
END_TEST

/* Makes fcntl report a kernel without open-file locks, or a file system without locks. */
static void refuse_locks(int fallback_errno)
{
    unsigned refuse = SECCOMP_RET_ERRNO | (unsigned)(fallback_errno & SECCOMP_RET_DATA);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fcntl, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, fallback_errno ? refuse : SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog prog = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
        _exit(77);
}

static void old_kernel(void) { refuse_locks(0); }
static void no_locks(void) { refuse_locks(ENOLCK); }

static bool can_filter(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        no_locks();
        int fd = open("/dev/null", O_RDWR);
        struct flock l = {.l_type = F_WRLCK, .l_len = 1};
        _exit(fcntl(fd, F_OFD_SETLK, &l) == -1 && errno == EINVAL && fcntl(fd, F_SETLK, &l) == -1 &&
              errno == ENOLCK ? 0 : 77);
    }
    int st = -1;
    waitpid(pid, &st, 0);
    return st == 0;
}

START_TEST(locks_of_processes) { if (can_filter()) crowd(20, 1, old_kernel); }
END_TEST

START_TEST(no_locks_at_all) { if (can_filter()) crowd(20, 20, no_locks); }
END_TEST

typedef struct { const Cache *c; char key[33]; pthread_barrier_t *gate; int got; } Thread;

static void *thread_main(void *arg)
{
    Thread *t = arg;
    pthread_barrier_wait(t->gate);
    t->got = obtain(t->c, t->key, 30);
    return NULL;
}

/* Threads exclude each other like processes, and different keys do not wait for each other. */
START_TEST(threads)
{
    enum { N = 16, KEYS = 4 };
    Cache c = open_patient();
    pthread_barrier_t gate;
    pthread_t id[N];
    Thread t[N];
    int built = 0;
    pthread_barrier_init(&gate, NULL, N);
    for (int i = 0; i < N; i++) {
        t[i] = (Thread){.c = &c, .gate = &gate, .got = -9};
        snprintf(t[i].key, sizeof t[i].key, "%08x%024x", i % KEYS, 7);
        ck_assert_int_eq(pthread_create(&id[i], NULL, thread_main, &t[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(id[i], NULL);
        ck_assert_int_ge(t[i].got, 0);
        built += t[i].got == 0;
    }
    ck_assert_int_eq(built, KEYS);
    ck_assert_int_eq(count_runs(), KEYS);
    pthread_barrier_destroy(&gate);
    cache_close(&c);
}
END_TEST

/* A child that builds until it is killed. Returns when it holds the lock. */
static pid_t endless_builder(void)
{
    int before = count_runs();
    pid_t pid = fork();
    if (pid == 0) {
        Cache c = open_in(dir, NULL, 0);
        _exit(obtain(&c, key, 100000));
    }
    while (count_runs() == before)
        nap(10);
    ck_assert_int_eq(count_runs(), before + 1);
    return pid;
}

START_TEST(killed_builder)
{
    char left[200], young[200], strange[200], path[200];
    pid_t pid = endless_builder();
    snprintf(left, sizeof left, "%s/.%s.aB3xYz", dir, key);
    snprintf(young, sizeof young, "%s/.%s.aB3xY0", dir, key);
    snprintf(strange, sizeof strange, "%s/.%s.aB3xYz7", dir, key);
    spill(left, "half", 4);
    spill(young, "half", 4);
    spill(strange, "not ours", 8);
    set_age(left, 7200);
    set_age(strange, 7200);
    Cache c = open_patient();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    entry_path(path, dir, key);
    ck_assert(exists(path));
    ck_assert_msg(!exists(left), "an old leftover was not swept");
    ck_assert_msg(exists(young), "a leftover that may be in work was swept");
    ck_assert_msg(exists(strange), "a file that is not ours was removed");
    cache_close(&c);
}
END_TEST

/* Killed while others wait: one of them continues at once. */
START_TEST(killed_before_waiters)
{
    pid_t pid = endless_builder(), waiter[5];
    for (int i = 0; i < 5; i++)
        if ((waiter[i] = fork()) == 0) {
            Cache c = open_patient();
            _exit(obtain(&c, key, 30) >= 0 ? 0 : 1);
        }
    nap(100);
    ck_assert_int_eq(count_runs(), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 5; i++) {
        int st = -1;
        waitpid(waiter[i], &st, 0);
        ck_assert_int_eq(st, 0);
    }
    ck_assert_int_eq(count_runs(), 2);
}
END_TEST

START_TEST(failed_build)
{
    Cache c = open_patient();
    CacheSlot s;
    size_t n;
    ck_assert_ptr_null(cache_begin(&s, &c, key, "so", true, &n));
    ck_assert(!cache_end(&s, NULL, 0, NULL));
    ck_assert_int_eq(obtain(&c, key, 0), 0);       /* the next one need not wait */
    cache_close(&c);
}
END_TEST

START_TEST(lock_timeout)
{
    pid_t pid = endless_builder();
    Cache c = open_in(dir, NULL, 0);
    ck_assert_int_ge(c.wait_ms, 10000);
    c.wait_ms = 300;
    double t0 = seconds();
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    double waited = seconds() - t0;
    ck_assert_msg(waited >= 0.3, "waited %g s", waited);
    ck_assert_int_eq(obtain(&c, key, 0), 1);       /* built without the lock, and still stored */
    char k2[33] = "ffeeddccbbaa99887766554433221100";
    c.wait_ms = 1000000000;
    ck_assert_int_eq(obtain(&c, k2, 0), 0);        /* another key has another lock */
    CacheSlot s;
    size_t n;
    char k3[33];
    /* a key that shares the lock: a lookup does not wait */
    snprintf(k3, sizeof k3, "%.8s%024x", key, 3);
    ck_assert_ptr_null(cache_begin(&s, &c, k3, "so", false, &n));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cache_close(&c);
}
END_TEST

Suite *cache_many_suite(void)
{
    Suite *s = suite_create("cache_many");
    TCase *t = tcase_create("cache_many");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_home, drop_home);
    tcase_add_test(t, two_hundred_processes);
    tcase_add_test(t, one_build_a_key);
    tcase_add_test(t, locks_of_processes);
    tcase_add_test(t, no_locks_at_all);
    tcase_add_test(t, threads);
    tcase_add_test(t, killed_builder);
    tcase_add_test(t, killed_before_waiters);
    tcase_add_test(t, failed_build);
    tcase_add_test(t, lock_timeout);
    suite_add_tcase(s, t);
    return s;
}

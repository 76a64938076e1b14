/* Tuning results as files: folders, precedence, concurrent writers, killed writers. */
#include "tests/harness/tuned_home.h"

static void env(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

START_TEST(where_the_file_is)
{
    static const struct { const char *tune, *xdg, *home, *want;
    } cases[] = {{"/a/t", "/x", "/h", "/a/t"},
                 {NULL, "/x", "/h", "/x/optc/tune"},
                 {NULL, NULL, "/h", "/h/.config/optc/tune"},
                 {NULL, "", "/h", "/h/.config/optc/tune"},
                 {"", "/x", "/h", NULL},
                 {NULL, NULL, NULL, NULL},
                 {NULL, "", "", NULL}};
    char path[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        env("OPTC_TUNE", cases[i].tune);
        env("XDG_CONFIG_HOME", cases[i].xdg);
        env("HOME", cases[i].home);
        bool ok = tuned_path(path, sizeof path);
        ck_assert_int_eq(ok, cases[i].want != NULL);
        ck_assert_str_eq(path, ok ? cases[i].want : "");
    }
    env("OPTC_TUNE", "/a/path/that/is/longer/than/the/sixty-four/bytes/that/there/is/room/for");
    ck_assert(!tuned_path(path, sizeof path));
}
END_TEST

START_TEST(user_then_built_in)
{
    static const char text[] = HEAD H200 MAP KNOBS " ms=1 model=2 n=1\n"
                                                   "map f32,f32,f32 " OTHER " 2^8 " KNOBS
                                                   " ms=3 model=9 n=1\n";
    TunedSet s;
    const char *from = NULL;
    make_home();
    spill(in_home("user"), text, strlen(text));
    env("OPTC_TUNE", in_home("user"));
    env("OPTC_TUNE_SITE", "");
    tuned_open(&s);
    ck_assert_str_eq(s.why, "");                       /* the built-in ones are valid too */
    Tuned k = entry("NVIDIA H200", FORM_MAP, HASH, 28, 0, 0, 0),
          o = entry("NVIDIA H200", FORM_MAP, OTHER, 28, 0, 0, 0),
          built = entry("made", FORM_MAP, HASH, 2, 7, 8, 9);
    const Tuned *t = tuned_look(&s, &k.key, 0, 40, &from);
    ck_assert(t && t->ms == 1);
    ck_assert_str_eq(from, "user");
    t = tuned_look(&s, &o.key, 0, 40, &from);
    ck_assert(t && t->ms == 3 && t->key.bucket == 8);
    ck_assert_ptr_null(tuned_look(&s, &o.key, 10, 40, &from));         /* too far off */
    ck_assert_ptr_nonnull(tuned_look(&s, &o.key, 8, 28, &from));
    ck_assert(tuned_look(&s, &k.key, 28, 28, &from)->ms == 1);
    tuned_put(&s.builtin, &built);
    tuned_put(&s.builtin, &k);
    t = tuned_look(&s, &built.key, 0, 40, &from);
    ck_assert(t && t->ms == 7);
    ck_assert_str_eq(from, "built-in");
    ck_assert(tuned_look(&s, &k.key, 0, 40, NULL)->ms == 1);
    o.key.bucket = 8;                                  /* the exact size goes before the nearest */
    tuned_put(&s.builtin, &o);
    o.key.bucket = 10;
    ck_assert(tuned_look(&s, &o.key, 0, 40, &from)->ms == 3);
    strcpy(k.key.device, "another");
    ck_assert_ptr_null(tuned_look(&s, &k.key, 0, 40, &from));
    tuned_close(&s);
    /* a site's file is named, not read */
    env("OPTC_TUNE_SITE", in_home("user"));
    env("OPTC_TUNE", "");
    tuned_open(&s);
    ck_assert_msg(strstr(s.why, "/user: a site's results are not read any more"), "%s", s.why);
    ck_assert(s.user.n == 0);
    tuned_close(&s);
    env("OPTC_TUNE_SITE", in_home("nothing"));
    env("OPTC_TUNE", in_home("user"));
    spill(in_home("user"), "nonsense\n", 9);
    tuned_open(&s);                                    /* one bad file does not affect the others */
    ck_assert_msg(strstr(s.why, "/user:1: not a file of tuning results"), "%s", s.why);
    ck_assert(s.user.n == 0 && s.builtin.n > 0);
    tuned_close(&s);
    drop_home();
}
END_TEST

START_TEST(writing)
{
    struct stat st;
    TunedList l = list_of(HEAD H200 LINE), again = {0};
    make_home();
    const char *deep = in_home("a/b/c/tune");
    ck_assert_msg(tuned_write(&l, deep, why, sizeof why), "%s", why);
    ck_assert_str_eq(slurp(deep), HEAD H200 LINE);
    /* a link stays a link; the mode does not change */
    const char *link = in_home("link");
    ck_assert_int_eq(symlink("a/b/c/tune", link), 0);
    chmod(deep, 0640);
    l.v[0].samples = 99;
    ck_assert_msg(tuned_write(&l, link, why, sizeof why), "%s", why);
    ck_assert(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    ck_assert(stat(deep, &st) == 0 && (st.st_mode & 0777) == 0640);
    ck_assert(tuned_read(&again, link, why, sizeof why) && again.v[0].samples == 99);
    tuned_free(&again);
    const char *gone = in_home("gone");
    ck_assert_int_eq(symlink("no/where", gone), 0);
    ck_assert(!tuned_write(&l, gone, why, sizeof why));
    ck_assert_msg(strstr(why, "a symbolic link to a file that does not exist"), "%s", why);
    ck_assert(!tuned_write(&l, home, why, sizeof why));
    ck_assert_msg(strstr(why, "Is a directory"), "%s", why);
    spill(in_home("file"), "x", 1);
    ck_assert(!tuned_write(&l, in_home("file/tune"), why, sizeof why));
    ck_assert_msg(strstr(why, "Not a directory"), "%s", why);
    /* a value that would not read back is not written */
    l.v[0].ms = NAN;
    ck_assert(!tuned_write(&l, deep, why, sizeof why));
    ck_assert_msg(strstr(why, "ms="), "%s", why);
    ck_assert_ptr_nonnull(strstr(slurp(deep), "n=99"));
    char cmd[200];
    snprintf(cmd, sizeof cmd, "test \"$(ls -A %s/a/b/c)\" = tune", home);
    ck_assert_msg(system(cmd) == 0, "something is left beside it");
    tuned_free(&l);
    drop_home();
}
END_TEST

START_TEST(update)
{
    TunedList l = list_of(HEAD H200 LINE);
    TunedMerge m;
    make_home();
    const char *path = in_home("x/tune");
    ck_assert(tuned_update(path, &l, TUNED_BY_GAIN, true, 100, &m, why, sizeof why) &&
              m.added == 1);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_ne(access(in_home("x"), F_OK), 0);
    ck_assert_msg(tuned_update(path, &l, TUNED_BY_GAIN, false, 100, &m, why, sizeof why) &&
                      m.added == 1,
                  "%s", why);
    struct stat a, b;
    stat(path, &a);
    ck_assert(tuned_update(path, &l, TUNED_BY_GAIN, false, 100, &m, why, sizeof why) &&
              m.added == 0 && m.kept == 1);
    stat(path, &b);
    ck_assert_int_eq(a.st_ino, b.st_ino);              /* nothing changed, so nothing was written */
    /* a damaged file is not overwritten */
    spill(path, HEAD "junk\n", strlen(HEAD "junk\n"));
    ck_assert(!tuned_update(path, &l, TUNED_BY_GAIN, false, 100, &m, why, sizeof why));
    ck_assert_msg(strstr(why, "/x/tune:2: "), "%s", why);
    ck_assert_str_eq(slurp(path), HEAD "junk\n");
    /* another process holds the lock */
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(in_home("x/tune.lock"), O_RDWR | O_CREAT, 0600);
        struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
        _exit(fcntl(fd, F_SETLK, &f) != 0 || write(ready[1], "x", 1) != 1 || pause());
    }
    char c;
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    spill(path, HEAD, strlen(HEAD));
    ck_assert(!tuned_update(path, &l, TUNED_BY_GAIN, false, 50, &m, why, sizeof why));
    ck_assert_msg(strstr(why, "another process is writing it"), "%s", why);
    ck_assert_str_eq(slurp(path), HEAD);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert_msg(tuned_update(path, &l, TUNED_BY_GAIN, false, 1000, &m, why, sizeof why), "%s",
                  why);
    close(ready[0]);
    close(ready[1]);
    tuned_free(&l);
    drop_home();
}
END_TEST

static int wait_all(int n)
{
    int failed = 0;
    for (int i = 0, rc; i < n; i++)
        failed += wait(&rc) < 0 || rc != 0;
    return failed;
}

enum { WRITERS = 20, EACH = 10 };
START_TEST(many_merge_at_once)
{
    if (sanitized())
        return;
    make_home();
    const char *path = in_home("new/tune");
    for (int p = 0; p < WRITERS; p++)
        if (fork() == 0) {
            int bad = 0;
            for (int i = 0; i < EACH; i++) {
                TunedList one = {0};
                TunedMerge m;
                char stage[33];
                snprintf(stage, sizeof stage, "%032x", p * EACH + i);
                Tuned t = entry("X", FORM_MAP, stage, 20, 1, 2, 3),
                    all = entry("X", FORM_MAP, HASH, 20, 1, 2, 1 + p * EACH + i);
                bad += !tuned_put(&one, &t) || !tuned_put(&one, &all) ||
                    !tuned_update(path, &one, TUNED_BY_GAIN, false, 60000, &m, why, sizeof why);
                tuned_free(&one);
            }
            _exit(bad);
        }
    ck_assert_int_eq(wait_all(WRITERS), 0);
    TunedList l = {0};
    ck_assert_msg(tuned_read(&l, path, why, sizeof why), "%s", why);
    ck_assert_int_eq(l.n, WRITERS * EACH + 1);
    Tuned k = entry("X", FORM_MAP, HASH, 20, 0, 0, 0);
    ck_assert_int_eq(tuned_find(&l, &k.key)->samples, WRITERS * EACH);
    tuned_free(&l);
    drop_home();
}
END_TEST

/* Killed at any moment, however often: the file is readable. */
START_TEST(killed_while_writing)
{
    make_home();
    const char *path = in_home("tune");
    for (int round = 0; round < 15; round++) {
        pid_t pid = fork();
        if (pid == 0)
            for (int i = 0;; i++) {
                TunedList one = {0};
                TunedMerge m;
                char stage[33];
                snprintf(stage, sizeof stage, "%032x", round * 1000 + i % 1000);
                Tuned t = entry("X", FORM_MAP, stage, 20, 1, 2, 3);
                tuned_put(&one, &t);
                if (!tuned_update(path, &one, TUNED_BY_GAIN, false, 1000, &m, why, sizeof why))
                    _exit(1);
                tuned_free(&one);
            }
        usleep((unsigned)(5000 + splitmix((uint64_t)round) % 10000));
        kill(pid, SIGKILL);
        int rc;
        ck_assert(waitpid(pid, &rc, 0) == pid && WIFSIGNALED(rc));
        TunedList l = {0};
        ck_assert_msg(tuned_read(&l, path, why, sizeof why), "%s", why);
        tuned_free(&l);
    }
    drop_home();
}
END_TEST

Suite *tuned_files_suite(void)
{
    Suite *s = suite_create("tuned_files");
    TCase *t = tcase_create("tuned_files");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, where_the_file_is);
    tcase_add_test(t, user_then_built_in);
    tcase_add_test(t, writing);
    tcase_add_test(t, update);
    tcase_add_test(t, many_merge_at_once);
    tcase_add_test(t, killed_while_writing);
    suite_add_tcase(s, t);
    return s;
}

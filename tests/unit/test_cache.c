/* The cache of compiled code: damage, bases, the size limit, unusable folders, and real code. */
#include "tests/harness/cache_home.h"
#include "runtime/core/api/api.h"

/* ---- one process ---- */
START_TEST(round_trip)
{
    Cache c = open_in(dir, NULL, 0);
    char path[200];
    CacheNote note;
    ck_assert_str_eq(c.dir, dir);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    ck_assert_int_eq(count_runs(), 1);
    snprintf(path, sizeof path, "%s.so", key);
    ck_assert(cache_read_note(dir, path, &note));
    ck_assert_str_eq(note.rule, "own");
    ck_assert_str_eq(note.with, "clip(1)");
    ck_assert_str_eq(note.options, "");
    ck_assert_str_eq(note.target, "x86-64-v3");
    ck_assert_str_eq(note.compiler, "cc");
    ck_assert_int_eq(files_in(dir), 2);            /* the entry and the lock */
    struct stat st;
    entry_path(path, dir, key);
    stat(path, &st);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    /* an entry under another name is invalid, and so is one of another kind */
    char other[200], k2[33];
    key_of(k2, 0);
    entry_path(other, dir, k2);
    ck_assert_int_eq(link(path, other), 0);
    ck_assert_int_eq(obtain(&c, k2, 0), 0);
    CacheSlot s;
    size_t n;
    ck_assert_ptr_null(cache_begin(&s, &c, key, "cubin", false, &n));
    cache_close(&c);
    /* the empty folder name stores nothing */
    c = open_in("", NULL, 0);
    ck_assert_ptr_null(c.dir);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    cache_close(&c);
}
END_TEST

START_TEST(damage)
{
    Cache c = open_in(dir, NULL, 0);
    char path[200], name[48];
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    entry_path(path, dir, key);
    snprintf(name, sizeof name, "%s.so", key);
    size_t n, got;
    char *whole = slurp(path, &n);
    ck_assert(n > OBJECT);
    for (size_t i = 0; i < n; i++) {
        whole[i] ^= (char)(1 << (i % 8));
        spill(path, whole, n);
        whole[i] ^= (char)(1 << (i % 8));
        char *data = cache_read(dir, name, CACHE_LOAD, &got, NULL);
        ck_assert_msg(!data, "a bit of byte %zu of %zu was flipped and nobody saw it", i, n);
    }
    size_t cut[] = {0, 1, 31, 32, 33, 100, OBJECT - 1, OBJECT, n - 33, n - 32, n - 8, n - 1};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        int before = count_runs();
        spill(path, whole, cut[i]);
        ck_assert_int_eq(obtain(&c, key, 0), 0);   /* a miss, which is built again … */
        ck_assert_int_eq(obtain(&c, key, 0), 1);   /* … and repaired */
        ck_assert_int_eq(count_runs(), before + 1);
    }
    char *longer = malloc(n + 8);
    memcpy(longer, whole, n);
    memset(longer + n, 0, 8);
    spill(path, longer, n + 8);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    /* a folder or a pipe in its place: no wait and no error, only nothing is stored */
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    free(longer);
    free(whole);
    cache_close(&c);
}
END_TEST

/* ---- bases ---- */
START_TEST(read_only_base)
{
    char path[200], list[300];
    Cache b = open_in(base, NULL, 0);
    ck_assert_int_eq(obtain(&b, key, 0), 0);
    cache_close(&b);
    entry_path(path, base, key);
    snprintf(list, sizeof list, "%s/.lock", base);
    unlink(list);
    chmod(path, 0400);
    chmod(base, 0500);
    set_age(path, 100000);
    snprintf(list, sizeof list, "/no/such/folder::%s", base);
    Cache c = open_in(dir, list, 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    ck_assert_int_eq(count_runs(), 1);
    /* a hit in a base does not change the overlay … */
    ck_assert_int_eq(files_in(dir), 0);
    char k2[33];
    key_of(k2, 5);
    ck_assert_int_eq(obtain(&c, k2, 0), 0);        /* … a miss is stored in the overlay */
    ck_assert_int_eq(obtain(&c, k2, 0), 1);
    ck_assert_int_eq(files_in(dir), 2);
    ck_assert_int_eq(files_in(base), 1);           /* no lock, no entry, nothing is written … */
    ck_assert_int_ge(age(path), 99999);            /* … not even the access time */
    /* damaged in the base: built into the overlay; the base does not change */
    size_t n;
    char *whole = slurp(path, &n);
    whole[10] ^= 1;
    chmod(path, 0600);
    spill(path, whole, n);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    ck_assert_int_eq(files_in(base), 1);
    cache_close(&c);
    /* the same without an overlay */
    whole[10] ^= 1;
    spill(path, whole, n);
    c = open_in("", base, 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    cache_close(&c);
    setenv("OPTC_CACHE_BASE", base, 1);
    cache_open(&c, "", NULL, 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    cache_close(&c);
    unsetenv("OPTC_CACHE_BASE");
    free(whole);
}
END_TEST

START_TEST(base_of_others)
{
    char path[200];
    Cache b = open_in(base, NULL, 0), c = open_in("", base, 0);
    ck_assert_int_eq(obtain(&b, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    static const mode_t bad[] = {0770, 0707, 01777};
    for (int i = 0; i < 3; i++) {
        chmod(base, bad[i]);
        ck_assert_int_eq(obtain(&c, key, 0), 0);
    }
    chmod(base, 0755);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    entry_path(path, base, key);
    chmod(path, 0620);                             /* the permissions of the entry matter too */
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    chmod(path, 0600);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 12345, 0), 0);
        ck_assert_int_eq(obtain(&c, key, 0), 0);
        ck_assert_int_eq(chown(path, 0, 0), 0);
        ck_assert_int_eq(chown(base, 12345, 0), 0);
        ck_assert_int_eq(obtain(&c, key, 0), 0);
        ck_assert_int_eq(chown(base, 0, 0), 0);
    }
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    cache_close(&b);
    cache_close(&c);
}
END_TEST

/* ---- the cap ---- */
START_TEST(least_recently_used)
{
    char path[8][200], k[8][33], other[200];
    Cache all = open_in(dir, NULL, -1);
    for (int i = 0; i < 8; i++) {
        key_of(k[i], i);
        entry_path(path[i], dir, k[i]);
    }
    snprintf(other, sizeof other, "%s/README", dir);
    spill(other, "mine", 4);
    set_age(other, 1000000);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(obtain(&all, k[i], 0), 0);
        set_age(path[i], 86400 * (6 - i));         /* 0 is the oldest */
    }
    struct stat st;
    stat(path[0], &st);
    ck_assert_int_eq(obtain(&all, k[1], 0), 1);    /* used, so it is the newest now */
    ck_assert_int_le(age(path[1]), 60);
    ck_assert_int_ge(age(path[0]), 86400);
    set_age(path[2], 1800);
    ck_assert_int_eq(obtain(&all, k[2], 0), 1);    /* used half an hour ago: not worth a write */
    ck_assert_int_ge(age(path[2]), 1790);
    Cache c = open_in(dir, NULL, st.st_size * 4);
    ck_assert_int_eq(obtain(&c, k[6], 0), 0);      /* seven of them, room for four: 0, 3, 4 go */
    static const bool stays[] = {false, true, true, false, false, true, true};
    for (int i = 0; i < 7; i++)
        ck_assert_msg(exists(path[i]) == stays[i], "entry %d", i);
    Cache tiny = open_in(dir, NULL, 1);
    ck_assert_int_eq(obtain(&tiny, k[7], 0), 0);   /* a new entry stays, whatever the limit */
    for (int i = 0; i < 8; i++)
        ck_assert_msg(exists(path[i]) == (i == 7), "entry %d", i);
    ck_assert_int_eq(obtain(&tiny, k[7], 0), 1);
    ck_assert(exists(other));
    cache_close(&all);
    cache_close(&c);
    cache_close(&tiny);
}
END_TEST

START_TEST(sizes)
{
    static const struct { const char *text; int64_t want; } good[] = {
        {"1", 1}, {"65536", 65536}, {"64K", 65536},
            {"3m", 3 << 20}, {"2G", (int64_t)2 << 30}, {"1t", (int64_t)1 << 40}, {"0", 0}};
    static const char *const bad[] = {"",           "G",  "-1", "1.5G", "1GB",
                                      "1 G",        "1 ", " 1", "12Q",  "99999999999999999999",
                                      "9999999999G"};
    int64_t x;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(parse_size(good[i].text, &x) && x == good[i].want, "%s gave %lld",
                      good[i].text, (long long)x);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!parse_size(bad[i], &x), "'%s' was taken for a size", bad[i]);
    Cache c;
    setenv("OPTC_CACHE_MAX", "12M", 1);
    cache_open(&c, dir, NULL, 0);
    ck_assert_int_eq(c.max, 12 << 20);
    cache_close(&c);
    cache_open(&c, dir, NULL, 77);
    ck_assert_int_eq(c.max, 77);
    cache_close(&c);
    setenv("OPTC_CACHE_MAX", "0", 1);
    cache_open(&c, dir, NULL, 0);
    ck_assert_int_eq(c.max, -1);
    cache_close(&c);
    unsetenv("OPTC_CACHE_MAX");
}
END_TEST

/* Eight processes store forty entries each with a limit of ten: all succeed, and the last sweep
 * leaves ten. */
START_TEST(concurrent_eviction)
{
    pid_t pid[8];
    Cache all = open_in(dir, NULL, -1);
    char k[33], path[200];
    struct stat st;
    key_of(k, 0);
    ck_assert_int_eq(obtain(&all, k, 0), 0);
    entry_path(path, dir, k);
    ck_assert_int_eq(stat(path, &st), 0);
    for (int p = 0; p < 8; p++)
        if ((pid[p] = fork()) == 0) {
            Cache c = open_in(dir, NULL, st.st_size * 10);
            int bad = 0;
            for (int i = 0; i < 40; i++) {
                key_of(k, 1000 * p + i);
                bad += obtain(&c, k, 0) < 0;
                key_of(k, i);                      /* a key that other processes want too */
                bad += obtain(&c, k, 0) < 0;
            }
            _exit(bad);
        }
    for (int p = 0; p < 8; p++) {
        int rc = -1;
        waitpid(pid[p], &rc, 0);
        ck_assert_int_eq(rc, 0);
    }
    Cache c = open_in(dir, NULL, st.st_size * 10);
    key_of(k, 99999);
    ck_assert_int_eq(obtain(&c, k, 0), 0);
    CacheList l;
    ck_assert(cache_list(dir, &l));
    ck_assert_int_eq(l.entries, 10);
    ck_assert_int_eq(l.n, 10);                     /* no unfinished file is left */
    ck_assert_int_eq(l.bytes, st.st_size * 10);
    free(l.entry);
    cache_close(&all);
    cache_close(&c);
}
END_TEST

/* ---- folders that do not serve ---- */
/* root may write everywhere, so the child changes its user. */
static int as_nobody(int (*work)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (chown(home, 65534, 65534) != 0 || chown(dir, 65534, 65534) != 0 ||
                               setgid(65534) != 0 || setuid(65534) != 0))
            _exit(99);
        _exit(work());
    }
    int st = -1;
    waitpid(pid, &st, 0);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 98;
}

static int work_unwritable(void)
{
    Cache c = open_in(dir, NULL, 0);
    if (!c.dir || obtain(&c, key, 0) != 0)
        return 1;
    chmod(dir, 0500);
    char k2[33];
    key_of(k2, 0);
    if (obtain(&c, k2, 0) != 0 || obtain(&c, k2, 0) != 0 || obtain(&c, key, 0) != 1)
        /* existing entries are read, new ones are used from memory */
        return 2;
    Cache below = open_in(strcat(dir, "/more"), NULL, 0);
    return below.dir || !strstr(below.why, "Permission denied") ? 3 : 0;
}

START_TEST(unwritable) { ck_assert_int_eq(as_nobody(work_unwritable), 0); }
END_TEST

START_TEST(refused_folders)
{
    static const struct { mode_t mode; const char *says;
    } bad[] = {{0770, "by its group"},
               {0720, "by its group"},
               {0707, "by everyone"},
               {01777, "by everyone"}};
    for (int i = 0; i < 4; i++) {
        chmod(dir, bad[i].mode);
        Cache c = open_in(dir, NULL, 0);
        ck_assert_ptr_null(c.dir);
        ck_assert_msg(strstr(c.why, bad[i].says), "%s", c.why);
        ck_assert_int_eq(obtain(&c, key, 0), 0);
        ck_assert_int_eq(files_in(dir), 0);
        char *d = optc_doctor(&(optc_engine_options){.cache_dir = dir});
        ck_assert_msg(strstr(d, bad[i].says), "%s", d);
        free(d);
        cache_close(&c);
    }
    chmod(dir, 0755);
    Cache c = open_in(dir, NULL, 0);
    ck_assert_ptr_nonnull(c.dir);
    cache_close(&c);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(dir, 12345, 0), 0);
        c = open_in(dir, NULL, 0);
        ck_assert_ptr_null(c.dir);
        ck_assert_msg(strstr(c.why, "belongs to user 12345"), "%s", c.why);
        cache_close(&c);
        ck_assert_int_eq(chown(dir, 0, 0), 0);
    }
    spill(runs, "", 0);
    c = open_in(runs, NULL, 0);                    /* a file */
    ck_assert_ptr_null(c.dir);
    ck_assert_msg(strstr(c.why, "not a folder"), "%s", c.why);
    cache_close(&c);
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    c = open_in(longer, NULL, 0);
    ck_assert_ptr_null(c.dir);
    ck_assert_msg(strstr(c.why, "too long"), "%s", c.why);
    cache_close(&c);
}
END_TEST

START_TEST(vanished_folder)
{
    char cmd[200];
    Cache c = open_in(dir, NULL, 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    ck_assert_int_eq(system(cmd), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert(!exists(dir));
    /* removed between begin and end */
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    CacheSlot s;
    size_t n;
    ck_assert_ptr_null(cache_begin(&s, &c, key, "so", true, &n));
    ck_assert_int_eq(system(cmd), 0);
    ck_assert(!cache_end(&s, "x", 1, NULL));
    cache_close(&c);
}
END_TEST

/* A file size limit stands in for a full disk: the write fails half way. */
START_TEST(disk_full)
{
    Cache c = open_in(dir, NULL, 0);
    struct rlimit was, less = {1000, 1000};
    getrlimit(RLIMIT_FSIZE, &was);
    less.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &less), 0);
    int a = obtain(&c, key, 0), b = obtain(&c, key, 0), left = files_in(dir);
    setrlimit(RLIMIT_FSIZE, &was);
    ck_assert_int_eq(a, 0);
    ck_assert_int_eq(b, 0);
    ck_assert_int_eq(left, 1);                     /* the lock; no partial entry */
    ck_assert_int_eq(obtain(&c, key, 0), 0);
    ck_assert_int_eq(obtain(&c, key, 0), 1);
    cache_close(&c);
}
END_TEST

/* ---- real code ---- */
static const char spec_a[] = "return optimizer { name = \"own\", hyper = { lr = 0.1 }, state = { m "
                             "= zeros }, step = function() m = m + g * g; "
                             "p = p - lr * g / (sqrt(m) + 1) end }";
static const char spec_b[] = "return optimizer { name = \"two\", hyper = { lr = 0.1 }, step = "
                             "function() p = p - lr * g end }";

static uint64_t hash_of_steps(const char *text, char *path, size_t npath)
{
    static const TestShape shape[] = {{2, {33, 65}}, {1, {7}}};
    Fixture f;
    fix_open(&f, &(optc_engine_options){.threads = 1, .cache_dir = dir, .no_builtin = 1},
             &(optc_rule_options){.spec = "mine.lua", .text = text}, shape, 2, NULL, 0);
    snprintf(path, npath, "%s", optc_rule_path(f.rule));
    for (int i = 0; i < 3; i++)
        OK(optc_step(f.binding));
    uint64_t h = fix_hash(&f);
    fix_close(&f);
    return h;
}

START_TEST(eight_compile_one_rule)
{
    int to[2];
    pid_t pid[8];
    char path[256];
    uint64_t hash[8];
    ck_assert_int_eq(pipe(to), 0);
    for (int i = 0; i < 8; i++)
        if ((pid[i] = fork()) == 0) {
            struct { uint64_t hash; int compiled; } r;
            r.hash = hash_of_steps(spec_a, path, sizeof path);
            r.compiled = strstr(path, "compiled by") != NULL;
            if (!r.compiled && !strstr(path, "from the cache"))
                _exit(1);
            _exit(write(to[1], &r, sizeof r) == sizeof r ? 0 : 1);
        }
    int compiled = 0;
    for (int i = 0; i < 8; i++) {
        struct { uint64_t hash; int compiled; } r;
        int st = -1;
        waitpid(pid[i], &st, 0);
        ck_assert_int_eq(st, 0);
        ck_assert_int_eq(read(to[0], &r, sizeof r), (int)sizeof r);
        hash[i] = r.hash;
        compiled += r.compiled;
        ck_assert(hash[i] == hash[0]);
    }
    ck_assert_int_eq(compiled, 1);
    ck_assert(hash_of_steps(spec_a, path, sizeof path) == hash[0]);
    ck_assert(hash_of_steps(spec_b, path, sizeof path) != hash[0]);
    CacheList l;
    CacheNote note;
    ck_assert(cache_list(dir, &l));
    ck_assert_int_eq(l.n, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert(cache_read_note(dir, l.entry[i].name, &note));
        ck_assert(!strcmp(note.rule, "own") || !strcmp(note.rule, "two"));
        ck_assert_str_eq(note.target, isas[isa_best()].name);
        ck_assert_str_eq(note.types, "f32");
    }
    free(l.entry);
}
END_TEST

/* Two objects loaded from memory are distinct, also if the second gets the first one's descriptor;
 * each loads with its text and trailer appended. */
START_TEST(from_memory)
{
    char path[256];
    CacheList l;
    void *h[2];
    hash_of_steps(spec_a, path, sizeof path);
    hash_of_steps(spec_b, path, sizeof path);
    ck_assert(cache_list(dir, &l));
    ck_assert_int_eq(l.n, 2);
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *data = cache_read(dir, l.entry[i].name, CACHE_LOAD, &n, NULL);
        ck_assert_ptr_nonnull(data);
        h[i] = cache_load_object("/no/such/file.so", data, n);
        ck_assert_msg(h[i] != NULL, "%s", dlerror());
        free(data);
    }
    ck_assert_ptr_ne(h[0], h[1]);
    ck_assert_ptr_ne(dlsym(h[0], "optc_rule_module"), dlsym(h[1], "optc_rule_module"));
    for (int i = 0; i < 2; i++) {
        dlclose(h[i]);
        snprintf(path, sizeof path, "%s/%s", dir, l.entry[i].name);
        h[i] = cache_load_object(path, NULL, 0);
        ck_assert_msg(h[i] != NULL, "%s", dlerror());
    }
    for (int i = 0; i < 2; i++)
        dlclose(h[i]);
    free(l.entry);
}
END_TEST

/* A valid entry that cannot be loaded here (for another libc, say) is built again and replaced. */
START_TEST(useless_entry)
{
    char path[256], file[300];
    CacheList l;
    uint64_t want = hash_of_steps(spec_a, path, sizeof path);
    ck_assert(cache_list(dir, &l));
    ck_assert(cache_write(dir, l.entry[0].name, "no code at all", 14, NULL));
    ck_assert(hash_of_steps(spec_a, path, sizeof path) == want);
    ck_assert_msg(strstr(path, "compiled by"), "%s", path);
    ck_assert(hash_of_steps(spec_a, path, sizeof path) == want);
    ck_assert_msg(strstr(path, "from the cache"), "%s", path);
    snprintf(file, sizeof file, "%s/%s", dir, l.entry[0].name);
    ck_assert(exists(file));
    free(l.entry);
}
END_TEST

Suite *cache_suite(void)
{
    Suite *s = suite_create("cache");
    TCase *t = tcase_create("cache");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_home, drop_home);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, damage);
    tcase_add_test(t, read_only_base);
    tcase_add_test(t, base_of_others);
    tcase_add_test(t, least_recently_used);
    tcase_add_test(t, sizes);
    tcase_add_test(t, concurrent_eviction);
    tcase_add_test(t, unwritable);
    tcase_add_test(t, refused_folders);
    tcase_add_test(t, vanished_folder);
    tcase_add_test(t, disk_full);
    tcase_add_test(t, eight_compile_one_rule);
    tcase_add_test(t, from_memory);
    tcase_add_test(t, useless_entry);
    suite_add_tcase(s, t);
    return s;
}

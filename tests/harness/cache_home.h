/* Shared by the suites of the cache: a folder for each test, objects with known contents, and a
 * builder that appends a byte to a file per run. */
#ifndef OPTC_CACHE_HOME_H
#define OPTC_CACHE_HOME_H
#include "tests/harness/help.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char home[64], dir[80], base[80], runs[96];
static const char key[] = "00112233445566778899aabbccddeeff";
enum { OBJECT = 3001 };

static inline void make_home(void)
{
    strcpy(home, "/tmp/optc-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    snprintf(dir, sizeof dir, "%s/cache", home);
    snprintf(base, sizeof base, "%s/base", home);
    snprintf(runs, sizeof runs, "%s/runs", home);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_int_eq(mkdir(base, 0700), 0);
    chmod(home, 0711);
}

static inline void drop_home(void)
{
    char cmd[200];
    snprintf(cmd, sizeof cmd, "chmod -R u+rwx %s; rm -rf %s", home, home);
    ck_assert_int_eq(system(cmd), 0);
}

static inline Cache open_in(const char *d, const char *b, int64_t max)
{
    Cache c;
    cache_open(&c, d, b ? b : "", max);
    return c;
}

static inline void object_of(const char *k, char out[OBJECT])
{
    for (int i = 0; i < OBJECT; i++)
        out[i] = (char)splitmix((uint64_t)i + hash64(1, k, 32));
}

static inline int count_runs(void)
{
    struct stat st;
    return stat(runs, &st) == 0 ? (int)st.st_size : 0;
}

static inline void nap(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) != 0)
        ;
}

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Looks up or builds like the runtime does. Returns 1 if it was found, 0 if it was built, -1 if its
 * bytes are wrong. */
static inline int obtain(const Cache *c, const char *k, int build_ms)
{
    static const CacheNote note = {"own", "clip(1)", "", "f32", "x86-64-v3", "cc"};
    CacheSlot s;
    size_t n = 0;
    char want[OBJECT];
    object_of(k, want);
    char *got = cache_begin(&s, c, k, "so", true, &n);
    if (got) {
        bool same = n == OBJECT && !memcmp(got, want, n);
        free(got);
        return same ? 1 : -1;
    }
    int fd = open(runs, O_WRONLY | O_CREAT | O_APPEND, 0666);
    bool counted = write(fd, "x", 1) == 1;
    close(fd);
    nap(build_ms);
    cache_end(&s, want, OBJECT, &note);
    return counted ? 0 : -1;
}

static inline void entry_path(char out[200], const char *d, const char *k)
{
    snprintf(out, 200, "%.80s/%.32s.so", d, k);
}

static inline char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    char *buf = malloc(1 << 20);
    *n = fread(buf, 1, 1 << 20, f);
    fclose(f);
    return buf;
}

static inline void spill(const char *path, const char *buf, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(buf, 1, n, f) == n && fclose(f) == 0, "%s: %s", path,
                  strerror(errno));
    chmod(path, 0600);
}

static inline void set_age(const char *path, int64_t seconds)
{
    struct timespec t[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    ck_assert_msg(utimensat(AT_FDCWD, path, t, 0) == 0, "%s: %s", path, strerror(errno));
}

static inline int64_t age(const char *path)
{
    struct stat st;
    ck_assert_msg(stat(path, &st) == 0, "%s: %s", path, strerror(errno));
    return (int64_t)time(NULL) - st.st_mtime;
}

static inline bool exists(const char *path) { return access(path, F_OK) == 0; }

static inline int files_in(const char *d)
{
    int n = 0;
    DIR *p = opendir(d);
    ck_assert_ptr_nonnull(p);
    while (readdir(p))
        n++;
    closedir(p);
    return n - 2;
}

static inline void key_of(char out[33], int i) { snprintf(out, 33, "%032x", i + 1); }
#endif

/* Files of tuned results: their paths, reading, writing through a temporary file, merging under a
 * lock. */
#include "runtime/library/tuned/tuned.h"

#include "runtime/library/cache/files.h"
#include "gen/abi/embedded.h"
#include "gen/gen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_ROOM = 4200, MOST_RESULTS = 16 << 20 };

static bool say(char *why, size_t nwhy, const char *path, const char *what)
{
    snprintf(why, nwhy, "%.300s: %s", path, what);
    return false;
}

/* ---- where ---- */
static bool join(char *out, size_t n, const char *a, const char *b)
{
    int k = snprintf(out, n, "%s%s", a, b);
    if (k > 0 && (size_t)k < n)
        return true;
    if (n)
        *out = 0;
    return false;
}

bool tuned_path(char *out, size_t n)
{
    const char *s = getenv("OPTC_TUNE");
    if (s)
        return join(out, n, s, "");
    if ((s = getenv("XDG_CONFIG_HOME")) && *s)
        return join(out, n, s, "/optc/tune");
    s = getenv("HOME");
    return join(out, n, s && *s ? s : "", s && *s ? "/.config/optc/tune" : "");
}

/* ---- reading ---- */
bool tuned_read(TunedList *l, const char *path, char *why, size_t nwhy)
{
    char *text;
    size_t len;
    if (!file_load(path, MOST_RESULTS, FILE_OPTIONAL, &text, &len, why, nwhy))
        return false;
    bool ok = !text || tuned_parse(l, path, text, len, why, nwhy);
    free(text);
    return ok;
}

/* ---- writing ---- */
/* Makes the folders of a path. */
static bool make_folders(const char *path)
{
    char dir[PATH_ROOM], *last;
    snprintf(dir, sizeof dir, "%s", path);
    last = strrchr(dir, '/');
    if (!last || last == dir)
        return true;
    *last = 0;
    return folders_make(dir, 0777);
}

/* Follows symbolic links: the target is replaced, not the link, because users keep such files
 * elsewhere. A dangling link is refused. */
static bool real_path(const char *path, char out[PATH_ROOM], char *why, size_t nwhy)
{
    struct stat st;
    char *real = realpath(path, NULL);
    bool link = !real && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    bool fits = !link && strlen(real ? real : path) + 64 < PATH_ROOM;
    if (fits)
        strcpy(out, real ? real : path);
    bool folder = real && stat(real, &st) == 0 && !S_ISREG(st.st_mode);
    free(real);
    if (link)
        return say(why, nwhy, path, "a symbolic link to a file that does not exist");
    if (!fits)
        return say(why, nwhy, path, strerror(ENAMETOOLONG));
    return !folder || say(why, nwhy, path, S_ISDIR(st.st_mode) ? strerror(EISDIR) : "not a file");
}

static bool replace(const char *path, const char *text, char *why, size_t nwhy)
{
    static atomic_uint count;
    char aside[PATH_ROOM + 64];
    struct stat st;
    snprintf(aside, sizeof aside, "%s.%ld.%u.new", path, (long)getpid(),
             atomic_fetch_add(&count, 1));
    /* may be left by a killed process with the same number */
    (void)unlink(aside);
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0;
    if (ok && stat(path, &st) == 0)
        (void)fchmod(fd, st.st_mode & 0777);
    ok = ok && file_put(fd, text, strlen(text)) && fsync(fd) == 0;
    int err = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        err = errno;
    }
    if (ok && rename(aside, path) != 0) {
        ok = false;
        err = errno;
    }
    if (!ok && fd >= 0)
        (void)unlink(aside);
    if (!ok)
        snprintf(why, nwhy, "cannot write %.300s: %s", path, strerror(err));
    return ok;
}

bool tuned_write(const TunedList *l, const char *path, char *why, size_t nwhy)
{
    char real[PATH_ROOM];
    TunedList again = {0};
    char *text = tuned_text(l);
    bool ok = text ? tuned_parse(&again, "what was to be written", text, strlen(text), why, nwhy)
                   : say(why, nwhy, path, "out of memory");
    tuned_free(&again);
    if (ok && strlen(text) > MOST_RESULTS)
        ok = say(why, nwhy, path, "would be larger than 16 MiB");
    ok = ok && real_path(path, real, why, nwhy);
    if (ok && !make_folders(real)) {
        snprintf(why, nwhy, "cannot make the folder of %.300s: %s", path, strerror(errno));
        ok = false;
    }
    ok = ok && replace(real, text, why, nwhy);
    free(text);
    return ok;
}

/* ---- locks ---- */
/* Locks the file within wait_ms. false: another process holds the lock. If the system has no locks
 * this succeeds: a collision is rare, and only a measurement is lost. */
static bool lock_within(int fd, int wait_ms)
{
    for (int waited = 0, nap = 1; file_lock(fd, F_WRLCK, 0) != 0;
         waited += nap, nap = nap < 50 ? nap * 2 : nap) {
        if (errno != EAGAIN && errno != EACCES)
            return true;
        if (waited >= wait_ms)
            return false;
        nanosleep(&(struct timespec){0, nap * 1000000L}, NULL);
    }
    return true;
}

static void unlock(int fd)
{
    /* a child that was forked meanwhile has the file open too */
    (void)file_lock(fd, F_UNLCK, 0);
    close(fd);
}

static bool merge_file(const char *path, const TunedList *from, TunedHow how, bool dry,
                       TunedMerge *m, char *why, size_t nwhy)
{
    TunedList all = {0};
    bool ok = tuned_read(&all, path, why, nwhy) &&
              (tuned_merge(&all, from, how, m) || say(why, nwhy, path, "out of memory"));
    if (ok && !dry && m->added + m->replaced)
        ok = tuned_write(&all, path, why, nwhy);
    tuned_free(&all);
    return ok;
}

bool tuned_update(const char *path, const TunedList *from, TunedHow how, bool dry, int wait_ms,
                  TunedMerge *m, char *why, size_t nwhy)
{
    char real[PATH_ROOM], lock[PATH_ROOM + 8];
    if (!real_path(path, real, why, nwhy))
        return false;
    if (dry)
        return merge_file(real, from, how, true, m, why, nwhy);
    if (!make_folders(real)) {
        snprintf(why, nwhy, "cannot make the folder of %.300s: %s", path, strerror(errno));
        return false;
    }
    snprintf(lock, sizeof lock, "%s.lock", real);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return say(why, nwhy, lock, strerror(errno));
    if (!lock_within(fd, wait_ms)) {
        close(fd);
        return say(why, nwhy, path, "another process is writing it and does not finish");
    }
    bool ok = merge_file(real, from, how, false, m, why, nwhy);
    unlock(fd);
    return ok;
}

/* ---- all lists ---- */
static void note(TunedSet *s, const char *why)
{
    size_t n = strlen(s->why);
    snprintf(s->why + n, sizeof s->why - n, "%s%s", n ? "\n" : "", why);
}

/* Until version 0.1 a site had results of its own. They are named while they are there, because
 * ignoring them would make steps slower without a word. */
static void note_site(TunedSet *s)
{
    char why[600];
    const char *path = getenv("OPTC_TUNE_SITE");
    path = path ? path : "/etc/optc/tune";
    if (*path && access(path, F_OK) == 0)
        note(s, (say(why, sizeof why, path,
                     "a site's results are not read any more; take them into your own: "
                     "optc tune merge FILE"), why));
}

void tuned_open(TunedSet *s)
{
    char path[PATH_ROOM], why[600];
    *s = (TunedSet){0};
    if (tuned_path(path, sizeof path) && !tuned_read(&s->user, path, why, sizeof why))
        note(s, why);
    note_site(s);
    const char *own = getenv("OPTC_TUNE_BUILTIN");
    for (const Embedded *e = embedded_tuned; e->name && !(own && !*own); e++) {
        snprintf(path, sizeof path, "built-in %s", e->name);
        if (!tuned_parse(&s->builtin, path, e->text, strlen(e->text), why, sizeof why))
            note(s, why);
    }
}

void tuned_close(TunedSet *s)
{
    tuned_free(&s->user);
    tuned_free(&s->builtin);
    for (SharedResults *x = s->shared, *older; x; x = older) {
        older = x->older;
        tuned_free(&x->list);
        free(x->text);
        free(x);
    }
    s->shared = NULL;
    s->why[0] = 0;
}

/* Uses the cache: chooses the folders, looks entries up, and lets one process build while others
 * wait. */
#include "runtime/library/cache/cache.h"

#include "runtime/library/cache/files.h"
#include "runtime/library/base/limit_variables.h"
#include "runtime/library/profile/profile.h"
#include "runtime/library/base/timing.h"
#include "runtime/core/base/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 60000, LEFTOVER_S = 3600, ROOM = 1 << 20 };

/* ---- folders ---- */
/* Code is loaded from these folders. So a folder must belong to the user (a base may belong to
 * root), and others must not be able to write it. */
bool cache_trusted(const char *dir, bool base, char *why, size_t nwhy)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        snprintf(why, nwhy, "%.300s: %s", dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        snprintf(why, nwhy, "%.300s is not a folder", dir);
    else if (st.st_uid != geteuid() && !(base && st.st_uid == 0))
        snprintf(why, nwhy, "%.300s belongs to user %ld%s", dir, (long)st.st_uid,
                 base ? ", neither to you nor to root" : ", not to you");
    else if (st.st_mode & (S_IWGRP | S_IWOTH))
        snprintf(why, nwhy, "%.300s can be written by %s", dir,
                 st.st_mode & S_IWOTH ? "everyone" : "its group");
    else
        return true;
    return false;
}

bool cache_location(const char *dir, char out[CACHE_DIR], char *why, size_t nwhy)
{
    const char *s, *below = "";
    *out = *why = 0;
    if (dir || (dir = getenv("OPTC_CACHE"))) {
        s = dir;
    } else if ((s = getenv("XDG_CACHE_HOME")) && *s) {
        below = "/optc";
    } else if ((s = getenv("HOME")) && *s) {
        below = "/.cache/optc";
    } else {
        snprintf(why, nwhy, "none of OPTC_CACHE, XDG_CACHE_HOME and HOME is set");
        return false;
    }
    int n = snprintf(out, CACHE_DIR, "%s%s", s, below);
    if (n >= 0 && n < CACHE_DIR)
        return true;
    *out = 0;
    snprintf(why, nwhy, "its path is too long");
    return false;
}

void cache_open(Cache *c, const char *dir, const char *base, int64_t max)
{
    char place[CACHE_DIR];
    *c = (Cache){.max = max ? max : CACHE_MAX_DEFAULT, .wait_ms = WAIT_MS};
    if (!max && limit_size(LIMIT_CACHE_MAX, &c->max) && !c->max)
        c->max = -1;
    base = base ? base : getenv("OPTC_CACHE_BASE");
    if (base && *base)
        c->base = strdup(base);
    if (!cache_location(dir, place, c->why, sizeof c->why) || !*place)
        return;
    if (!folders_make(place, 0700))
        snprintf(c->why, sizeof c->why, "%.300s cannot be made: %s", place, strerror(errno));
    else if (cache_trusted(place, false, c->why, sizeof c->why))
        /* absolute: the program may change its working folder later */
        c->dir = realpath(place, NULL);
}

void cache_close(Cache *c)
{
    free(c->dir);
    free(c->base);
    c->dir = c->base = NULL;
}

bool cache_next_base(const char **list, char out[CACHE_DIR])
{
    while (*list && **list) {
        size_t n = strcspn(*list, ":");
        bool fits = n && n < CACHE_DIR;
        if (fits) {
            memcpy(out, *list, n);
            out[n] = 0;
        }
        *list += n + ((*list)[n] == ':');
        if (fits)
            return true;
    }
    return false;
}

/* ---- one entry ---- */
static char *look_in(CacheSlot *s, const char *dir, const char *name, CacheUse use, size_t *size)
{
    char *data = cache_read(dir, name, use, size, NULL);
    snprintf(s->from, sizeof s->from, "%s/%s", data ? dir : "", data ? name : "");
    return data;
}

static char *look_up(CacheSlot *s, size_t *size)
{
    char name[CACHE_NAME], dir[CACHE_DIR], why[512];
    snprintf(name, sizeof name, "%s.%s", s->key, s->kind);
    char *data = s->cache->dir ? look_in(s, s->cache->dir, name, CACHE_LOAD_MARK, size) : NULL;
    for (const char *list = s->cache->base; !data && cache_next_base(&list, dir);)
        if (cache_trusted(dir, true, why, sizeof why))
            data = look_in(s, dir, name, CACHE_LOAD, size);
    return data;
}

/* Two keys with the same byte wait for each other; the chance is one in 2^31. Some network file
 * systems have problems with offsets beyond 31 bits. */
static off_t lock_byte(const char *key)
{
    char part[9];
    snprintf(part, sizeof part, "%.8s", key);
    return (off_t)(strtoul(part, NULL, 16) & 0x7fffffff);
}

/* If the entry cannot be written, waiting for another process's build is useless: every process
 * then builds at once. */
static bool can_keep(const char *dir)
{
    struct statvfs v;
    return access(dir, W_OK | X_OK) == 0 && (statvfs(dir, &v) != 0 || v.f_blocks == 0 ||
                                             (double)v.f_bavail * (double)v.f_frsize > ROOM);
}

static void sleep_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (double)(time_t)(ms / 1e3)) * 1e6)};
    nanosleep(&t, NULL);
}

static void unlock(CacheSlot *s)
{
    if (s->lock < 0)
        return;
    /* closing is not enough: a child that was forked meanwhile has the file open too */
    (void)file_lock(s->lock, F_UNLCK, lock_byte(s->key));
    close(s->lock);
    s->lock = -1;
}

/* Network file systems cache "no such file" for a while; opening the folder makes them look
 * again. */
static void refresh(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

/* Waits for the lock or for the entry, whichever comes first. NULL: the caller builds the entry,
 * because it has the lock, the wait timed out, or there are no locks. */
static char *wait_for(CacheSlot *s, size_t *size)
{
    double t0 = now_ms();
    char *data = NULL;
    while (file_lock(s->lock, F_WRLCK, lock_byte(s->key)) != 0) {
        int err = errno;
        double waited = now_ms() - t0, nap = waited / 4;
        if ((err != EAGAIN && err != EACCES) || waited > s->cache->wait_ms) {
            close(s->lock);
            s->lock = -1;
            return NULL;
        }
        sleep_ms(nap < 1 ? 1 : nap > 100 ? 100 : nap);
        if ((data = look_up(s, size)))
            break;
    }
    if (data) {
        close(s->lock);
        s->lock = -1;
        return data;
    }
    refresh(s->cache->dir);
    /* another process finished it between the lookup and the lock */
    if ((data = look_up(s, size)))
        unlock(s);
    return data;
}

char *cache_begin(CacheSlot *s, const Cache *c, const char *key, const char *kind, bool build,
                  size_t *size)
{
    char path[CACHE_PATH];
    *s = (CacheSlot){.cache = c, .kind = kind, .lock = -1};
    snprintf(s->key, sizeof s->key, "%s", key);
    int64_t begun = profile_clock_on();
    char *data = look_up(s, size);
    profile_work(data ? "cache hit:" : "cache miss:", kind, begun);
    if (data || !build || !c->dir || !can_keep(c->dir))
        return data;
    snprintf(path, sizeof path, "%s/.lock", c->dir);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return s->lock < 0 ? NULL : wait_for(s, size);
}

bool cache_end(CacheSlot *s, const char *data, size_t size, const CacheNote *note)
{
    const Cache *c = s->cache;
    char name[CACHE_NAME];
    snprintf(name, sizeof name, "%s.%s", s->key, s->kind);
    bool kept = data && c->dir && cache_write(c->dir, name, data, size, note);
    unlock(s);
    if (kept)
        (void)cache_sweep(c->dir, c->max, -1, LEFTOVER_S, name);
    return kept;
}

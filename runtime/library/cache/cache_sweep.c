/* Lists the entries of a cache folder, and removes those that were unused longest. Touches only
 * files whose names are those of cache entries. */
#include "runtime/library/cache/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Lengths of keys: of this version, and of older versions, whose entries are useless now and can be
 * removed. */
enum { KEY = 64, OLD_KEY = 32 };

int64_t cache_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* 0: s does not begin with a key */
static size_t key_length(const char *s)
{
    size_t n = strspn(s, "0123456789abcdef");
    return n == KEY || n == OLD_KEY ? n : 0;
}

static const char *kind_of(const char *name)
{
    size_t n = key_length(name);
    if (n && name[n] == '.')
        for (int i = 0; cache_kinds[i]; i++)
            if (!strcmp(name + n + 1, cache_kinds[i]))
                return cache_kinds[i];
    return NULL;
}

static bool is_leftover(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t n = name[0] == '.' ? key_length(name + 1) : 0;
    return n && name[1 + n] == '.' && strspn(name + n + 2, letters) == 6 && !name[n + 8];
}

static int by_use(const void *a, const void *b)
{
    const CacheEntry *x = a, *y = b;
    return x->used_ns != y->used_ns ? (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns)
                                    : strcmp(x->name, y->name);
}

static bool add(CacheList *l, int *cap, CacheEntry e)
{
    if (l->n == *cap) {
        int more = *cap ? *cap * 2 : 64;
        CacheEntry *v = realloc(l->entry, (size_t)more * sizeof *v);
        if (!v)
            return false;
        l->entry = v;
        *cap = more;
    }
    l->entry[l->n++] = e;
    l->entries += e.kind != NULL;
    l->bytes += e.kind ? e.bytes : 0;
    return true;
}

bool cache_list(const char *dir, CacheList *out)
{
    *out = (CacheList){0};
    int cap = 0;
    bool ok = true;
    DIR *d = opendir(dir);
    if (!d)
        return false;
    for (struct dirent *e; ok && (e = readdir(d));) {
        struct stat st;
        CacheEntry c = {.kind = kind_of(e->d_name)};
        if ((!c.kind && !is_leftover(e->d_name)) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        /* a name of the cache: at most 72 bytes */
        memcpy(c.name, e->d_name, strlen(e->d_name) + 1);
        c.bytes = st.st_size;
        c.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        ok = add(out, &cap, c);
    }
    closedir(d);
    if (!ok) {
        free(out->entry);
        errno = ENOMEM;
        return false;
    }
    if (out->n)
        qsort(out->entry, (size_t)out->n, sizeof *out->entry, by_use);
    return true;
}

/* An entry that another process removed first counts as removed. */
static bool gone(const char *dir, const CacheEntry *e, CacheSwept *s)
{
    char path[CACHE_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, e->name);
    bool removed = unlink(path) == 0;
    if (!removed && errno != ENOENT) {
        s->failed++;
        return false;
    }
    s->entries += removed && e->kind;
    s->leftovers += removed && !e->kind;
    s->bytes += removed ? e->bytes : 0;
    return true;
}

CacheSwept cache_sweep(const char *dir, int64_t max, double older, double leftover,
                       const char *keep)
{
    CacheSwept s = {0};
    CacheList l;
    if (!cache_list(dir, &l)) {
        s.unread = errno ? errno : EIO;
        return s;
    }
    int64_t now = cache_now_ns(), bytes = l.bytes;
    for (int i = 0; i < l.n; i++) {
        const CacheEntry *e = &l.entry[i];
        double age = (double)(now - e->used_ns) * 1e-9;
        if (!e->kind && age >= leftover)
            gone(dir, e, &s);
        if (!e->kind || (keep && !strcmp(e->name, keep)))
            continue;
        if (((older >= 0 && age >= older) || (max >= 0 && bytes > max)) && gone(dir, e, &s))
            bytes -= e->bytes;
    }
    free(l.entry);
    return s;
}

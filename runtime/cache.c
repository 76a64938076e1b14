/* Compiled code on disk. One file an entry: a shared object or a cubin and, behind it, a trailer with its length and checksum (loaders do
 * not look past the object's own end). Written aside and renamed; a damaged entry is a miss. */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { char magic[8]; uint64_t bytes, sum; } Trailer;
static const char magic[8] = {'o', 'p', 't', 'c', 's', 'o', '1', '\n'};

static bool make_dirs(char *path)
{
    for (char *s = path + 1; ; s++)
        if (*s == '/' || !*s) {
            char c = *s;
            *s = 0;
            bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
            *s = c;
            if (!ok)
                return false;
            if (!c)
                return true;
        }
}

/* Code is loaded from here, so the folder must be the user's own and closed to others' writing. */
static bool trusted(const char *dir)
{
    struct stat st;
    return stat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

void cache_open(Cache *c, const char *dir)
{
    char buf[4096] = "";
    const char *s;
    if (dir)
        snprintf(buf, sizeof buf, "%s", dir);
    else if ((s = getenv("OPTC_CACHE")))
        snprintf(buf, sizeof buf, "%s", s);
    else if ((s = getenv("XDG_CACHE_HOME")) && *s)
        snprintf(buf, sizeof buf, "%s/optc", s);
    else if ((s = getenv("HOME")) && *s)
        snprintf(buf, sizeof buf, "%s/.cache/optc", s);
    c->dir = *buf && make_dirs(buf) && trusted(buf) ? strdup(buf) : NULL;
}

static char *read_all(const char *path, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return NULL;
    char *buf = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < (64 << 20) ? malloc((size_t)st.st_size + 1) : NULL;
    size_t got = 0;
    ssize_t k;
    while (buf && got < (size_t)st.st_size && (k = read(fd, buf + got, (size_t)st.st_size - got)) > 0)
        got += (size_t)k;
    close(fd);
    *n = got;
    return buf;
}

/* A folder mounted noexec refuses to map code; the same bytes in anonymous memory do not. */
static void *load_from_memory(const char *path)
{
    size_t n;
    char *buf = read_all(path, &n);
    int fd = buf ? memfd_create("optc", MFD_CLOEXEC) : -1;
    void *h = NULL;
    if (fd >= 0 && write(fd, buf, n) == (ssize_t)n) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        h = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (fd >= 0)
        close(fd);
    free(buf);
    return h;
}

void *load_object(const char *path)
{
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return h ? h : load_from_memory(path);
}

char *cache_get(const Cache *c, const char *key, const char *kind, size_t *size)
{
    char path[4200];
    size_t n = 0;
    if (!c->dir)
        return NULL;
    snprintf(path, sizeof path, "%s/%s.%s", c->dir, key, kind);
    char *buf = read_all(path, &n);
    Trailer t;
    bool ok = buf && n > sizeof t;
    if (ok) {
        memcpy(&t, buf + n - sizeof t, sizeof t);
        ok = !memcmp(t.magic, magic, sizeof magic) && t.bytes == n - sizeof t && t.sum == hash64(7, buf, n - sizeof t);
    }
    if (buf && !ok)
        unlink(path);                  /* damaged: the caller makes it anew */
    if (!ok) {
        free(buf);
        return NULL;
    }
    *size = n - sizeof t;
    return buf;
}

void *cache_load(const Cache *c, const char *key)
{
    char path[4200];
    size_t n;
    char *buf = cache_get(c, key, "so", &n);
    if (!buf)
        return NULL;
    free(buf);
    snprintf(path, sizeof path, "%s/%s.so", c->dir, key);
    void *h = load_object(path);
    if (!h)
        unlink(path);
    return h;
}

bool cache_store(const Cache *c, const char *key, const char *so_path)
{
    size_t n = 0;
    char *buf = c->dir ? read_all(so_path, &n) : NULL;
    bool ok = buf && cache_put(c, key, "so", buf, n);
    free(buf);
    return ok;
}

bool cache_put(const Cache *c, const char *key, const char *kind, const char *buf, size_t n)
{
    char path[4200], aside[4300];
    if (!c->dir)
        return false;
    snprintf(path, sizeof path, "%s/%s.%s", c->dir, key, kind);
    snprintf(aside, sizeof aside, "%s/.%s.XXXXXX", c->dir, key);
    Trailer t = {.bytes = n, .sum = hash64(7, buf, n)};
    memcpy(t.magic, magic, sizeof magic);
    int fd = mkstemp(aside);
    bool ok = fd >= 0 && write(fd, buf, n) == (ssize_t)n && write(fd, &t, sizeof t) == (ssize_t)sizeof t && fchmod(fd, 0700) == 0;
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && rename(aside, path) == 0;
    if (!ok && fd >= 0)
        unlink(aside);
    return ok;
}

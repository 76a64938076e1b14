/* The file of one cache entry: written to a temporary file and renamed, read and verified,
 * loaded. */
#include "runtime/library/cache/cache.h"

#include "runtime/library/cache/files.h"
#include "runtime/library/base/line_reader.h"

#include "gen/gen.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const cache_kinds[] = {"so", "cubin", NULL};

typedef struct { char magic[8]; uint64_t object, text, sum; } Trailer;
static const char magic[8] = {'o', 'p', 't', 'c', 'e', 'n', '3', '\n'};
enum { MOST_BYTES = 256 << 20, MOST_TEXT = 4096, TOUCH_AFTER = 3600 };

/* Includes the name, so that an entry under another key's name is invalid. */
static uint64_t checksum(const char *name, const char *buf, const Trailer *t)
{
    uint64_t h = hash64(7, name, strlen(name));
    h = hash64(h, t, offsetof(Trailer, sum));
    return hash64(h, buf, t->object + t->text);
}

/* ---- its description ---- */
#define FIELD(f) {#f, offsetof(CacheNote, f), sizeof(((CacheNote *)0)->f)}
static const struct { const char *name; size_t at, size; } fields[] = {
    FIELD(rule), FIELD(with), FIELD(options), FIELD(types), FIELD(target), FIELD(compiler)};
enum { NFIELD = sizeof fields / sizeof *fields };

static size_t print_note(char out[MOST_TEXT], const CacheNote *n)
{
    size_t len = 0;
    for (int i = 0; n && i < NFIELD; i++) {
        len += (size_t)snprintf(out + len, MOST_TEXT - len, "%s ", fields[i].name);
        for (const char *s = (const char *)n + fields[i].at; *s; s++)
            out[len++] = (unsigned char)*s < 32 || *s == 127 ? ' ' : *s;
        out[len++] = '\n';
    }
    return len;
}

static void parse_note(char *text, size_t len, CacheNote *out)
{
    LineReader r = {.at = text, .end = text + len};
    memset(out, 0, sizeof *out);
    for (char *line; line_next(&r, &line);) {
        const char *word = line_word(&line);
        for (int i = 0; word && i < NFIELD; i++)
            if (!strcmp(word, fields[i].name))
                snprintf((char *)out + fields[i].at, fields[i].size, "%s", line);
    }
}

/* ---- reading ---- */
static bool read_at(int fd, void *to, size_t n, off_t at)
{
    for (char *p = to; n;) {
        ssize_t k = pread(fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool read_trailer(int fd, int64_t size, Trailer *t)
{
    return size >= (int64_t)sizeof *t &&
           read_at(fd, t, sizeof *t, (off_t)(size - (int64_t)sizeof *t)) &&
           !memcmp(t->magic, magic, sizeof magic) && t->text <= MOST_TEXT &&
           t->object <= MOST_BYTES && t->object + t->text + sizeof *t == (uint64_t)size;
}

static int open_entry(const char *dir, const char *name, struct stat *st, const char **why)
{
    char path[CACHE_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    /* does not block on a pipe of that name */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *why = fd < 0 || fstat(fd, st) != 0 ? strerror(errno)
           : S_ISREG(st->st_mode)       ? NULL
                                        : "not a file";
    if (*why && fd >= 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Updates the time of last use, at most once an hour, so that most reads cost no write. If that
 * fails, the entry only looks older than it is. */
static void touch(int fd, const struct stat *st)
{
    if (cache_now_ns() / 1000000000 - (int64_t)st->st_mtim.tv_sec > TOUCH_AFTER)
        (void)futimens(fd, NULL);
}

static char *read_checked(int fd, const char *name, const struct stat *st, size_t *size,
                          const char **why)
{
    Trailer t;
    if (!read_trailer(fd, st->st_size, &t)) {
        *why = "cut short, or not an entry of this version";
        return NULL;
    }
    size_t n = (size_t)(t.object + t.text);
    char *buf = malloc(n + 1);
    if (!buf || !read_at(fd, buf, n, 0) || t.sum != checksum(name, buf, &t)) {
        *why = buf ? "its checksum differs" : "out of memory";
        free(buf);
        return NULL;
    }
    *size = (size_t)t.object;
    return buf;
}

char *cache_read(const char *dir, const char *name, CacheUse use, size_t *size, const char **why)
{
    struct stat st;
    const char *reason;
    char *buf = NULL;
    int fd = open_entry(dir, name, &st, &reason);
    if (fd >= 0 && use != CACHE_LOOK && file_others_write(&st))
        reason = "it is another user's, or others can write it";
    else if (fd >= 0 && (buf = read_checked(fd, name, &st, size, &reason)) &&
             use == CACHE_LOAD_MARK)
        touch(fd, &st);
    if (fd >= 0)
        close(fd);
    if (why)
        *why = buf ? NULL : reason;
    return buf;
}

bool cache_read_note(const char *dir, const char *name, CacheNote *out)
{
    struct stat st;
    Trailer t;
    const char *why;
    char text[MOST_TEXT + 1];
    int fd = open_entry(dir, name, &st, &why);
    bool ok = fd >= 0 && read_trailer(fd, st.st_size, &t) &&
              read_at(fd, text, (size_t)t.text, (off_t)t.object);
    if (fd >= 0)
        close(fd);
    if (ok)
        parse_note(text, (size_t)t.text, out);
    return ok;
}

/* ---- writing ---- */
bool cache_write(const char *dir, const char *name, const char *data, size_t size,
                 const CacheNote *note)
{
    char path[CACHE_PATH], aside[CACHE_PATH], text[MOST_TEXT];
    Trailer t = {.object = size, .text = print_note(text, note)};
    char *buf = size <= MOST_BYTES ? malloc(size + t.text + sizeof t) : NULL;
    if (!buf)
        return false;
    memcpy(t.magic, magic, sizeof magic);
    memcpy(buf, data, size);
    memcpy(buf + size, text, (size_t)t.text);
    t.sum = checksum(name, buf, &t);
    memcpy(buf + size + t.text, &t, sizeof t);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(aside, sizeof aside, "%s/.%.*s.XXXXXX", dir, (int)strcspn(name, "."), name);
    int fd = mkostemp(aside, O_CLOEXEC);
    bool ok = fd >= 0 && file_put(fd, buf, size + (size_t)t.text + sizeof t);
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && rename(aside, path) == 0;
    if (!ok && fd >= 0)
        unlink(aside);
    free(buf);
    return ok;
}

/* ---- loading ---- */
/* dlopen treats equal paths as one library, and descriptor numbers are reused. So every path gets a
 * different spelling: a sequence of "/." and "/" that encodes a counter. */
static void *load_from_memory(const char *data, size_t size)
{
    static atomic_uint loads;
    char name[128] = "/proc/self/fd";
    size_t len = strlen(name);
    int fd = memfd_create("optc", MFD_CLOEXEC);
    void *h = NULL;
    if (fd >= 0 && file_put(fd, data, size)) {
        for (unsigned n = atomic_fetch_add(&loads, 1) + 1; n; n >>= 1)
            len += (size_t)snprintf(name + len, sizeof name - len, "%s", n & 1 ? "/." : "/");
        snprintf(name + len, sizeof name - len, "/%d", fd);
        h = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (fd >= 0)
        close(fd);
    return h;
}

/* Prefers the file, so that debuggers and profilers have a name. That fails if the folder is
 * mounted noexec or the file is gone by now. */
void *cache_load_object(const char *path, const char *data, size_t size)
{
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return h ? h : load_from_memory(data, size);
}

/* Files and folders: paths, whole reads and writes, locks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime/library/cache/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

bool path_print(Path p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(p, PATH_MAX, fmt, ap);
    va_end(ap);
    return n >= 0 && n < PATH_MAX;
}

bool temp_folder(Path p, const char *name)
{
    const char *tmp = getenv("TMPDIR");
    if (path_print(p, "%s/%s-XXXXXX", tmp && *tmp ? tmp : "/tmp", name))
        return mkdtemp(p) != NULL;
    errno = ENAMETOOLONG;
    return false;
}

bool folders_make(char *path, mode_t mode)
{
    for (char *s = path + 1; ; s++)
        if (*s == '/' || !*s) {
            char c = *s;
            struct stat st;
            *s = 0;
            bool ok = mkdir(path, mode) == 0 || errno == EEXIST;
            int err = errno;
            /* mkdir may fail with another error for a folder that exists */
            ok = ok || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
            *s = c;
            errno = err;
            if (!ok)
                return false;
            if (!c)
                return true;
        }
}

bool file_others_write(const struct stat *st)
{
    return (st->st_uid != geteuid() && st->st_uid != 0) || (st->st_mode & (S_IWGRP | S_IWOTH));
}

/* Reads up to one byte more than the size, to detect that the file grew. */
static const char *read_whole(int fd, int64_t size, char **data, size_t *n)
{
    size_t cap = (size_t)size + 1;
    char *buf = *data = malloc(cap + 64);
    if (!buf)
        return "out of memory";
    while (*n < cap) {
        ssize_t k = read(fd, buf + *n, cap - *n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return strerror(errno);
        if (k == 0)
            break;
        *n += (size_t)k;
    }
    buf[*n] = 0;
    return *n == cap ? "it grew while it was read" : NULL;
}

bool file_load(const char *path, int64_t most, unsigned how, char **data, size_t *n, char *why,
               size_t nwhy)
{
    struct stat st;
    char large[40];
    *data = NULL;
    *n = 0;
    /* does not block on a pipe of that name */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (how & FILE_OPTIONAL) && (errno == ENOENT || errno == ENOTDIR))
        return true;
    snprintf(large, sizeof large, "larger than %lld MiB", (long long)most >> 20);
    const char *wrong = fd < 0 || fstat(fd, &st) != 0 ? strerror(errno)
                        : S_ISDIR(st.st_mode)         ? strerror(EISDIR)
                        : !S_ISREG(st.st_mode)        ? "not a file"
                        : st.st_size > most           ? large
                        : (how & FILE_TRUSTED) && file_others_write(&st)
                            ? "another user's, or others can write it"
                            : read_whole(fd, st.st_size, data, n);
    if (fd >= 0)
        close(fd);
    if (!wrong)
        return true;
    snprintf(why, nwhy, "%.300s: %s", path, wrong);
    free(*data);
    *data = NULL;
    return false;
}

char *file_read(const char *path, size_t *n)
{
    char *data, why[8];
    return file_load(path, INT64_MAX - 1, 0, &data, n, why, sizeof why) ? data : NULL;
}

/* A write beyond the process's limit on file sizes (ulimit -f) would raise SIGXFSZ, which ends the
 * process. Such a write is not attempted; errno is set as the write would have set it. */
static bool within_limit(off_t at, size_t n)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || (rlim_t)at + n <= r.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

bool file_write(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && within_limit(0, n) && fwrite(data, 1, n, f) == n;
    int err = errno;
    if (f && fclose(f) != 0 && ok) {
        ok = false;
        err = errno;
    }
    struct stat st;
    if (!ok && f && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        remove(path);
    errno = err;
    return ok;
}

bool file_put(int fd, const void *data, size_t n)
{
    struct stat st;
    bool file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    off_t at = file ? lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : 0;
    if (file && at >= 0 && !within_limit(at, n))
        return false;
    for (const char *p = data; n;) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k ? errno : ENOSPC;
            return false;
        }
        p += k;
        n -= (size_t)k;
    }
    return true;
}

int file_lock(int fd, short type, off_t at)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int rc = -1;
#ifdef F_OFD_SETLK
    while ((rc = fcntl(fd, F_OFD_SETLK, &l)) != 0 && errno == EINTR)
        ;
    if (rc == 0 || errno != EINVAL)
        return rc;
#endif
    while ((rc = fcntl(fd, F_SETLK, &l)) != 0 && errno == EINTR)
        ;
    return rc;
}

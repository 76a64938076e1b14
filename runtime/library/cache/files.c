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

char *file_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *data = f && fstat(fileno(f), &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
    *n = data ? fread(data, 1, (size_t)st.st_size, f) : 0;
    if (data && *n != (size_t)st.st_size) {
        free(data);
        data = NULL;
    }
    if (data)
        data[*n] = 0;
    if (f)
        fclose(f);
    return data;
}

/* A write beyond the process's limit of file sizes (ulimit -f) would raise SIGXFSZ, which ends the process: it is not
 * begun, and errno says what the write would have said. */
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

/* Where a checkpoint is written. A file is written under another name in the same folder, synced
 * and renamed, so that the old file stays until the new one is complete. Two processes may write
 * the same path: the last rename wins. */
#include "runtime/core/checkpoint/checkpoint.h"

#include "gen/abi/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

CORE uint64_t checkpoint_hash(uint64_t h, const void *data, size_t bytes)
{
    return hash_bytes(h, data, bytes);
}

static optc_status sink_error(const CheckpointSink *s, const char *what)
{
    return fail(errno == ENOMEM ? OPTC_ERROR_MEMORY : OPTC_ERROR_IO, "%s: %s%s: %s", s->call,
                s->path ? s->path : "", what, strerror(errno));
}

/* Opens PATH.PID-N.tmp. O_EXCL: two writers never share one; the umask gives its mode. */
static optc_status open_aside(CheckpointSink *s)
{
    static int number;
    size_t room = strlen(s->path) + 64;
    if (!(s->aside = (char *)malloc(room)))
        return no_memory(s->call);
    for (int tries = 0; tries < 100; tries++) {
        snprintf(s->aside, room, "%s.%ld-%d.tmp", s->path, (long)getpid(),
                 __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED));
        s->fd = open(s->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (s->fd >= 0 || errno != EEXIST)
            break;
    }
    if (s->fd >= 0)
        return OPTC_OK;
    optc_status status = sink_error(s, errno == EACCES || errno == EROFS ? " (its folder)" : "");
    free(s->aside);
    s->aside = NULL;
    return status;
}

static optc_status open_path(CheckpointSink *s)
{
    struct stat st;
    if (!*s->to->path)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the path is empty", s->call);
    s->path = realpath(s->to->path, NULL);         /* a link stays, and its target is replaced */
    bool exists = s->path != NULL;
    if (!exists && errno == ENOMEM)
        return no_memory(s->call);
    if (!exists && !(s->path = (char *)malloc(strlen(s->to->path) + 1)))
        return no_memory(s->call);
    if (!exists)
        strcpy(s->path, s->to->path);
    if (exists && stat(s->path, &st))
        return sink_error(s, "");
    if (exists && S_ISDIR(st.st_mode))
        return fail(OPTC_ERROR_IO, "%s: %s is a folder; name a file in it", s->call, s->path);
    if (!exists || S_ISREG(st.st_mode))
        return open_aside(s);
    s->fd = open(s->path, O_WRONLY | O_CLOEXEC);
    return s->fd < 0 ? sink_error(s, "") : OPTC_OK;
}

CORE optc_status sink_open(CheckpointSink *s, const char *call, const optc_checkpoint *to,
                           int64_t size)
{
    memset(s, 0, sizeof *s);
    s->call = call;
    s->to = to;
    s->fd = -1;
    s->hash = 1;
    int targets = (to->path != NULL) + (to->memory != NULL) + (to->write != NULL);
    if (targets != 1)
        return fail(OPTC_ERROR_ARGUMENT, "%s: set one of path, memory and write%s", call,
                    targets ? "; several are set" : "");
    if (to->memory && to->size < size)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the memory has %lld bytes, and the checkpoint takes %lld", call,
                    (long long)to->size, (long long)size);
    if (!(s->buffer = (char *)malloc(CHECKPOINT_BUFFER)))
        return no_memory(call);
    return to->path ? open_path(s) : OPTC_OK;
}

static optc_status write_all(CheckpointSink *s, const char *data, size_t bytes)
{
    if (s->to->memory) {
        memcpy((char *)s->to->memory + s->written, data, bytes);
    } else if (s->to->write) {
        int rc = s->to->write(s->to->context, data, bytes);
        if (rc)
            return fail(OPTC_ERROR_IO,
                        "%s: the caller's function `write` returned %d after %lld bytes", s->call,
                        rc, (long long)s->written);
    }
    for (size_t done = 0; s->fd >= 0 && done < bytes;) {
        ssize_t n = write(s->fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : ENOSPC;
            return sink_error(s, "");
        }
        done += (size_t)n;
    }
    s->written += (int64_t)bytes;
    return OPTC_OK;
}

CORE optc_status sink_flush(CheckpointSink *s)
{
    size_t n = s->used;
    s->used = 0;
    if (!n)
        return OPTC_OK;
    s->hash = checkpoint_hash(s->hash, s->buffer, n);
    return write_all(s, s->buffer, n);
}

CORE char *sink_room(CheckpointSink *s, size_t *bytes)
{
    *bytes = CHECKPOINT_BUFFER - s->used;
    return s->buffer + s->used;
}

CORE optc_status sink_filled(CheckpointSink *s, size_t bytes)
{
    s->used += bytes;
    return s->used == CHECKPOINT_BUFFER ? sink_flush(s) : OPTC_OK;
}

CORE optc_status sink_add(CheckpointSink *s, const void *data, size_t bytes)
{
    optc_status status = OPTC_OK;
    for (const char *from = (const char *)data; bytes && status == OPTC_OK;) {
        size_t n;
        char *to = sink_room(s, &n);
        n = n < bytes ? n : bytes;
        memcpy(to, from, n);
        from += n;
        bytes -= n;
        status = sink_filled(s, n);
    }
    return status;
}

/* A rename is on the disk once its folder is. */
static optc_status sync_folder(const CheckpointSink *s)
{
    char *slash = strrchr(s->path, '/');
    size_t n = slash ? (size_t)(slash - s->path) : 0;
    char *folder = (char *)malloc(n + 2);
    if (!folder)
        return no_memory(s->call);
    memcpy(folder, s->path, n);
    strcpy(folder + n, !slash ? "." : n ? "" : "/");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    /* some file systems cannot sync folders */
    bool refused = !synced && (errno == EINVAL || errno == EACCES);
    optc_status status = synced || refused
                             ? OPTC_OK
                             : sink_error(s, " is complete, but its folder could not be synced");
    if (fd >= 0)
        close(fd);
    free(folder);
    return status;
}

CORE optc_status sink_commit(CheckpointSink *s)
{
    char hash[8];
    memcpy(hash, &s->hash, sizeof hash);
    optc_status status = write_all(s, hash, sizeof hash);
    if (status != OPTC_OK || s->fd < 0)
        return status;
    if (s->aside && fsync(s->fd))
        return sink_error(s, "");
    int fd = s->fd;
    s->fd = -1;
    if (close(fd))
        return sink_error(s, "");
    if (!s->aside)
        return OPTC_OK;
    if (rename(s->aside, s->path))
        return sink_error(s, "");
    free(s->aside);
    s->aside = NULL;
    return sync_folder(s);
}

CORE void sink_close(CheckpointSink *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->aside)
        unlink(s->aside);
    free(s->aside);
    free(s->path);
    free(s->buffer);
    memset(s, 0, sizeof *s);
    s->fd = -1;
}

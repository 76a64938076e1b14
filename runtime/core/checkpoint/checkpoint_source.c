/* Where a checkpoint is read from: a file, memory, or a function of the caller. */
#include "runtime/core/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

CORE const char *source_name(const CheckpointSource *s)
{
    return s->from->path ? s->from->path : "the checkpoint";
}

static optc_status source_error(const CheckpointSource *s)
{
    return fail(errno == ENOMEM ? OPTC_ERROR_MEMORY : OPTC_ERROR_IO, "%s: %s: %s", s->call,
                source_name(s), strerror(errno));
}

CORE optc_status source_open(CheckpointSource *s, const char *call, const optc_checkpoint *from)
{
    struct stat st;
    memset(s, 0, sizeof *s);
    s->call = call;
    s->from = from;
    s->fd = -1;
    s->size = from->size;
    int sources = (from->path != NULL) + (from->memory != NULL) + (from->read != NULL);
    if (sources != 1)
        return fail(OPTC_ERROR_ARGUMENT, "%s: set one of path, memory and read%s", call,
                    sources ? "; several are set" : "");
    if (!from->path)
        return s->size < 0 ? fail(OPTC_ERROR_ARGUMENT, "%s: the size is negative", call) : OPTC_OK;
    /* a pipe must not be waited for */
    s->fd = open(from->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0 || fstat(s->fd, &st))
        return source_error(s);
    s->size = (int64_t)st.st_size;
    return S_ISREG(st.st_mode) ? OPTC_OK
                               : fail(OPTC_ERROR_IO, "%s: %s is %s", call, from->path,
                                      S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
}

CORE void source_close(CheckpointSource *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

CORE optc_status source_read(const CheckpointSource *s, int64_t at, void *data, size_t bytes)
{
    if (s->from->memory)
        memcpy(data, (const char *)s->from->memory + at, bytes);
    if (s->from->read && bytes) {
        int rc = s->from->read(s->from->context, at, data, bytes);
        if (rc)
            return fail(OPTC_ERROR_IO, "%s: the caller's function `read` returned %d at byte %lld",
                        s->call, rc, (long long)at);
    }
    for (size_t done = 0; s->fd >= 0 && done < bytes;) {
        ssize_t n = pread(s->fd, (char *)data + done, bytes - done, (off_t)(at + (int64_t)done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return source_error(s);
        if (n == 0)
            return fail(OPTC_ERROR_IO, "%s: %s became shorter while it was read", s->call,
                        source_name(s));
        done += (size_t)n;
    }
    return OPTC_OK;
}

CORE optc_status source_header(const CheckpointSource *s, SafeFile *f)
{
    unsigned char head[8] = {0};
    char why[200];
    uint64_t n = 0;
    memset(f, 0, sizeof *f);
    if (s->size < 8)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is no safetensors file: it has %lld bytes",
                    s->call, source_name(s), (long long)s->size);
    optc_status status = source_read(s, 0, head, sizeof head);
    if (status != OPTC_OK)
        return status;
    for (int i = 8; i-- > 0;)
        n = n << 8 | head[i];
    if (n > SAFE_HEADER_MOST || (int64_t)n > s->size - 8)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %s is no safetensors file, or is cut off: its header would have %llu "
                    "bytes, and the file has %lld",
                    s->call, source_name(s), (unsigned long long)n, (long long)s->size);
    char *header = (char *)malloc((size_t)n + 1);
    if (!header)
        return no_memory(s->call);
    status = source_read(s, 8, header, (size_t)n);
    if (status != OPTC_OK) {
        free(header);
        return status;
    }
    if (safe_parse(f, header, (int64_t)n, s->size, why, sizeof why))
        return OPTC_OK;
    if (!strncmp(why, "out of memory", 13))
        return no_memory(s->call);
    return fail(OPTC_ERROR_ARGUMENT, "%s: %s is no valid safetensors file: %s", s->call,
                source_name(s), why);
}

/* The hash of everything ahead of it is the last tensor of the file. */
CORE optc_status source_verify(const CheckpointSource *s, const SafeFile *f, bool *has)
{
    const SafeTensor *t = safe_find(f, CHECKPOINT_HASH);
    uint64_t hash = 1, want = 0;
    *has = t != NULL;
    if (!t)
        return OPTC_OK;
    if (t->end - t->begin != 8 || t->end != f->bytes)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %s was changed: '%s' is not its last tensor; remove that tensor if the "
                    "change is intended",
                    s->call, source_name(s), CHECKPOINT_HASH);
    char *buffer = (char *)malloc(CHECKPOINT_BUFFER);
    optc_status status = buffer ? source_read(s, s->size - 8, &want, 8) : no_memory(s->call);
    for (int64_t at = 0, n; at < s->size - 8 && status == OPTC_OK; at += n) {
        n = s->size - 8 - at < CHECKPOINT_BUFFER ? s->size - 8 - at : (int64_t)CHECKPOINT_BUFFER;
        status = source_read(s, at, buffer, (size_t)n);
        if (status == OPTC_OK)
            hash = checkpoint_hash(hash, buffer, (size_t)n);
    }
    free(buffer);
    if (status == OPTC_OK && hash != want)
        status = fail(OPTC_ERROR_ARGUMENT,
                      "%s: %s is damaged, or was changed: its hash does not fit; remove the "
                      "tensor '%s' if the change is intended",
                      s->call, source_name(s), CHECKPOINT_HASH);
    return status;
}

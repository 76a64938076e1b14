/* Files of profiles, and $OPTC_PROFILE: the recording of a whole process, written when it exits.
 * This is the only part of the library that prints. */
#include "runtime/library/profile/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file of $OPTC_PROFILE, open and locked from the start: another process with the same path
 * uses another name. */
typedef struct ProfileFile { char path[4096]; int fd; pid_t process; } ProfileFile;
static ProfileFile own = {.fd = -1};

/* ---- writing ---- */
static bool write_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t done = write(fd, s, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        s += done;
        n -= (size_t)done;
    }
    return true;
}

/* A pipe or a socket would block: only files and devices are opened. errno has the reason. */
static int open_file(const char *path)
{
    struct stat s;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd >= 0 && (fstat(fd, &s) || (!S_ISREG(s.st_mode) && !S_ISCHR(s.st_mode)))) {
        close(fd);
        errno = EINVAL;
        fd = -1;
    }
    return fd;
}

static bool replace_text(int fd, const char *text)
{
    struct stat s;
    bool file = !fstat(fd, &s) && S_ISREG(s.st_mode);
    return (!file || !ftruncate(fd, 0)) && write_all(fd, text, strlen(text));
}

optc_status optc_profile_save(const char *path)
{
    if (!path || !*path)
        return fail(OPTC_ERROR_ARGUMENT, "optc_profile_save: the path is %s",
                    path ? "empty" : "NULL");
    char *text = optc_profile_text(1);
    if (!text)
        return no_memory("optc_profile_save");
    int fd = open_file(path), err = errno;
    bool ok = fd >= 0 && replace_text(fd, text);
    err = fd >= 0 ? errno : err;
    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        err = errno;
    }
    free(text);
    return ok ? OPTC_OK
              : fail(OPTC_ERROR_IO, "optc_profile_save: '%.200s' cannot be written: %s", path,
                     strerror(err));
}

/* ---- $OPTC_PROFILE ---- */
/* "out.json" becomes "out.123.json". */
static bool name_of_process(const char *path, char *out, size_t n)
{
    size_t stem = strlen(path), json = strlen(".json");
    bool has = stem > json && !strcmp(path + stem - json, ".json");
    int len = snprintf(out, n, "%.*s.%d%s", (int)(has ? stem - json : stem), path, (int)getpid(),
                       has ? ".json" : "");
    return len > 0 && (size_t)len < n;
}

static bool anything(void)
{
    Recording *r = profile_lock();
    bool any = r->nrow > 0;
    profile_unlock();
    return any;
}

static void say_unwritten(const char *path, const char *why)
{
    fprintf(stderr,
            "optc: OPTC_PROFILE: '%.200s' cannot be written: %s; only the table is printed\n", path,
            why);
}

/* A child of fork has no file yet, and writes none if it recorded nothing. */
static void write_at_exit(void)
{
    char path[sizeof own.path + 16];
    bool child = getpid() != own.process;
    if (child && !anything())
        return;
    if (optc_profile_active())
        (void)optc_profile_stop();
    char *table = optc_profile_text(0), *trace = optc_profile_text(1);
    snprintf(path, sizeof path, "%s", own.path);
    int fd = own.fd;
    bool named = !child || name_of_process(own.path, path, sizeof path);
    if (child)
        fd = own.fd >= 0 && named ? open_file(path) : -1;
    bool ok = table && trace && fd >= 0 && replace_text(fd, trace);
    if (table)
        fputs(table, stderr);
    if (ok)
        fprintf(stderr, "trace: %s\n", path);
    else if (own.fd >= 0)
        say_unwritten(path, table && trace ? strerror(errno) : "out of memory");
    free(table);
    free(trace);
    if (fd >= 0)
        close(fd);
}

static void start_of_process(void)
{
    const char *path = getenv("OPTC_PROFILE");
    char other[sizeof own.path + 16];
    if (!path)
        return;
    if (!*path || strlen(path) >= sizeof own.path) {
        fprintf(
            stderr,
            "optc: OPTC_PROFILE is %s; set it to a file such as out.json. Nothing is recorded\n",
            *path ? "too long" : "empty");
        return;
    }
    if (optc_profile_start() != OPTC_OK) {             /* the program records by itself */
        message_clear();
        return;
    }
    own.process = getpid();
    snprintf(own.path, sizeof own.path, "%s", path);
    own.fd = open_file(path);
    struct stat s;
    bool file = own.fd >= 0 && !fstat(own.fd, &s) && S_ISREG(s.st_mode);
    if (file && flock(own.fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK &&
        name_of_process(path, other, sizeof other) && strlen(other) < sizeof own.path) {
        close(own.fd);
        memcpy(own.path, other, strlen(other) + 1);
        own.fd = open_file(other);
    }
    if (own.fd < 0)
        say_unwritten(own.path, errno == EINVAL ? "it is not a file" : strerror(errno));
    atexit(write_at_exit);
}

void profile_environment(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_of_process);
}

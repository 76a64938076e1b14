/* The host compiler: finds it on the PATH, runs it within limits of time and memory, and loads the
 * shared object. No shell parses its arguments. */
#include "runtime/library/internal.h"

#include "runtime/library/cache/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { SECONDS = 120, MOST_WORDS = MOST_FLAGS / 2, WORDS_AHEAD = 6 };
#define CC_MEMORY ((int64_t)1 << 30)       /* the library's largest rule takes gcc 12 some 80 MB */

/* ---- which one ---- */
static bool runnable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool on_path(const char *name, Path out)
{
    if (strchr(name, '/'))
        return path_print(out, "%s", name) && runnable(out);
    for (const char *path = getenv("PATH"); path && *path;) {
        size_t n = strcspn(path, ":");
        if (n && path_print(out, "%.*s/%s", (int)n, path, name) && runnable(out))
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

/* Splits "ccache gcc -O0" into a program and its fixed flags. A path with blanks that names a
 * program is not split. */
static bool split(const char *command, Path program, char **given)
{
    char first[PATH_MAX];
    const char *s = command + strspn(command, " \t");
    size_t n = strcspn(s, " \t");
    *given = NULL;
    bool whole = on_path(command, program);
    if (whole || n >= sizeof first)
        return whole && (*given = strdup(""));
    memcpy(first, s, n);
    first[n] = 0;
    return n && on_path(first, program) && (*given = strdup(s + n + strspn(s + n, " \t")));
}

bool compiler_find(const char *wanted, HostCompiler *out)
{
    Path program;
    const char *name[] = {wanted, getenv("OPTC_CC"), getenv("CC"), "cc", "gcc", "clang"};
    memset(out, 0, sizeof *out);
    out->seconds = SECONDS;
    out->memory = CC_MEMORY;
    (void)limit_seconds(LIMIT_CC_SECONDS, &out->seconds);
    (void)limit_size(LIMIT_CC_MEMORY, &out->memory);
    bool off = wanted && !*wanted, asked = false;
    for (size_t i = 0; i < sizeof name / sizeof *name && !off && !asked && !out->program; i++) {
        /* the user named it: never replaced by another compiler */
        asked = i < 3 && name[i] && *name[i];
        if (asked && !(out->wanted = strdup(name[i])))
            break;
        if (!name[i] || !*name[i] || !split(name[i], program, &out->fixed_flags))
            continue;
        size_t room = strlen(program) + strlen(out->fixed_flags) + 2;
        out->program = strdup(program);
        out->label = malloc(room);
        if (out->label)
            snprintf(out->label, room, "%s%s%s", program, *out->fixed_flags ? " " : "",
                     out->fixed_flags);
        if (!out->program || !out->label)
            compiler_free(out);
    }
    return out->program != NULL;
}

void compiler_free(HostCompiler *c)
{
    free(c->program);
    free(c->fixed_flags);
    free(c->label);
    free(c->wanted);
    c->program = c->fixed_flags = c->label = c->wanted = NULL;
}

/* ---- running it ---- */
/* Waits up to `seconds` (0: without limit) for a child to end. Returns false if it still runs. The
 * child is not reaped here, so the system does not reuse its process number or group number yet.
 * end_of->si_pid is 0 if the exit status is lost, because SIGCHLD is ignored or other code in this
 * process reaped the child: the number may then be reused. */
static bool wait_for(pid_t pid, double seconds, siginfo_t *end_of)
{
    double end = now_ms() + seconds * 1e3;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    for (pid_t got = 0; got == 0;) {
        siginfo_t info = {.si_pid = 0};
        double left = end - now_ms();
        got = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | (seconds > 0 ? WNOHANG : 0));
        *end_of = info;
        got = got ? got : info.si_pid;
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got == 0 && left <= 0)
            break;
        else if (got == 0) {                               /* without a pidfd: checks every 5 ms */
            struct pollfd p = {.fd = fd, .events = POLLIN};
            poll(&p, 1, left > 1e6 ? 1000000 : fd < 0 && left > 5 ? 5 : (int)left + 1);
        }
        if (got != 0) {
            if (fd >= 0)
                close(fd);
            return true;
        }
    }
    if (fd >= 0)
        close(fd);
    return false;
}

/* Its processes stay in its process group, and its temporary files in `dir`, so that both can be
 * removed. */
static int start(char *const *argv, const char *dir, const char *log, pid_t *pid)
{
    char tmp[PATH_MAX + 8];
    int n = 0, at = 0;
    while (environ[n])
        n++;
    char **env = malloc(sizeof *env * (size_t)(n + 2));
    if (!env)
        return ENOMEM;
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", dir);
    env[at++] = tmp;
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7))
            env[at++] = environ[i];
    env[at] = NULL;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    int rc = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    rc =
        rc ? rc : posix_spawn_file_actions_addopen(&fa, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&fa, 1, 2);
    /* this process may ignore SIGCHLD; a compiler needs it */
    sigset_t usual;
    sigemptyset(&usual);
    sigaddset(&usual, SIGCHLD);
    rc = rc ? rc : posix_spawnattr_setsigdefault(&attr, &usual);
    rc = rc ? rc : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    rc = rc ? rc : posix_spawn(pid, argv[0], &fa, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    free(env);
    return rc;
}

static int add_words(char **argv, int n, char *text)
{
    for (char *save, *w = strtok_r(text, " \t", &save); w && n < MOST_WORDS;
         w = strtok_r(NULL, " \t", &save))
        argv[n++] = w;
    return n;
}

/* The first line of its output that mentions an error, or its exit status. */
static void say_why(const HostCompiler *c, const char *log, const siginfo_t *end, char *why,
                    size_t nwhy)
{
    char line[256] = "",
         how[100] = "its exit status is not known, since SIGCHLD is ignored or taken";
    FILE *f = fopen(log, "r");
    while (f && fgets(line, sizeof line, f) && !strstr(line, "error") && !strstr(line, "memory"))
        ;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = 0;
    bool killed = end->si_pid && end->si_code != CLD_EXITED;
    if (end->si_pid)
        snprintf(how, sizeof how, "%s %d%s%.60s%s", killed ? "signal" : "exit status",
                 end->si_status, killed ? " (" : "", killed ? strsignal(end->si_status) : "",
                 killed ? ")" : "");
    int n = killed ? snprintf(why, nwhy, "%.100s was ended by %s%s%.200s", c->label, how,
                              *line ? ": " : "", line)
                   : snprintf(why, nwhy, "%.100s failed: %.200s", c->label, *line ? line : how);
    /* gcc's cc1 may also crash when an allocation fails; gcc then prints "signal terminated
     * program" */
    bool memory =
        strstr(line, "memory") || strstr(line, "map segment") || strstr(line, "signal terminated");
    if (c->memory && memory && n > 0 && (size_t)n < nwhy)
        snprintf(why + n, nwhy - (size_t)n, "; OPTC_CC_MEMORY limits its memory to %lld MB",
                 (long long)(c->memory >> 20));
}

/* Sets the limit with "ulimit -v" in a shell that then executes the compiler. So it applies to all
 * processes of the compiler, and this process does not change. Without a shell the compiler runs
 * without the limit. */
static int limit_words(const HostCompiler *c, char **argv, char *kib, size_t n)
{
    static char shell[] = "/bin/sh", flag[] = "-c", name[] = "optc",
                script[] = "ulimit -v \"$1\" 2>/dev/null; shift; exec \"$@\"";
    int at = 0;
    snprintf(kib, n, "%lld", (long long)(c->memory >> 10));
    if (c->memory && runnable(shell))
        argv[at++] = shell, argv[at++] = flag, argv[at++] = script, argv[at++] = name,
        argv[at++] = kib;
    argv[at++] = c->program;
    return at;
}

/* The object is complete: the section table, which linkers write last, is inside the file. */
static bool whole_object(const char *data, size_t size)
{
    ElfW(Ehdr) h;
    if (size < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    return !memcmp(h.e_ident, ELFMAG, SELFMAG) && h.e_shoff <= size &&
           (size_t)h.e_shnum * h.e_shentsize <= size - h.e_shoff;
}

/* Runs the compiler. Returns whether it made an object, judged by its exit status. */
static bool run_compiler(const HostCompiler *c, const char *flags, const char *dir, siginfo_t *end,
                         char *why, size_t nwhy)
{
    char *argv[MOST_WORDS + WORDS_AHEAD + 8] = {NULL}, words[MOST_FLAGS], kib[32];
    Path src, so, log;
    pid_t pid;
    snprintf(words, sizeof words, "%s", flags);
    if (!path_print(src, "%s/rule.c", dir) || !path_print(so, "%s/rule.so", dir) ||
        !path_print(log, "%s/log", dir)) {
        snprintf(why, nwhy, "the name of the temporary folder is too long: %.100s", dir);
        return false;
    }
    int n = limit_words(c, argv, kib, sizeof kib);
    n = add_words(argv, n, words);
    char *tail[] = {"-o", so, src, "-lm", NULL};
    for (int i = 0; i < 5; i++)
        argv[n++] = tail[i];
    int rc = start(argv, dir, log, &pid);
    if (rc != 0) {
        snprintf(why, nwhy, "%.100s cannot be started: %s", c->label, strerror(rc));
        errno = rc;
        return false;
    }
    bool over = !wait_for(pid, c->seconds, end);
    /* otherwise the number may belong to another process by now */
    if (over || end->si_pid) {
        (void)kill(-pid, SIGKILL);             /* also processes that it left running */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    errno = 0;
    if (over) {
        snprintf(why, nwhy,
                 "%.100s was ended after %g s: OPTC_CC_SECONDS sets how long it may take", c->label,
                 c->seconds);
        return false;
    }
    bool made =
        end->si_pid ? end->si_code == CLD_EXITED && end->si_status == 0 : access(so, R_OK) == 0;
    if (!made)
        say_why(c, log, end, why, nwhy);
    errno = 0;
    return made;
}

static void drop_folder(const char *dir)
{
    DIR *d = opendir(dir);
    Path path;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            path_print(path, "%s/%s", dir, e->d_name))
            unlink(path);
    if (d)
        closedir(d);
    static const char *const ours[] = {"rule.c", "rule.so", "log"};
    for (int i = 0; !d && i < 3; i++)                      /* if the folder cannot be listed */
        if (path_print(path, "%s/%s", dir, ours[i]))
            unlink(path);
    rmdir(dir);
}

void *compiler_build(const HostCompiler *c, const char *source, const char *flags, char **object,
                     size_t *size, char *why, size_t nwhy)
{
    *object = NULL;
    Path dir, src, so;
    if (!temp_folder(dir, "optc")) {
        snprintf(why, nwhy, "no temporary folder: %.100s: %s", dir, strerror(errno));
        return NULL;
    }
    void *h = NULL;
    siginfo_t end = {.si_pid = 0};
    errno = 0;
    if (!path_print(src, "%s/rule.c", dir) || !path_print(so, "%s/rule.so", dir) ||
        !file_write(src, source, strlen(source))) {
        snprintf(why, nwhy, "%.200s cannot be written: %s", src, strerror(errno));
    } else if (run_compiler(c, flags, dir, &end, why, nwhy)) {
        errno = 0;
        *object = file_read(so, size);
        int err = errno;
        /* if the compiler's exit status is lost, check that the object file is complete */
        h = *object && (end.si_pid || whole_object(*object, *size))
                ? cache_load_object(so, *object, *size)
                : NULL;
        if (!h)
            snprintf(why, nwhy, "the object that %.100s made cannot be loaded", c->label);
        errno = *object ? 0 : err;
    }
    int err = errno;
    drop_folder(dir);
    if (err == ENOMEM)                         /* not the compiler's fault: the caller reports it */
        *why = 0;
    return h;
}

/* The host compiler: found on the PATH, run without a shell and not for ever, its product loaded. */
#include "internal.h"

#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
enum { SECONDS = 120, MOST_WORDS = MOST_FLAGS / 2 };

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

/* "ccache gcc -O0": a program and what it is always given. A program whose path has blanks is one all the same. */
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
    const char *limit = getenv("OPTC_CC_SECONDS");
    char *end;
    double x = limit ? strtod(limit, &end) : 0;
    out->seconds = limit && end != limit && !*end && x >= 0 ? x : SECONDS;
    bool off = wanted && !*wanted, asked = false;
    for (size_t i = 0; i < sizeof name / sizeof *name && !off && !asked && !out->program; i++) {
        asked = i < 3 && name[i] && *name[i];      /* by name: used or reported missing, never replaced */
        if (asked && !(out->wanted = strdup(name[i])))
            break;
        if (!name[i] || !*name[i] || !split(name[i], program, &out->given))
            continue;
        size_t room = strlen(program) + strlen(out->given) + 2;
        out->program = strdup(program);
        out->label = malloc(room);
        if (out->label)
            snprintf(out->label, room, "%s%s%s", program, *out->given ? " " : "", out->given);
        if (!out->program || !out->label)
            compiler_free(out);
    }
    return out->program != NULL;
}

void compiler_free(HostCompiler *c)
{
    free(c->program);
    free(c->given);
    free(c->label);
    free(c->wanted);
    c->program = c->given = c->label = c->wanted = NULL;
}

/* ---- running it ---- */
/* Waits so many seconds (0: for ever); false: it is still there. It is left as it ended: until it is reaped nobody else
 * gets its number, nor its group's. */
static bool wait_for(pid_t pid, double seconds)
{
    double end = now_ms() + seconds * 1e3;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    for (pid_t got = 0; got == 0;) {
        siginfo_t info = {.si_pid = 0};
        double left = end - now_ms();
        got = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | (seconds > 0 ? WNOHANG : 0));
        got = got ? got : info.si_pid;
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got == 0 && left <= 0)
            break;
        else if (got == 0) {                               /* without the kernel's help we look again soon */
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

/* What it starts stays in its group, and what it leaves aside in our folder: both can be ended. */
static int start(const HostCompiler *c, char *const *argv, const char *dir, const char *log, pid_t *pid)
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
    rc = rc ? rc : posix_spawn_file_actions_addopen(&fa, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&fa, 1, 2);
    rc = rc ? rc : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    rc = rc ? rc : posix_spawn(pid, c->program, &fa, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    free(env);
    return rc;
}

static int add_words(char **argv, int n, char *text)
{
    for (char *save, *w = strtok_r(text, " \t", &save); w && n < MOST_WORDS; w = strtok_r(NULL, " \t", &save))
        argv[n++] = w;
    return n;
}

/* The first line of what it said that speaks of an error. */
static void say_why(const HostCompiler *c, const char *log, char *why, size_t nwhy)
{
    char line[256] = "";
    FILE *f = fopen(log, "r");
    while (f && fgets(line, sizeof line, f) && !strstr(line, "error"))
        ;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = 0;
    snprintf(why, nwhy, "%.100s failed: %.300s", c->label, line);
}

static bool run_compiler(const HostCompiler *c, const char *flags, const char *dir, char *why, size_t nwhy)
{
    char *argv[MOST_WORDS + 8] = {c->program}, words[MOST_FLAGS];
    Path src, so, log;
    pid_t pid;
    int n = 1, status = -1;
    snprintf(words, sizeof words, "%s", flags);
    if (!path_print(src, "%s/rule.c", dir) || !path_print(so, "%s/rule.so", dir) || !path_print(log, "%s/log", dir))
        return false;
    n = add_words(argv, n, words);
    char *tail[] = {"-o", so, src, "-lm", NULL};
    for (int i = 0; i < 5; i++)
        argv[n++] = tail[i];
    int rc = start(c, argv, dir, log, &pid);
    if (rc != 0) {
        snprintf(why, nwhy, "%.100s cannot be started: %s", c->label, strerror(rc));
        errno = rc;
        return false;
    }
    bool over = !wait_for(pid, c->seconds);
    (void)kill(-pid, SIGKILL);                 /* also what it left running */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (over) {
        snprintf(why, nwhy, "%.100s was ended after %g s: OPTC_CC_SECONDS sets how long it may take", c->label,
                 c->seconds);
        return false;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    say_why(c, log, why, nwhy);
    return false;
}

static void drop_folder(const char *dir)
{
    DIR *d = opendir(dir);
    Path path;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && path_print(path, "%s/%s", dir, e->d_name))
            unlink(path);
    if (d)
        closedir(d);
    static const char *const ours[] = {"rule.c", "rule.so", "log"};
    for (int i = 0; !d && i < 3; i++)                      /* where it cannot be looked into */
        if (path_print(path, "%s/%s", dir, ours[i]))
            unlink(path);
    rmdir(dir);
}

void *compiler_build(const HostCompiler *c, const char *source, const char *flags, char **object, size_t *size,
                     char *why, size_t nwhy)
{
    *object = NULL;
    Path dir, src, so;
    if (!temp_folder(dir, "optc")) {
        snprintf(why, nwhy, "no temporary folder: %.100s: %s", dir, strerror(errno));
        return NULL;
    }
    void *h = NULL;
    errno = 0;
    if (!path_print(src, "%s/rule.c", dir) || !path_print(so, "%s/rule.so", dir) ||
        !file_write(src, source, strlen(source))) {
        snprintf(why, nwhy, "%.200s cannot be written: %s", src, strerror(errno));
    } else if (run_compiler(c, flags, dir, why, nwhy)) {
        errno = 0;
        *object = file_read(so, size);
        int err = errno;
        h = *object ? cache_load_object(so, *object, *size) : NULL;
        if (!h)
            snprintf(why, nwhy, "what %.100s made cannot be loaded", c->label);
        errno = *object ? 0 : err;
    }
    int err = errno;
    drop_folder(dir);
    if (err == ENOMEM)                         /* that is no fault of the compiler's: the caller says so */
        *why = 0;
    return h;
}

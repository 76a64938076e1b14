/* The host compiler: found on the PATH, run without a shell, its product loaded. */
#include "internal.h"

#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool runnable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static char *on_path(const char *name)
{
    if (strchr(name, '/'))
        return runnable(name) ? strdup(name) : NULL;
    const char *path = getenv("PATH");
    while (path && *path) {
        char full[4096];
        size_t n = strcspn(path, ":");
        snprintf(full, sizeof full, "%.*s/%s", (int)n, path, name);
        if (n && runnable(full))
            return strdup(full);
        path += n + (path[n] == ':');
    }
    return NULL;
}

char *compiler_find(const char *wanted)
{
    const char *env[] = {wanted, getenv("OPTC_CC"), getenv("CC")};
    if (wanted && !*wanted)
        return NULL;
    for (int i = 0; i < 3; i++)
        if (env[i] && *env[i])
            return on_path(env[i]);    /* what is asked for by name is used or reported missing, never replaced */
    static const char *const usual[] = {"cc", "gcc", "clang"};
    for (int i = 0; i < 3; i++) {
        char *s = on_path(usual[i]);
        if (s)
            return s;
    }
    return NULL;
}

/* Runs cc; the first line of what it said goes to why. */
static bool run_compiler(const char *cc, const char *flags, const char *src, const char *so, const char *log, char *why,
                         size_t nwhy)
{
    char *argv[40], words[1024];
    int n = 0;
    argv[n++] = (char *)cc;
    snprintf(words, sizeof words, "%s", flags);
    for (char *save, *w = strtok_r(words, " ", &save); w && n < 32; w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    char *tail[] = {"-o", (char *)so, (char *)src, "-lm", NULL};
    for (int i = 0; i < 5; i++)
        argv[n++] = tail[i];
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    pid_t pid;
    int rc = posix_spawn(&pid, cc, &fa, NULL, argv, environ), status = -1;
    posix_spawn_file_actions_destroy(&fa);
    if (rc != 0) {
        snprintf(why, nwhy, "%s cannot be started: %s", cc, strerror(rc));
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    char line[256] = "";
    FILE *f = fopen(log, "r");
    while (f && fgets(line, sizeof line, f) && !strstr(line, "error"))
        ;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = 0;
    snprintf(why, nwhy, "%s failed: %s", cc, line);
    return false;
}

void *compiler_build(const char *cc, const char *source, const char *flags, char **object, size_t *size, char *why,
                     size_t nwhy)
{
    *object = NULL;
    Path dir, src, so, log;
    if (!temp_folder(dir, "optc")) {
        snprintf(why, nwhy, "no temporary folder: %s: %s", dir, strerror(errno));
        return NULL;
    }
    void *h = NULL;
    if (!path_print(src, "%s/rule.c", dir) || !path_print(so, "%s/rule.so", dir) || !path_print(log, "%s/log", dir) ||
        !file_write(src, source, strlen(source))) {
        snprintf(why, nwhy, "%s cannot be written: %s", src, strerror(errno));
    } else if (run_compiler(cc, flags, src, so, log, why, nwhy)) {
        *object = file_read(so, size);
        h = *object ? cache_load_object(so, *object, *size) : NULL;
        if (!h)
            snprintf(why, nwhy, "what %s made cannot be loaded", cc);
    }
    unlink(src);
    unlink(so);
    unlink(log);
    rmdir(dir);
    return h;
}

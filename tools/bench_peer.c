/* Another implementation, in a process of its own, timed in the same rounds. Lines go both ways:
 *
 *   <- ready NAME VERSION | none WHY           once, at the start
 *   -> open LABEL SHAPES RULE [WRAPPERS]       SHAPES: 4096x4096,100*65536
 *   <- ok WHAT IT RUNS | none WHY
 *   -> step LABEL COUNT
 *   <- milliseconds per step */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct Peer { pid_t pid; FILE *to, *from; };

static const char script[] = "tests/bench/torch_cpu.py";

/* Beside where we stand, or in the tree that this program was built in. */
static char *find_script(void)
{
    if (access(script, R_OK) == 0)
        return strdup(script);
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = 0;
    for (int up = 0; up < 2; up++) {           /* the program, its folder */
        char *slash = strrchr(exe, '/');
        if (!slash)
            return NULL;
        *slash = 0;
    }
    Buf b = {0};
    buf_printf(&b, "%s/%s", exe, script);
    if (b.s && access(b.s, R_OK) == 0)
        return buf_take(&b);
    buf_free(&b);
    return NULL;
}

static Peer *spawn(char *const argv[])
{
    Peer *p = calloc(1, sizeof *p);
    int in[2], out[2];
    if (!p || pipe2(in, O_CLOEXEC) != 0) {
        free(p);
        return NULL;
    }
    if (pipe2(out, O_CLOEXEC) != 0 || (p->pid = fork()) < 0) {
        close(in[0]);
        close(in[1]);
        free(p);
        return NULL;
    }
    if (p->pid == 0) {
        signal(SIGPIPE, SIG_DFL);              /* we ignore it; it need not */
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    return p;
}

/* One line without its end; NULL: the peer is gone. */
static char *answer(Peer *p)
{
    char *s = NULL;
    size_t cap = 0;
    ssize_t n = p->from ? getline(&s, &cap, p->from) : -1;
    if (n < 0) {
        free(s);
        return NULL;
    }
    s[strcspn(s, "\r\n")] = 0;
    return s;
}

static char *ask(Peer *p, const char *line)
{
    if (!p->to || fprintf(p->to, "%s\n", line) < 0 || fflush(p->to) != 0)
        return NULL;
    return answer(p);
}

Peer *peer_start(const char *name, const Bench *b, char **version)
{
    const char *given = getenv("OPTC_PYTHON");
    char *python = strdup(given && *given ? given : "python3"), *path = find_script();
    char threads[32], elements[32];
    int64_t most = 0;
    for (int i = 0; i < b->ncase; i++)
        most = b->cases[i].place > most ? b->cases[i].place : most;
    snprintf(threads, sizeof threads, "%d", b->threads);
    snprintf(elements, sizeof elements, "%lld", (long long)most);
    char *argv[] = {python, path, threads, elements, (char *)(uintptr_t)type_info[b->type].name, NULL};
    Peer *p = path && python ? spawn(argv) : NULL;
    char *first = p ? answer(p) : NULL;
    bool ok = first && !strncmp(first, "ready ", 6);
    if (ok)
        *version = strdup(first + 6);
    else if (!path)
        cli_warning("bench: %s was not found: run optc from its source tree to compare with %s", script, name);
    else
        cli_warning("bench: no comparison with %s: %s did not start it%s%s (OPTC_PYTHON names the interpreter)", name, python ? python : "",
                    first ? ": " : "", first ? first + (strncmp(first, "none ", 5) ? 0 : 5) : "");
    free(first);
    free(python);
    free(path);
    if (!ok)
        peer_stop(p);
    return ok ? p : NULL;
}

static void shapes_text(Buf *b, const Case *c)
{
    char text[160];
    for (int i = 0, same; i < c->ntensor; i += same) {
        same = 1;
        while (i + same < c->ntensor && !memcmp(&c->shape[i], &c->shape[i + same], sizeof *c->shape))
            same++;
        buf_printf(b, "%s%d*%s", i ? "," : "", same, cli_dims(text, &c->shape[i]));
    }
}

char *peer_open(Peer *p, const Case *c, const char *options)
{
    if (options && *options)
        return NULL;                           /* the peer's options have other names */
    Buf b = {0};
    buf_printf(&b, "open %s ", c->label);
    shapes_text(&b, c);
    buf_printf(&b, " %s %s", c->spec, c->with);
    char *line = buf_take(&b), *a = line ? ask(p, line) : NULL, *what = NULL;
    if (a && !strncmp(a, "ok ", 3))
        what = strdup(a + 3);
    free(line);
    free(a);
    return what;
}

double peer_step(Peer *p, const Case *c, int reps)
{
    Buf b = {0};
    buf_printf(&b, "step %s %d", c->label, reps);
    char *line = buf_take(&b), *a = line ? ask(p, line) : NULL, *end = NULL;
    double ms = a ? strtod(a, &end) : -1;
    bool ok = a && end != a && !*end && ms > 0;
    free(line);
    free(a);
    return ok ? ms * 1e-3 : -1;
}

void peer_stop(Peer *p)
{
    if (!p)
        return;
    if (p->to)
        fclose(p->to);                         /* its input ends, and so does it */
    if (p->from)
        fclose(p->from);
    waitpid(p->pid, NULL, 0);
    free(p);
}

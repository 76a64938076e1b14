/* A peer: another implementation in its own process, timed in the same rounds. The protocol is
 * lines in both ways:
 *
 *   <- ready NAME VERSION | none WHY        once, at the start
 *   -> open ID ELEMENTS SHAPES graph|eager RULE[?OPTIONS] [WRAPPERS]
 *                                           ELEMENTS: of the largest case of the batch
 *                                           SHAPES: 1*4096x4096,100*65536; OPTIONS:
 *                                           side=64,interval=5
 *   <- ok WHAT IT RUNS [| WHAT IT RUNS AS A GRAPH] | none WHY
 *   -> step ID [STEPS]                      STEPS: the mean of that many consecutive steps, for
 *                                           rules with periods
 *   <- MS HOST_US [MS HOST_US] | none WHY   time of a step and the host's part of it; the same for
 *                                           the graph
 *   -> close ID                             frees its memory
 *   <- ok */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct Peer { pid_t pid; FILE *to, *from; bool hung; int patience_ms; };

/* The first step of a large case allocates and may compile. Work of one second on a GPU takes
 * minutes on a CPU. */
enum { PATIENCE_MS = 180000, PATIENCE_CPU_MS = 1200000 };

/* lasting: Ctrl-C ends the measurement, which still needs the peer's answer; the peer ends with its
 * input. */
static Peer *spawn(char *const argv[], bool lasting)
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
        /* this process ignores it; the peer should not inherit that */
        signal(SIGPIPE, SIG_DFL);
        if (lasting)
            signal(SIGINT, SIG_IGN);
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

/* One line without its newline. NULL: the peer has ended, or did not answer in time. */
static char *answer(Peer *p)
{
    char *s = NULL;
    size_t cap = 0;
    /* each request has one answer, so nothing is left in p->from's buffer and poll is enough */
    struct pollfd ready = {.fd = p->from ? fileno(p->from) : -1, .events = POLLIN};
    int got = -1;
    do {
        errno = 0;
        got = p->from ? poll(&ready, 1, p->patience_ms) : -1;
    } while (got < 0 && errno == EINTR);       /* Ctrl-C with -o */
    if (got <= 0) {
        p->hung = true;
        return NULL;
    }
    ssize_t n = getline(&s, &cap, p->from);
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

/* Searches the current folder, then the tree that this program was built in. */
char *bench_tree_file(const char *path)
{
    char exe[4096];
    if (access(path, R_OK) == 0)
        return strdup(path);
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = 0;
    for (int up = 0; up < 2; up++) {           /* removes the program's name, then its folder */
        char *slash = strrchr(exe, '/');
        if (!slash)
            return NULL;
        *slash = 0;
    }
    Buf b = {0};
    buf_printf(&b, "%s/%s", exe, path);
    if (access(cli_text(&b), R_OK) == 0)
        return buf_take(&b);
    buf_free(&b);
    return NULL;
}

Peer *peer_start(const char *name, const Bench *b, char **version)
{
    const char *given = getenv("OPTC_PYTHON");
    char *python = strdup(given && *given ? given : "python3"), *path;
    char device[32], threads[32], script[64];
    snprintf(script, sizeof script, "tests/bench/%s_peer.py", name);
    path = bench_tree_file(script);
    snprintf(threads, sizeof threads, "%d", b->threads);
    /* "cuda:0:" */
    snprintf(device, sizeof device, "%.*s", (int)strcspn(optc_device_name(b->engine), " "),
             optc_device_name(b->engine));
    device[strlen(device) - (device[0] != 0)] = 0;
    char *argv[] = {python,
                    path,
                    device,
                    threads,
                    (char *)(uintptr_t)type_info[b->type].name,
                    b->device.alone ? "alone" : "queued",
                    NULL};
    Peer *p = path && python ? spawn(argv, b->out != NULL) : NULL;
    if (p)
        p->patience_ms = b->device.ops->async ? PATIENCE_MS : PATIENCE_CPU_MS;
    char *first = p ? answer(p) : NULL;
    bool ok = first && !strncmp(first, "ready ", 6);
    if (ok)
        *version = strdup(first + 6);
    else if (!path)
        cli_warning("bench: tests/bench/%s_peer.py was not found: run optc from its source tree to "
                    "compare with %s",
                    name, name);
    else
        cli_warning("bench: no comparison with %s: %s did not start it%s%s (OPTC_PYTHON names the "
                    "interpreter)",
                    name, python ? python : "", first ? ": " : "",
                    first ? first + (strncmp(first, "none ", 5) ? 0 : 5) : "");
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
        while (i + same < c->ntensor &&
               !memcmp(&c->shape[i], &c->shape[i + same], sizeof *c->shape))
            same++;
        buf_printf(b, "%s%d*%s", i ? "," : "", same, cli_dims(text, &c->shape[i]));
    }
}

static char *why_of(const char *answer)        /* after "none " */
{
    return strdup(!answer ? "no answer" : strncmp(answer, "none ", 5) ? answer : answer + 5);
}

void peer_open(Peer *p, const Bench *b, Case *c)
{
    if (strpbrk(c->spec, "? \t\n")) {          /* these separate the words of a request */
        c->peer_why = strdup("not a name");
        return;
    }
    Buf t = {0};
    buf_printf(&t, "open %d %lld ", (int)(c - b->cases), (long long)b->place);
    shapes_text(&t, c);
    buf_printf(&t, " %s %s", c->graph ? "graph" : "eager", c->spec);
    if (b->compile.options && *b->compile.options)
        buf_puts(&t, "?");
    for (const char *s = b->compile.options; s && *s; s++)
        if (!strchr(" \t\n", *s))
            buf_add(&t, s, 1);
    buf_printf(&t, " %s", c->with);
    char *line = buf_take(&t), *a = line ? ask(p, line) : NULL;
    if (a && !strncmp(a, "ok ", 3)) {
        char *bar = strstr(a, " | ");
        c->peer_graph = bar ? strdup(bar + 3) : NULL;
        c->peer = strndup(a + 3, bar ? (size_t)(bar - a - 3) : strlen(a + 3));
    } else {
        c->peer_why = why_of(a);
    }
    free(line);
    free(a);
}

static char *about(Peer *p, const char *word, const Bench *b, const Case *c, int steps)
{
    char line[64], more[32] = "";
    if (steps)
        snprintf(more, sizeof more, " %d", steps);
    snprintf(line, sizeof line, "%s %d%s", word, (int)(c - b->cases), more);
    return ask(p, line);
}

void peer_close(Peer *p, const Bench *b, const Case *c) { free(about(p, "close", b, c, 0)); }

int peer_step(Peer *p, const Bench *b, Case *c, PeerTimes *out)
{
    char *a = about(p, "step", b, c, c->period > 1 ? c->reps : 0);
    *out = (PeerTimes){0};
    int n =
        a ? sscanf(a, "%lf %lf %lf %lf", &out->seconds, &out->host, &out->graph, &out->graph_host)
          : -1;
    bool ok = (n == 2 || n == 4) && out->seconds > 0 && (n == 2 || out->graph > 0),
         refused = a && !strncmp(a, "none ", 5);
    out->seconds *= 1e-3;
    out->graph *= 1e-3;
    out->host *= 1e-6;
    out->graph_host *= 1e-6;
    if (refused) {
        cli_warning("bench: %s cannot run %s: %s", b->peer_name, c->label, a + 5);
        peer_close(p, b, c);
        free(c->peer);
        c->peer = NULL;
        c->peer_why = why_of(a);
    }
    free(a);
    return ok ? 1 : refused ? 0 : -1;
}

void peer_stop(Peer *p)
{
    if (!p)
        return;
    if (p->hung && p->pid > 0)
        kill(p->pid, SIGKILL);
    if (p->to)
        fclose(p->to);                         /* the peer exits at the end of its input */
    if (p->from)
        fclose(p->from);
    waitpid(p->pid, NULL, 0);
    free(p);
}

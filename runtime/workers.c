#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "workers.h"

#include "cuda.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Worker { pid_t pid; int fd; bool busy; } Worker;       /* fd -1: it died */

struct Workers { pthread_mutex_t lock; pthread_cond_t idle; int n; Worker worker[]; };

/* Job: this, the name, the source. Answer: this, the code or (arch 0) the log. Both ends are one program. */
typedef struct Head { uint64_t size, name; int32_t arch; } Head;

static bool put(int fd, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool get(int fd, void *data, size_t n)
{
    for (char *at = data; n;) {
        ssize_t k = recv(fd, at, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static char *get_text(int fd, uint64_t n)
{
    char *s = malloc((size_t)n + 1);
    if (s && !get(fd, s, (size_t)n)) {
        free(s);
        return NULL;
    }
    if (s)
        s[n] = 0;
    return s;
}

/* ---- the child: until its end is closed ---- */
static void serve(const Nvrtc *n, int fd)
{
    Head h;
    bool ok = true;
    while (ok && get(fd, &h, sizeof h)) {
        char *name = get_text(fd, h.name), *source = name ? get_text(fd, h.size) : NULL, *log = NULL;
        size_t size = 0;
        char *code = source ? nvrtc_build(n, source, name, h.arch, false, &size, &log) : NULL;
        Head answer;
        memset(&answer, 0, sizeof answer);
        answer.size = code ? size : log ? strlen(log) : 0;
        answer.arch = code ? h.arch : 0;
        ok = source && put(fd, &answer, sizeof answer) && put(fd, code ? code : log ? log : "", (size_t)answer.size);
        free(name);
        free(source);
        free(code);
        free(log);
    }
}

static bool start_one(Workers *w, const Nvrtc *n)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN);                    /* a terminal sends it to us all: our parent says when to end */
        for (int i = 0; i < w->n; i++)
            close(w->worker[i].fd);
        close(pair[0]);
        serve(n, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return false;
    }
    w->worker[w->n++] = (Worker){.pid = pid, .fd = pair[0]};
    return true;
}

Workers *workers_start(int n)
{
    const Nvrtc *nvrtc = nvrtc_get(NULL);
    Workers *w = nvrtc && n > 0 ? calloc(1, sizeof *w + sizeof(Worker) * (size_t)n) : NULL;
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->idle, NULL);
    while (w->n < n && start_one(w, nvrtc))
        ;
    if (!w->n) {
        workers_end(w);
        return NULL;
    }
    return w;
}

static void bury(Worker *x)
{
    close(x->fd);
    x->fd = -1;
    while (waitpid(x->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

void workers_end(Workers *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->n; i++)
        if (w->worker[i].fd >= 0)
            bury(&w->worker[i]);
    pthread_cond_destroy(&w->idle);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int workers_alive(Workers *w)
{
    int n = 0;
    for (int i = 0; w && i < w->n; i++)
        n += w->worker[i].fd >= 0;
    return n;
}

/* ---- the parent ---- */
static Worker *take(Workers *w)
{
    Worker *found = NULL;
    pthread_mutex_lock(&w->lock);
    while (!found && workers_alive(w)) {
        for (int i = 0; i < w->n && !found; i++)
            if (w->worker[i].fd >= 0 && !w->worker[i].busy)
                found = &w->worker[i];
        if (!found)
            pthread_cond_wait(&w->idle, &w->lock);
    }
    if (found)
        found->busy = true;
    pthread_mutex_unlock(&w->lock);
    return found;
}

static void give(Workers *w, Worker *x, bool alive)
{
    pthread_mutex_lock(&w->lock);
    x->busy = false;
    if (!alive)
        bury(x);
    pthread_cond_broadcast(&w->idle);
    pthread_mutex_unlock(&w->lock);
}

/* False: the worker is gone; *taken: after it had all of the job. */
static bool ask(const Worker *x, const char *source, const char *name, int arch, size_t *size, char **code, char **log, bool *taken)
{
    Head h;
    memset(&h, 0, sizeof h);
    h.size = strlen(source);
    h.name = strlen(name);
    h.arch = arch;
    *taken = put(x->fd, &h, sizeof h) && put(x->fd, name, (size_t)h.name) && put(x->fd, source, (size_t)h.size);
    if (!*taken || !get(x->fd, &h, sizeof h))
        return false;
    char *text = get_text(x->fd, h.size);
    *size = (size_t)h.size;
    *(h.arch ? code : log) = text;
    return text != NULL;
}

char *workers_build(Workers *w, const char *source, const char *name, int arch, size_t *size, char **log)
{
    char *code = NULL;
    int died = 0;
    *log = NULL;
    for (Worker *x; w && (x = take(w));) {
        bool taken, answered = ask(x, source, name, arch, size, &code, log, &taken);
        give(w, x, answered);
        if (answered)
            return code;
        if (taken && ++died == 2)                   /* of this very source, it seems: not here too */
            return *log = strdup("NVRTC's process died of it, twice"), NULL;
    }
    return nvrtc_build(nvrtc_get(NULL), source, name, arch, false, size, log);
}

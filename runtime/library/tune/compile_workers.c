/* NVRTC in worker processes: each has a socket, and a thread of the parent that sends it jobs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime/library/tune/compile_workers.h"

#include "runtime/library/compile/nvrtc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A process, and the parent's thread that sends it jobs. fd -1: the process has died. */
typedef struct Worker { Workers *w; pid_t pid; int fd; pthread_t thread; bool started; } Worker;

typedef enum { WAITING, RUNNING, DONE } JobState;
struct Job {
    Workers *w;
    Job *next;
    char *source, *name;
    int arch, died;
    bool ptx, dropped;
    JobState state;
    char *code, *log;
    size_t size;
};

struct Workers {
    pthread_mutex_t lock; pthread_cond_t change; Job *first; bool ending; int n; Worker worker[];
};

/* A request is this head, the name and the source. An answer is this head and the code, or the log
 * if arch is 0. Both ends are the same program, so the layout is the same. */
typedef struct Head { uint64_t size, name; int32_t arch, ptx; } Head;

/* Sends (out) or receives n bytes. */
static bool move(int fd, void *data, size_t n, bool out)
{
    for (char *at = data; n;) {
        ssize_t k = out ? send(fd, at, n, MSG_NOSIGNAL) : recv(fd, at, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool put(int fd, const void *data, size_t n)
{
    return move(fd, (void *)(uintptr_t)data, n, true);
}
static bool get(int fd, void *data, size_t n) { return move(fd, data, n, false); }

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

/* ---- the child: works until the parent closes the socket ---- */
static void serve(const Nvrtc *n, int fd)
{
    Head h;
    bool ok = true;
    while (ok && get(fd, &h, sizeof h)) {
        char *name = get_text(fd, h.name), *source = name ? get_text(fd, h.size) : NULL,
             *log = NULL;
        size_t size = 0;
        char *code = source ? nvrtc_build(n, source, name, h.arch, h.ptx, &size, &log) : NULL;
        Head answer;
        memset(&answer, 0, sizeof answer);
        answer.size = code ? size : log ? strlen(log) : 0;
        answer.arch = code ? h.arch : 0;
        ok = source && put(fd, &answer, sizeof answer) &&
             put(fd,
                 code  ? code
                 : log ? log
                       : "",
                 (size_t)answer.size);
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
        /* a terminal sends it to all processes; the parent handles it */
        signal(SIGINT, SIG_IGN);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < w->n; i++)
            close(w->worker[i].fd);
        close(pair[0]);
        /* lower priority than the parent, which times kernels meanwhile and must not wait for a
         * core */
        setpriority(PRIO_PROCESS, 0, 5);
        serve(n, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return false;
    }
    w->worker[w->n++] = (Worker){.w = w, .pid = pid, .fd = pair[0]};
    return true;
}

static void bury(Worker *x)
{
    close(x->fd);
    x->fd = -1;
    while (waitpid(x->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- the parent ---- */
static int alive(const Workers *w)
{
    int n = 0;
    for (int i = 0; w && i < w->n; i++)
        n += w->worker[i].fd >= 0;
    return n;
}

static void free_job(Job *j)
{
    free(j->source);
    free(j->name);
    free(j->code);
    free(j->log);
    free(j);
}

/* Sends a job and receives the answer. False: the worker died; *taken: after it had received the
 * whole job. */
static bool ask(int fd, Job *j, bool *taken)
{
    Head h;
    memset(&h, 0, sizeof h);
    h.size = strlen(j->source);
    h.name = strlen(j->name);
    h.arch = j->arch;
    h.ptx = j->ptx;
    *taken = put(fd, &h, sizeof h) && put(fd, j->name, (size_t)h.name) &&
             put(fd, j->source, (size_t)h.size);
    if (!*taken || !get(fd, &h, sizeof h))
        return false;
    char *text = get_text(fd, h.size);
    j->size = (size_t)h.size;
    *(h.arch ? &j->code : &j->log) = text;
    return text != NULL;
}

/* The thread of one worker. A job whose worker died goes back to the front of the queue. If a
 * second worker dies of it, the source is probably the cause, and the job fails. */
static void *bring(void *arg)
{
    Worker *x = arg;
    Workers *w = x->w;
    bool answered = true;
    pthread_mutex_lock(&w->lock);
    while (answered) {
        while (!w->first && !w->ending)
            pthread_cond_wait(&w->change, &w->lock);
        if (w->ending)
            break;
        Job *j = w->first;
        bool taken;
        w->first = j->next;
        j->state = RUNNING;
        pthread_mutex_unlock(&w->lock);
        answered = ask(x->fd, j, &taken);
        pthread_mutex_lock(&w->lock);
        if (!answered) {
            bury(x);
            j->died += taken;
            if (j->died == 2)
                j->log = strdup("the NVRTC process died twice while compiling this kernel");
        }
        if (j->dropped) {
            free_job(j);
        } else if (answered || j->died == 2) {
            j->state = DONE;
        } else {
            j->state = WAITING;
            j->next = w->first;
            w->first = j;
        }
        pthread_cond_broadcast(&w->change);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

Workers *workers_start(int n)
{
    const Nvrtc *nvrtc = nvrtc_get(NULL);
    Workers *w = nvrtc && n > 0 ? calloc(1, sizeof *w + sizeof(Worker) * (size_t)n) : NULL;
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, NULL);
    while (w->n < n && start_one(w, nvrtc))
        ;
    /* all processes are forked before the first thread starts: a child has only the thread that
     * forked it */
    for (int i = 0; i < w->n; i++) {
        Worker *x = &w->worker[i];
        x->started = pthread_create(&x->thread, NULL, bring, x) == 0;
        if (!x->started)
            bury(x);
    }
    if (!alive(w)) {
        workers_end(w);
        return NULL;
    }
    return w;
}

void workers_end(Workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++) {
        if (w->worker[i].started)
            pthread_join(w->worker[i].thread, NULL);
        if (w->worker[i].fd >= 0)
            bury(&w->worker[i]);
    }
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void workers_kill(Workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < w->n; i++)
        if (w->worker[i].fd >= 0)
            kill(w->worker[i].pid, SIGKILL);
    pthread_mutex_unlock(&w->lock);
}

int workers_alive(Workers *w)
{
    if (!w)
        return 0;
    pthread_mutex_lock(&w->lock);
    int n = alive(w);
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* ---- jobs ---- */
Job *workers_begin(Workers *w, const char *source, const char *name, int arch, bool ptx)
{
    Job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    *j = (Job){.w = w, .source = strdup(source), .name = strdup(name), .arch = arch, .ptx = ptx};
    if (!j->source || !j->name) {
        free_job(j);
        return NULL;
    }
    if (!w)
        return j;
    pthread_mutex_lock(&w->lock);
    Job **last = &w->first;
    while (*last)
        last = &(*last)->next;
    *last = j;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    return j;
}

static void unlink_job(Job *j)
{
    Job **at = &j->w->first;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
}

void workers_hurry(Job *j)
{
    if (!j || !j->w)
        return;
    pthread_mutex_lock(&j->w->lock);
    if (j->state == WAITING) {
        unlink_job(j);
        j->next = j->w->first;
        j->w->first = j;
    }
    pthread_mutex_unlock(&j->w->lock);
}

static bool in_hand(const Job *j)
{
    return j->state == RUNNING || (j->state == WAITING && alive(j->w));
}

bool workers_wait(Job *j, double seconds)
{
    if (!j || !j->w)
        return true;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double at = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)at;
    until.tv_nsec = (long)((at - (double)(time_t)at) * 1e9);
    pthread_mutex_lock(&j->w->lock);
    while (in_hand(j) && pthread_cond_timedwait(&j->w->change, &j->w->lock, &until) == 0)
        ;
    bool done = !in_hand(j);
    pthread_mutex_unlock(&j->w->lock);
    return done;
}

char *workers_result(Job *j, size_t *size, char **log)
{
    *log = NULL;
    *size = 0;
    if (!j)
        return NULL;
    if (j->w) {
        pthread_mutex_lock(&j->w->lock);
        while (in_hand(j))
            pthread_cond_wait(&j->w->change, &j->w->lock);
        if (j->state == WAITING)
            unlink_job(j);
        pthread_mutex_unlock(&j->w->lock);
    }
    if (j->state == WAITING)
        j->code =
            nvrtc_build(nvrtc_get(NULL), j->source, j->name, j->arch, j->ptx, &j->size, &j->log);
    char *code = j->code;
    *size = j->size;
    *log = j->log;
    j->code = j->log = NULL;
    free_job(j);
    return code;
}

void workers_drop(Job *j)
{
    if (!j)
        return;
    Workers *w = j->w;
    if (w)
        pthread_mutex_lock(&w->lock);
    if (w && j->state == WAITING)
        unlink_job(j);
    if (j->state == RUNNING)
        j->dropped = true;                  /* the worker's thread frees it */
    else
        free_job(j);
    if (w)
        pthread_mutex_unlock(&w->lock);
}

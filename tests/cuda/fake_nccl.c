/* A libnccl.so.2 whose ranks are threads of one process, for the emulated GPU: buffers are host
 * memory. With several ranks a call waits for the others and copies at once; it refuses to be
 * captured. A single rank's copies are enqueued.
 * FAKE_NCCL_FAIL: the name of a function that fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { OK, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, MOST = 8, OPS = 64 };
typedef struct Op {
    const void *send; void *recv; size_t bytes; int peer; struct Comm *comm; void *stream;
} Op;
typedef struct Box { const void *at; size_t bytes; bool full, wrong; } Box;
/* box: by sender, then receiver */
typedef struct Ring {
    pthread_mutex_t lock; pthread_cond_t changed; int ranks; Box box[MOST][MOST];
} Ring;
typedef struct Comm { Ring *ring; int rank; } Comm;
typedef struct Id { Ring *ring; char rest[128 - sizeof(Ring *)]; } Id;
static _Thread_local Op queue[OPS];
static _Thread_local int queued, grouped;

static bool told(const char *name)
{
    const char *fails = getenv("FAKE_NCCL_FAIL");
    return fails && !strcmp(fails, name);
}
#define CALL(name) do { if (told(#name)) return SYSTEM_ERROR; } while (0)
#define EXPORT __attribute__((visibility("default")))

/* ---- communicators ---- */
EXPORT int ncclGetUniqueId(Id *id);
EXPORT int ncclCommInitRank(Comm **out, int ranks, Id id, int rank);
EXPORT int ncclCommDestroy(Comm *c);
EXPORT int ncclCommCount(const Comm *c, int *n);
EXPORT int ncclCommUserRank(const Comm *c, int *rank);
EXPORT const char *ncclGetErrorString(int rc);

int ncclGetUniqueId(Id *id)
{
    CALL(ncclGetUniqueId);
    memset(id, 0, sizeof *id);
    /* never freed: the id may be used later */
    id->ring = calloc(1, sizeof *id->ring);
    pthread_mutex_init(&id->ring->lock, NULL);
    pthread_cond_init(&id->ring->changed, NULL);
    return OK;
}

int ncclCommInitRank(Comm **out, int ranks, Id id, int rank)
{
    CALL(ncclCommInitRank);
    if (ranks < 1 || ranks > MOST || rank < 0 || rank >= ranks)
        return INVALID_ARGUMENT;
    __atomic_store_n(&id.ring->ranks, ranks, __ATOMIC_SEQ_CST);
    *out = calloc(1, sizeof **out);
    **out = (Comm){id.ring, rank};
    return OK;
}

int ncclCommDestroy(Comm *c) { return free(c), OK; }
int ncclCommCount(const Comm *c, int *n) { CALL(ncclCommCount); return *n = c->ring->ranks, OK; }
int ncclCommUserRank(const Comm *c, int *rank)
{
    CALL(ncclCommUserRank);
    return *rank = c->rank, OK;
}
const char *ncclGetErrorString(int rc)
{
    return rc == SYSTEM_ERROR ? "unhandled system error" : "invalid usage";
}

/* ---- work ---- */
typedef struct Copy { void *to; const void *from; size_t bytes; } Copy;
static void copy_now(const void *data)
{
    const Copy *c = data;
    memcpy(c->to, c->from, c->bytes);
}

static int enqueue(void *to, const void *from, size_t bytes, void *stream)
{
    int (*in_stream)(void *, void (*)(const void *), const void *, size_t);
    *(void **)&in_stream = dlsym(RTLD_DEFAULT, "emu_in_stream");
    Copy c = {to, from, bytes};
    return in_stream ? in_stream(stream, copy_now, &c, sizeof c) : SYSTEM_ERROR;
}

static bool captured(void *stream)
{
    int (*asks)(void *, int *), yes = 0;
    *(void **)&asks = dlsym(RTLD_DEFAULT, "cuStreamIsCapturing");
    return !asks || asks(stream, &yes) || yes;
}

/* Sends, then receives, then waits until the receivers have copied. Each pair of ranks meets for
 * itself. */
static int run_ops(const Comm *c, const Op *op, int n)
{
    Ring *r = c->ring;
    bool ok = true;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < n; i++)
        if (op[i].send)
            r->box[c->rank][op[i].peer] = (Box){op[i].send, op[i].bytes, true, false};
    pthread_cond_broadcast(&r->changed);
    for (int i = 0; i < n; i++) {
        Box *x = &r->box[op[i].peer][c->rank];
        if (!op[i].recv)
            continue;
        while (!x->full)
            pthread_cond_wait(&r->changed, &r->lock);
        x->wrong = x->bytes != op[i].bytes;
        ok = ok && !x->wrong;
        if (!x->wrong)
            memcpy(op[i].recv, x->at, x->bytes);
        x->full = false;
        pthread_cond_broadcast(&r->changed);
    }
    for (int i = 0; i < n; i++)
        while (op[i].send && r->box[c->rank][op[i].peer].full)
            pthread_cond_wait(&r->changed, &r->lock);
    for (int i = 0; i < n; i++)
        ok = ok && !(op[i].send && r->box[c->rank][op[i].peer].wrong);
    pthread_mutex_unlock(&r->lock);
    return ok ? OK : INVALID_USAGE;
}

EXPORT int ncclAllGather(const void *send, void *recv, size_t n, int type, Comm *c, void *stream);
int ncclAllGather(const void *send, void *recv, size_t n, int type, Comm *c, void *stream)
{
    CALL(ncclAllGather);
    Op op[2 * MOST];
    int ranks = c->ring->ranks;
    if (type || !n)
        return INVALID_ARGUMENT;
    if (ranks == 1)
        return enqueue(recv, send, n, stream);
    for (int i = 0; i < ranks; i++) {
        op[i] = (Op){.send = send, .bytes = n, .peer = i};
        op[ranks + i] = (Op){.recv = (char *)recv + n * (size_t)i, .bytes = n, .peer = i};
    }
    return captured(stream) ? INVALID_USAGE : run_ops(c, op, 2 * ranks);
}

EXPORT int ncclSend(const void *send, size_t n, int type, int peer, Comm *c, void *stream);
int ncclSend(const void *send, size_t n, int type, int peer, Comm *c, void *stream)
{
    CALL(ncclSend);
    if (!grouped || type || !n || queued == OPS)
        return INVALID_USAGE;
    return queue[queued++] =
               (Op){.send = send, .bytes = n, .peer = peer, .comm = c, .stream = stream},
           OK;
}

EXPORT int ncclRecv(void *recv, size_t n, int type, int peer, Comm *c, void *stream);
int ncclRecv(void *recv, size_t n, int type, int peer, Comm *c, void *stream)
{
    CALL(ncclRecv);
    if (!grouped || type || !n || queued == OPS)
        return INVALID_USAGE;
    return queue[queued++] =
               (Op){.recv = recv, .bytes = n, .peer = peer, .comm = c, .stream = stream},
           OK;
}

EXPORT int ncclGroupStart(void);
int ncclGroupStart(void) { CALL(ncclGroupStart); return grouped++, OK; }

EXPORT int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
    int n = queued;
    if (--grouped)
        return OK;
    queued = 0;
    CALL(ncclGroupEnd);
    if (!n)
        return OK;
    if (queue[0].comm->ring->ranks > 1)
        return captured(queue[0].stream) ? INVALID_USAGE : run_ops(queue[0].comm, queue, n);
    return n == 2 && queue[0].send && queue[1].recv && queue[0].bytes == queue[1].bytes
               ? enqueue(queue[1].recv, queue[0].send, queue[0].bytes, queue[0].stream)
               : INVALID_USAGE;
}

/* Loopback communication: the ranks of a sharded binding are threads of one process, which copy
 * from each other's buffers. Every call has two barriers: a rank reads the others' buffers after
 * all have arrived, and returns after all have read. On a GPU a rank waits for its stream before
 * each barrier. A single rank needs no barrier: on a GPU its calls only enqueue copies, so that
 * steps can be captured. */
#include "runtime/core/gpu/gpu_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The arguments of one rank's current call. */
typedef struct Offer { const char *send; const size_t *send_bytes; size_t bytes; } Offer;
typedef struct LoopbackRank { optc_loopback *of; int rank; } LoopbackRank;

struct optc_loopback {
    GpuEngine *gpu;                    /* NULL: buffers are in host memory */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, arrived;
    int reading;                       /* ranks that may read the others' buffers now */
    unsigned generation;               /* barriers passed */
    unsigned refused;                  /* the barrier that no rank passes, because counts do not
                                        * match */
    bool failed;
    Offer *offer;                      /* by rank */
    LoopbackRank *rank;
};

/* A barrier. begin: buffers may be read from here on, until the next barrier. same: this rank's
 * counts match. Returns false on all ranks if they do not match on one of them, or if the loopback
 * failed meanwhile. Also then a rank waits until the others have read its buffer, because its
 * caller may free it. */
static bool meet(optc_loopback *l, bool begin, bool same)
{
    pthread_mutex_lock(&l->lock);
    unsigned generation = l->generation;
    if (!begin && --l->reading == 0)
        pthread_cond_broadcast(&l->changed);
    if (!same)
        l->refused = generation;
    if (!l->failed && ++l->arrived == l->ranks) {
        l->arrived = 0;
        l->generation++;
        l->reading = begin ? l->ranks : 0;
        pthread_cond_broadcast(&l->changed);
    }
    while (l->generation == generation && (!l->failed || (!begin && l->reading)))
        pthread_cond_wait(&l->changed, &l->lock);
    bool passed = l->generation != generation && l->refused != generation;
    pthread_mutex_unlock(&l->lock);
    return passed;
}

/* ---- copies ---- */
/* The stream's work is done: other ranks may read what it wrote. */
static bool stream_done(const optc_loopback *l, void *stream)
{
    if (!l->gpu || l->ranks == 1)
        return true;
    int rc = gpu_enter(l->gpu)->cuStreamSynchronize(stream);
    gpu_leave(l->gpu, OPTC_OK);
    return rc == 0;
}

static bool copy_part(const optc_loopback *l, void *to, const void *from, size_t bytes,
                      void *stream)
{
    if (!bytes)
        return true;
    if (!l->gpu) {
        memcpy(to, from, bytes);
        return true;
    }
    int rc = gpu_enter(l->gpu)->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)to,
                                                     (CUdeviceptr)(uintptr_t)from, bytes, stream);
    gpu_leave(l->gpu, OPTC_OK);
    return rc == 0;
}

/* Offers this rank's buffer and waits for the others. false: the call fails. */
static bool call_begins(const LoopbackRank *r, Offer offer, void *stream)
{
    optc_loopback *l = r->of;
    l->offer[r->rank] = offer;
    if (!stream_done(l, stream)) {
        optc_loopback_fail(l);
        return false;
    }
    return meet(l, true, true);
}

static int call_ends(const LoopbackRank *r, bool ok, void *stream)
{
    ok = stream_done(r->of, stream) && ok;
    return !meet(r->of, false, ok);
}

/* ---- the functions of optc_comm ---- */
static int loopback_all_gather(void *context, const void *send, void *recv, size_t bytes,
                               void *stream)
{
    const LoopbackRank *r = (const LoopbackRank *)context;
    const optc_loopback *l = r->of;
    if (!call_begins(r, (Offer){(const char *)send, NULL, bytes}, stream))
        return 1;
    bool same = true;
    for (int i = 0; i < l->ranks; i++)
        same = same && l->offer[i].bytes == bytes && !l->offer[i].send_bytes;
    for (int i = 0; i < l->ranks && same && bytes; i++)
        same = copy_part(l, (char *)recv + bytes * (size_t)i, l->offer[i].send, bytes, stream);
    return call_ends(r, same, stream);
}

/* The bytes that rank `from` sends to rank `to` follow those to lower ranks. */
static const char *part_for(const Offer *from, int to)
{
    const char *at = from->send;
    for (int i = 0; i < to; i++)
        at += from->send_bytes[i];
    return at;
}

static int loopback_all_to_all(void *context, const void *send, const size_t *send_bytes,
                               void *recv, const size_t *recv_bytes, void *stream)
{
    const LoopbackRank *r = (const LoopbackRank *)context;
    const optc_loopback *l = r->of;
    char *to = (char *)recv;
    if (!call_begins(r, (Offer){(const char *)send, send_bytes, 0}, stream))
        return 1;
    bool same = true;
    for (int i = 0; i < l->ranks; i++)
        same = same && l->offer[i].send_bytes && l->offer[i].send_bytes[r->rank] == recv_bytes[i];
    for (int i = 0; i < l->ranks && same; to += recv_bytes[i++])
        same = copy_part(l, to, recv_bytes[i] ? part_for(&l->offer[i], r->rank) : NULL,
                         recv_bytes[i], stream);
    return call_ends(r, same, stream);
}

/* ---- opening ---- */
optc_status optc_loopback_open(int ranks, optc_engine *e, optc_loopback **out)
{
    if (out)
        *out = NULL;
    if (!out || ranks < 1 || ranks > 4096)
        return fail(OPTC_ERROR_ARGUMENT, "optc_loopback_open: %s",
                    !out ? "the result pointer is NULL" : "ranks must be in 1..4096");
    optc_loopback *l = (optc_loopback *)calloc(1, sizeof *l);
    Offer *offer = (Offer *)calloc((size_t)ranks, sizeof *offer);
    LoopbackRank *rank = (LoopbackRank *)calloc((size_t)ranks, sizeof *rank);
    if (!l || !offer || !rank) {
        free(l);
        free(offer);
        free(rank);
        return no_memory("optc_loopback_open");
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->gpu = e ? e->gpu : NULL;
    l->ranks = ranks;
    l->refused = ~0u;
    l->offer = offer;
    l->rank = rank;
    for (int i = 0; i < ranks; i++)
        rank[i] = (LoopbackRank){l, i};
    *out = l;
    return OPTC_OK;
}

optc_status optc_loopback_comm(optc_loopback *l, int rank, optc_comm *out)
{
    if (!l || !out || rank < 0 || rank >= l->ranks)
        return fail(OPTC_ERROR_ARGUMENT, "optc_loopback_comm: %s",
                    !l     ? "the loopback is NULL"
                    : !out ? "the result pointer is NULL"
                           : "there is no such rank");
    *out = (optc_comm){rank, l->ranks, &l->rank[rank], loopback_all_gather, loopback_all_to_all};
    return OPTC_OK;
}

void optc_loopback_fail(optc_loopback *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->failed = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void optc_loopback_close(optc_loopback *l)
{
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l->offer);
    free(l->rank);
    free(l);
}

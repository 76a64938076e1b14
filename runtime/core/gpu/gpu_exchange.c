/* Exchanges of sharded bindings on a GPU: the lists of moves as tables on the device, one launch
 * that packs all bytes to send, the caller's collective on the binding's stream, and one launch
 * that unpacks. */
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

/* optc_chunk and optc_move_args of templates/stage_cuda.txt */
typedef struct Chunk { long long at, packed, bytes; int entry, array; } Chunk;
typedef struct MoveArgs {
    CUdeviceptr mem, chunk, packed; long long count; int narray, pack;
} MoveArgs;

enum { CHUNK_BYTES = 1 << 14, MOVE_THREADS = 256, BLOCKS_PER_SM = 8 };

typedef struct ChunkTable { CUdeviceptr at; int64_t n; } ChunkTable;
/* table: by exchange, then list */
typedef struct GpuExchanges { CUdeviceptr all; size_t bytes; ChunkTable *table; } GpuExchanges;

/* ---- tables ---- */
/* Cuts the moves into chunks. to NULL: only counts. packed: the offset of the first move. */
static int64_t cut_chunks(const MoveList *l, int64_t packed, Chunk *to)
{
    const Move *m = l->move;
    int64_t count = 0;
    for (int i = 0; i < l->n; i++)
        for (int64_t run = 0; run < m[i].count; run++, packed += m[i].bytes)
            for (int64_t at = 0; at < m[i].bytes && m[i].entry >= 0; at += CHUNK_BYTES, count++)
                if (to) {
                    Chunk *c = &to[count];
                    c->at = m[i].at + run * m[i].stride + at;
                    c->packed = packed + at;
                    c->bytes =
                        m[i].bytes - at < CHUNK_BYTES ? m[i].bytes - at : (int64_t)CHUNK_BYTES;
                    c->entry = m[i].entry;
                    c->array = m[i].array;
                }
    return count;
}

static int64_t list_chunks(const optc_binding *b, const Exchange *e, int list, Chunk *to)
{
    if (list != LIST_SHARED)
        return cut_chunks(&e->list[list], 0, to);
    int64_t n = 0;
    int64_t head = gpu_agree_rides(b, (int)(e - b->shards->exchange)) ? b->shards->head : 0;
    for (int r = 0; r < b->shards->comm.ranks; r++) {
        const MoveList l = exchange_shared(e, r);
        n += cut_chunks(&l, (head + (int64_t)e->share_bytes) * r + head, to ? to + n : NULL);
    }
    return n;
}

CORE optc_status gpu_exchanges_bind(optc_binding *b)
{
    const Shards *x = b->shards;
    int64_t n = 0;
    if (!x || !x->nexchange)
        return OPTC_OK;
    if (!b->gpu->code->move)
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_bind_sharded: the package of rule '%s' was made by an older version "
                    "that cannot be sharded; make the package again",
                    b->program->name);
    GpuExchanges *g = b->gpu->exchanges = TAKE(b, GpuExchanges, 1);
    if (!g || !(g->table = TAKE(b, ChunkTable, x->nexchange * NLIST)))
        return no_memory("optc_bind_sharded");
    for (int i = 0; i < x->nexchange * NLIST; i++)
        n += g->table[i].n = list_chunks(b, &x->exchange[i / NLIST], i % NLIST, NULL);
    size_t bytes = sizeof(Chunk) * (size_t)(n + 1);
    Chunk *host = (Chunk *)calloc(1, bytes);
    optc_status s =
        host ? gpu_alloc(b->rule->engine, bytes, b->gpu->stream, "tables of exchanges", &g->all)
             : no_memory("optc_bind_sharded");
    g->bytes = s == OPTC_OK ? bytes : 0;
    n = 0;
    for (int i = 0; s == OPTC_OK && i < x->nexchange * NLIST; i++) {
        g->table[i].at = g->all + sizeof(Chunk) * (size_t)n;
        n += list_chunks(b, &x->exchange[i / NLIST], i % NLIST, host + n);
    }
    if (s == OPTC_OK)
        s = gpu_write(b, (void *)(uintptr_t)g->all, host, bytes, true, "optc_bind_sharded");
    free(host);
    return s;
}

CORE void gpu_exchanges_unbind(optc_binding *b)
{
    GpuExchanges *g = b->gpu->exchanges;
    if (g && g->bytes)
        gpu_give(b->rule->engine, g->all, g->bytes, b->gpu->stream);
    b->gpu->exchanges = NULL;
}

/* ---- running ---- */
static optc_status launch_moves(const optc_binding *b, const ChunkTable *c, CUdeviceptr packed,
                                int pack)
{
    GpuEngine *g = b->rule->engine->gpu;
    const GpuTables *t = b->gpu;
    MoveArgs a;
    memset(&a, 0, sizeof a);
    void *args[] = {&a};
    int64_t most = (int64_t)g->sms * BLOCKS_PER_SM;
    if (!c->n)
        return OPTC_OK;
    a.mem = t->table ? t->table : t->mem;
    a.chunk = c->at;
    a.packed = packed;
    a.count = c->n;
    a.narray = b->program->narray;
    a.pack = pack;
    TRY(g,
        cuLaunchKernel(t->code->move, (unsigned)(c->n < most ? c->n : most), 1, 1, MOVE_THREADS, 1,
                       1, 0, t->stream, args, NULL),
        "an exchange");
    return OPTC_OK;
}

/* Inside gpu_enter. */
CORE optc_status gpu_exchange(const optc_binding *b, int number)
{
    const Shards *x = b->shards;
    const optc_comm *c = &x->comm;
    const Exchange *e = &x->exchange[number];
    const ChunkTable *t = &b->gpu->exchanges->table[number * NLIST];
    CUdeviceptr send = (CUdeviceptr)(uintptr_t)b->block + (CUdeviceptr)(x->at + x->send_at);
    CUdeviceptr recv = (CUdeviceptr)(uintptr_t)b->block + (CUdeviceptr)(x->at + x->recv_at);
    void *from = (void *)(uintptr_t)send, *to = (void *)(uintptr_t)recv;
    optc_status s = OPTC_OK;
    message_clear();                               /* for exchange_failed */
    if (e->pairs) {
        s = launch_moves(b, &t[LIST_SEND], send, 1);
        if (s == OPTC_OK &&
            c->all_to_all(c->context, from, e->send_bytes, to, e->recv_bytes, b->gpu->stream))
            return exchange_failed(b);
        s = s == OPTC_OK ? launch_moves(b, &t[LIST_RECV], recv, 0) : s;
    }
    if (s == OPTC_OK && e->share_bytes) {
        size_t head = gpu_agree_rides(b, number) ? (size_t)x->head : 0;
        s = launch_moves(b, &t[LIST_SHARE], send, 1);
        if (s == OPTC_OK && c->all_gather(c->context, (char *)from - head, to,
                                          head + e->share_bytes, b->gpu->stream))
            return exchange_failed(b);
        s = s == OPTC_OK && head ? gpu_agree_launch(b, head + e->share_bytes) : s;
        s = s == OPTC_OK ? launch_moves(b, &t[LIST_SHARED], recv, 0) : s;
    }
    b->shards->failed = b->shards->failed || s != OPTC_OK;
    return s;
}

/* ---- values of other processes' bindings (connect.c) ---- */
CORE int gpu_gather_values(optc_binding *b, const optc_comm *c, void *const *from, int n,
                           void *send, void *recv)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const Driver *d = gpu_enter(g);
    int rc = 0;
    for (int i = 0; i < n && !rc; i++)
        rc = d->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)send + 8 * (CUdeviceptr)i,
                                     (CUdeviceptr)(uintptr_t)from[i], 8, b->gpu->stream);
    if (!rc)
        rc = c->all_gather(c->context, send, recv, 8 * (size_t)(n + 1), b->gpu->stream);
    gpu_leave(g, OPTC_OK);
    return rc;
}

/* ---- host memory ---- */
static optc_status gather_inside(optc_engine *e, const optc_comm *c, const void *own, void *all,
                                 size_t bytes, CUdeviceptr at)
{
    GpuEngine *g = e->gpu;
    void *recv = (void *)(uintptr_t)(at + bytes);
    TRY(g, cuMemcpyHtoDAsync_v2(at, own, bytes, NULL), "optc_bind_sharded");
    if (c->all_gather(c->context, (void *)(uintptr_t)at, recv, bytes, NULL))
        return fail(OPTC_ERROR_DEVICE,
                    "optc_bind_sharded: communication with the other ranks failed on rank %d of %d",
                    c->rank, c->ranks);
    TRY(g, cuMemcpyDtoHAsync_v2(all, at + bytes, bytes * (size_t)c->ranks, NULL),
        "optc_bind_sharded");
    TRY(g, cuStreamSynchronize(NULL), "optc_bind_sharded");
    return OPTC_OK;
}

CORE optc_status gpu_gather(optc_engine *e, const optc_comm *c, const void *own, void *all,
                            size_t bytes)
{
    size_t padded = (bytes + 255) & ~(size_t)255, room = padded * (size_t)(c->ranks + 1);
    CUdeviceptr at = 0;
    char *host = (char *)calloc(1, padded * (size_t)(c->ranks + 1));
    if (!host)
        return no_memory("optc_bind_sharded");
    memcpy(host, own, bytes);
    gpu_enter(e->gpu);
    optc_status s = gpu_alloc(e, room, NULL, "the ranks' tables", &at);
    if (s == OPTC_OK)
        s = gather_inside(e, c, host, host + padded, padded, at);
    if (at)
        gpu_give(e, at, room, NULL);
    for (int r = 0; s == OPTC_OK && r < c->ranks; r++)
        memcpy((char *)all + bytes * (size_t)r, host + padded * (size_t)(r + 1), bytes);
    free(host);
    return gpu_leave(e->gpu, s);
}

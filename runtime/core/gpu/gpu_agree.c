/* Sharded bindings on a GPU: the ranks compare which tensors take part in a step, and their guards.
 * The host does not wait. Each rank keeps words in device memory ahead of its buffer to send: its
 * guard, then a bit per tensor. They travel with the step's first gather, or, where a step writes
 * states ahead of that, with a gather of their own. The kernel AGREE_KERNEL compares them. If they
 * differ, this step and all later ones change nothing on any rank, and the next call on each rank
 * fails. A rank that cannot run, or whose host has read a guard that is set, takes part in the
 * exchanges of its step without its stages, with a mark in its first word.
 *
 * Libraries' products do not look at the views that the kernel marks. In steps where they write
 * states, the host waits for the comparison, unless the step is captured. */
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/shard/shard.h"

#include <string.h>

/* optc_agree_args of templates/stage_cuda.txt */
typedef struct AgreeArgs {
    CUdeviceptr words, views, groups, guard, sticky, found;
    long long stride, nview, ncohort;
    int nword, ranks, wide, counts;
} AgreeArgs;

enum { AGREE_THREADS = 128, AGREE_BLOCKS = 32 };
/* optc_difference of templates/stage_cuda.txt: DIFFERS, whether rank 0 has the bit, the other rank,
 * the bit's number */
static const unsigned long long DIFFERS = 1ull << 63, RANK_0_HAS = 1ull << 62;

/* bits of the first word: optc_guard writes the first one */
enum { BIT_GUARD, BIT_FAILED };

typedef struct GpuAgree {
    volatile unsigned long long *found;    /* in host memory that the device writes; 0: no
                                            * difference so far */
    unsigned long long *words;             /* the host's copy */
    int nword;
    AgreeMode *mode;                       /* by entry, then phase */
    bool *rides;                           /* by exchange */
    bool counts;                           /* of the current run: it increments t */
} GpuAgree;

static CUdeviceptr words_at(const optc_binding *b)
{
    const Shards *x = b->shards;
    return (CUdeviceptr)(uintptr_t)b->block + (CUdeviceptr)(x->at + x->send_at - x->head);
}

/* ---- binding ---- */
CORE optc_status gpu_agree_bind(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    const Program *p = b->program;
    const int n = p->nentry * program_phases(p);
    bool any = false;
    if (!b->shards || !b->shards->head)
        return OPTC_OK;
    GpuAgree *x = TAKE(b, GpuAgree, 1);
    if (!x || !(x->mode = TAKE(b, AgreeMode, n)) ||
        !(x->rides = TAKE(b, bool, b->shards->nexchange)))
        return no_memory("optc_bind_sharded");
    x->nword = b->ntensor / 64 + 2;
    for (int i = 0; i < n; i++) {
        int exchange = -1;
        x->mode[i] = compare_mode(b, &p->entry[i / program_phases(p)].phase[i % program_phases(p)],
                                  &exchange);
        if (x->mode[i] == AGREE_RIDES)
            x->rides[exchange] = true;
        any = any || x->mode[i] != AGREE_NOT;
    }
    if (!any)
        return OPTC_OK;
    if (!b->gpu->code->agree)
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_bind_sharded: the package of rule '%s' was made by an older version "
                    "that cannot be sharded; make the package again",
                    p->name);
    if (!(x->words = TAKE(b, unsigned long long, x->nword)))
        return no_memory("optc_bind_sharded");
    void *host = spare_take(g, (SpareGone)g->d->cuMemFreeHost);
    if (!host)
        TRY(g, cuMemHostAlloc(&host, sizeof *x->found, 0), "optc_bind_sharded");
    x->found = (volatile unsigned long long *)host;
    *x->found = 0;
    b->gpu->agree = x;
    return OPTC_OK;
}

/* Freeing the host memory could wait for the device, and for ranks that have ended: another binding
 * reuses it. */
CORE void gpu_agree_unbind(optc_binding *b)
{
    GpuAgree *x = b->gpu->agree;
    GpuEngine *g = b->rule->engine->gpu;
    if (x)
        spare_keep(g, (void *)(uintptr_t)x->found, (SpareGone)g->d->cuMemFreeHost);
    b->gpu->agree = NULL;
}

CORE optc_status gpu_agree_send(optc_binding *b)
{
    GpuAgree *x = b->gpu->agree;
    if (!x)
        return OPTC_OK;
    memset(x->words, 0, sizeof *x->words * (size_t)x->nword);
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].view.n >= 0)
            x->words[1 + i / 64] |= 1ull << i % 64;
    /* the first word is the device's; pageable: copied before it returns */
    TRY(b->rule->engine->gpu,
        cuMemcpyHtoDAsync_v2(words_at(b) + 8, x->words + 1,
                             sizeof *x->words * (size_t)(x->nword - 1), b->gpu->stream),
        "which tensors take part");
    return OPTC_OK;
}

/* ---- running ---- */
CORE CUdeviceptr gpu_agree_guard(const optc_binding *b) { return b->gpu->agree ? words_at(b) : 0; }

CORE bool gpu_agree_rides(const optc_binding *b, int exchange)
{
    return b->gpu->agree && b->gpu->agree->rides[exchange];
}

CORE optc_status gpu_agree_launch(const optc_binding *b, size_t stride)
{
    GpuEngine *g = b->rule->engine->gpu;
    const GpuTables *t = b->gpu;
    const GpuAgree *x = t->agree;
    AgreeArgs a;
    memset(&a, 0, sizeof a);
    a.words = (CUdeviceptr)(uintptr_t)b->block + (CUdeviceptr)(b->shards->at + b->shards->recv_at);
    a.views = t->views, a.groups = t->groups;
    a.guard = t->guarded ? (CUdeviceptr)(uintptr_t)b->guard.from : 0;
    a.sticky = words_at(b) - 64;
    a.found = (CUdeviceptr)(uintptr_t)x->found;
    a.stride = (long long)stride;
    a.nview = b->nall, a.ncohort = b->ncohort;
    a.nword = x->nword;
    a.ranks = b->shards->comm.ranks;
    a.wide = b->guard.type == T_F64;
    a.counts = x->counts;
    void *args[] = {&a};
    int blocks = b->nall / AGREE_THREADS + 1;
    TRY(g,
        cuLaunchKernel(t->code->agree,
                       (unsigned)(blocks < AGREE_BLOCKS ? blocks : (int)AGREE_BLOCKS), 1, 1,
                       AGREE_THREADS, 1, 1, 0, t->stream, args, NULL),
        "the ranks' comparison");
    return OPTC_OK;
}

static optc_status gather_apart(const optc_binding *b)
{
    const Shards *x = b->shards;
    const optc_comm *c = &x->comm;
    CUdeviceptr recv = (CUdeviceptr)(uintptr_t)b->block + (CUdeviceptr)(x->at + x->recv_at);
    message_clear();                               /* for exchange_failed */
    if (c->all_gather(c->context, (void *)(uintptr_t)words_at(b), (void *)(uintptr_t)recv,
                      (size_t)x->head, b->gpu->stream))
        return exchange_failed(b);
    return gpu_agree_launch(b, (size_t)x->head);
}

CORE optc_status gpu_agree_begin(optc_binding *b, int entry, int phase, bool capturing)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuAgree *x = b->gpu->agree;
    AgreeMode mode = x ? x->mode[entry * b->gpu->nphase + phase] : AGREE_NOT;
    if (mode == AGREE_NOT)
        return OPTC_OK;
    /* where the host waits, it does not launch the step, and t is not incremented */
    x->counts = entry_counts(b, entry) && (capturing || mode != AGREE_WAITS);
    if (mode == AGREE_RIDES)
        return OPTC_OK;
    optc_status s = gather_apart(b);
    if (s != OPTC_OK || capturing || mode != AGREE_WAITS)
        return s;
    TRY(g, cuStreamSynchronize(b->gpu->stream), "the ranks' comparison");
    return gpu_agree_check(b);
}

static optc_status write_mark(const optc_binding *b, unsigned long long mark)
{
    TRY(b->rule->engine->gpu, cuMemcpyHtoDAsync_v2(words_at(b), &mark, sizeof mark, b->gpu->stream),
        "the mark of a failed run");
    return OPTC_OK;
}

/* The other ranks wait in all exchanges of this step, unless their hosts wait for the comparison
 * ahead of them. */
CORE optc_status gpu_agree_refuse(optc_binding *b, int entry, int phase, bool guard)
{
    GpuAgree *x = b->gpu->agree;
    const int at = entry * b->gpu->nphase + phase;
    const LaunchList *p = &b->gpu->launch_list[at];
    AgreeMode mode = x ? x->mode[at] : AGREE_NOT;
    if (mode == AGREE_NOT)
        return OPTC_OK;
    optc_status s = write_mark(b, 1ull << (guard ? BIT_GUARD : BIT_FAILED));
    x->counts = false;
    if (s == OPTC_OK && mode != AGREE_RIDES)
        s = gather_apart(b);
    for (int i = 0; i < p->n && mode != AGREE_WAITS && s == OPTC_OK; i++)
        if (p->item[i].op->kind == SCHEDULE_EXCHANGE)
            s = gpu_exchange(b, p->item[i].op->what);
    return s == OPTC_OK ? write_mark(b, 0) : s;
}

CORE bool gpu_agree_differs(const optc_binding *b)
{
    return b->gpu->agree && *b->gpu->agree->found;
}

CORE optc_status gpu_agree_check(const optc_binding *b)
{
    unsigned long long found = b->gpu->agree ? *b->gpu->agree->found : 0;
    int rank = (int)(found >> 32 & 0xfffffff), bit = (int)(found & 0xffffffff);
    int has = found & RANK_0_HAS ? 0 : rank, lacks = found & RANK_0_HAS ? rank : 0;
    char label[96];
    if (!(found & DIFFERS))
        return OPTC_OK;
    if (bit == BIT_FAILED)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: rank %d could not run a step; its own message says why. No rank "
                    "has changed anything since: bind again",
                    has);
    if (bit == BIT_GUARD)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_run: the guard was set on rank %d and not on rank %d in a step; all "
                    "ranks need the "
                    "same value, such as the maximum of theirs. No rank has changed anything "
                    "since: bind again",
                    has, lacks);
    return fail(
        OPTC_ERROR_ARGUMENT,
        "optc_run: %s had a gradient on rank %d and none on rank %d in a step; all ranks must pass "
        "gradients for the same tensors (zeros where a rank has none). No rank has changed "
        "anything since: "
        "bind again",
        tensor_label(b, bit - 64, label), has, lacks);
}

/* The CPU device: runs a phase's ops in order; the threads of a team share the units of each
 * stage over all tensors. Results must not depend on the number of threads. */
#include "runtime/core/base/callees.h"
#include "runtime/core/bind/bind.h"
#include "runtime/core/cpu/cpu.h"
#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shards.h"

#include "runtime/core/cpu/float_mode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- threads ---- */
#ifdef _OPENMP
/* Id of the process that first started a team of threads. All copies of this file in a program
 * share OpenMP's threads, so they share this variable: it is weak and has the same name in every
 * package. */
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((weak, visibility("default"))) int optc_team_started_by = 0;
#ifdef __cplusplus
}
#endif
#endif

/* fork() does not copy OpenMP's threads, and a child that waits for them waits for ever. So a
 * process whose parent has started threads uses one thread. The result bits are the same. */
CORE int threads_allowed(int threads)
{
#ifdef _OPENMP
    int none = 0, here = threads > 1 ? (int)getpid() : 0;
    if (threads > 1 && !__atomic_compare_exchange_n(&optc_team_started_by, &none, here, false,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return none == here ? threads : 1;
    return threads;
#else
    (void)threads;
    return 1;
#endif
}

CORE void parallel_for(int team, int64_t n, void (*each)(void *with, int64_t i), void *with)
{
#ifdef _OPENMP
    if (team > 1) {
#pragma omp parallel for schedule(static) num_threads(team)
        for (int64_t i = 0; i < n; i++)
            each(with, i);
        return;
    }
#endif
    (void)team;
    for (int64_t i = 0; i < n; i++)
        each(with, i);
}

/* ---- binding ---- */
/* Large blocks use huge pages: a step reads several arrays at once, and small pages would cause TLB
 * misses. */
static void *block_alloc(size_t bytes)
{
    size_t page = 2 << 20, align = bytes >= 4 * page ? page : 64;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (p && align == page)
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* A state of a tensor, in segments. */
#define FILL_SEGMENT ((int64_t)1 << 16)
typedef struct Filled { const optc_binding *b; int tensor, array; int64_t n; } Filled;

static void fill_segment(void *with, int64_t i)
{
    const Filled *x = (const Filled *)with;
    const Program *p = x->b->program;
    const ProgArray *m = &p->array[x->array];
    const Tensor *t = &x->b->tensor[x->tensor];
    int64_t at = i * FILL_SEGMENT, left = x->n - at,
            side = axis_len(dom_info[m->dom].axis[0], t->shape);
    const char *src = m->copies_p ? (const char *)t->mem[0] + at * p->type[p->p].bytes : NULL;
    state_fill(x->b, m, t->group, (char *)t->mem[x->array] + at * p->type[m->type].bytes, src,
               state_span(t, at, left < FILL_SEGMENT ? left : FILL_SEGMENT, side));
}

/* Initialises all states. Large ones in segments by all threads: the first touch decides on which
 * NUMA node a page is. */
static void fill_states(optc_binding *b)
{
    const Program *p = b->program;
    for (int k = 0; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        if (m->kind != MEM_STATE && !(m->kind == MEM_INPUT && m->dom == GROUP))
            continue;
        for (int i = 0; m->dom == GROUP && i < b->ngroup; i++)
            state_fill(b, m, i, b->group[i].mem[k], NULL, state_span(NULL, 0, 1, 1));
        int from = dom_of_block(m->dom) ? b->nheld : 0, to = m->dom == GROUP ? 0
                                                             : from          ? b->nall
                                                                             : b->nheld;
        for (int i = from; i < to; i++) {
            /* a ghost: an exchange fills it */
            bool no_p = m->copies_p && !b->tensor[i].mem[0], ours = state_starts(b, i, k) && !no_p;
            Filled x = {b, i, k, ours ? dom_len(m->dom, b->tensor[i].shape) : 0};
            if (p->type[m->type].block > 1)                                /* zeros, byte by byte */
                x.n = stored_bytes(p->type, m->type, x.n, b->tensor[i].whole.n);
            parallel_for(x.n > 4 * FILL_SEGMENT ? threads_allowed(b->rule->engine->threads) : 1,
                      (x.n + FILL_SEGMENT - 1) / FILL_SEGMENT, fill_segment, &x);
        }
    }
}

static optc_status cpu_bind(optc_binding *b)
{
    optc_engine *e = b->rule->engine;
    b->effort = b->elems;
    b->fn = b->rule->fn;
    optc_status s = b->runs ? HOST()->runs(b, NULL, &b->fn) : OPTC_OK;
    if (s == OPTC_OK)
        s = cpu_calls(b);
    if (s != OPTC_OK)
        return s;
    b->storage_bytes += 64;
    b->block = e->memory.alloc ? e->memory.alloc(e->memory.context, b->storage_bytes, NULL)
        : block_alloc(b->storage_bytes);
    if (!b->block)
        return fail(OPTC_ERROR_MEMORY,
                    "optc_bind: out of memory: the states and temporaries of '%s' on %d tensors "
                    "take %zu bytes",
                    b->program->name, b->ntensor, b->storage_bytes);
    memory_account(e, (int64_t)b->storage_bytes);
    if ((uintptr_t)b->block % 64)
        return fail(
            OPTC_ERROR_ARGUMENT,
            "optc_bind: the caller's allocator returned memory that is not aligned to 64 bytes");
    s = layout_place(b);
    if (s == OPTC_OK)
        s = shards_send_params(b);
    if (s == OPTC_OK)
        fill_states(b);
    return s;
}

static void cpu_unbind(optc_binding *b)
{
    optc_engine *e = b->rule->engine;
    if (!b->block)
        return;
    if (e->memory.alloc)
        e->memory.release(e->memory.context, b->block, b->storage_bytes, NULL);
    else
        free(b->block);
    memory_account(e, -(int64_t)b->storage_bytes);
}

/* ---- running ---- */
typedef struct Counter { long long next; char pad[56]; } Counter;       /* one cache line each */

/* A function that several stages share takes the stage's array numbers as an argument. */
typedef void (*SharedFn)(const optc_view *t, long long unit, const int *arrays);
static void run_unit(optc_stage_fn fn, const int *at, const optc_view *v, int64_t unit)
{
    if (at)
        ((SharedFn)(void (*)(void))fn)(v, unit, at);
    else
        fn(v, unit);
}

/* Units [lo, hi) of one tensor, or view of its blocks, that are scheduled for this step. */
static void run_staggered(const optc_binding *b, const ProgStage *s, const Tensor *t, int64_t lo,
                          int64_t hi)
{
    for (; lo < hi; lo++)
        if (stagger_active(b, &b->stagger, s->stagger, t, stagger_matrix(s, t, lo)))
            run_unit(b->fn[s->fn], s->at, &t->view, lo);
}

/* Units [lo, hi) of a stage: a binary search finds the first tensor. leaves: run tensors that do
 * not take part, too. */
static void run_units(const optc_binding *b, const Units *u, const ProgStage *s, bool leaves,
                      int64_t lo, int64_t hi)
{
    const int64_t *prefix = u->prefix[s->kind];
    optc_stage_fn fn = b->fn[s->fn];
    int a = 0, z = u->n;
    while (z - a > 1) {
        int mid = (a + z) / 2;
        if (prefix[mid] <= lo)
            a = mid;
        else
            z = mid;
    }
    for (int i = a; lo < hi; i++) {
        const optc_view *v = &b->tensor[u->tensor[i]].view;
        int64_t end = hi < prefix[i + 1] ? hi : prefix[i + 1];
        if (s->stagger && v->n >= 0)
            run_staggered(b, s, &b->tensor[u->tensor[i]], lo - prefix[i], end - prefix[i]);
        if (s->stagger || (v->n < 0 && !leaves)) {
            lo = end;
            continue;
        }
        for (int64_t from =
                 prefix[i] - (s->kind == S_FLAT ? b->tensor[u->tensor[i]].first_unit : 0);
             lo < end; lo++)
            run_unit(fn, s->at, v, lo - from);
    }
}

/* The stage writes values that are folded over all tensors. It must write the neutral value for
 * tensors that do not take part. */
static bool folds_tensors(const optc_binding *b, const ProgStage *s)
{
    for (int k = 0; b->nabsent && s->kind == S_TENSOR && k < s->nwrites; k++) {
        const ProgArray *m = &b->program->array[s->writes[k]];
        if (m->kind == MEM_PART && m->dom == GROUP)
            return true;
    }
    return false;
}

static int64_t next_units(Counter *c, int64_t n)
{
    return __atomic_fetch_add(&c->next, n, __ATOMIC_RELAXED);
}

/* Every thread takes the next units until none are left. The assignment to threads changes no bit.
 * Element passes alternate their direction: the data at the end of one pass is still in the cache
 * when the next starts there. */
static void run_stage(const optc_binding *b, const ScheduleOp *op, Counter *c, int threads)
{
    const ProgStage *s = op->stage;
    if (s->kind == S_GROUP) {
        for (int64_t i; (i = next_units(c, 1)) < b->ncohort;)
            if (b->group[i].view.n >= 0)
                run_unit(b->fn[s->fn], s->at, &b->group[i].view, 0);
        return;
    }
    const Units *u = op->units;
    int64_t total = u->prefix[s->kind][u->n],
            grain = b->grain ? b->grain : total / (threads * 64) + 1;
    bool back = s->time % 2, leaves = folds_tensors(b, s);
    for (int64_t at; (at = next_units(c, grain)) < total;) {
        int64_t end = at + grain < total ? at + grain : total;
        run_units(b, u, s, leaves, back ? total - end : at, back ? total - at : end);
    }
}

/* Jobs are numbered across the tensors, last tensor first: tensors are sorted by shape and the last
 * are the largest. A thread's job numbers only grow, so it iterates over the tensors once. */
static void run_call(const optc_binding *b, const ScheduleOp *op, Counter *c, int thread)
{
    const Program *p = b->program;
    const ProgStage *s = op->stage;
    const ProgCall *call = s->call;
    const CalleeInfo *x = callee_info(call);
    const Units *u = op->units;
    int64_t at = next_units(c, 1), first = 0;
    for (int i = u->n - 1; i >= 0; i--) {
        const Tensor *y = &b->tensor[u->tensor[i]];
        int64_t n = y->view.n < 0 ? 0 : x->jobs(p, call, y->shape);
        int64_t each = y->shape.slices ? n / y->shape.slices : 0;          /* jobs per matrix */
        for (; at < first + n; at = next_units(c, 1))
            if (!s->stagger || stagger_active(b, &b->stagger, s->stagger, y, (at - first) / each))
                x->run(b, call, y, at - first, thread);
        first += n;
    }
}

static void run_op(const optc_binding *b, const ScheduleOp *op, Counter *c, int threads, int thread)
{
    if (op->kind == SCHEDULE_CALL)
        run_call(b, op, c, thread);
    else if (op->kind == SCHEDULE_LAUNCH)
        run_stage(b, op, c, threads);
    else if (op->kind == SCHEDULE_EXCHANGE && next_units(c, 1) == 0)
        shards_exchange(b, op->what);
}

static void run_alone(const optc_binding *b, const Schedule *x, int from, int to, int thread)
{
    unsigned long long mode = float_mode_set();
    int64_t at = profile_clock(b->profile);
    for (int i = from; i < to; i++) {
        Counter c = {0, {0}};
        run_op(b, &x->op[i], &c, 1, thread);
        at = profile_task(b->profile, i, at);
    }
    float_mode_reset(mode);
}

#ifdef _OPENMP
/* Too little work for several threads. One thread does consecutive small ops, without barriers
 * between them. */
static bool is_small(const optc_binding *b, const ScheduleOp *op)
{
    const ProgStage *s = op->stage;
    const Units *u = op->units;
    if (op->kind == SCHEDULE_CALL)
        return u->n == 1 &&
               callee_info(s->call)->jobs(b->program, s->call, b->tensor[*u->tensor].shape) <= 1;
    return !u || u->prefix[s->kind][u->n] <= 1;
}

static int small_until(const optc_binding *b, const Schedule *x, int i, int end)
{
    while (i < end && is_small(b, &x->op[i]))
        i++;
    return i;
}

/* Runs ops [i, end), whose first and last are not small. Called by all threads of a team. */
static void run_together(const optc_binding *b, const Schedule *x, Counter *c, int i, int end,
                         Barrier *t, int threads)
{
    int thread = omp_get_thread_num();
    unsigned long long mode = float_mode_set();
    if (!thread)
        profile_joined(b->profile, x->n);
    for (int next; i < end; i = next) {
        next = small_until(b, x, i, end);
        /* by one thread, to the end of all threads' work */
        bool timed = b->profile && next == i && !thread;
        int64_t at = timed ? profile_clock(b->profile) : 0;
        if (next > i && next_units(&c[i], 1) == 0)
            run_alone(b, x, i, next, thread);
        else if (next == i)
            run_op(b, &x->op[next++], &c[i], threads, thread);
        if (next < end)
            barrier_wait(t, threads);
        if (timed)
            profile_task(b->profile, i, at);
    }
    float_mode_reset(mode);
}
#endif

/* The calling thread does the small ops at the beginning and at the end alone, outside of the
 * team. */
static void run_ops(const optc_binding *b, const Schedule *x, Counter *c, int threads)
{
    if (threads == 1) {
        run_alone(b, x, 0, x->n, 0);
        return;
    }
#ifdef _OPENMP
    int end = x->n, first = small_until(b, x, 0, end);
    while (end > first && is_small(b, &x->op[end - 1]))
        end--;
    run_alone(b, x, 0, first, 0);
    if (first < end) {
        Barrier t = {0, 0, 0};
        /* until the threads have started */
        profile_task(b->profile, x->n, profile_clock(b->profile));
#pragma omp parallel num_threads(threads)
        run_together(b, x, c, first, end, &t, omp_get_num_threads());
        profile_joined(b->profile, end - 1);
    }
    run_alone(b, x, end, x->n, 0);
#else
    (void)c;
#endif
}

static optc_status copy_group(optc_binding *b, void *to, const void *from, size_t n)
{
    (void)b;
    memcpy(to, from, n);
    return OPTC_OK;
}

CORE void cpu_follow(optc_binding *b) { cohorts_copy_states(b, copy_group); }

static optc_status cpu_run(optc_binding *b, int entry, int phase)
{
    const Schedule *x = schedule_of(b, entry, phase);
    /* with fewer elements, waking a thread costs more than it saves */
    int64_t per_thread = 1 << 15;
    int most = b->rule->engine->threads, threads = b->threads ? b->threads : most;
    if (!b->threads && b->effort / per_thread + 1 < threads)
        threads = (int)(b->effort / per_thread) + 1;
    threads = threads_allowed(threads > most ? most : threads);
    Counter few[32], *c = x->n <= 32 ? few : (Counter *)malloc(sizeof *c * (size_t)x->n);
    if (!c)
        return no_memory("optc_run");
    for (int i = 0; i < x->n; i++)
        c[i].next = 0;
    for (int i = 0; i < b->ncohort; i++)
        b->group[i].hyper[0] = (double)(b->steps + 1 - b->group[i].lag);
    cpu_follow(b);
    run_ops(b, x, c, threads);
    if (c != few)
        free(c);
    return shards_end(b);
}

/* ---- the rest of the device table ---- */
static optc_status cpu_sync(optc_binding *b)
{
    (void)b;
    return OPTC_OK;
}

static optc_status cpu_use_pointer(optc_binding *b, int tensor, const void *was, const void *p,
                                   const char *what)
{
    (void)b, (void)tensor, (void)was, (void)p, (void)what;
    return OPTC_OK;
}

static void cpu_set_stream(optc_binding *b, void *stream) { (void)b, (void)stream; }

static optc_status cpu_read(const optc_binding *b, void *host, const void *from, size_t bytes,
                            const char *call)
{
    (void)b, (void)call;
    memcpy(host, from, bytes);
    return OPTC_OK;
}

static optc_status cpu_write(const optc_binding *b, void *to, const void *host, size_t bytes,
                             bool wait, const char *call)
{
    (void)b, (void)call, (void)wait;
    memcpy(to, host, bytes);
    return OPTC_OK;
}

static optc_status cpu_spread(const optc_binding *b, void *to, size_t pitch, int n, double value,
                              const char *call)
{
    (void)b, (void)call;
    for (int i = 0; i < n; i++)
        memcpy((char *)to + pitch * (size_t)i, &value, sizeof value);
    return OPTC_OK;
}

static optc_status cpu_send_hyper(const optc_binding *b, int first, int n, int at, double value,
                                  const char *call)
{
    (void)b, (void)first, (void)n, (void)at, (void)value, (void)call;
    return OPTC_OK;
}

static optc_status cpu_get_t(const optc_binding *b, int64_t *steps)
{
    *steps = b->steps;
    return OPTC_OK;
}

static optc_status cpu_put_t(optc_binding *b, int64_t steps)
{
    (void)b, (void)steps;
    return OPTC_OK;
}

static optc_status cpu_more(optc_binding *b, size_t bytes, void **out)
{
    char *p = TAKE(b, char, bytes + 64);
    *out = p ? p + (64 - (uintptr_t)p % 64) % 64 : NULL;
    return p ? OPTC_OK : no_memory("optc_run");
}

static optc_status cpu_grown(optc_binding *b)
{
    (void)b;
    return OPTC_OK;
}

static void cpu_arranged(optc_binding *b, bool moved) { (void)b, (void)moved; }

static int64_t available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[200];
    long long kib = -1;
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) != 1)
            kib = -1;
    if (f)
        fclose(f);
    return kib < 0 ? (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE)
                   : (int64_t)kib * 1024;
}

static optc_status cpu_memory(optc_engine *e, optc_memory *out)
{
    (void)e;
    out->total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    out->free = available();
    return OPTC_OK;
}

static optc_status cpu_gather(optc_engine *e, const optc_comm *c, const void *own, void *all,
                              size_t bytes)
{
    (void)e;
    return !c->all_gather(c->context, own, all, bytes, NULL)
               ? OPTC_OK
               : fail(OPTC_ERROR_DEVICE,
                      "optc_bind_sharded: communication with the other ranks failed on rank %d of "
                      "%d",
                      c->rank, c->ranks);
}

/* ---- memory for callers ---- */
static optc_status cpu_take(optc_engine *e, size_t bytes, void *stream, void **out)
{
    (void)stream;
    void *p =
        e->memory.alloc ? e->memory.alloc(e->memory.context, bytes, NULL) : block_alloc(bytes);
    if (p && (uintptr_t)p % 64) {
        e->memory.release(e->memory.context, p, bytes, NULL);
        return fail(
            OPTC_ERROR_ARGUMENT,
            "optc_alloc: the caller's allocator returned memory that is not aligned to 64 bytes");
    }
    *out = p;
    if (!p)
        return fail(OPTC_ERROR_MEMORY, "optc_alloc: out of memory: %zu bytes", bytes);
    memory_account(e, (int64_t)bytes);
    return OPTC_OK;
}

static optc_status cpu_give(optc_engine *e, void *memory, size_t bytes, void *stream)
{
    (void)stream;
    if (e->memory.alloc)
        e->memory.release(e->memory.context, memory, bytes, NULL);
    else
        free(memory);
    memory_account(e, -(int64_t)bytes);
    return OPTC_OK;
}

static optc_status cpu_fills(optc_engine *e, const void *to)
{
    (void)e, (void)to;
    return OPTC_OK;
}

static optc_status cpu_set(optc_engine *e, void *to, int byte, size_t bytes, void *stream)
{
    (void)e, (void)stream;
    memset(to, byte, bytes);
    return OPTC_OK;
}

static optc_status cpu_copy(optc_engine *e, const MemoryCopy *c, void *stream)
{
    (void)e, (void)stream;
    for (size_t i = 0; i < c->rows; i++)
        memcpy((char *)c->to + i * c->pitch, (const char *)c->from + i * c->pitch, c->bytes);
    return OPTC_OK;
}

static int cpu_gather_values(optc_binding *b, const optc_comm *c, void *const *from, int n,
                             void *send, void *recv)
{
    (void)b;
    for (int i = 0; i < n; i++)
        memcpy((char *)send + 8 * (size_t)i, from[i], 8);
    return c->all_gather(c->context, send, recv, 8 * (size_t)(n + 1), NULL);
}

CORE const Device *cpu_device(void)
{
    static const Device d = {
        "cpu",          cpu_bind, cpu_unbind, cpu_run,        cpu_sync,       cpu_use_pointer,
        cpu_set_stream, cpu_read, cpu_write,  cpu_spread,     cpu_send_hyper, cpu_get_t,
        cpu_put_t,      cpu_more, cpu_grown,  cpu_arranged,   NULL,           0,
        cpu_memory,     true,     NULL,       cpu_call_bytes, cpu_gather,     exchange_run,
        cpu_take,       cpu_give, cpu_fills,  cpu_set,        cpu_copy,       cpu_gather_values,
        NULL,           NULL,     NULL,       NULL,           false};
    return &d;
}

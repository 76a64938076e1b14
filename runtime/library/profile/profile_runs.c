/* Records runs: on the CPU the marks of their ops, on a GPU their events (profile_gpu.c). */
#include "runtime/library/profile/profile.h"
#include "runtime/core/api/api.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The work of one run of a task or launch item. row NO_WORK: it does nothing */
enum { NO_WORK = -2 };
typedef struct ItemProfile { int row; double bytes, flops; } ItemProfile;
/* The items of one entry in one phase. fixed: bytes and flops are the same in every run */
typedef struct PhaseProfile {
    unsigned generation;
    bool fixed;
    /* rows: of the entry, of the host's part, of the start of threads */
    int entry, host, threads;
    int n, most;
    ItemProfile *item;
    char name[128];                            /* "adamw step" */
} PhaseProfile;
typedef struct BoundProfile {
    ProfileBinding hooks;                      /* first: the core has a pointer to it */
    unsigned generation;
    int nmark;
    PhaseProfile *phases, *now;
    /* bytes of the other entries that the run's graph contains */
    double more;
    int64_t begin;
    int thread;                                /* the kernel's number of the thread `caller` */
    pthread_t caller;
    GpuRun *run;
} BoundProfile;

static BoundProfile *bound(optc_binding *b) { return (BoundProfile *)b->profiled; }

/* ---- what a stage does ---- */
static double share_scheduled(const optc_binding *b, const ProgStage *s, const Tensor *x)
{
    int64_t have = 0;
    for (int64_t k = 0; s->stagger && k < x->shape.slices; k++)
        have += stagger_active(b, &b->stagger, s->stagger, x, k);
    return !s->stagger ? 1 : x->shape.slices ? (double)have / (double)x->shape.slices : 0;
}

static double op_flops(const optc_binding *b, const ScheduleOp *op)
{
    double flops = 0;
    const ProgStage *s = op->stage;
    for (int k = 0; op->kind == SCHEDULE_CALL && k < op->units->n; k++) {
        const Tensor *x = &b->tensor[op->units->tensor[k]];
        if (x->view.n >= 0)
            flops += share_scheduled(b, s, x) * call_flops(b->program, s->call, x->shape);
    }
    return flops;
}

static void name_op(const ScheduleOp *op, char *buf, size_t n)
{
    static const char *const labels[] = {
#define SCHEDULE_OP(ID, name, graph, label) label,
#include "gen/abi/schedule.def"
    };
    const ProgStage *s = op->stage;
    if (s)
        snprintf(buf, n, "%.100s%s%.60s%s",
                 s->kind == S_CALL ? callee_facts[s->call->callee].name : s->kernel,
                 *s->where ? " (" : "", s->where, *s->where ? ")" : "");
    else
        snprintf(buf, n, "%s", labels[op->kind]);
}

/* ---- the items of a phase ---- */
static void fill_item(Recording *r, optc_binding *b, PhaseProfile *p, int i, const ScheduleOp *op)
{
    char name[200];
    optc_bytes bytes = {0, 0};
    ItemProfile *x = &p->item[i];
    if (p->generation != r->generation) {
        name_op(op, name, sizeof name);
        bool none = !b->gpu && op->kind == SCHEDULE_ADVANCE;
        x->row = none ? NO_WORK : profile_row(r, ROW_STAGE, p->entry, name);
    }
    add_bytes(b, op, &b->stagger, true, &bytes);
    x->bytes = bytes.read + bytes.written;
    x->flops = op_flops(b, op);
}

static bool room_for(optc_binding *b, PhaseProfile *p, int n)
{
    if (n > p->most) {
        ItemProfile *more = TAKE(b, ItemProfile, n);
        if (!more)
            return false;
        p->item = more;
        p->most = n;
        p->generation = 0;
    }
    p->generation = p->n == n ? p->generation : 0;             /* other items: other rows */
    p->n = n;
    return true;
}

/* Fills the table of the phase's items if it is not up to date. */
static bool know_items(Recording *r, optc_binding *b, PhaseProfile *p, int at)
{
    const Schedule *x = &b->schedule[at];
    const LaunchList *list = b->gpu ? &b->gpu->launch_list[at] : NULL;
    if (!room_for(b, p, list ? list->n : x->n))
        return false;
    if (p->generation == r->generation && p->fixed)
        return true;
    if (p->generation != r->generation) {
        p->entry = profile_row(r, ROW_ENTRY, -1, p->name);
        p->threads = NO_WORK;
        p->host = list ? profile_row(r, ROW_HOST, p->entry, "enqueued by the host") : -1;
    }
    p->fixed = !b->nslots && !b->nabsent;
    for (int i = 0; i < p->n; i++)
        fill_item(r, b, p, i, list ? list->item[i].op : &x->op[i]);
    p->generation = r->generation;
    return true;
}

/* ---- the binding ---- */
static void note_memory(Recording *r, optc_binding *b)
{
    optc_held held;
    RuleMemory *x = NULL;
    const char *name = optc_rule_name(b->rule);
    if (optc_binding_held(b, &held) != OPTC_OK)
        return;
    for (int i = 0; i < r->nrule; i++)
        x = !strcmp(r->rule[i].name, name) ? &r->rule[i] : x;
    if (!x) {
        size_t bytes = sizeof *x * (size_t)(r->nrule + 1);
        RuleMemory *more = r->nrule < MOST_PROFILE_ROWS ? realloc(r->rule, bytes) : NULL;
        if (!more)
            return;
        r->rule = more;
        x = &more[r->nrule++];
        memset(x, 0, sizeof *x);
        snprintf(x->name, sizeof x->name, "%s", name);
    }
    x->bindings++;
    x->held.states += held.states;
    x->held.temporaries += held.temporaries;
    x->held.workspace += held.workspace;
}

static BoundProfile *bind_profile(optc_binding *b)
{
    if (b->profiled)
        return bound(b);
    int n = b->program->nentry * program_phases(b->program), most = 0;
    for (int i = 0; i < n; i++)
        most = b->schedule[i].n > most ? b->schedule[i].n : most;
    BoundProfile *x = TAKE(b, BoundProfile, 1);
    ProfileMark *mark = TAKE(b, ProfileMark, most + 1);
    PhaseProfile *phases = TAKE(b, PhaseProfile, n + 1);
    if (!x || !mark || !phases)
        return NULL;
    x->hooks =
        (ProfileBinding){.clock = profile_now, .mark = mark, .launched = profile_gpu_launched};
    x->nmark = most;
    x->phases = phases;
    b->profiled = &x->hooks;
    return x;
}

/* Fills the tables of the run's phase. false: the run is not recorded. */
static bool prepare_run(optc_binding *b, BoundProfile *x, int entry, int at)
{
    Recording *r = profile_lock();
    bool ok = r->on;
    if (x->now->generation != r->generation)
        snprintf(x->now->name, sizeof x->now->name, "%.90s %.30s", optc_rule_name(b->rule),
                 b->program->entry[entry].name);
    if (ok && x->generation != r->generation)
        note_memory(r, b);
    x->generation = ok ? r->generation : x->generation;
    ok = ok && profile_engine(r, b->rule->engine) && know_items(r, b, x->now, at);
    profile_unlock();
    return ok;
}

static ProfileBinding *begin(optc_binding *b, int entry, int phase)
{
    BoundProfile *x = bind_profile(b);
    if (!x)
        return NULL;
    int at = entry * program_phases(b->program) + phase;
    unsigned generation = profile_generation();
    x->now = &x->phases[at];
    if (x->generation != generation || !pthread_equal(x->caller, pthread_self())) {
        x->caller = pthread_self();
        x->thread = (int)syscall(SYS_gettid);
    }
    bool current = x->now->generation == generation && x->now->fixed && b->nabsent == 0 &&
                   x->now->n == (b->gpu ? b->gpu->launch_list[at].n : b->schedule[at].n);
    if (!current && !prepare_run(b, x, entry, at))
        return NULL;
    memset(x->hooks.mark, 0, sizeof *x->hooks.mark * (size_t)(x->nmark + 1));
    x->run = NULL;
    x->more = 0;
    nvtx_push(x->now->name);
    x->begin = profile_now();
    return &x->hooks;
}

static void adds(optc_binding *b, optc_binding *other, int entry, int phase)
{
    const LaunchList *p = &other->gpu->launch_list[entry * other->gpu->nphase + phase];
    optc_bytes bytes = {0, 0};
    for (int i = 0; i < p->n; i++)
        add_bytes(other, p->item[i].op, &other->stagger, true, &bytes);
    bound(b)->more += bytes.read + bytes.written;
}

void profile_items(optc_binding *b, int first, int n, GpuMark *out)
{
    const BoundProfile *x = bound(b);
    const PhaseProfile *p = x->now;
    int from = n < 0 ? 0 : first, to = n < 0 ? p->n : first + n < p->n ? first + n : p->n;
    out->row = n == 1 && first < p->n ? p->item[first].row : -1;
    out->bytes = out->flops = 0;
    for (int i = from; i < to; i++) {
        out->bytes += p->item[i].bytes;
        out->flops += p->item[i].flops;
    }
    if (n == 1)
        return;
    out->bytes += x->more;
    char name[100];
    if (n < 0)
        snprintf(name, sizeof name, "graph; the GPU selects the phase");
    else
        snprintf(name, sizeof name, "graph of %d launches", n);
    Recording *r = profile_lock();
    if (x->generation == r->generation)
        out->row = profile_row(r, ROW_STAGE, p->entry, name);
    profile_unlock();
}

GpuRun **profile_run(optc_binding *b, int *entry, int *n)
{
    *entry = bound(b)->now->entry;
    *n = bound(b)->now->n;
    return &bound(b)->run;
}

/* A stage lasts until the next one begins, so waiting for other threads is a part of it. (The
 * thread that takes the time may wake up late from a barrier, and another one has then begun the
 * next stage.) */
static int64_t stage_end(const BoundProfile *x, int i)
{
    const ProfileMark *m = x->hooks.mark, *start = &m[x->now->n];
    int64_t end = i + 1 < x->now->n && m[i + 1].begin ? m[i + 1].begin : m[i].end;
    return start->begin >= m[i].begin && start->begin < end ? start->begin : end;
}

static void record_cpu(Recording *r, const BoundProfile *x, ProfileSpan span)
{
    PhaseProfile *p = x->now;
    const ProfileMark *start = &x->hooks.mark[p->n];
    bool any = false;
    if (start->begin) {
        if (p->threads == NO_WORK)
            p->threads = profile_row(r, ROW_STAGE, p->entry, "start of threads");
        profile_add(r, &(ProfileSpan){.row = p->threads,
                                      .thread = span.thread,
                                      .begin = start->begin,
                                      .ns = start->end - start->begin});
    }
    for (int i = 0; i < p->n; i++) {
        const ProfileMark *m = &x->hooks.mark[i];
        any = any || m->begin;
        if (!m->begin || p->item[i].row == NO_WORK)
            continue;
        span.bytes += p->item[i].bytes;
        span.flops += p->item[i].flops;
        profile_add(r, &(ProfileSpan){.row = p->item[i].row,
                                      .thread = span.thread,
                                      .begin = m->begin,
                                      .ns = stage_end(x, i) - m->begin,
                                      .bytes = p->item[i].bytes,
                                      .flops = p->item[i].flops});
    }
    if (!any) {                                /* the reference evaluator has no stages */
        ProfileSpan all = span;
        all.row = profile_row(r, ROW_STAGE, p->entry, "reference evaluator");
        profile_add(r, &all);
    }
    profile_add(r, &span);
}

static void end(optc_binding *b, optc_status s)
{
    BoundProfile *x = bound(b);
    int64_t now = profile_now();
    nvtx_pop();
    Recording *r = profile_lock();
    bool ok = r->on && x->generation == r->generation && s == OPTC_OK;
    ProfileSpan span = {
        .row = x->now->entry, .thread = x->thread, .begin = x->begin, .ns = now - x->begin};
    if (b->gpu) {
        span.row = x->now->host;
        if (ok)
            profile_add(r, &span);
        profile_gpu_end(r, b, x->run, ok);
    } else if (ok) {
        record_cpu(r, x, span);
    }
    profile_unlock();
}

const ProfileHooks profile_recorder = {.begin = begin, .adds = adds, .end = end};

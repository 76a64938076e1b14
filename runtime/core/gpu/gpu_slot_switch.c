/* The bodies of captured and guarded steps of rules with calls. The host does not know the phase
 * and the slots of such a step, so the graph has a body for each phase and combination of slots,
 * with the launches of its slot list, and a kernel (optc_phase) finds on the device which one runs.
 *
 * A caller's graph uses the lists, and CUDA does not report when it is destroyed: after a capture
 * they live as long as the binding. If there are too many combinations, or their graphs would
 * exceed the limit of slot lists, the one body of the phase computes all matrices, and the device
 * discards what is not scheduled. */
#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COMBINATIONS = 128, LONGEST_SEARCH = 4096, MOST_RARE = 2 };
enum { ANY_SLOT = -2 };                    /* in the table of bodies: the body is for all slots */

static bool switched(const LaunchList *p) { return p->stagger && p->calls; }

CORE bool slot_switch_used(const optc_binding *b, int entry)
{
    bool any = false;
    for (int m = 0; m < b->gpu->nphase && b->gpu->calls && b->gpu->calls->switches; m++)
        any = any || switched(&b->gpu->launch_list[entry * b->gpu->nphase + m]);
    return any;
}

/* ---- combinations ---- */
static int64_t divisor(int64_t a, int64_t b) { return b ? divisor(b, a % b) : a; }

/* The number of steps after which slots and phases repeat. Periods above LONGEST_SEARCH are rare:
 * they take few steps out of other phases, and do not count here. 0: there are too many steps, or
 * too many rare periods. */
static int64_t steps_repeat(const optc_binding *b)
{
    const Program *p = b->program;
    int64_t n = b->gpu->slots_cycle;
    int rare = 0;
    for (int i = 0; i < p->nperiod && n <= LONGEST_SEARCH; i++) {
        rare += p->period[i].every > LONGEST_SEARCH;
        if (p->period[i].every <= LONGEST_SEARCH)
            n = n / divisor(n, p->period[i].every) * p->period[i].every;
    }
    return n > LONGEST_SEARCH || rare > MOST_RARE ? 0 : n;
}

/* The inverse of x modulo m; both are coprime. */
static int64_t inverse(int64_t x, int64_t m)
{
    int64_t r = x % m, next = m, u = 1, v = 0;
    while (r) {
        int64_t q = next / r, rest = next % r, w = v - q * u;
        next = r, r = rest;
        v = u, u = w;
    }
    return (v % m + m) % m;
}

/* Steps that belong to all rare periods of a phase: from, from + by, … Two periods have common
 * steps once in their least common multiple, which may be far beyond a cycle. false: there are
 * none, or they are too far apart to try. */
static bool rare_steps(const Program *p, int phase, int64_t *from, int64_t *by)
{
    *from = *by = 1;
    for (int i = 0; i < p->nperiod; i++) {
        int64_t every = p->period[i].every, offset = p->period[i].offset;
        if (!(phase >> i & 1) || every <= LONGEST_SEARCH)
            continue;
        int64_t g = divisor(*by, every), part = every / g,
                ahead = (offset - *from % every + every) % every;
        if (ahead % g)
            return false;
        *from += *by * (ahead / g * inverse(*by / g, part) % part);
        *by *= part;
    }
    return *by < INT64_MAX / 2 / ((MOST_RARE + 2) * LONGEST_SEARCH);
}

/* Lists the combinations of slots that steps of a phase can have, by trying the steps of MOST_RARE
 * + 2 cycles. One cycle is not enough: a rare period takes a step out of its phase, and that step
 * may be the only one of a cycle with its combination. For a phase with rare periods only steps
 * that belong to them are tried. Returns the number of combinations; -1: too many, or not known. */
static int list_combinations(const optc_binding *b, int phase, StaggerNow *to)
{
    const Program *p = b->program;
    int64_t cycle = steps_repeat(b), from, by;
    int n = 0;
    if (!rare_steps(p, phase, &from, &by))
        return -1;
    for (int64_t k = 0, t = from; k < (MOST_RARE + 2) * cycle && n <= MOST_COMBINATIONS;
         k++, t += by) {
        StaggerNow now = stagger_now(b, t);
        bool known = program_phase(p, t) != phase;
        for (int i = 0; i < n && !known; i++)
            known = !memcmp(&to[i], &now, sizeof now);
        if (!known && n++ < MOST_COMBINATIONS)
            to[n - 1] = now;
    }
    return n > MOST_COMBINATIONS ? -1 : n;
}

CORE void slot_switch_bind(optc_binding *b)
{
    b->gpu->calls->switches = b->nslots && steps_repeat(b) > 0;
}

/* ---- lists ---- */
static void switch_free(optc_binding *b, SlotSwitch *x)
{
    b->graph_bytes -= x->bodies;
    x->bodies = 0;
    for (int i = 0; i < x->n; i++)
        gpu_slots_free(b, x->list[i]);
    x->n = 0;
}

static void drop_all(optc_binding *b, SlotSwitch *x)
{
    for (SlotSwitch *next; x; x = next) {
        next = x->next;
        switch_free(b, x);
        free(x);
    }
}

static void table_free(optc_binding *b, BodyTable *x)
{
    b->graph_bytes -= (int64_t)x->bytes;
    if (x->at)
        gpu_give(b->rule->engine, x->at, x->bytes, b->gpu->stream);
    memset(x, 0, sizeof *x);
}

CORE void slot_switch_drop(optc_binding *b, bool unbinds)
{
    GpuCalls *c = b->gpu->calls;
    if (!c || (b->gpu->captured && !unbinds))
        return;
    drop_all(b, c->slot_switch);
    c->slot_switch = NULL;
    for (int e = 0; c->bodies && e < b->program->nentry; e++)
        table_free(b, &c->bodies[e]);
}

/* Bytes of all bodies, from the nodes of the first one. */
static int64_t bodies_bytes(optc_binding *b, SlotSwitch *x)
{
    SlotList *one = x->list[0];
    calls_slots_select(b, &one->calls);
    b->gpu->slots = one;
    list_graph(b, &one->list);
    int64_t nodes = one->list.nodes;
    list_drop_graphs(b->rule->engine->gpu->d, &one->list);
    b->gpu->slots = NULL;
    return nodes * x->n * NODE_BYTES;
}

static optc_status fill_switch(optc_binding *b, SlotSwitch *x, const StaggerNow *now, int n)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        b->stagger = now[i];
        s = gpu_slots_make(b, x->of, &x->list[i]);
        if (s == OPTC_OK)
            gpu_slots_counted(b, x->list[x->n++]);
    }
    x->bodies = s == OPTC_OK && n ? bodies_bytes(b, x) : 0;
    b->graph_bytes += x->bodies;
    /* kept lists are not used any more: the next step outside of a capture frees them */
    if (s == OPTC_OK && b->graph_bytes - gpu_slots_kept(b) > gpu_slots_limit(b))
        switch_free(b, x);
    return s;
}

/* Uses a stream that is not captured, and waits for it. A failure leaves no list: freeing one in
 * the caller's stream would end its capture. */
static optc_status fill_apart(optc_binding *b, SlotSwitch *x, const StaggerNow *now, int n)
{
    GpuTables *t = b->gpu;
    GpuEngine *g = b->rule->engine->gpu;
    StaggerNow stagger = b->stagger;
    SlotList *passing = t->passing;
    CUstream was = t->stream, own = NULL;
    TRY(g, cuStreamCreate(&own, 1), "combinations of slots");
    t->stream = own;
    /* its memory belongs to the other stream, and is freed later */
    t->passing = NULL;
    b->graph_bytes -= passing ? passing->held : 0;
    optc_status s = fill_switch(b, x, now, n);
    b->graph_bytes += passing ? passing->held : 0;
    int rc = g->d->cuStreamSynchronize(own);
    if (s == OPTC_OK && rc)
        s = gpu_error(g, "cuStreamSynchronize", rc, "combinations of slots");
    if (s != OPTC_OK)
        switch_free(b, x);
    t->stream = was;
    t->passing = passing;
    b->stagger = stagger;
    g->d->cuStreamDestroy_v2(own);
    return s;
}

static optc_status make_switch(optc_binding *b, const LaunchList *p, int phase)
{
    GpuCalls *c = b->gpu->calls;
    StaggerNow now[MOST_COMBINATIONS];
    int found = list_combinations(b, phase, now), n = found < 0 ? 0 : found;
    SlotSwitch *x = (SlotSwitch *)calloc(1, sizeof *x + sizeof(SlotList *) * (size_t)n);
    if (!x)
        return no_memory("optc_run");
    x->of = p;
    x->list = (SlotList **)(x + 1);
    optc_status s = fill_apart(b, x, now, n);
    if (s != OPTC_OK)
        return free(x), s;
    x->next = c->slot_switch;
    c->slot_switch = x;
    return s;
}

static const SlotSwitch *slot_switch_of(const optc_binding *b, const LaunchList *p)
{
    const SlotSwitch *x = b->gpu->calls->slot_switch;
    while (x && x->of != p)
        x = x->next;
    return x;
}

/* ---- bodies ---- */
CORE int bodies_count(const optc_binding *b, const LaunchList *p)
{
    const SlotSwitch *w = slot_switch_of(b, p);
    return w && w->n ? w->n : p->n > 0;
}

CORE SlotList *body_slots(const optc_binding *b, const LaunchList *p, int i)
{
    const SlotSwitch *w = slot_switch_of(b, p);
    return w && w->n ? w->list[i] : NULL;
}

/* As optc_phase reads it: periods, the numbers of slots and bodies, the slots' periods, then for
 * each body its phase and its slots. */
static void fill_bodies(const optc_binding *b, const LaunchList *first, int bodies, int *to)
{
    const Program *p = b->program;
    for (int i = 0; i < p->nperiod; i++)
        *to++ = p->period[i].every, *to++ = p->period[i].offset;
    *to++ = b->nslots;
    *to++ = bodies;
    for (int i = 0; i < b->nslots; i++) {
        Stagger s = p->array[b->slots[i].array].slots;
        *to++ = s.every, *to++ = s.of, *to++ = s.ahead, *to++ = s.first;
    }
    for (int m = 0; m < b->gpu->nphase; m++)
        for (int k = 0; k < bodies_count(b, &first[m]); k++) {
            const SlotList *x = body_slots(b, &first[m], k);
            *to++ = m;
            for (int i = 0; i < b->nslots; i++)
                *to++ = x ? (int)x->now.now[i] : ANY_SLOT;
        }
}

static optc_status send_table(optc_binding *b, BodyTable *x, const int *host)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUstream own = NULL;
    TRY(g, cuStreamCreate(&own, 1), "the phases of a captured step");
    optc_status s =
        gpu_alloc(b->rule->engine, x->bytes, own, "the phases of a captured step", &x->at);
    int rc = s == OPTC_OK ? g->d->cuMemcpyHtoDAsync_v2(x->at, host, x->bytes, own) : 0;
    rc = s == OPTC_OK && !rc ? g->d->cuStreamSynchronize(own) : rc;
    if (rc) {
        s = gpu_error(g, "cuMemcpyHtoDAsync", rc, "the phases of a captured step");
        gpu_give(b->rule->engine, x->at, x->bytes, own);
    }
    g->d->cuStreamDestroy_v2(own);
    return s;
}

static optc_status make_table(optc_binding *b, int entry)
{
    const LaunchList *first = &b->gpu->launch_list[entry * b->gpu->nphase];
    BodyTable x = {0, 0, 0};
    for (int m = 0; m < b->gpu->nphase; m++)
        x.n += bodies_count(b, &first[m]);
    size_t n = (size_t)(2 * b->program->nperiod + 2 + 4 * b->nslots + x.n * (1 + b->nslots));
    int *host = (int *)malloc(sizeof *host * n);
    if (!host)
        return no_memory("optc_run");
    x.bytes = sizeof *host * n;
    fill_bodies(b, first, x.n, host);
    optc_status s = send_table(b, &x, host);
    free(host);
    if (s != OPTC_OK)
        return s;
    b->graph_bytes += (int64_t)x.bytes;
    b->gpu->calls->bodies[entry] = x;
    return OPTC_OK;
}

CORE optc_status slot_switch_make(optc_binding *b, int entry)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = OPTC_OK;
    if (!phases_conditional(b, entry))
        return OPTC_OK;
    for (int m = 0; m < b->gpu->nphase && s == OPTC_OK && slot_switch_used(b, entry); m++) {
        const LaunchList *p = &b->gpu->launch_list[entry * b->gpu->nphase + m];
        if (!switched(p) || slot_switch_of(b, p))
            continue;
        gpu_enter(g);
        s = gpu_leave(g, make_switch(b, p, m));
    }
    if (s != OPTC_OK || b->gpu->calls->bodies[entry].at)
        return s;
    gpu_enter(g);
    return gpu_leave(g, make_table(b, entry));
}

/* The bodies of captured and guarded steps of rules with calls. The host does not know the phase
 * and the slots of such a step, so the graph has a body for each phase and combination of slots,
 * with the launches of its slot list, and a kernel (optc_phase) finds on the device which one runs.
 *
 * A caller's graph uses the lists, and CUDA does not report when it is destroyed: after a capture
 * they live as long as the binding. If there are too many combinations, or their graphs would
 * exceed the limit of slot lists, the one body of the phase is the list of all units, and the
 * device discards what is not scheduled. */
#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COMBINATIONS = 128, LONGEST_SEARCH = 4096, MOST_RARE = 2 };
enum { ANY_SLOT = -2 };                    /* in the table of bodies: the body is for all slots */

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
    b->gpu->switches = b->nslots && steps_repeat(b) > 0;
}

/* ---- bodies ---- */
/* The bytes of n graphs, from the nodes of the first one. */
static int64_t count_nodes(optc_binding *b, LaunchList *first, int n)
{
    calls_slots_select(b, &first->slots);
    list_graph(b, first);
    int64_t nodes = first->nodes * n;
    list_drop_graphs(b->rule->engine->gpu->d, first);
    return nodes;
}

/* Adds a body for each combination of slots of a phase. Lists that the host selects are not used
 * any more: they do not count for the limit, and the next step outside of a capture frees them. */
static optc_status add_combinations(optc_binding *b, LaunchList *x, const LaunchList *p, int phase)
{
    StaggerNow now[MOST_COMBINATIONS];
    const int n = list_combinations(b, phase, now), first = x->nbody;
    int64_t nodes = x->nodes;
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        b->stagger = now[i];
        s = gpu_slots_make(b, p, LIST_BODY, &x->body[x->nbody]);
        x->nbody += s == OPTC_OK;
    }
    if (s != OPTC_OK || n <= 0)
        return s;
    x->nodes += count_nodes(b, x->body[first], n);
    list_count(b, x);
    if (b->graph_bytes - lists_held(b, HOST_LISTS) <= lists_limit(b))
        return OPTC_OK;
    while (x->nbody > first)
        list_free(b, x->body[--x->nbody]);
    x->nodes = nodes;
    list_count(b, x);
    return OPTC_OK;
}

static optc_status add_bodies(optc_binding *b, LaunchList *x, int entry)
{
    LaunchList *first = &b->gpu->launch_list[entry * b->gpu->nphase];
    optc_status s = OPTC_OK;
    for (int m = 0; m < b->gpu->nphase && s == OPTC_OK; m++) {
        LaunchList *p = &first[m];
        const int before = x->nbody;
        if (b->gpu->switches && p->stagger && p->calls)
            s = add_combinations(b, x, p, m);
        if (x->nbody == before && p->n)
            x->body[x->nbody++] = p;
    }
    return s;
}

/* ---- the table of bodies ---- */
/* As optc_phase reads it: periods, the numbers of slots and bodies, the slots' periods, then for
 * each body its phase and its slots. */
static void fill_bodies(const optc_binding *b, const LaunchList *x, int *to)
{
    const Program *p = b->program;
    for (int i = 0; i < p->nperiod; i++)
        *to++ = p->period[i].every, *to++ = p->period[i].offset;
    *to++ = b->nslots;
    *to++ = x->nbody;
    for (int i = 0; i < b->nslots; i++) {
        Stagger s = p->array[b->slots[i].array].slots;
        *to++ = s.every, *to++ = s.of, *to++ = s.ahead, *to++ = s.first;
    }
    for (int k = 0; k < x->nbody; k++) {
        const ListKey *body = &x->body[k]->key;
        *to++ = body->task->phase;
        for (int i = 0; i < b->nslots; i++)
            *to++ = body->use == LIST_BODY ? (int)body->now.now[i] : ANY_SLOT;
    }
}

static optc_status send_table(optc_binding *b, LaunchList *x)
{
    GpuEngine *g = b->rule->engine->gpu;
    size_t n = (size_t)(2 * b->program->nperiod + 2 + 4 * b->nslots + x->nbody * (1 + b->nslots)),
           bytes = sizeof(int) * n;
    int *host = (int *)malloc(bytes);
    if (!host)
        return no_memory("optc_run");
    fill_bodies(b, x, host);
    optc_status s =
        gpu_alloc(b->rule->engine, bytes, b->gpu->stream, "the phases of a captured step",
                  &x->memory);
    x->bytes = s == OPTC_OK ? bytes : 0;
    list_count(b, x);
    /* pageable: copied before it returns */
    int rc = s == OPTC_OK ? g->d->cuMemcpyHtoDAsync_v2(x->memory, host, bytes, b->gpu->stream) : 0;
    free(host);
    return rc ? gpu_error(g, "cuMemcpyHtoDAsync", rc, "the phases of a captured step") : s;
}

/* ---- a region ---- */
/* Uses a stream that is not captured, and waits for it. A failure leaves no list: freeing one in
 * the caller's stream would end its capture. */
CORE optc_status region_make(optc_binding *b, int entry, LaunchList **out)
{
    GpuTables *t = b->gpu;
    GpuEngine *g = b->rule->engine->gpu;
    const StaggerNow stagger = b->stagger;
    const JointTask task = {b, entry, 0, 0};
    const ListKey key = {LIST_REGION, 1, &task, {{0}}};
    CUstream was = t->stream, own = NULL;
    if ((*out = list_find(&t->lists, &key)))
        return OPTC_OK;
    TRY(g, cuStreamCreate(&own, 1), "the phases of a captured step");
    LaunchList *x = *out =
        list_take(&key, 0, t->nphase * (t->switches ? MOST_COMBINATIONS : 1));
    t->stream = own;
    optc_status s = x ? add_bodies(b, x, entry) : no_memory("optc_run");
    if (s == OPTC_OK)
        s = send_table(b, x);
    int rc = g->d->cuStreamSynchronize(own);
    if (s == OPTC_OK && rc)
        s = gpu_error(g, "cuStreamSynchronize", rc, "the phases of a captured step");
    if (s == OPTC_OK)
        list_keep(&t->lists, x);
    else
        list_free(b, x);
    t->stream = was;
    b->stagger = stagger;
    g->d->cuStreamDestroy_v2(own);
    return s;
}

/* Staggered stages on a GPU. A step runs the slot list of its combination of slots: work lists that
 * contain only the scheduled units, the addresses of the scheduled matrices (gpu_call_slots.c), and
 * a CUDA graph of the launches. The first step with a combination builds it, all later ones launch
 * it. CAPTURE.md has the limit of what is kept.
 *
 * In a caller's graph the host does not know which step it is: there such stages cover all units,
 * and the device finds that the others have nothing to change. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

/* the limit is one part of the workspace in these */
enum { SLOTS_SHARE = 4 };
enum { LONGEST_CYCLE = 1 << 20 };

static bool listed(const ProgStage *s) { return s && s->stagger && s->kind != S_CALL; }

CORE bool gpu_stagger_any(const LaunchList *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->item[i].stage && p->item[i].stage->stagger)
            return true;
    return false;
}

/* The least common multiple of all periods of slots. */
CORE void gpu_stagger_bind(optc_binding *b)
{
    int64_t cycle = 1;
    for (int i = 0; i < b->nslots && cycle < LONGEST_CYCLE; i++) {
        Stagger s = b->program->array[b->slots[i].array].slots;
        int64_t period = (int64_t)s.every * s.of, x = cycle, y = period;
        while (y) {
            int64_t rest = x % y;
            x = y;
            y = rest;
        }
        cycle = period ? cycle / x * period : cycle;
    }
    b->gpu->slots_cycle = cycle;
}

/* ---- work lists ---- */
/* Stages of one launch list that cover the same units share a work list. */
static bool same_list(const LaunchItem *a, const LaunchItem *b)
{
    return listed(a->stage) && listed(b->stage) && a->stage->kind == b->stage->kind &&
           a->op->batch == b->op->batch && a->stage->variant == b->stage->variant &&
           a->stage->stagger == b->stage->stagger;
}

static const LaunchItem *first_alike(const LaunchList *p, int i)
{
    int k = 0;
    while (!same_list(&p->item[k], &p->item[i]))
        k++;
    return &p->item[k];
}

/* Lists the units of a stage that are scheduled; for views of blocks, matrix by matrix. to NULL:
 * only counts them. */
static int64_t list_units(const optc_binding *b, const LaunchItem *x, Unit *to)
{
    const ProgStage *s = x->stage;
    const Units *u = x->op->units;
    int64_t n = 0;
    for (int i = 0; i < u->n; i++) {
        const Tensor *y = &b->tensor[u->tensor[i]];
        int64_t all = u->prefix[s->kind][i + 1] - u->prefix[s->kind][i], each = all;
        if (stagger_matrix(s, y, 0) >= 0 && y->shape.slices)
            each = all / y->shape.slices;
        for (int64_t k = 0; k < all && y->view.n >= 0; k += each) {
            if (!stagger_active(b, &b->stagger, s->stagger, y, stagger_matrix(s, y, k)))
                continue;
            for (int64_t q = k; to && q < k + each; q++) {
                to[n + q - k].tensor = u->tensor[i];
                to[n + q - k].unit = (int)q;
            }
            n += each;
        }
    }
    return n;
}

/* Counts the units of the list's items; returns those of all work lists. */
static int64_t count_scheduled(const optc_binding *b, LaunchList *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n; i++) {
        LaunchItem *x = &p->item[i];
        const LaunchItem *first = listed(x->stage) ? first_alike(p, i) : NULL;
        if (!first)
            continue;
        x->args.count = first == x ? list_units(b, x, NULL) : first->args.count;
        n += first == x ? x->args.count : 0;
    }
    return n;
}

static void fill_lists(const optc_binding *b, LaunchList *p, Unit *host, CUdeviceptr memory)
{
    int64_t at = 0;
    for (int i = 0; i < p->n; i++) {
        LaunchItem *x = &p->item[i];
        const ProgStage *s = x->stage;
        const LaunchItem *first = listed(s) ? first_alike(p, i) : NULL;
        if (!first)
            continue;
        x->args.units = first == x ? memory + sizeof(Unit) * (size_t)at : first->args.units;
        at += first == x ? list_units(b, x, host + at) : 0;
        memset(&x->args.brief, 0, sizeof x->args.brief);
        int64_t grid = count_blocks(s->form, &b->gpu->code->launch[s->fn], x->args.count,
                                    x->args.brief, x->op->units->longest[s->kind],
                                    b->rule->engine->gpu->sms);
        x->blocks = x->args.count ? (unsigned)grid : 0u;
    }
}

/* ---- one slot list ---- */
CORE void gpu_slots_free(optc_binding *b, SlotList *x)
{
    if (!x)
        return;
    list_drop_graphs(b->rule->engine->gpu->d, &x->list);
    if (x->memory)
        gpu_give(b->rule->engine, x->memory, x->bytes, b->gpu->stream);
    b->graph_bytes -= x->held;
    free(x);
}

/* One allocation with its arrays behind it. */
static SlotList *slots_take(const optc_binding *b, const LaunchList *p)
{
    int sets = 0, groups = 0;
    calls_slots_count(b, &sets, &groups);
    size_t numbers = sizeof(int64_t) * (size_t)(sets + groups),
           items = sizeof(LaunchItem) * (size_t)p->n;
    SlotList *x =
        (SlotList *)calloc(1, sizeof *x + numbers + items + sizeof(Segment) * (size_t)p->n);
    if (!x)
        return NULL;
    x->calls.at = (int64_t *)(x + 1);
    x->calls.now = x->calls.at + sets;
    x->list = *p;
    x->list.of = p;
    x->list.item = (LaunchItem *)(x->calls.now + groups);
    x->list.segment = (Segment *)(x->list.item + p->n);
    x->list.nsegment = 0;
    memcpy(x->list.item, p->item, items);
    x->now = b->stagger;
    return x;
}

/* Gives it the memory of the last list that was not kept, if that is large enough. */
static optc_status slots_memory(optc_binding *b, SlotList *x, size_t bytes)
{
    SlotList *old = b->gpu->passing;
    b->gpu->passing = NULL;
    if (old && old->bytes >= bytes && bytes) {
        x->memory = old->memory;
        x->bytes = old->bytes;
        old->memory = 0;
    }
    gpu_slots_free(b, old);
    if (x->memory || !bytes)
        return OPTC_OK;
    optc_status s =
        gpu_alloc(b->rule->engine, bytes, b->gpu->stream, "lists of staggered work", &x->memory);
    x->bytes = s == OPTC_OK ? bytes : 0;
    return s;
}

static optc_status slots_send(optc_binding *b, SlotList *x)
{
    int64_t n = count_scheduled(b, &x->list);
    size_t lists = (sizeof(Unit) * (size_t)n + 255) & ~(size_t)255;
    optc_status s = slots_memory(b, x, lists + calls_slots_bytes(b, &x->calls));
    Unit *host = s == OPTC_OK ? (Unit *)malloc(sizeof *host * (size_t)(n + 1)) : NULL;
    if (!host)
        return s == OPTC_OK ? no_memory("optc_run") : s;
    fill_lists(b, &x->list, host, x->memory);
    /* pageable: copied before it returns */
    const Driver *d = b->rule->engine->gpu->d;
    int rc =
        n ? d->cuMemcpyHtoDAsync_v2(x->memory, host, sizeof *host * (size_t)n, b->gpu->stream) : 0;
    free(host);
    return rc ? gpu_error(b->rule->engine->gpu, "cuMemcpyHtoDAsync", rc, "lists of staggered work")
              : calls_slots_send(b, &x->calls, x->memory + lists);
}

/* ---- the kept ones ---- */
CORE int64_t gpu_slots_limit(const optc_binding *b)
{
    return b->rule->engine->workspace / SLOTS_SHARE;
}

CORE int64_t gpu_slots_kept(const optc_binding *b)
{
    int64_t bytes = 0;
    for (const SlotList *x = b->gpu->slot_lists; x; x = x->next)
        bytes += x->held;
    return bytes;
}

/* Drops the least recently used list, unless it was used within a cycle. Combinations recur in
 * turn: if such a list were dropped for another one, each step would build a list and a graph that
 * is dropped before its next use. false: there is none to drop. */
static bool slots_drop_last(optc_binding *b)
{
    GpuTables *t = b->gpu;
    SlotList **last = &t->slot_lists;
    while (*last && (*last)->next)
        last = &(*last)->next;
    SlotList *x = *last;
    int64_t ago = x ? b->steps - x->used : 0;
    if (ago >= 0 && ago <= t->slots_cycle)
        return false;
    *last = NULL;
    gpu_slots_free(b, x);
    t->slots_full = false;
    return true;
}

static bool slots_make_room(optc_binding *b, int64_t more)
{
    bool fits = b->graph_bytes + more <= gpu_slots_limit(b);
    while (!fits && slots_drop_last(b))
        fits = b->graph_bytes + more <= gpu_slots_limit(b);
    return fits;
}

static int64_t slots_held(const optc_binding *b, const SlotList *x)
{
    int sets = 0, groups = 0;
    calls_slots_count(b, &sets, &groups);
    size_t host = sizeof *x + sizeof(int64_t) * (size_t)(sets + groups) +
                  (sizeof(LaunchItem) + sizeof(Segment)) * (size_t)x->list.n;
    return (int64_t)(x->bytes + host) + NODE_BYTES * x->list.nodes;
}

CORE void gpu_slots_counted(optc_binding *b, SlotList *x)
{
    x->held = slots_held(b, x);
    b->graph_bytes += x->held;
}

/* Makes the graph, and keeps the list if both fit. */
static void slots_keep(optc_binding *b, SlotList *x)
{
    GpuTables *t = b->gpu;
    GpuEngine *g = b->rule->engine->gpu;
    bool fits = slots_make_room(b, slots_held(b, x)) && (!t->slots_full || slots_drop_last(b));
    if (fits && !g->no_graphs)
        list_graph(b, &x->list);
    if (fits && !slots_make_room(b, slots_held(b, x))) {
        list_drop_graphs(g->d, &x->list);
        t->slots_full = true;
        fits = false;
    }
    gpu_slots_counted(b, x);
    if (!fits) {
        t->passing = x;
        return;
    }
    x->next = t->slot_lists;
    t->slot_lists = x;
}

/* The kept list of this combination, moved to the front; NULL: none. */
static SlotList *slots_find(optc_binding *b, const LaunchList *p)
{
    SlotList **at = &b->gpu->slot_lists, *x;
    while (*at && ((*at)->list.of != p || memcmp(&(*at)->now, &b->stagger, sizeof b->stagger)))
        at = &(*at)->next;
    if (!(x = *at))
        return NULL;
    *at = x->next;
    x->next = b->gpu->slot_lists;
    b->gpu->slot_lists = x;
    return x;
}

CORE optc_status gpu_slots_make(optc_binding *b, const LaunchList *p, SlotList **out)
{
    SlotList *x = slots_take(b, p);
    optc_status s = x ? slots_send(b, x) : no_memory("optc_run");
    *out = s == OPTC_OK ? x : NULL;
    if (s != OPTC_OK)
        gpu_slots_free(b, x);
    return s;
}

/* A list's first run is often the only one with its combination (`first`, the phase of step 1), and
 * so is one after participation changed: it is not kept. */
static optc_status slots_build(optc_binding *b, const LaunchList *p)
{
    SlotList *x;
    optc_status s = gpu_slots_make(b, p, &x);
    if (s != OPTC_OK)
        return s;
    calls_slots_select(b, &x->calls);
    x->used = b->steps;
    b->gpu->slots = x;
    if (p->runs) {
        slots_keep(b, x);
    } else {
        gpu_slots_counted(b, x);
        b->gpu->passing = x;
    }
    return OPTC_OK;
}

CORE optc_status gpu_slots_choose(optc_binding *b, const LaunchList *p)
{
    SlotList *x = slots_find(b, p);
    if (!x)
        return slots_build(b, p);
    x->used = b->steps;
    b->gpu->slots = x;
    if (!list_whole(&x->list))
        calls_slots_select(b, &x->calls);
    return calls_slots_update(b, &x->calls);
}

CORE void gpu_slots_drop(optc_binding *b)
{
    GpuTables *t = b->gpu;
    for (SlotList *x = t->slot_lists, *next; x; x = next) {
        next = x->next;
        gpu_slots_free(b, x);
    }
    gpu_slots_free(b, t->passing);
    t->slot_lists = t->slots = t->passing = NULL;
    t->slots_full = false;
    for (int i = 0; t->launch_list && i < b->program->nentry * t->nphase; i++)
        t->launch_list[i].runs = t->launch_list[i].stagger ? 0 : t->launch_list[i].runs;
}

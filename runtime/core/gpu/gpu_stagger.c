/* Staggered stages on a GPU. A step runs the slot list of its combination of slots: work lists that
 * contain only the scheduled units, the addresses of the scheduled matrices (gpu_call_slots.c), and
 * a CUDA graph of the launches. The first step with a combination builds it, all later ones launch
 * it.
 *
 * In a caller's graph the host does not know which step it is: there such stages cover all units,
 * and the device finds that the others have nothing to change. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

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
static ListKey slots_key(const optc_binding *b, const LaunchList *p, ListUse use)
{
    ListKey key = p->key;
    key.use = use;
    key.now = b->stagger;
    return key;
}

static LaunchList *slots_take(const optc_binding *b, const LaunchList *p, ListUse use)
{
    int sets = 0, groups = 0;
    calls_slots_count(b, &sets, &groups);
    ListKey key = slots_key(b, p, use);
    LaunchList *x = list_take(&key, p->n, sets + groups);
    if (!x)
        return NULL;
    x->slots.now = x->slots.at + sets;
    x->apart = p->apart, x->calls = p->calls, x->stagger = p->stagger;
    memcpy(x->item, p->item, sizeof *p->item * (size_t)p->n);
    for (int i = 0; i < x->n; i++)
        x->item[i].scheduled = true;
    return x;
}

/* The list of the last step that kept nothing is not used any more: its memory serves this one, if
 * it is large enough. Bodies are made in another stream. */
static optc_status slots_memory(optc_binding *b, LaunchList *x, size_t bytes)
{
    LaunchList *old =
        x->key.use == LIST_BODY ? NULL : lists_take(&b->gpu->lists, b, LISTS(LIST_ONCE));
    if (old && old->bytes >= bytes && bytes) {
        x->memory = old->memory;
        x->bytes = old->bytes;
        old->memory = 0;
    }
    lists_free(b, old);
    if (x->memory || !bytes)
        return OPTC_OK;
    optc_status s =
        gpu_alloc(b->rule->engine, bytes, b->gpu->stream, "lists of staggered work", &x->memory);
    x->bytes = s == OPTC_OK ? bytes : 0;
    return s;
}

static optc_status slots_send(optc_binding *b, LaunchList *x)
{
    int64_t n = count_scheduled(b, x);
    size_t lists = (sizeof(Unit) * (size_t)n + 255) & ~(size_t)255;
    optc_status s = slots_memory(b, x, lists + calls_slots_bytes(b, &x->slots));
    Unit *host = s == OPTC_OK ? (Unit *)malloc(sizeof *host * (size_t)(n + 1)) : NULL;
    if (!host)
        return s == OPTC_OK ? no_memory("optc_run") : s;
    fill_lists(b, x, host, x->memory);
    /* pageable: copied before it returns */
    const Driver *d = b->rule->engine->gpu->d;
    int rc =
        n ? d->cuMemcpyHtoDAsync_v2(x->memory, host, sizeof *host * (size_t)n, b->gpu->stream) : 0;
    free(host);
    return rc ? gpu_error(b->rule->engine->gpu, "cuMemcpyHtoDAsync", rc, "lists of staggered work")
              : calls_slots_send(b, &x->slots, x->memory + lists);
}

CORE optc_status gpu_slots_make(optc_binding *b, const LaunchList *p, ListUse use, LaunchList **out)
{
    LaunchList *x = slots_take(b, p, use);
    optc_status s = x ? slots_send(b, x) : no_memory("optc_run");
    *out = s == OPTC_OK ? x : NULL;
    if (s == OPTC_OK)
        list_count(b, x);
    else
        list_free(b, x);
    return s;
}

/* ---- the list of a step ---- */
/* Makes the graph. false: both do not fit into the limit. */
static bool slots_fit(optc_binding *b, LaunchList *x)
{
    GpuTables *t = b->gpu;
    GpuEngine *g = b->rule->engine->gpu;
    if (!lists_make_room(b, 0) || (t->slots_full && !lists_drop_last(b)))
        return false;
    if (!g->no_graphs)
        list_graph(b, x);
    list_count(b, x);
    if (lists_make_room(b, 0))
        return true;
    list_drop_graphs(g->d, x);
    list_count(b, x);
    t->slots_full = true;
    return false;
}

/* A list's first run is often the only one with its combination (`first`, the phase of step 1), and
 * so is one after participation changed: it is not kept. */
static optc_status slots_build(optc_binding *b, const LaunchList *p, LaunchList **out)
{
    optc_status s = gpu_slots_make(b, p, LIST_SLOTS, out);
    if (s != OPTC_OK)
        return s;
    LaunchList *x = *out;
    calls_slots_select(b, &x->slots);
    if (!p->runs || !slots_fit(b, x))
        x->key.use = LIST_ONCE;
    list_keep(&b->gpu->lists, x);
    return OPTC_OK;
}

CORE optc_status gpu_slots_choose(optc_binding *b, const LaunchList *p, LaunchList **out)
{
    const ListKey key = slots_key(b, p, LIST_SLOTS);
    LaunchList *x = *out = list_find(&b->gpu->lists, &key);
    optc_status s = x ? OPTC_OK : slots_build(b, p, out);
    if (s != OPTC_OK)
        return s;
    (*out)->used = b->steps;
    if (x && !list_whole(x))
        calls_slots_select(b, &x->slots);
    return x ? calls_slots_update(b, &x->slots) : OPTC_OK;
}

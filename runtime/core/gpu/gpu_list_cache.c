/* The cache of launch lists: those of combinations of slots, regions and joint graphs, with their
 * graphs and memory. A binding's cache needs no lock, since calls with a binding are not
 * concurrent; that of joint graphs belongs to the engine (gpu_joint_graph.c). Lists of all units
 * are in no cache: a steady step reads them by entry and phase. CAPTURE.md has the limit. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

/* the limit is one part of the workspace in these */
enum { LISTS_SHARE = 4 };

CORE LaunchList *task_list(const JointTask *x)
{
    return &x->b->gpu->launch_list[x->entry * x->b->gpu->nphase + x->phase];
}

/* One allocation with its arrays behind it. A list without items has one graph. */
CORE LaunchList *list_take(const ListKey *key, int n, int more)
{
    size_t tasks = sizeof *key->task * (size_t)key->n, items = sizeof(LaunchItem) * (size_t)n,
           graphs = sizeof(Segment) * (size_t)(n ? n : 1),
           bytes = sizeof(LaunchList) + tasks + items + graphs + sizeof(void *) * (size_t)more;
    LaunchList *x = (LaunchList *)calloc(1, bytes);
    if (!x)
        return NULL;
    JointTask *task = (JointTask *)(x + 1);
    memcpy(task, key->task, tasks);
    x->key = *key;
    x->key.task = task;
    x->item = (LaunchItem *)(task + key->n);
    x->n = n;
    x->segment = (Segment *)(x->item + n);
    x->body = (LaunchList **)(x->segment + (n ? n : 1));
    x->slots.at = (int64_t *)(void *)x->body;
    x->host = bytes;
    return x;
}

CORE void list_free(optc_binding *b, LaunchList *x)
{
    if (!x)
        return;
    list_drop_graphs(b->rule->engine->gpu->d, x);
    for (int i = 0; i < x->nbody; i++)
        if (x->body[i]->key.use == LIST_BODY)
            list_free(b, x->body[i]);
    if (x->memory)
        gpu_give(b->rule->engine, x->memory, x->bytes, b->gpu->stream);
    b->graph_bytes -= x->held;
    free(x->guard);
    free(x);
}

CORE void list_count(optc_binding *b, LaunchList *x)
{
    b->graph_bytes -= x->held;
    x->held = (int64_t)(x->bytes + x->host) + NODE_BYTES * x->nodes;
    b->graph_bytes += x->held;
}

/* ---- finding ---- */
static bool same_key(const ListKey *x, const ListKey *y)
{
    bool same = x->use == y->use && x->n == y->n && !memcmp(&x->now, &y->now, sizeof x->now);
    for (int i = 0; i < x->n && same; i++)
        same = x->task[i].b == y->task[i].b && x->task[i].entry == y->task[i].entry &&
               x->task[i].phase == y->task[i].phase && x->task[i].level == y->task[i].level;
    return same;
}

CORE void list_keep(LaunchList **first, LaunchList *x)
{
    x->next = *first;
    *first = x;
}

CORE LaunchList *list_find(LaunchList **first, const ListKey *key)
{
    LaunchList **at = first, *x;
    while (*at && !same_key(&(*at)->key, key))
        at = &(*at)->next;
    if (!(x = *at))
        return NULL;
    *at = x->next;
    list_keep(first, x);
    return x;
}

/* ---- dropping ---- */
CORE LaunchList *lists_take(LaunchList **first, const optc_binding *b, unsigned uses)
{
    LaunchList *gone = NULL;
    for (LaunchList **at = first, *x; (x = *at);) {
        bool has = false;
        for (int i = 0; i < x->key.n; i++)
            has = has || x->key.task[i].b == b;
        if (has && LISTS(x->key.use) & uses) {
            *at = x->next;
            list_keep(&gone, x);
        } else {
            at = &x->next;
        }
    }
    return gone;
}

CORE void lists_free(optc_binding *b, LaunchList *x)
{
    for (LaunchList *next; x; x = next) {
        next = x->next;
        list_free(b, x);
    }
}

/* Lists of slots are built again as at the beginning: the first one is not kept. */
CORE void lists_drop(optc_binding *b, unsigned uses)
{
    GpuTables *t = b->gpu;
    LaunchList *gone = lists_take(&t->lists, b, uses);
    for (int i = 0; uses & HOST_LISTS && t->launch_list && i < b->program->nentry * t->nphase; i++)
        t->launch_list[i].runs = t->launch_list[i].stagger ? 0 : t->launch_list[i].runs;
    t->slots_full = t->slots_full && !gone;
    lists_free(b, gone);
}

/* ---- the limit ---- */
CORE int64_t lists_limit(const optc_binding *b) { return b->rule->engine->workspace / LISTS_SHARE; }

CORE int64_t lists_held(const optc_binding *b, unsigned uses)
{
    int64_t bytes = 0;
    for (const LaunchList *x = b->gpu->lists; x; x = x->next)
        bytes += LISTS(x->key.use) & uses ? x->held : 0;
    return bytes;
}

/* Combinations recur in turn: if a list that was used within a cycle were dropped for another one,
 * each step would build a list and a graph that is dropped before its next use. */
CORE bool lists_drop_last(optc_binding *b)
{
    LaunchList **last = NULL;
    for (LaunchList **at = &b->gpu->lists; *at; at = &(*at)->next)
        if ((*at)->key.use == LIST_SLOTS)
            last = at;
    int64_t ago = last ? b->steps - (*last)->used : 0;
    if (ago >= 0 && ago <= b->gpu->slots_cycle)
        return false;
    LaunchList *x = *last;
    *last = x->next;
    list_free(b, x);
    b->gpu->slots_full = false;
    return true;
}

CORE bool lists_make_room(optc_binding *b, int64_t more)
{
    bool fits = b->graph_bytes + more <= lists_limit(b);
    while (!fits && lists_drop_last(b))
        fits = b->graph_bytes + more <= lists_limit(b);
    return fits;
}

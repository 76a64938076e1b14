/* Sharded bindings on GPUs: all ranks use the tuned results of rank 0. A rank without these results
 * would choose other launches, and the others would wait for it. It would also choose other methods
 * for eigenvectors and roots, which differ in their last bits. Rank 0 sends the results of its
 * user's file for its device, as text. A rank whose GPU is another model keeps its
 * own. */
#include "runtime/library/rule/gpu_code.h"

#include <stdlib.h>
#include <string.h>

typedef struct TuningOffer { int64_t bytes; TunedKey device; } TuningOffer;

static bool same_device(const TunedKey *a, const TunedKey *b)
{
    return a->units == b->units && a->driver == b->driver && !strcmp(a->device, b->device);
}

static bool put_device(TunedList *to, const TunedList *from, const TunedKey *device)
{
    bool ok = true;
    for (int i = 0; i < from->n && ok; i++)
        if (same_device(&from->v[i].key, device))
            ok = tuned_put(to, &from->v[i]);
    return ok;
}

/* The results that this engine uses for its device, ahead of the built-in ones. NULL: out of
 * memory. */
static char *own_results(const optc_engine *e, const TunedKey *device)
{
    TunedList all = {0};
    bool ok = put_device(&all, &e->library->tuned.user, device);
    char *text = ok ? tuned_text(&all) : NULL;
    tuned_free(&all);
    return text;
}

/* Older results stay until the engine is closed: another thread may be reading them. */
static optc_status use_results(LibraryEngine *m, const char *text)
{
    char why[300];
    optc_status s = OPTC_OK;
    pthread_mutex_lock(&m->lock);
    SharedResults *now = m->tuned.shared;
    if (!now || strcmp(now->text, text)) {
        SharedResults *x = calloc(1, sizeof *x);
        char *kept = strdup(text);
        if (!x || !kept) {
            s = no_memory("optc_bind_sharded");
        } else if (!tuned_parse(&x->list, "rank 0's tuned results", text, strlen(text), why,
                                sizeof why)) {
            s = fail(OPTC_ERROR_IO, "optc_bind_sharded: %s; run the same version on all ranks",
                     why);
        } else {
            *x = (SharedResults){.list = x->list, .text = kept, .older = now};
            __atomic_store_n(&m->tuned.shared, x, __ATOMIC_RELEASE);
        }
        if (s != OPTC_OK) {
            free(kept);
            free(x);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return s;
}

/* Every rank sends `bytes` bytes; those of rank 0 count. */
static optc_status receive_text(optc_binding *b, char *text, size_t bytes)
{
    int rank, ranks = shards_ranks(b, &rank);
    char *all = calloc((size_t)ranks, bytes), *own = calloc(1, bytes);
    optc_status s = all && own ? OPTC_OK : no_memory("optc_bind_sharded");
    if (s == OPTC_OK && !rank)
        memcpy(own, text, bytes);
    if (s == OPTC_OK)
        s = shards_gather(b, own, all, bytes);
    if (s == OPTC_OK)
        memcpy(text, all, bytes);
    free(all);
    free(own);
    return s;
}

optc_status tuning_share(optc_binding *b)
{
    optc_engine *e = b->rule->engine;
    int rank, ranks = shards_ranks(b, &rank);
    TuningOffer own, *all = calloc((size_t)ranks, sizeof *all);
    memset(&own, 0, sizeof own);
    tuned_set_device(&own.device, e->gpu->name, e->gpu->sms, e->gpu->driver);
    char *text = rank ? NULL : own_results(e, &own.device);
    own.bytes = rank ? 0 : text ? (int64_t)strlen(text) + 1 : -1;
    optc_status s = all ? shards_gather(b, &own, all, sizeof own) : no_memory("optc_bind_sharded");
    if (s == OPTC_OK && all[0].bytes < 0)
        s = fail(OPTC_ERROR_MEMORY,
                 "optc_bind_sharded: rank 0 has no memory for its tuned results");
    if (s == OPTC_OK && rank)
        text = calloc(1, (size_t)all[0].bytes + 1);
    if (s == OPTC_OK)
        s = text ? receive_text(b, text, (size_t)all[0].bytes) : no_memory("optc_bind_sharded");
    if (s == OPTC_OK && rank && !e->library->untuned && same_device(&all[0].device, &own.device))
        s = use_results(e->library, text);
    free(text);
    free(all);
    return s;
}

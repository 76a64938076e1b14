/* Capture tables: the array pointers of captured steps. A kernel finds its arrays through the table
 * in its launch arguments. A step that is captured while changed pointers are not yet on the device
 * (such as gradients allocated in the capture itself) gets its own table. Graphs with different
 * pointers have different tables, and a replay copies nothing.
 *
 * CUDA does not report when a graph is destroyed, so tables live as long as the binding. Captures
 * with the same pointers share one. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

typedef struct CaptureTable { struct CaptureTable *next; char *host; CUdeviceptr at; } CaptureTable;

static size_t table_row(const optc_binding *b)
{
    return sizeof(void *) * (size_t)b->program->narray;
}

static size_t table_bytes(const optc_binding *b) { return table_row(b) * (size_t)b->nall; }

CORE char *table_now(const optc_binding *b)
{
    size_t row = table_row(b);
    char *host = (char *)malloc(table_bytes(b) + 1);
    for (int i = 0; host && i < b->nall; i++)
        memcpy(host + row * (size_t)i, b->tensor[i].mem, row);
    return host;
}

/* Uses a stream that is not captured, and waits for the copy. */
static optc_status fill_table(optc_binding *b, CaptureTable *k, CUstream stream)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s =
        gpu_alloc(b->rule->engine, table_bytes(b), stream, "pointers of a captured step", &k->at);
    if (s != OPTC_OK)
        return s;
    TRY(g, cuMemcpyHtoDAsync_v2(k->at, k->host, table_bytes(b), stream),
        "pointers of a captured step");
    TRY(g, cuStreamSynchronize(stream), "pointers of a captured step");
    return OPTC_OK;
}

static optc_status new_table(optc_binding *b, CaptureTable *k)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUstream stream = NULL;
    TRY(g, cuStreamCreate(&stream, 1), "pointers of a captured step");
    optc_status s = fill_table(b, k, stream);
    if (s != OPTC_OK)
        gpu_give(b->rule->engine, k->at, table_bytes(b), stream);
    g->d->cuStreamDestroy_v2(stream);
    return s;
}

CORE optc_status table_keep(optc_binding *b)
{
    GpuTables *t = b->gpu;
    char *host = table_now(b);
    if (!host)
        return no_memory("optc_run");
    CaptureTable *k = t->capture_tables;
    while (k && memcmp(k->host, host, table_bytes(b)))
        k = k->next;
    if (k) {
        free(host);
        t->table = k->at;
        return OPTC_OK;
    }
    k = (CaptureTable *)calloc(1, sizeof *k);
    optc_status s = k ? OPTC_OK : no_memory("optc_run");
    if (k) {
        k->host = host;
        gpu_enter(b->rule->engine->gpu);
        s = gpu_leave(b->rule->engine->gpu, new_table(b, k));
    }
    if (s != OPTC_OK) {
        free(host);
        free(k);
        return s;
    }
    k->next = t->capture_tables;
    t->capture_tables = k;
    t->table = k->at;
    return OPTC_OK;
}

CORE void tables_drop(optc_binding *b)
{
    for (CaptureTable *k = b->gpu->capture_tables, *next; k; k = next) {
        next = k->next;
        gpu_give(b->rule->engine, k->at, table_bytes(b), b->gpu->stream);
        free(k->host);
        free(k);
    }
    b->gpu->capture_tables = NULL;
}

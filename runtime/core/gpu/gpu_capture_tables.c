/* Pointers that a captured step keeps. Kernels find arrays by the table that their launch names: a step that is captured
 * while pointers are on their way to the device (gradients that were allocated in the capture itself) gets a table of
 * its own. So graphs with different pointers each have theirs, and nothing is copied when one is replayed.
 *
 * Nobody tells us when a graph is gone: tables stay as long as the binding. Two captures with the same pointers share
 * one. */
#include "runtime/core/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

typedef struct CaptureTable { struct CaptureTable *next; char *host; CUdeviceptr at; } CaptureTable;

static size_t table_row(const optc_binding *b) { return sizeof(void *) * (size_t)b->rule->program->narray; }

static size_t table_bytes(const optc_binding *b) { return table_row(b) * (size_t)b->nall; }

CORE char *table_now(const optc_binding *b)
{
    size_t row = table_row(b);
    char *host = (char *)malloc(table_bytes(b) + 1);
    for (int i = 0; host && i < b->nall; i++)
        memcpy(host + row * (size_t)i, b->tensor[i].mem, row);
    return host;
}

/* In a stream that nobody captures, and done when it returns. */
static optc_status fill_table(optc_binding *b, CaptureTable *k, CUstream stream)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alloc(b->rule->engine, table_bytes(b), stream, "pointers of a captured step", &k->at);
    if (s != OPTC_OK)
        return s;
    TRY(g, cuMemcpyHtoDAsync_v2(k->at, k->host, table_bytes(b), stream), "pointers of a captured step");
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
        gpu_enter_aside(b->rule->engine->gpu);
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

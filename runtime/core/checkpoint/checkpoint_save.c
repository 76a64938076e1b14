/* optc_save: the header, then the data of all tensors through one buffer, then the hash. */
#include "runtime/core/checkpoint/checkpoint.h"

#include "runtime/core/shard/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors are ordered by the size of their values, largest first: so each is aligned to its
 * values. */
static const int item_sizes[] = {8, 4, 2, 1};

static void put_meta(SafeBuf *h, const char *prefix, const char *key, const char *text)
{
    SafeBuf whole;
    memset(&whole, 0, sizeof whole);
    safe_add(&whole, prefix, strlen(prefix));
    safe_add(&whole, key, strlen(key));
    h->failed = h->failed || whole.failed;
    if (!h->failed) {
        safe_quote(h, whole.s);
        safe_add(h, ":", 1);
        safe_quote(h, text);
    }
    free(whole.s);
}

static void put_about(SafeBuf *h, const SavedBinding *x)
{
    for (int k = 0; k < NABOUT; k++) {
        SafeBuf text;
        memset(&text, 0, sizeof text);
        about_text(&text, x, (About)k);
        h->failed = h->failed || text.failed;
        safe_add(h, ",", 1);
        if (!h->failed)
            put_meta(h, x->prefix, about_key((About)k), text.s);
        free(text.s);
    }
}

static void put_entry(SafeBuf *h, const SavedList *l, const SavedItem *x, int64_t at)
{
    safe_add(h, ",", 1);
    safe_quote(h, saved_name(l, x));
    safe_print(h, ":{\"dtype\":\"%s\",\"shape\":[", x->type->name);
    for (int k = 0; k < x->rank; k++)
        safe_print(h, "%s%lld", k ? "," : "", (long long)x->dim[k]);
    if (!x->dim)
        safe_print(h, "%lld", (long long)x->count);
    safe_print(h, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
               (long long)(at + saved_bytes(x)));
}

/* data: receives the bytes behind the header */
static optc_status make_header(SafeBuf *h, const SavedList *l, const char *call, int64_t *data)
{
    int64_t at = 0;
    safe_print(h, "{\"__metadata__\":{\"optc\":\"%s\",\"optc.version\":\"%s\"", CHECKPOINT_FORMAT,
               OPTC_VERSION);
    for (int i = 0; i < l->nbinding; i++)
        put_about(h, &l->binding[i]);
    safe_add(h, "}", 1);
    for (size_t c = 0; c < sizeof item_sizes / sizeof *item_sizes; c++)
        for (int64_t i = 0; i < l->n; i++)
            if (l->item[i].type->bytes == item_sizes[c]) {
                put_entry(h, l, &l->item[i], at);
                at += saved_bytes(&l->item[i]);
            }
    safe_print(h, ",\"%s\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[%lld,%lld]}}",
               CHECKPOINT_HASH, (long long)at, (long long)at + 8);
    while (!h->failed && h->n % 8)
        safe_add(h, " ", 1);
    *data = at + 8;
    if (h->failed)
        return no_memory(call);
    return h->n > SAFE_HEADER_MOST
               ? fail(OPTC_ERROR_ARGUMENT,
                      "%s: the header has %zu bytes, and safetensors files have at most %d: save "
                      "fewer tensors in one file",
                      call, h->n, (int)SAFE_HEADER_MOST)
               : OPTC_OK;
}

static optc_status save_item(CheckpointSink *s, const SavedList *l, const SavedItem *x)
{
    const optc_binding *b = l->binding[x->binding].b;
    int64_t bytes = saved_bytes(x);
    if (x->host)
        return sink_add(s, x->host, (size_t)bytes);
    optc_status status = OPTC_OK;
    for (int64_t at = 0; at < bytes && status == OPTC_OK;) {
        size_t n;
        char *to = sink_room(s, &n);
        n = (int64_t)n < bytes - at ? n : (size_t)(bytes - at);
        status = b->rule->device->read(b, to, x->at + at, n, s->call);
        at += (int64_t)n;
        if (status == OPTC_OK)
            status = sink_filled(s, n);
    }
    return status;
}

static optc_status save_all(CheckpointSink *s, const SavedList *l, const SafeBuf *h)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)h->n >> 8 * i);
    optc_status status = sink_add(s, length, sizeof length);
    if (status == OPTC_OK)
        status = sink_add(s, h->s, h->n);
    for (size_t c = 0; c < sizeof item_sizes / sizeof *item_sizes; c++)
        for (int64_t i = 0; i < l->n && status == OPTC_OK; i++)
            if (l->item[i].type->bytes == item_sizes[c])
                status = save_item(s, l, &l->item[i]);
    if (status == OPTC_OK)
        status = sink_flush(s);
    return status == OPTC_OK ? sink_commit(s) : status;
}

/* bytes: not NULL: only computes the size of the file */
static optc_status save_bindings(optc_binding *const *b, int n, const optc_checkpoint *to,
                                 const char *call, int64_t *bytes)
{
    SavedList l;
    SafeBuf h;
    CheckpointSink sink;
    int64_t data = 0;
    memset(&h, 0, sizeof h);
    for (int i = 0; b && i < n; i++)
        if (b[i] && b[i]->shards && b[i]->shards->failed)
            return exchange_failed(b[i]);
    optc_status s = saved_make(&l, call, b, n, to, true);
    if (s == OPTC_OK)
        s = make_header(&h, &l, call, &data);
    int64_t size = 8 + (int64_t)h.n + data;
    if (s == OPTC_OK && bytes)
        *bytes = size;
    if (s == OPTC_OK && !bytes) {
        s = sink_open(&sink, call, to, size);
        if (s == OPTC_OK)
            s = save_all(&sink, &l, &h);
        sink_close(&sink);
    }
    saved_free(&l);
    free(h.s);
    return s;
}

static optc_status read_checkpoint(const char *call, const optc_checkpoint *c, size_t size,
                                   optc_checkpoint *out)
{
    const StructVersion as = STRUCT_VERSION(call, optc_checkpoint, call, warnings_size);
    memset(out, 0, sizeof *out);
    if (!c)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the checkpoint is NULL", call);
    return struct_read(&as, out, c, size);
}

optc_status optc_save_sized(optc_binding *const *b, int n, const optc_checkpoint *to, size_t size)
{
    optc_checkpoint c;
    optc_status s = read_checkpoint("optc_save", to, size, &c);
    return s == OPTC_OK ? save_bindings(b, n, &c, "optc_save", NULL) : s;
}

optc_status optc_save_bytes_sized(optc_binding *const *b, int n, const optc_checkpoint *to,
                                  size_t size, int64_t *bytes)
{
    optc_checkpoint c;
    optc_status s = bytes
                        ? read_checkpoint("optc_save_bytes", to, size, &c)
                        : fail(OPTC_ERROR_ARGUMENT, "optc_save_bytes: the result pointer is NULL");
    return s == OPTC_OK ? save_bindings(b, n, &c, "optc_save_bytes", bytes) : s;
}

optc_status optc_load_sized(optc_binding *const *b, int n, const optc_checkpoint *from, size_t size)
{
    optc_checkpoint c;
    optc_status s = read_checkpoint("optc_load", from, size, &c);
    return s == OPTC_OK ? checkpoint_load(b, n, &c) : s;
}

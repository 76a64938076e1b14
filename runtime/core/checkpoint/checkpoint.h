/* Checkpoints: optc_save and optc_load.
 *
 *   SavedList         what a checkpoint of some bindings contains: one list for saving, its size,
 *                     and loading
 *   CheckpointSink    where bytes go: a file (written aside), memory or a function; hashes them
 *   CheckpointSource  where bytes come from, at any position */
#ifndef OPTC_CHECKPOINT_H
#define OPTC_CHECKPOINT_H
#include "runtime/core/api/api.h"
#include "runtime/core/checkpoint/safetensors.h"

/* Bytes of the buffer that everything passes through. The hash of a file is taken over pieces of
 * this size, so it is part of the format. */
enum { CHECKPOINT_BUFFER = 1 << 22 };
#define CHECKPOINT_FORMAT "1"
#define CHECKPOINT_HASH "optc.hash"
/* of the next piece; first: h = 1 */
CORE uint64_t checkpoint_hash(uint64_t h, const void *data, size_t bytes);

/* ---- checkpoint_list.c ---- */
enum { PARAM_ARRAY = 0 };                  /* Program.array[0], Tensor.mem[0]: the parameter */

/* A tensor of the file. host: its bytes; NULL: they are in device memory `at` of a binding. tensor:
 * of the binding, -1: it is a table or a state of a group. scales: of the block codes in the item
 * before it */
typedef struct SavedItem {
    size_t name;                           /* its offset in SavedList.names */
    const SafeType *type;
    int rank; const int64_t *dim;          /* dim NULL: one dimension of `count` */
    int64_t count;
    const void *host; char *at;
    int tensor, binding, array, stored;    /* array -1: a table; stored: a Type */
    bool scales;
} SavedItem;
/* steps: the binding's count, then those of its tensors; hyper: by group, then hyperparameter */
typedef struct SavedBinding {
    optc_binding *b;
    const char *prefix; char number[16];   /* number: the default prefix */
    int64_t *steps; double *hyper;
    int64_t steps_dim[1], hyper_dim[2];
    int64_t items;                         /* without parameters */
} SavedBinding;
typedef struct SavedList {
    SavedItem *item; int64_t n, room;
    SafeBuf names;
    SavedBinding *binding; int nbinding;
    bool params;
} SavedList;
/* counts: sets SavedBinding.steps. Loading needs none: the file has them, and those of the binding
 * may be unknown. */
CORE optc_status saved_make(SavedList *l, const char *call, optc_binding *const *b, int n,
                            const optc_checkpoint *c, bool counts);
CORE void saved_free(SavedList *l);
OPTC_COUNT const char *saved_name(const SavedList *l, const SavedItem *x)
{
    return l->names.s + x->name;
}
OPTC_COUNT int64_t saved_bytes(const SavedItem *x) { return x->count * x->type->bytes; }
CORE const SafeType *saved_dtype(int type);                /* of a Type; block codes: U8 */

/* ---- checkpoint_about.c: metadata of a binding ---- */
/* The first NCOMPARED must be equal for a file to be loaded. Files of older versions lack those
 * from ABOUT_STRIDES on. */
typedef enum {
    ABOUT_RULE,
    ABOUT_WITH,
    ABOUT_OPTIONS,
    ABOUT_RANK,
    ABOUT_CUT,
    ABOUT_STRIDES,
    ABOUT_ORDER,
    NCOMPARED,
    ABOUT_TYPES = NCOMPARED,
    ABOUT_HYPERS,
    ABOUT_T,
    ABOUT_TENSORS,
    NABOUT
} About;
CORE const char *about_key(About k);                       /* "optc.rule" */
CORE void about_text(SafeBuf *out, const SavedBinding *x, About k);
/* the text in a file's metadata; NULL: none. *failed: out of memory */
CORE const char *about_in(const SafeFile *f, const char *prefix, About k, bool *failed);
/* the text after "NAME=" in a list "a=1,b=2"; NULL: none. *n: its length */
CORE const char *about_value(const char *list, const char *name, size_t *n);
CORE int about_index(const char *list, const char *name);  /* of a name in "a,b,c"; -1: none */
CORE int about_count(const char *list);

/* ---- checkpoint_sink.c ---- */
typedef struct CheckpointSink {
    const char *call;
    const optc_checkpoint *to;
    char *buffer; size_t used;
    int64_t written;
    uint64_t hash;
    int fd;                                /* -1: no file */
    char *path, *aside;                    /* aside NULL: written in place (a device or a pipe) */
} CheckpointSink;
CORE optc_status sink_open(CheckpointSink *s, const char *call, const optc_checkpoint *to,
                           int64_t size);
CORE optc_status sink_add(CheckpointSink *s, const void *data, size_t bytes);
/* as much of the buffer as is free, at least 1 byte; after filling `bytes` of it call
 * sink_filled */
CORE char *sink_room(CheckpointSink *s, size_t *bytes);
CORE optc_status sink_filled(CheckpointSink *s, size_t bytes);
CORE optc_status sink_flush(CheckpointSink *s);            /* hashes and writes the buffer */
CORE optc_status sink_commit(CheckpointSink *s);           /* syncs, and replaces the old file */
/* also after a failure: nothing is left behind */
CORE void sink_close(CheckpointSink *s);

/* ---- checkpoint_source.c ---- */
typedef struct CheckpointSource {
    const char *call;
    const optc_checkpoint *from;
    int fd;
    int64_t size;
} CheckpointSource;
CORE optc_status source_open(CheckpointSource *s, const char *call, const optc_checkpoint *from);
CORE optc_status source_read(const CheckpointSource *s, int64_t at, void *data, size_t bytes);
CORE void source_close(CheckpointSource *s);
CORE const char *source_name(const CheckpointSource *s);
/* The header of the file. The caller frees it in any case (safe_free). */
CORE optc_status source_header(const CheckpointSource *s, SafeFile *f);
/* Reads the whole file and compares its hash. A file without a hash passes; *has receives 0
 * then. */
CORE optc_status source_verify(const CheckpointSource *s, const SafeFile *f, bool *has);

/* ---- checkpoint_load.c ---- */
CORE optc_status checkpoint_load(optc_binding *const *b, int n, const optc_checkpoint *from);
#endif

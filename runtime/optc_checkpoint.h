/* library: */
/* Checkpoints: saves and loads bindings. optc.h includes this file: programs include optc.h only.
 * runtime/CHECKPOINTS.md has the names in the file. */
/* :library */
#ifndef OPTC_PUBLIC_CHECKPOINT_H
#define OPTC_PUBLIC_CHECKPOINT_H

/* Where a checkpoint is written or read: set one of path, memory and write or read. 0 in other
 * members means the default. */
typedef struct optc_checkpoint {
    const char *path;          /* a file. Written aside, synced and renamed: until then an old file
                                * stays as it is */
    void *memory;              /* an array of `size` bytes; optc_save_bytes tells how many it
                                * takes */
    /* Called with all bytes in order. Returns 0, or another number if it failed. */
    int (*write)(void *context, const void *data, size_t bytes);
    /* Reads bytes from position `at` of `size` bytes. Returns 0, or another number if it failed. */
    int (*read)(void *context, int64_t at, void *data, size_t bytes);
    void *context;
    int64_t size;
    /* Of each binding: what its names in the file begin with. NULL: nothing for one binding; "0.",
     * "1.", … for more. */
    const char *const *prefix;
    /* optc_load: receives its warnings, one per line; may be NULL */
    char *warnings; size_t warnings_size;
    int params;                /* 1: the parameters too; optc_load writes them into the bound
                                * memory */
} optc_checkpoint;

/* Saves n bindings in one file, in the safetensors format: states, step counts, hyperparameters
 * (seeds too), the rule, its options and types, and a hash; parameters only with
 * optc_checkpoint.params. Waits for the runs that were started. A rank of a sharded binding saves
 * its own pieces: give each rank its own file. */
optc_status optc_save_sized(optc_binding *const *b, int n, const optc_checkpoint *to, size_t size);
static inline optc_status optc_save(optc_binding *const *b, int n, const optc_checkpoint *to)
{
    return optc_save_sized(b, n, to, sizeof *to);
}
optc_status optc_save_bytes_sized(optc_binding *const *b, int n, const optc_checkpoint *to,
                                  size_t size, int64_t *bytes);
static inline optc_status optc_save_bytes(optc_binding *const *b, int n, const optc_checkpoint *to,
                                          int64_t *bytes)
{
    return optc_save_bytes_sized(b, n, to, sizeof *to, bytes);
}
/* Loads bindings of the same rules, options and tensors, on any device. A resumed run gives the
 * bits of the run that was saved. States that are stored in another type are converted, with a
 * warning. Without optc_checkpoint.params load the parameters before this call, and call
 * optc_params_changed, if at all, before it too.
 *
 * A file that is cut off, damaged, foreign or of other tensors is refused with the reason:
 * everything is checked before the first state is written. If reading or the device fails after
 * that, some states have their new values, and the message says so: load again. */
optc_status optc_load_sized(optc_binding *const *b, int n, const optc_checkpoint *from,
                            size_t size);
static inline optc_status optc_load(optc_binding *const *b, int n, const optc_checkpoint *from)
{
    return optc_load_sized(b, n, from, sizeof *from);
}
#endif

/* Tuned results: measured launches, as text that a person can read, compare and merge.
 *
 *     optc-tune 1
 *     device NVIDIA H200 | units 132 | driver 580
 *     map f32,f32,f32 0123456789abcdef0123456789abcdef 2^28 threads=256 vector=4 items=2 blocks=0
 *     load=0 store=0
 *         grid=0 ms=1.795 model=1.801 n=25 # adamw step_1_map        (one line)
 *
 * The key of a result: device (name, multiprocessors or cores, the driver's major version; 0 on a
 * CPU), form of the stage, storage types, hash of the stage's code, and size bucket. A key without
 * a result uses that of the neighbouring bucket.
 *
 * Two lists are searched: first the user's ($OPTC_TUNE, $XDG_CONFIG_HOME/optc/tune or
 * ~/.config/optc/tune), then the built-in one (runtime/tuned/, compiled in). If neither has a
 * result, launch_model decides. */
#ifndef OPTC_TUNED_H
#define OPTC_TUNED_H
#include "gen/gen.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct TunedKey {
    char device[96];
    int units, driver;
    LaunchForm form;
    char types[TYPES_KEY];     /* "f32,f32,f32": parameters, gradients, states (plan_types_key) */
    char stage[33];            /* hex */
    int bucket;                /* log2 of the elements, rounded to even: tuned_bucket */
} TunedKey;

typedef struct Tuned {
    TunedKey key;
    Launch launch;
    double ms, model_ms;       /* its time, and that of the model's launch in the same run */
    int samples;
    char label[80];            /* rule and kernel, for display only */
} Tuned;

/* Sorted by key, without duplicate keys. Only the calls below add entries. */
typedef struct TunedList { Tuned *v; int n, cap; } TunedList;

/* 2^27 and 2^28 share 28 … ; 0 elements: 0 */
int tuned_bucket(int64_t elements);
/* The path of the user's file; false: there is none (OPTC_TUNE is empty, or there is no home
 * folder). */
bool tuned_path(char *out, size_t n);
/* Sets the device. The name is cleaned for files: no control characters, no '|', no runs of spaces.
 * tuned_put cleans its entries too. */
void tuned_set_device(TunedKey *k, const char *name, int units, int driver);
/* by device, form, types, stage, bucket */
int tuned_compare(const TunedKey *a, const TunedKey *b);
void tuned_free(TunedList *l);
/* Adds the entries of a text or file to l; they replace entries of the same key. false: why names
 * file and line, and l is unchanged. A file that does not exist counts as empty. */
bool tuned_parse(TunedList *l, const char *name, const char *text, size_t len, char *why,
                 size_t nwhy);
bool tuned_read(TunedList *l, const char *path, char *why, size_t nwhy);
/* The list as text, sorted, malloc'ed; equal lists give equal texts. NULL: out of memory. */
char *tuned_text(const TunedList *l);
/* Writes to a temporary file and renames it; makes missing folders. Text that would not parse again
 * is not written. */
bool tuned_write(const TunedList *l, const char *path, char *why, size_t nwhy);
/* The result of the key's bucket, or of the nearest bucket (of two, the larger). NULL: no result
 * for this stage. */
const Tuned *tuned_find(const TunedList *l, const TunedKey *k);
/* Adds an entry, or replaces the one of that key. false: out of memory. */
bool tuned_put(TunedList *l, const Tuned *t);
typedef struct TunedMerge { int added, replaced, kept; } TunedMerge;
/* Which of two entries of one key is kept. BY_GAIN, for results of other machines: the larger gain
 * (model_ms / ms), then more samples; times of two machines are not comparable. NEWEST: the new
 * one, which was raced here against the old one. */
typedef enum TunedHow { TUNED_BY_GAIN, TUNED_NEWEST } TunedHow;
bool tuned_merge(TunedList *into, const TunedList *from, TunedHow how, TunedMerge *m);
/* Reads, merges and writes a file while it holds a lock on PATH.lock; gives up after wait_ms. Does
 * not write if nothing changes, or if dry is set. */
bool tuned_update(const char *path, const TunedList *from, TunedHow how, bool dry, int wait_ms,
                  TunedMerge *m, char *why, size_t nwhy);

/* Results of rank 0 of a sharded binding (shard/shared_tuning.c). They replace the user's. */
typedef struct SharedResults {
    TunedList list; char *text; struct SharedResults *older;
} SharedResults;
/* Both lists. why: a line for each file that is not used, or ""; shared: atomic, NULL: none */
typedef struct TunedSet {
    TunedList user, builtin; char why[1200]; SharedResults *shared;
} TunedSet;
void tuned_open(TunedSet *s);
void tuned_close(TunedSet *s);
/* A size without a result uses that of the neighbouring bucket ('optc tune' compares it with the
 * model there too), but of none further away. From 2^28 elements on, results do not depend on the
 * size. This call narrows lo … hi to the buckets whose results apply to k. */
/* packages use the same reach for methods: METHOD_REACH */
enum { TUNED_REACH = 2, TUNED_LARGE = 28 };
void tuned_reach(const TunedKey *k, int *lo, int *hi);
/* The result for exactly this size from the first list that has one; otherwise the nearest size
 * from lo to hi, from the first list that has one. from: receives "user", "rank 0" or "built-in";
 * may be NULL. */
const Tuned *tuned_look(const TunedSet *s, const TunedKey *k, int lo, int hi, const char **from);
#endif

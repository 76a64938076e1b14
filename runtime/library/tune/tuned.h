/* Measured launches: what a tuner found, as text a person can read, diff and merge.
 *
 *     optc-tune 1
 *     device NVIDIA H200 | units 132 | driver 580
 *     map f32,f32,f32 0123456789abcdef0123456789abcdef 2^28 threads=256 vector=4 items=2 blocks=0 load=0 store=0
 *         grid=0 ms=1.795 model=1.801 n=25 # adamw step_1_map        (one line)
 *
 * A result belongs to a device (name, multiprocessors or cores, the driver's major version; 0 on a CPU), a kind of
 * stage (its form), the storage types, a hash of the stage's code, and a size bucket. A key that has no result of its
 * own takes that of the bucket beside it.
 *
 * Three lists, asked in this order: the user's ($OPTC_TUNE, $XDG_CONFIG_HOME/optc/tune or ~/.config/optc/tune), the
 * site's ($OPTC_TUNE_SITE or /etc/optc/tune), the built-in one (runtime/tuned/, compiled in); where none knows,
 * launch_model decides. */
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
    double ms, model_ms;       /* its time and, in the same run, that of the model's launch */
    int samples;
    char label[80];            /* rule and kernel, for people */
} Tuned;

/* sorted by key, no key twice: added to by the calls below only */
typedef struct TunedList { Tuned *v; int n, cap; } TunedList;

int tuned_bucket(int64_t elements);                            /* 2^27 and 2^28 share 28 … ; 0 elements: 0 */
/* the user's file; false: nowhere (OPTC_TUNE is empty, or no home) */
bool tuned_path(char *out, size_t n);
bool tuned_site_path(char *out, size_t n);
/* As the name stands in files: no control characters, no '|', no runs of spaces. tuned_put and trials_append do it to
 * what they are given. */
void tuned_set_device(TunedKey *k, const char *name, int units, int driver);
int tuned_compare(const TunedKey *a, const TunedKey *b);       /* by device, form, types, stage, bucket */
void tuned_free(TunedList *l);
/* All or nothing. false: why names file and line, and l is as it was. What is read replaces entries of the same key. A
 * file that is not there is empty. */
bool tuned_parse(TunedList *l, const char *name, const char *text, size_t len, char *why, size_t nwhy);
bool tuned_read(TunedList *l, const char *path, char *why, size_t nwhy);
/* sorted; the same list gives the same text; malloc'ed; NULL: out of memory */
char *tuned_text(const TunedList *l);
/* aside and renamed, folders made; only what reads back is written */
bool tuned_write(const TunedList *l, const char *path, char *why, size_t nwhy);
/* this bucket's or the nearest's (exact where key.bucket equals), the larger one of two; NULL: none */
const Tuned *tuned_find(const TunedList *l, const TunedKey *k);
/* replaces the entry of that key; false: out of memory */
bool tuned_put(TunedList *l, const Tuned *t);
typedef struct TunedMerge { int added, replaced, kept; } TunedMerge;
/* Of two entries of one key: results from elsewhere by gain (model_ms / ms, then by samples), since times of two
 * machines say nothing of each other; what was raced here against the older entry takes its place, whatever the model
 * was then. */
typedef enum TunedHow { TUNED_BY_GAIN, TUNED_NEWEST } TunedHow;
bool tuned_merge(TunedList *into, const TunedList *from, TunedHow how, TunedMerge *m);
/* Reads, merges and writes while no other process does (a lock on PATH.lock); after wait_ms it gives up. Writes nothing
 * where nothing changes, or with dry. */
bool tuned_update(const char *path, const TunedList *from, TunedHow how, bool dry, int wait_ms, TunedMerge *m,
                  char *why, size_t nwhy);

/* why: what could not be read, a line each, or "" */
typedef struct TunedSet { TunedList user, site, builtin; char why[1200]; } TunedSet;
void tuned_open(TunedSet *s);
void tuned_close(TunedSet *s);
/* A size that has no result takes that of the bucket beside it ('optc tune' holds it against the model there too) and
 * of none further off; from 2^28 elements on nothing changes with the size any more. This narrows lo to hi to the
 * buckets whose results serve k. */
enum { TUNED_REACH = 2, TUNED_LARGE = 28 };             /* TUNED_REACH: of ways in packages too, METHOD_REACH */
void tuned_reach(const TunedKey *k, int *lo, int *hi);
/* The first list that knows the stage at this size; else the nearest size, of those from lo to hi, of the first that
 * knows one. from: "user", "site", "built-in". */
const Tuned *tuned_look(const TunedSet *s, const TunedKey *k, int lo, int hi, const char **from);

/* ---- trials: everything that was timed, beside the results in FILE.trials, to look at and to go on where a run was
 * stopped ----
 *
 *     optc-trials 1
 *     device NVIDIA H200 | units 132 | driver 580 | map f32,f32,f32 0123456789abcdef0123456789abcdef 2^28 threads=512 …
 * grid=0 ms=1.91 n=5 from=search # adamw step_1_map
 *
 * Lines stand for themselves, are appended one by one and stay in their order. What a kill tore off at the end is
 * passed over, and cut away by the next to append; anything else that is wrong is refused as in results. `ms=failed`:
 * it did not compile, start, or give the right bits. */
typedef struct Trial {
    TunedKey key;
    Launch launch;
    double ms;                 /* INFINITY: it failed */
    int samples;
    bool model;                /* the model's choice, from=model */
    char label[80];
} Trial;
typedef struct TrialList { Trial *v; int n, cap; } TrialList;

/* of a file of results; false: too long */
bool trials_path(const char *results, char *out, size_t n);
void trials_free(TrialList *l);
bool trials_parse(TrialList *l, const char *name, const char *text, size_t len, char *why, size_t nwhy);
/* added to l; all or nothing; none where there is no file */
bool trials_read(TrialList *l, const char *path, char *why, size_t nwhy);
/* in the file when it returns; any number of processes at once */
bool trials_append(const char *path, const Trial *t, char *why, size_t nwhy);
/* the next of that key after `after` (NULL: the first); NULL: no more */
const Trial *trials_of(const TrialList *l, const TunedKey *k, const Trial *after);
#endif

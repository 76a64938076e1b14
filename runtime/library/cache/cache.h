/* Compiled code on disk: shared objects and cubins alike.
 *
 *   overlay      one folder of the user's own, which is read and written
 *   base         folders below it, only ever read: an administrator's, or a shipped package
 *   KEY.KIND     an entry: the object, behind it what it holds as text, then a trailer with lengths and a checksum.
 *                Loaders do not look past the object's own end. Its mtime is its last use, to the hour
 *   .KEY.XXXXXX  an entry that is being written; renamed when it is whole. Nothing is synced: an entry that a crash
 *                tore fails its checksum
 *   .lock        who builds KEY holds the byte of this file that KEY chooses. One file for all keys, so that none ever
 *                has to be removed
 *
 * Nothing here is an error: what cannot be read is built, what cannot be kept is used from memory, who cannot be locked
 * out works twice. */
#ifndef OPTC_CACHE_H
#define OPTC_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CACHE_PATH = 4200, CACHE_DIR = 4096, CACHE_KEY = 65, CACHE_NAME = 80 };
#define CACHE_MAX_DEFAULT ((int64_t)1 << 30)

typedef struct Cache {
    char *dir;                 /* NULL: nothing is kept */
    char *base;                /* folders separated by ':', or NULL */
    int64_t max;               /* bytes; negative: no cap */
    int wait_ms;               /* how long to wait for another's build */
    char why[512];             /* dir NULL: why; "" if nothing was to be kept */
} Cache;

/* NULL, 0: as the environment says. An empty dir keeps nothing, an empty base is none. */
void cache_open(Cache *c, const char *dir, const char *base, int64_t max);
void cache_close(Cache *c);
/* where the overlay would be; "" and true: nothing is to be kept */
bool cache_location(const char *dir, char out[CACHE_DIR], char *why, size_t nwhy);
bool cache_trusted(const char *dir, bool base, char *why, size_t nwhy);
/* walks `base`; false at its end */
bool cache_next_base(const char **list, char out[CACHE_DIR]);
/* bytes, or with K, M, G, T; 0 means no cap and gives -1 */
bool cache_parse_size(const char *s, int64_t *out);

/* What an entry holds, for people. */
typedef struct CacheNote { char rule[64], with[256], options[128], types[96], target[32], compiler[128]; } CacheNote;

/* ---- cache.c: use ----
 * cache_begin returns the object (malloc'ed), or NULL: then the caller builds it, which nobody else does meanwhile, and
 * calls cache_end with what it made, or with NULL. Without `build` it only looks. Who cannot use what was found builds
 * it too; cache_end then replaces it. */
typedef struct CacheSlot {
    const Cache *cache;
    char key[CACHE_KEY];
    const char *kind;
    int lock;                  /* -1: none is held */
    char from[CACHE_PATH];     /* the file that was found, for loaders that want one */
} CacheSlot;
char *cache_begin(CacheSlot *s, const Cache *c, const char *key, const char *kind, bool build, size_t *size);
bool cache_end(CacheSlot *s, const char *data, size_t size, const CacheNote *note);  /* true: it was kept */

/* ---- cache_entry.c: the file of an entry ---- */
extern const char *const cache_kinds[];
/* to load: whose it is counts; mark: its last use is now */
typedef enum { CACHE_LOOK, CACHE_LOAD, CACHE_LOAD_MARK } CacheUse;
/* the object, checked; NULL: why (may be NULL) says why not */
char *cache_read(const char *dir, const char *name, CacheUse use, size_t *size, const char **why);
/* from the end of the file, without checking the rest */
bool cache_read_note(const char *dir, const char *name, CacheNote *out);
bool cache_write(const char *dir, const char *name, const char *data, size_t size, const CacheNote *note);
/* dlopen of path or, where that is refused, of the same bytes in memory */
void *cache_load_object(const char *path, const char *data, size_t size);

/* ---- cache_sweep.c: all entries of a folder ---- */
/* kind NULL: left by a build, or just being written */
typedef struct CacheEntry { char name[CACHE_NAME]; const char *kind; int64_t bytes, used_ns; } CacheEntry;
/* the longest unused first; entries, bytes: without leftovers */
typedef struct CacheList { CacheEntry *entry; int n, entries; int64_t bytes; } CacheList;
/* false: errno says why */
bool cache_list(const char *dir, CacheList *out);
/* unread: why the folder could not be (errno); 0: it was */
typedef struct CacheSwept { int entries, leftovers, failed; int64_t bytes; int unread; } CacheSwept;
/* Removes what was not used for `older` seconds (negative: no such limit), then the longest unused until `max` bytes
 * are left (negative: no cap); never the entry named `keep`. Leftovers go when they are older than `leftover`
 * seconds. */
CacheSwept cache_sweep(const char *dir, int64_t max, double older, double leftover, const char *keep);
int64_t cache_now_ns(void);
#endif

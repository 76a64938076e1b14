/* The cache of compiled code on disk: shared objects and cubins.
 *
 *   overlay      the user's own folder, which is read and written
 *   base         further folders that are only read: an administrator's, or a shipped package
 *   KEY.KIND     an entry: the object, then its description as text, then a trailer with lengths
 *                and a checksum. Loaders do not read past the object's own end. The file's mtime is
 *                its last use, to the hour
 *   .KEY.XXXXXX  an entry that is being written; it is renamed when it is complete. Nothing is
 *                synced: an entry that a crash truncated fails its checksum
 *   .lock        the process that builds KEY locks one byte of this file; KEY selects the byte. One
 *                file serves all keys, so no lock file ever has to be removed
 *
 * The cache reports no errors: an entry that cannot be read is built, one that cannot be written is
 * used from memory, and without locks two processes may build the same entry. */
#ifndef OPTC_CACHE_H
#define OPTC_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CACHE_PATH = 4200, CACHE_DIR = 4096, CACHE_KEY = 65, CACHE_NAME = 80 };
#define CACHE_MAX_DEFAULT ((int64_t)1 << 30)

typedef struct Cache {
    char *dir;                 /* the overlay; NULL: no cache on disk */
    char *base;                /* folders separated by ':', or NULL */
    int64_t max;               /* most bytes in dir; negative: no limit */
    int wait_ms;               /* how long to wait for another process's build */
    char why[512];             /* why dir is NULL; "" if the caller turned the cache off */
} Cache;

/* NULL and 0: as the environment says. An empty dir turns the cache off; an empty base means no
 * bases. */
void cache_open(Cache *c, const char *dir, const char *base, int64_t max);
void cache_close(Cache *c);
/* The overlay's folder, which need not exist. *out "" and true: the cache is turned off. */
bool cache_location(const char *dir, char out[CACHE_DIR], char *why, size_t nwhy);
bool cache_trusted(const char *dir, bool base, char *why, size_t nwhy);
/* The next folder of the list `base`; false at its end. */
bool cache_next_base(const char **list, char out[CACHE_DIR]);

/* The description of an entry, for `optc cache ls`. */
typedef struct CacheNote {
    char rule[64], with[256], options[128], types[96], target[32], compiler[128];
} CacheNote;

/* ---- cache.c: use ----
 * cache_begin returns the object (malloc'ed), or NULL. After NULL the caller builds the object,
 * while other processes wait for it, and calls cache_end with the object, or with NULL if the build
 * failed. Without `build` the call only looks the entry up. A caller that cannot use the returned
 * object builds it too; cache_end then replaces the entry. */
typedef struct CacheSlot {
    const Cache *cache;
    char key[CACHE_KEY];
    const char *kind;
    int lock;                  /* descriptor of the lock file; -1: no lock is held */
    char from[CACHE_PATH];     /* the entry's file, for loaders that need a path */
} CacheSlot;
char *cache_begin(CacheSlot *s, const Cache *c, const char *key, const char *kind, bool build,
                  size_t *size);
/* true: the entry was written */
bool cache_end(CacheSlot *s, const char *data, size_t size, const CacheNote *note);

/* ---- cache_entry.c: the file of an entry ---- */
extern const char *const cache_kinds[];
/* LOOK: inspects the entry. LOAD: its code will run, so the file's owner is checked. MARK: updates
 * the last use too. */
typedef enum { CACHE_LOOK, CACHE_LOAD, CACHE_LOAD_MARK } CacheUse;
/* Reads an entry and verifies its checksum. Returns the object, malloc'ed. NULL: *why has the
 * reason (why may be NULL). */
char *cache_read(const char *dir, const char *name, CacheUse use, size_t *size, const char **why);
/* Reads the description at the end of the file, without verifying the rest. */
bool cache_read_note(const char *dir, const char *name, CacheNote *out);
bool cache_write(const char *dir, const char *name, const char *data, size_t size,
                 const CacheNote *note);
/* dlopen of path; if that fails, dlopen of the same bytes in memory. */
void *cache_load_object(const char *path, const char *data, size_t size);

/* ---- cache_sweep.c: all entries of a folder ---- */
/* kind NULL: a temporary file, being written or left behind by a build; used_ns: time of last
 * use */
typedef struct CacheEntry {
    char name[CACHE_NAME]; const char *kind; int64_t bytes, used_ns;
} CacheEntry;
/* Sorted by last use, oldest first. entries and bytes do not count leftover temporary files. */
typedef struct CacheList { CacheEntry *entry; int n, entries; int64_t bytes; } CacheList;
bool cache_list(const char *dir, CacheList *out);          /* false: errno has the reason */
/* Counts of removed files. unread: errno if the folder could not be read, otherwise 0. */
typedef struct CacheSwept { int entries, leftovers, failed; int64_t bytes; int unread; } CacheSwept;
/* Removes entries that were not used for `older` seconds (negative: no such limit), then the
 * entries that were unused longest until at most `max` bytes are left (negative: no limit). It
 * never removes the entry named `keep`. Temporary files are removed if they are older than
 * `leftover` seconds. */
CacheSwept cache_sweep(const char *dir, int64_t max, double older, double leftover,
                       const char *keep);
int64_t cache_now_ns(void);
#endif

/* Memory of an engine's device for callers: optc_alloc, optc_free, optc_fill, optc_copy.
 *
 * A table of all live blocks of the process, sorted by address, finds double frees, pointers that
 * optc_alloc did not return, memory of other engines, and ranges that leave their block. Addresses
 * of the host and of all GPUs differ. */
#include "runtime/core/memory/layout.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct MemoryBlock { uintptr_t at; int64_t bytes; optc_engine *engine; } MemoryBlock;
typedef struct BlockTable { MemoryBlock *v; int n, room; bool locked; } BlockTable;
static BlockTable table_of_blocks;

/* Held for a few instructions, so waiting threads spin. */
static BlockTable *blocks_lock(void)
{
    while (__atomic_test_and_set(&table_of_blocks.locked, __ATOMIC_ACQUIRE))
        sched_yield();
    return &table_of_blocks;
}

static void blocks_unlock(void) { __atomic_clear(&table_of_blocks.locked, __ATOMIC_RELEASE); }

/* the first block that begins above `at` */
static int first_above(const BlockTable *t, uintptr_t at)
{
    int lo = 0, hi = t->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (t->v[mid].at > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The block that contains the address, or begins there; -1: none. */
static int block_at(const BlockTable *t, uintptr_t at)
{
    int i = first_above(t, at) - 1;
    return i >= 0 && (at == t->v[i].at || at - t->v[i].at < (uintptr_t)t->v[i].bytes) ? i : -1;
}

static bool block_add(MemoryBlock x)
{
    BlockTable *t = blocks_lock();
    MemoryBlock *v = t->v;
    if (t->n == t->room &&
        (v = (MemoryBlock *)realloc(t->v, sizeof *v * (size_t)(2 * t->room + 16)))) {
        t->v = v;
        t->room = 2 * t->room + 16;
    }
    bool room = t->n < t->room;
    int at = first_above(t, x.at);
    if (room) {
        memmove(&t->v[at + 1], &t->v[at], sizeof *t->v * (size_t)(t->n - at));
        t->v[at] = x;
        t->n++;
    }
    blocks_unlock();
    return room;
}

static void block_remove(BlockTable *t, int i)
{
    memmove(&t->v[i], &t->v[i + 1], sizeof *t->v * (size_t)(t->n - i - 1));
    /* the last block takes the table with it: nothing is left behind */
    if (--t->n == 0) {
        free(t->v);
        t->v = NULL;
        t->room = 0;
    }
}

CORE int memory_blocks(const optc_engine *e, int64_t *bytes)
{
    int n = 0;
    const BlockTable *t = blocks_lock();
    for (int i = 0; i < t->n; i++)
        if (t->v[i].engine == e) {
            *bytes += t->v[i].bytes;
            n++;
        }
    blocks_unlock();
    return n;
}

/* ---- checks ---- */
/* A range that begins in a block of optc_alloc must end in it, and the CPU cannot reach memory of a
 * GPU. Memory that is not in the table is the caller's own. */
static optc_status check_range(const optc_engine *e, const char *call, const void *at,
                               int64_t bytes)
{
    optc_status s = OPTC_OK;
    const BlockTable *t = blocks_lock();
    int i = block_at(t, (uintptr_t)at);
    int64_t left = i < 0 ? bytes : t->v[i].bytes - (int64_t)((uintptr_t)at - t->v[i].at);
    if (i >= 0 && t->v[i].engine->gpu && !e->gpu)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: the memory belongs to another engine (%.100s), and this one is on the CPU",
                 call, t->v[i].engine->name);
    else if (bytes > left)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: the range has %lld bytes, but its block of optc_alloc ends after %lld", call,
                 (long long)bytes, (long long)left);
    blocks_unlock();
    return s;
}

static optc_status no_argument(const char *call, const char *what)
{
    return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call, what);
}

/* ---- allocating and freeing ---- */
#define MOST_BYTES ((int64_t)1 << 60)

optc_status optc_alloc(optc_engine *e, int64_t bytes, void *stream, void **out)
{
    if (out)
        *out = NULL;
    if (!e || !out)
        return no_argument("optc_alloc", !e ? "the engine" : "the result pointer");
    if (bytes < 0 || bytes > MOST_BYTES)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_alloc: %lld bytes; it must be 0 or more, at most 2^60", (long long)bytes);
    size_t size = bytes ? (size_t)bytes : 1;
    void *p = NULL;
    optc_status s = e->device->take(e, size, stream, &p);
    if (s != OPTC_OK)
        return s;
    s = e->device->set(e, p, 0, size, stream);
    MemoryBlock x;
    x.at = (uintptr_t)p, x.bytes = bytes, x.engine = e;
    if (s == OPTC_OK && !block_add(x))
        s = no_memory("optc_alloc");
    if (s != OPTC_OK) {
        char why[MOST_MESSAGE];                    /* give may replace the message */
        memcpy(why, optc_message(), sizeof why);
        e->device->give(e, p, size, stream);
        return fail(s, "%s", why);
    }
    *out = p;
    return OPTC_OK;
}

/* Removes a block from the table before the device frees it: another thread may get the same
 * address at once. */
static optc_status block_take(optc_engine *e, const void *memory, MemoryBlock *out)
{
    optc_status s = OPTC_OK;
    BlockTable *t = blocks_lock();
    int i = block_at(t, (uintptr_t)memory);
    if (i < 0)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "optc_free: %p is not memory of optc_alloc, or is already freed", memory);
    else if (t->v[i].engine != e)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "optc_free: the memory belongs to another engine (%.100s; this one: %.100s)",
                 t->v[i].engine->name, e->name);
    else if (t->v[i].at != (uintptr_t)memory)
        s = fail(OPTC_ERROR_ARGUMENT,
                 "optc_free: the pointer is %lld bytes inside a block of %lld; pass what "
                 "optc_alloc returned",
                 (long long)((uintptr_t)memory - t->v[i].at), (long long)t->v[i].bytes);
    if (s == OPTC_OK) {
        *out = t->v[i];
        block_remove(t, i);
    }
    blocks_unlock();
    return s;
}

optc_status optc_free(optc_engine *e, void *memory, void *stream)
{
    MemoryBlock x;
    if (!e)
        return no_argument("optc_free", "the engine");
    if (!memory)
        return OPTC_OK;
    optc_status s = block_take(e, memory, &x);
    if (s != OPTC_OK)
        return s;
    s = e->device->give(e, memory, x.bytes ? (size_t)x.bytes : 1, stream);
    /* refused in a capture; the slot that was freed is still there */
    if (s != OPTC_OK)
        (void)block_add(x);
    return s;
}

/* ---- filling ---- */
static optc_status copy_rows_of(optc_engine *e, char *to, const char *from, size_t bytes,
                                size_t rows, size_t pitch, void *stream)
{
    MemoryCopy c;
    c.to = to, c.from = from, c.bytes = bytes, c.rows = rows, c.pitch = pitch;
    return e->device->copy(e, &c, stream);
}

/* Fills n places, `pitch` bytes apart, with the `size` bytes of the first one: copies what is
 * there, twice as much each time. So every type needs only byte sets and copies, in the order of
 * the stream, and no host memory. */
static optc_status repeat_first(optc_engine *e, char *at, size_t size, int64_t n, size_t pitch,
                                void *stream)
{
    optc_status s = OPTC_OK;
    bool dense = size == pitch;
    for (int64_t have = 1; have < n && s == OPTC_OK; have *= 2) {
        size_t more = (size_t)(n - have < have ? n - have : have);
        s = copy_rows_of(e, at + (size_t)have * pitch, at, dense ? more * size : size,
                         dense ? 1 : more, pitch, stream);
    }
    return s;
}

static optc_status set_first(optc_engine *e, char *at, const unsigned char *value, size_t size,
                             void *stream)
{
    optc_status s = OPTC_OK;
    for (size_t i = 0; i < size && s == OPTC_OK; i++)
        s = e->device->set(e, at + i, value[i], 1, stream);
    return s;
}

static optc_status fill_values(optc_engine *e, char *to, int64_t count, const unsigned char *value,
                               size_t size, int64_t diagonal, void *stream)
{
    bool zero = true;
    for (size_t i = 0; i < size; i++)
        zero = zero && !value[i];
    optc_status s = OPTC_OK;
    size_t square = (size_t)diagonal * (size_t)diagonal;
    if (zero || diagonal)
        s = e->device->set(e, to, 0, zero ? (size_t)count * size : square * size, stream);
    if (s == OPTC_OK && !zero)
        s = set_first(e, to, value, size, stream);
    if (s == OPTC_OK && !zero && !diagonal)
        s = repeat_first(e, to, size, count, size, stream);
    if (s == OPTC_OK && !zero && diagonal)
        s = repeat_first(e, to, size, diagonal, (size_t)(diagonal + 1) * size, stream);
    /* the other matrices are copies of the first one */
    if (s == OPTC_OK && !zero && diagonal)
        s = repeat_first(e, to, square * size, count / (int64_t)square, square * size, stream);
    return s;
}

optc_status optc_fill(optc_engine *e, void *to, int64_t count, optc_type type, double value,
                      int64_t diagonal, void *stream)
{
    unsigned char bits[8] = {0};
    optc_type_info about = {NULL, NULL, 0, 0};
    int64_t bytes = 0, square = 0;
    if (!e || (!to && count))
        return no_argument("optc_fill", !e ? "the engine" : "the memory");
    optc_status s = optc_type_about(type ? type : OPTC_F32, &about);
    if (s != OPTC_OK)
        return fail(s, "optc_fill: there is no type %d (1 to %d)", (int)type, optc_types());
    int t = type ? (int)type - 1 : (int)T_F32, size = about.bits / 8;
    if (type_is_coded(t))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_fill: %s stores blocks with scales; write such a state by "
                    "optc_state_write",
                    about.name);
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)size, &bytes) || bytes > MOST_BYTES)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_fill: %lld values; it must be 0 or more, at most 2^60 bytes",
                    (long long)count);
    if (diagonal < 0 || __builtin_mul_overflow(diagonal, diagonal, &square) ||
        (square && count % square))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_fill: %lld values are no whole number of matrices of %lld rows",
                    (long long)count, (long long)diagonal);
    if ((uintptr_t)to % (uintptr_t)size)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_fill: the pointer is not aligned to its element (%s)", about.name);
    s = count ? check_range(e, "optc_fill", to, bytes) : OPTC_OK;
    if (s == OPTC_OK && count)
        s = e->device->fills(e, to);
    type_store(t, bits, 0, value);
    return s == OPTC_OK && count
               ? fill_values(e, (char *)to, count, bits, (size_t)size, diagonal, stream)
               : s;
}

/* ---- copying ---- */
optc_status optc_copy(optc_engine *e, void *to, const void *from, int64_t bytes, void *stream)
{
    uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (!e || ((!to || !from) && bytes))
        return no_argument("optc_copy", !e    ? "the engine"
                                        : !to ? "the memory to write"
                                              : "the memory to read");
    if (bytes < 0 || bytes > MOST_BYTES)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_copy: %lld bytes; it must be 0 or more, at most 2^60", (long long)bytes);
    if (!bytes)
        return OPTC_OK;
    if ((a <= b && b - a < (uintptr_t)bytes) || (b < a && a - b < (uintptr_t)bytes))
        return fail(OPTC_ERROR_ARGUMENT, "optc_copy: the two ranges of %lld bytes overlap",
                    (long long)bytes);
    optc_status s = check_range(e, "optc_copy", to, bytes);
    if (s == OPTC_OK)
        s = check_range(e, "optc_copy", from, bytes);
    return s == OPTC_OK ? copy_rows_of(e, (char *)to, (const char *)from, (size_t)bytes, 1,
                                       (size_t)bytes, stream)
                        : s;
}

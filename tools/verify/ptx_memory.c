/* Memory of the machine: areas of bytes that are numbers or parts of terms, with checks of bounds,
 * alignment and races. Addresses of global memory are (area + 1) << 32 plus an offset. */
#include "tools/verify/ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Byte.term: a leaf not made yet; nothing was stored */
enum { UNTOUCHED = -1, UNWRITTEN = -2 };
enum { SHARED_WINDOW = 0xfff, LOCAL_WINDOW = 0xffe };      /* upper words of generic addresses */
enum { NOBODY = -1, SEVERAL = -2 };

void machine_fail(PtxMachine *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!x->failed)
        vsnprintf(x->error, sizeof x->error, fmt, ap);
    va_end(ap);
    x->failed = true;
}

int memory_area(PtxMemory *m, const char *name, int64_t size, int leaf_width, bool writable)
{
    Area *a = &m->area[m->n];
    *a = (Area){.name = name,
                .base = (uint64_t)(m->n + 1) << 32,
                .size = size,
                .leaf_width = leaf_width,
                .writable = writable,
                .byte = NEWS(m->arena, Byte, size + 1)};
    for (int64_t i = 0; i < size && leaf_width; i++)
        a->byte[i].term = UNTOUCHED;
    if (writable) {
        a->touch = NEWS(m->arena, Touch, size + 1);
        for (int64_t i = 0; i < size; i++)
            a->touch[i] = (Touch){NOBODY, NOBODY, 0, 0};
    }
    m->pool->array[RACED] = "a value that another thread writes";
    if (leaf_width)
        m->pool->array[m->n] = name;
    return m->n++;
}

void memory_put(PtxMemory *m, int area, int64_t at, int width, uint64_t bits)
{
    for (int i = 0; i < width; i++)
        m->area[area].byte[at + i] = (Byte){0, 0, (uint8_t)(bits >> 8 * i)};
}

void memory_place(PtxMemory *m, int area, int64_t offset)
{
    m->area[area].base += (uint64_t)offset;
}

static Area *area_of(PtxMachine *x, int thread, PtxSpace s, uint64_t at, int width, int64_t *offset)
{
    Area *a = NULL;
    uint64_t window = at >> 32;
    if (s == SPACE_SHARED || (s == SPACE_GENERIC && window == SHARED_WINDOW)) {
        a = &x->shared;
        *offset = (int64_t)(at & 0xffffffff);
    } else if (s == SPACE_LOCAL || (s == SPACE_GENERIC && window == LOCAL_WINDOW)) {
        a = &x->local;
        *offset = (int64_t)(at & 0xffffffff);
        if (*offset + width > x->kernel->local_bytes)
            a = NULL;
        *offset += thread * x->kernel->local_bytes;
    } else if (window >= 1 && window <= (uint64_t)x->memory->n) {
        a = &x->memory->area[window - 1];
        *offset = (int64_t)(at - a->base);
    }
    if (!a || *offset < 0 || *offset + width > a->size) {
        if (a && a->name)
            machine_fail(x, "accesses byte %lld of %s, which has %lld", (long long)*offset, a->name,
                         (long long)a->size);
        else
            machine_fail(x, "accesses the address %llx, where nothing is", (unsigned long long)at);
        return NULL;
    }
    if (at % (uint64_t)width) {
        machine_fail(x, "accesses %s at byte %lld, which is not a multiple of %d", a->name,
                     (long long)*offset, width);
        return NULL;
    }
    return a;
}

/* Two threads touch a byte and no barrier is between them. */
static bool apart(const PtxMachine *x, int a, int ta, int b, int tb)
{
    if (a == b || a == NOBODY)
        return false;
    /* other blocks: no barrier orders them */
    if (a / x->threads != b / x->threads)
        return true;
    if (ta >> 8 != tb >> 8)
        return false;
    return a / 32 != b / 32 || ta == tb;
}

/* Global memory: a second run knows the writers, and reads of others give what nobody may use. */
static void race(PtxMachine *x, Area *a, int64_t at, bool both_write)
{
    if (a != &x->shared && !both_write)
        x->raced = true;
    else
        machine_fail(x, "two threads use byte %lld of %s without a barrier between them",
                     (long long)at, a->name);
}

static void touch(PtxMachine *x, Area *a, int64_t at, int width, int thread, bool writes)
{
    int who = x->block * x->threads + thread,
        when = x->time << 8 | (x->thread[thread].warp_time & 255);
    for (int64_t i = at; i < at + width; i++) {
        Touch *t = &a->touch[i];
        bool read = t->reader == SEVERAL ? t->read_time >> 8 == when >> 8
                                         : apart(x, t->reader, t->read_time, who, when);
        if (apart(x, t->writer, t->write_time, who, when))
            race(x, a, i, writes);
        else if (writes && read)
            race(x, a, i, false);
        if (writes)
            t->writer = who, t->write_time = when, t->reader = NOBODY;
        else {
            bool other = t->reader != NOBODY && t->reader != who && t->read_time == when;
            t->reader = other ? SEVERAL : who;
            t->read_time = when;
        }
    }
}

/* Makes the leaves of untouched bytes. */
static void make_leaves(PtxMachine *x, Area *a, int64_t at, int width)
{
    int w = a->leaf_width, number = (int)(a - x->memory->area);
    for (int64_t i = at; i < at + width; i++) {
        if (a->byte[i].term != UNTOUCHED)
            continue;
        Term leaf = term_leaf(x->pool, w, number, i / w);
        for (int64_t k = i / w * w; k < i / w * w + w; k++)
            if (a->byte[k].term == UNTOUCHED)
                a->byte[k] = (Byte){leaf, (uint8_t)(k % w), 0};
    }
}

bool machine_load(PtxMachine *x, int thread, PtxSpace s, uint64_t at, int width, Value *out)
{
    int64_t offset = 0;
    Area *a = area_of(x, thread, s, at, width, &offset);
    if (!a)
        return false;
    if (a->touch)
        touch(x, a, offset, width, thread, false);
    for (int i = 0; i < width; i++)
        if (a->byte[offset + i].term == UNWRITTEN) {
            machine_fail(x, "reads byte %lld of %s, which nothing wrote", (long long)(offset + i),
                         a->name);
            return false;
        }
    make_leaves(x, a, offset, width);
    *out = bytes_value(x->pool, width, a->byte + offset);
    if (a->known) {
        int who = x->block * x->threads + thread, writer = a->known[offset].writer;
        if (writer != NOBODY && writer != who)
            *out = (Value){0, term_leaf(x->pool, width, RACED, 0)};
    }
    return !x->failed;
}

bool machine_store(PtxMachine *x, int thread, PtxSpace s, uint64_t at, int width, Value v)
{
    int64_t offset = 0;
    Area *a = area_of(x, thread, s, at, width, &offset);
    if (!a)
        return false;
    if (!a->writable && a != &x->shared && a != &x->local) {
        machine_fail(x, "writes to %s, which the stage only reads", a->name);
        return false;
    }
    Term path = x->thread[thread].path;
    /* one way of a branch: the other one keeps what was there */
    if (path) {
        make_leaves(x, a, offset, width);
        for (int i = 0; i < width; i++)
            if (a->byte[offset + i].term == UNWRITTEN)
                a->byte[offset + i] = (Byte){0, 0, 0};
        Value was = bytes_value(x->pool, width, a->byte + offset);
        v = term_value(x->pool, term_select(x->pool, path, term_of(x->pool, width, v),
                                            term_of(x->pool, width, was)));
    }
    if (a->touch)
        touch(x, a, offset, width, thread, true);
    bytes_of(x->pool, width, v, a->byte + offset);
    return !x->failed;
}

/* Shared and local memory of a block, which hold nothing. */
static void block_area(PtxMachine *x, Area *a, const char *name, int64_t size, bool shared)
{
    if (!a->byte || a->size < size) {
        a->byte = NEWS(x->arena, Byte, size + 1);
        a->touch = shared ? NEWS(x->arena, Touch, size + 1) : NULL;
    }
    a->name = name;
    a->size = size;
    a->writable = true;
    for (int64_t i = 0; i < size; i++) {
        a->byte[i] = (Byte){UNWRITTEN, 0, 0};
        if (shared)
            a->touch[i] = (Touch){NOBODY, NOBODY, 0, 0};
    }
}

void machine_empty_block(PtxMachine *x)
{
    block_area(x, &x->shared, "shared memory", x->kernel->shared_bytes, true);
    block_area(x, &x->local, "local memory", x->kernel->local_bytes * x->threads, false);
}

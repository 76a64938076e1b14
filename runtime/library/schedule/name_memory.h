/* A memory of names, for verification: every byte holds a byte of a named value, or nothing. */
#ifndef OPTC_NAME_MEMORY_H
#define OPTC_NAME_MEMORY_H
#include <stdbool.h>
#include <stdint.h>

/* From `lo` up to the next piece, memory holds bytes [from, …) of the value `name`; 0: nothing
 * yet. */
typedef struct Piece {
    uintptr_t lo;
    uint64_t name;
    int64_t from;
} Piece;
/* Sorted, without gaps. out: a call ran out of memory */
typedef struct Names {
    Piece *at;
    int n, cap;
    bool out;
} Names;

bool names_make(Names *m);
/* Returns the index of the piece that has this address. */
int names_find(const Names *m, uintptr_t at);
/* Returns the index of the piece that begins at this address, after it was cut there. */
int names_split(Names *m, uintptr_t at);
/* The bytes hold [from, …) of a value. Nothing happens to no bytes, or to those of NULL. */
void names_put(Names *m, uintptr_t lo, int64_t bytes, uint64_t name, int64_t from);

/* A hash of both, in this order, and not 0 for small numbers. */
static inline uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h * 0xd1342543de82ef95u + 0x632be59bd9b4e019u) ^ x;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}
#endif

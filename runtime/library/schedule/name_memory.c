/* Pieces of a memory of names: found by bisection, cut where a range begins or ends. */
#include "runtime/library/schedule/name_memory.h"

#include <stdlib.h>
#include <string.h>

int names_find(const Names *m, uintptr_t at)
{
    int lo = 0, hi = m->n;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        *(m->at[mid].lo <= at ? &lo : &hi) = mid;
    }
    return lo;
}

int names_split(Names *m, uintptr_t at)
{
    int i = names_find(m, at);
    if (m->at[i].lo == at)
        return i;
    if (m->n == m->cap) {
        Piece *more = realloc(m->at, sizeof *more * (size_t)(m->cap *= 2));
        m->out = m->out || !more;
        if (!more) {
            m->cap /= 2;
            return i;
        }
        m->at = more;
    }
    memmove(&m->at[i + 2], &m->at[i + 1], sizeof *m->at * (size_t)(m->n - i - 1));
    m->at[i + 1] = (Piece){at, m->at[i].name, m->at[i].from + (int64_t)(at - m->at[i].lo)};
    m->n++;
    return i + 1;
}

void names_put(Names *m, uintptr_t lo, int64_t bytes, uint64_t name, int64_t from)
{
    if (!lo || bytes <= 0)
        return;
    int i = names_split(m, lo), end = names_split(m, lo + (uintptr_t)bytes);
    if (m->out)
        return;
    m->at[i].name = name;
    m->at[i].from = from;
    memmove(&m->at[i + 1], &m->at[end], sizeof *m->at * (size_t)(m->n - end));
    m->n -= end - i - 1;
}

bool names_make(Names *m)
{
    *m = (Names){calloc(64, sizeof *m->at), 1, 64, false};
    return m->at != NULL;
}

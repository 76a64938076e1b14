/* Blocks of a tensor for the evaluator: their number, positions and sizes. Whole blocks come first,
 * then those at the right edge, at the bottom edge and in the corner. Blocks of one size are in the
 * order of matrices, and row by row within a matrix. A side that is not longer than the block size
 * is one edge block. */
#include "gen/eval/eval_internal.h"

typedef struct { int64_t whole, rest; bool edge; } Side;

static Side cut(int64_t n, int64_t block)
{
    int64_t whole = n > block ? n / block : 0, rest = n - whole * block;
    return (Side){whole, rest, rest > 0 || !whole};
}

static int64_t blocks_of(Side down, Side across, int size)
{
    return (size < 2 ? down.whole : down.edge) * (size % 2 ? across.edge : across.whole);
}

int64_t eval_parts(const Ev *e, Dom d, Shape s)
{
    int64_t n = 0;
    if (!dom_of_block(d))
        return 1;
    Side down = cut(s.rows, e->j->rule->block), across = cut(s.cols, e->j->rule->block);
    for (int size = 0; size < 4; size++)
        n += s.slices * blocks_of(down, across, size);
    return n;
}

Part eval_part(const Ev *e, Dom d, Shape s, int64_t nth)
{
    int64_t block = e->j->rule->block;
    Part p = {.s = s};
    p.s.block = 0;
    if (!dom_of_block(d))
        return p;
    Side down = cut(s.rows, block), across = cut(s.cols, block);
    int size = 0;
    for (; nth >= s.slices * blocks_of(down, across, size); size++) {
        nth -= s.slices * blocks_of(down, across, size);
        p.size += s.slices * blocks_of(down, across, size) > 0;
    }
    int64_t each = blocks_of(down, across, size), wide = size % 2 ? 1 : across.whole,
            at = nth % each;
    p.slice = nth / each;
    p.row = size < 2 ? at / wide * block : down.whole * block;
    p.col = size % 2 ? across.whole * block : at % wide * block;
    p.s.rows = size < 2 ? block : down.rest;
    p.s.cols = size % 2 ? across.rest : block;
    p.s.slices = 1;
    p.s.n = p.s.rows * p.s.cols;
    p.s.rank = p.s.rank < p.s.rows ? p.s.rank : p.s.rows;
    p.s.rank = p.s.rank < p.s.cols ? p.s.rank : p.s.cols;
    return p;
}

int64_t eval_length(const Ev *e, Dom d, Shape s)
{
    int64_t n = 0, parts = eval_parts(e, d, s);
    for (int64_t q = 0; q < parts; q++)
        n += dom_len(d, eval_part(e, d, s, q).s);
    return n;
}

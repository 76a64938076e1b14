/* How much there is of everything, for a tensor of a given shape. */
#include "plan.h"

#include "../templates/shape.h"

_Static_assert(SEG == OPTC_SEG && LANES == OPTC_LANES && TILE_ROWS == OPTC_TILE_ROWS && ROW_LANES == OPTC_ROW_LANES && COL_LANES == OPTC_COL_LANES,
               "the planner and the emitted code must fold alike");

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t dom_len(Dom d, Shape s)
{
    switch (d) {
    case ELEM: return s.n;
    case ROW: return s.slices * s.rows;
    case COL: return s.slices * s.cols;
    case SLICE: return s.slices;
    default: return 1;
    }
}

int64_t stage_units(StageKind k, Shape s)
{
    switch (k) {
    case S_FLAT: return up(s.n, SEG);
    case S_TILE: return s.n ? s.slices * up(s.rows, TILE_ROWS) * up(s.cols, SEG) : 0;
    case S_ROW: return s.slices * up(s.rows, SEG);
    case S_COL: return s.slices * up(s.cols, SEG);
    case S_SLICE: return up(s.slices, SEG);
    default: return 1;
    }
}

int64_t part_len(const Mem *m, Shape s, int64_t ntensors)
{
    switch (m->from) {
    case ELEM:
        if (m->dom == ROW)
            return s.slices * s.rows * up(s.cols, SEG);
        if (m->dom == COL)
            return s.slices * up(s.rows, TILE_ROWS) * s.cols;
        return stage_units(m->tile ? S_TILE : S_FLAT, s);
    case ROW: return stage_units(S_ROW, s);
    case COL: return stage_units(S_COL, s);
    case SLICE: return stage_units(S_SLICE, s);
    default: return ntensors;
    }
}

static double mem_traffic(const Plan *p, int mem, Shape s)
{
    const Mem *m = &p->mem[mem];
    if (m->kind != MEM_PART)
        return (double)dom_len(m->dom, s) * type_info[m->type].bytes;
    return m->from == TENSOR ? 8 : (double)part_len(m, s, 1) * type_info[m->type].bytes;
}

/* Bytes a stage moves for this tensor: what it loads and stores, and its partials. */
Traffic stage_traffic(const Plan *p, const Stage *st, Shape s)
{
    Traffic t = {0, 0};
    for (int i = 0; i < st->nload; i++)
        t.read += mem_traffic(p, st->load[i].mem, s);
    for (int i = 0; i < st->nfin; i++)
        t.read += mem_traffic(p, st->fin[i].mem, s);
    for (int i = 0; i < st->nstore; i++)
        t.written += mem_traffic(p, st->store[i].mem, s);
    for (int i = 0; i < st->nfold; i++)
        t.written += mem_traffic(p, st->fold[i].mem, s);
    return t;
}

/* Stage kinds, launch numbers, and the counts that follow from a tensor's shape: units of work,
 * partials, GPU thread blocks. The compiler, the library and shipped packages must agree on all of
 * them. Pasted into packages and included by the other sources, after reduction_sizes.h and
 * domains.h; gen/plan/plan.h and gen/plan/launch.h explain it. */
#ifndef OPTC_COUNTS_H
#define OPTC_COUNTS_H

typedef enum { MEM_P, MEM_G, MEM_INPUT, MEM_STATE, MEM_TEMP, MEM_PART } MemKind;
/* One stage kind per domain other than ELEM, from the domain's row; then the kinds of
 * stages.def. */
typedef enum {
#define STAGE_ID(ID, name, scope, down, across, per) S_##ID,
    SMALL_DOMAINS(STAGE_ID)
#undef STAGE_ID
#define STAGE(ID, ...) S_##ID,
#include "gen/abi/stages.def"
    NSTAGEKIND
} StageKind;
typedef enum { WALK_SINGLE, WALK_LIST, WALK_FLAT, WALK_TILED, WALK_CALL } Walk;
typedef struct StageInfo {
    const char *id, *name; Dom dom; Walk walk; int rows, cols; const char *what;
} StageInfo;
static const StageInfo stage_info[NSTAGEKIND] = {
#define STAGE_ROW(ID, name, scope, down, across, per) \
    {#ID, name, ID, (scope) >= SCOPE_MATRIX ? WALK_LIST : WALK_SINGLE, 0, 0, "Once a " per},
    SMALL_DOMAINS(STAGE_ROW)
#undef STAGE_ROW
#define STAGE(ID, name, dom, walk, rows, cols, what) \
    {#ID, name, dom, WALK_##walk, rows, cols, what},
#include "gen/abi/stages.def"
};
typedef enum {
    FORM_MAP,
    FORM_FOLD,
    FORM_TILE,
    FORM_ROWS,
    FORM_LIST,
    FORM_LANES,
    FORM_COLS,
    FORM_SLICES,
    FORM_SINGLE,
    FORM_CPU,
    FORM_WARPS,
    FORM_HALF,
    FORM_EIGEN,
    FORM_ROOT,
    NFORM
} LaunchForm;
/* FORM_CPU is a whole step on a CPU: KNOB_THREADS is the number of threads (0: all), KNOB_ITEMS the
 * units of work that a thread takes at once (0: chosen by size). */
typedef enum {
    KNOB_THREADS,      /* threads of a block */
    KNOB_VECTOR,       /* values a thread loads at once */
    KNOB_ITEMS,        /* map: vectors per thread; fold, rows, tile: vectors in flight at once */
    KNOB_BLOCKS,       /* blocks that must fit a multiprocessor: caps the registers; 0: no cap */
    KNOB_LOAD,         /* 0 plain, 1 streaming (evict first), 2 not kept in the L1 cache, 3 by
                        * shared memory */
    KNOB_STORE,        /* 0 plain, 1 streaming */
    KNOB_GRID,         /* 0: one block per task; k: k blocks per multiprocessor, which loop over the
                        * tasks */
    NKNOB
} Knob;
typedef struct Launch { int v[NKNOB]; } Launch;
/* Bits: the views that a rule's row, col and slice values use. VIEW_PLAIN: the rule refuses tensors
 * with more than two dimensions (kernels of convolutions). */
enum { VIEW_FIRST = 1, VIEW_LAST = 2, VIEW_PLAIN = 4 };

/* The key of a tuned result for n elements: two neighbouring powers of two share a bucket, named by
 * the upper one. */
OPTC_COUNT int size_bucket(int64_t n)
{
    int log = 0;
    while (log < 40 && n >> (log + 1) > 0)
        log++;
    return (log + 1) / 2 * 2;
}

OPTC_COUNT int64_t count_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The tensor as slices x rows x cols in the rule's view. */
OPTC_COUNT Shape count_shape(int view, int rank, const int64_t *dim, bool vector)
{
    Shape s = {1, 1, 1, 1, 0, 0};
    for (int i = 0; i < rank; i++)
        s.n *= dim[i];
    if (rank < 2 || vector || s.n == 0) {
        s.cols = s.n;
    } else if (view == VIEW_LAST) {
        s.cols = dim[rank - 1];
        s.rows = dim[rank - 2];
        s.slices = s.n / s.cols / s.rows;
    } else {
        s.rows = dim[0];
        s.cols = s.n / s.rows;
    }
    return s;
}

/* The stage kind that computes values of a domain (of ELEM the first, FLAT); NSTAGEKIND if none
 * does. */
OPTC_COUNT StageKind stage_of(Dom d)
{
    for (int k = 0; k < NSTAGEKIND; k++)
        if (stage_info[k].dom == d && stage_info[k].walk != WALK_CALL)
            return (StageKind)k;
    return NSTAGEKIND;
}

/* Values in one list of a LIST stage: the values of one matrix, or the matrices of a tensor if each
 * has one value. */
OPTC_COUNT int64_t list_length(StageKind k, Shape s)
{
    const StageInfo *x = &stage_info[k];
    return x->walk != WALK_LIST ? 0 : dom_wide(x->dom) ? s.slices : dom_len_inside(x->dom, s);
}

OPTC_COUNT int64_t stage_units(StageKind k, Shape s)          /* number of units of work */
{
    const StageInfo *x = &stage_info[k];
    switch (x->walk) {
    case WALK_FLAT: return count_up(s.n, OPTC_SEG);
    case WALK_TILED:
        return s.n ? s.slices * count_up(s.rows, x->rows) * count_up(s.cols, x->cols) : 0;
    case WALK_LIST:
        return dom_times(dom_wide(x->dom) ? 1 : s.slices, count_up(list_length(k, s), OPTC_SEG));
    default: return 1;
    }
}

/* The shape that the layout of partials follows, for a piece of a tensor (templates/partials.h):
 * the whole tensor's lengths along folded axes, the piece's lengths along the others. */
OPTC_COUNT Shape parts_shape(Dom to, Shape piece, Shape whole)
{
    const DomInfo *x = &dom_info[to];
    Shape s = whole;
    s.slices = dom_inside(to) ? piece.slices : s.slices;
    s.rows = x->axis[0] != AXIS_ONE ? piece.rows : s.rows;
    s.cols = x->axis[1] != AXIS_ONE ? piece.cols : s.cols;
    s.n = s.slices * s.rows * s.cols;
    return s;
}

/* Number of partials of a reduction from one domain to another. by: if `from` is ELEM, the kind of
 * element pass that leaves them; the partials are laid out by its units. */
OPTC_COUNT int64_t count_parts(Dom from, Dom to, StageKind by, Shape s, int64_t ntensors)
{
    const DomInfo *x = &dom_info[to];
    if (!dom_inside(from))
        return ntensors;
    if (from == ELEM && !dom_wide(to)) {
        if (x->axis[0] != AXIS_ONE)
            return s.slices * s.rows *
                   count_up(s.cols, stage_info[by].cols ? stage_info[by].cols : OPTC_TILE_COLS);
        return s.slices *
               count_up(s.rows, stage_info[by].rows ? stage_info[by].rows : OPTC_TILE_ROWS) *
               s.cols;
    }
    return stage_units(from == ELEM ? by : stage_of(from), s);
}

/* Units of a flat pass with at most BRIEF elements are brief; only the last unit of a tensor can
 * be. On a GPU they come first, sorted by length: a map gives each a warp or a block, depending on
 * its number of elements. */
enum { BRIEF = OPTC_SEG / 4 };
/* elements of the tensor's last unit; 0: not brief */
OPTC_COUNT int brief_length(Shape s)
{
    return s.n > 0 && (s.n - 1) % OPTC_SEG < BRIEF ? (int)((s.n - 1) % OPTC_SEG) + 1 : 0;
}

/* Blocks that one unit of work is split into (1 if a block takes several units). For lists: as many
 * as the longest list of this launch has work for. */
OPTC_COUNT int64_t count_unit_blocks(LaunchForm f, const Launch *l, int64_t longest)
{
    int64_t n = longest < OPTC_SEG ? longest : OPTC_SEG;
    int64_t each = f == FORM_LIST   ? OPTC_LANES
                   : f == FORM_COLS ? 32
                                    : 4,
            pieces = count_up(n, each);
    switch (f) {
    case FORM_MAP: return OPTC_SEG / (l->v[KNOB_THREADS] * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS]);
    case FORM_LIST: case FORM_WARPS: return pieces < 1 ? 1 : pieces;
    case FORM_COLS: return pieces < 1 ? 1 : pieces > 32 ? 32 : pieces;
    case FORM_SLICES: return pieces < 1 ? 1 : pieces > 8 ? 8 : pieces;
    default: return 1;
    }
}

/* Threads of a block. A list that is folded (FORM_LANES) takes no more threads than it has values,
 * rounded up to OPTC_LANES. */
OPTC_COUNT int count_threads(LaunchForm f, const Launch *l, int64_t longest)
{
    int64_t most = count_up(longest > 0 ? longest : 1, OPTC_LANES) * OPTC_LANES;
    return f == FORM_LANES && most < l->v[KNOB_THREADS] ? (int)most : l->v[KNOB_THREADS];
}

/* For a map: the number of brief units that fit one warp (one vector per thread) and one block.
 * shorter[n]: how many brief units have at most n elements, n up to BRIEF; NULL: there are no brief
 * units. */
typedef struct Brief { int64_t warp, block; } Brief;
OPTC_COUNT Brief count_brief(LaunchForm f, const Launch *l, const int64_t *shorter)
{
    Brief x = {0, 0};
    if (f != FORM_MAP || !shorter)
        return x;
    int warp = 32 * l->v[KNOB_VECTOR],
        block = l->v[KNOB_THREADS] * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS];
    x.warp = shorter[warp < BRIEF ? warp : BRIEF];
    x.block = shorter[block < BRIEF ? block : BRIEF];
    return x;
}

OPTC_COUNT int64_t count_blocks(LaunchForm f, const Launch *l, int64_t units, Brief brief,
                                int64_t longest, int multiprocessors)
{
    int warps = l->v[KNOB_THREADS] / 32;
    /* apart: units that take one warp each; single: units that take one block each */
    bool fold = f == FORM_FOLD, by_block = fold && l->v[KNOB_VECTOR] == 8;
    int64_t apart = by_block ? 0
                    : fold   ? units
                             : brief.warp,
            single = fold ? 0 : brief.block - apart;
    int64_t blocks = count_up(apart, warps) + single +
                     (units - apart - single) * count_unit_blocks(f, l, longest);
    int64_t round = (int64_t)l->v[KNOB_GRID] * multiprocessors;
    return round && round < blocks ? round : blocks;
}
enum { MOST_BLOCKS = 0x7fffffff };             /* of a launch */
#endif

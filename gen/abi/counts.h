/* How much there is of everything for a tensor of a given shape, and how a stage is cut into blocks of a GPU: what the compiler, the library
 * and a shipped package must agree on. Pasted into packages and included by the rest, behind reduction_sizes.h and domains.h; gen/plan/plan.h and gen/plan/launch.h explain it. */
#ifndef OPTC_COUNTS_H
#define OPTC_COUNTS_H

typedef enum { MEM_P, MEM_G, MEM_INPUT, MEM_STATE, MEM_TEMP, MEM_PART } MemKind;
/* A kind of stage for each domain but the elements', from its row; then those of stages.def. */
typedef enum {
#define STAGE_ID(ID, name, scope, down, across, per) S_##ID,
    SMALL_DOMAINS(STAGE_ID)
#undef STAGE_ID
#define STAGE(ID, ...) S_##ID,
#include "gen/abi/stages.def"
    NSTAGEKIND
} StageKind;
typedef enum { WALK_SINGLE, WALK_LIST, WALK_FLAT, WALK_TILED, WALK_CALL } Walk;
typedef struct StageInfo { const char *id, *name; Dom dom; Walk walk; int rows, cols; const char *what; } StageInfo;
static const StageInfo stage_info[NSTAGEKIND] = {
#define STAGE_ROW(ID, name, scope, down, across, per) {#ID, name, ID, (scope) >= SCOPE_MATRIX ? WALK_LIST : WALK_SINGLE, 0, 0, "Once a " per},
    SMALL_DOMAINS(STAGE_ROW)
#undef STAGE_ROW
#define STAGE(ID, name, dom, walk, rows, cols, what) {#ID, name, dom, WALK_##walk, rows, cols, what},
#include "gen/abi/stages.def"
};
typedef enum { FORM_MAP, FORM_FOLD, FORM_TILE, FORM_ROWS, FORM_LIST, FORM_LANES, FORM_COLS, FORM_SLICES, FORM_SINGLE, FORM_CPU, FORM_WARPS, FORM_HALF, FORM_EIGEN, FORM_ROOT, NFORM } LaunchForm;
/* cpu: a whole step there; threads (0: all) and, as items, the units a thread takes at once (0: by size) */
typedef enum {
    KNOB_THREADS,      /* threads of a block */
    KNOB_VECTOR,       /* values a thread loads at once */
    KNOB_ITEMS,        /* map: vectors a thread; fold, rows, tile: vectors on their way at once */
    KNOB_BLOCKS,       /* blocks that must fit a multiprocessor: caps the registers; 0: no cap */
    KNOB_LOAD,         /* 0 plain, 1 streaming (evict first), 2 past the first-level cache */
    KNOB_STORE,        /* 0 plain, 1 streaming */
    KNOB_GRID,         /* 0: a block for every piece; k: k blocks a multiprocessor, which go round */
    NKNOB
} Knob;
typedef struct Launch { int v[NKNOB]; } Launch;
/* bits: which views a rule's row, col and slice values rest on; VIEW_PLAIN: the rule takes no kernels of convolutions */
enum { VIEW_FIRST = 1, VIEW_LAST = 2, VIEW_PLAIN = 4 };

/* What is measured for one size is known for others about as large: two powers of two, by the upper one. */
OPTC_COUNT int size_bucket(int64_t n)
{
    int log = 0;
    while (log < 40 && n >> (log + 1) > 0)
        log++;
    return (log + 1) / 2 * 2;
}

OPTC_COUNT int64_t count_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The tensor by the rule's view. */
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

/* The kind of stage that makes values of a domain; of the elements, the plainest. NSTAGEKIND: none does. */
OPTC_COUNT StageKind stage_of(Dom d)
{
    for (int k = 0; k < NSTAGEKIND; k++)
        if (stage_info[k].dom == d && stage_info[k].walk != WALK_CALL)
            return (StageKind)k;
    return NSTAGEKIND;
}

/* Values in a list of this kind of stage: of a matrix the product of its axes, else the matrices of a tensor. */
OPTC_COUNT int64_t list_length(StageKind k, Shape s)
{
    const StageInfo *x = &stage_info[k];
    return x->walk != WALK_LIST ? 0 : dom_wide(x->dom) ? s.slices : dom_len_inside(x->dom, s);
}

OPTC_COUNT int64_t stage_units(StageKind k, Shape s)          /* how many units of work */
{
    const StageInfo *x = &stage_info[k];
    switch (x->walk) {
    case WALK_FLAT: return count_up(s.n, OPTC_SEG);
    case WALK_TILED: return s.n ? s.slices * count_up(s.rows, x->rows) * count_up(s.cols, x->cols) : 0;
    case WALK_LIST: return dom_times(dom_wide(x->dom) ? 1 : s.slices, count_up(list_length(k, s), OPTC_SEG));
    default: return 1;
    }
}

/* The shape that partials lie by, of a piece and the tensor it is of (templates/partials.h): along what is folded the whole's, else the piece's. */
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

/* Partials of a reduction from one domain to another; by: of elements, the kind of pass that leaves them, by whose units they lie. */
OPTC_COUNT int64_t count_parts(Dom from, Dom to, StageKind by, Shape s, int64_t ntensors)
{
    const DomInfo *x = &dom_info[to];
    if (!dom_inside(from))
        return ntensors;
    if (from == ELEM && !dom_wide(to)) {
        if (x->axis[0] != AXIS_ONE)
            return s.slices * s.rows * count_up(s.cols, stage_info[by].cols ? stage_info[by].cols : OPTC_TILE_COLS);
        return s.slices * count_up(s.rows, stage_info[by].rows ? stage_info[by].rows : OPTC_TILE_ROWS) * s.cols;
    }
    return stage_units(from == ELEM ? by : stage_of(from), s);
}

/* Units of a flat pass with so few elements or fewer are brief; only a tensor's last may be. On a GPU they come first, the briefest before the others: a map
 * gives them a warp or a block each, as their elements need. */
enum { BRIEF = OPTC_SEG / 4 };
OPTC_COUNT int brief_length(Shape s) { return s.n > 0 && (s.n - 1) % OPTC_SEG < BRIEF ? (int)((s.n - 1) % OPTC_SEG) + 1 : 0; }       /* 0: it is not */

/* Blocks a unit of work is split into (1 where a block takes several). Of lists, as many as the longest one at hand has work for. */
OPTC_COUNT int64_t count_unit_blocks(LaunchForm f, const Launch *l, int64_t longest)
{
    int64_t n = longest < OPTC_SEG ? longest : OPTC_SEG, each = f == FORM_LIST ? OPTC_LANES : f == FORM_COLS ? 32 : 4, pieces = count_up(n, each);
    switch (f) {
    case FORM_MAP: return OPTC_SEG / (l->v[KNOB_THREADS] * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS]);
    case FORM_LIST: case FORM_COLS: case FORM_WARPS: return pieces < 1 ? 1 : pieces;
    case FORM_SLICES: return pieces < 1 ? 1 : pieces > 8 ? 8 : pieces;
    default: return 1;
    }
}

/* Threads of a block: of a list that folds, no more than it has values. */
OPTC_COUNT int count_threads(LaunchForm f, const Launch *l, int64_t longest)
{
    int64_t most = count_up(longest > 0 ? longest : 1, OPTC_LANES) * OPTC_LANES;
    return f == FORM_LANES && most < l->v[KNOB_THREADS] ? (int)most : l->v[KNOB_THREADS];
}

/* Of a map: units that a warp (with a vector a thread), that a block has room for. shorter: by length up to BRIEF, how many are no longer; NULL: none is */
typedef struct Brief { int64_t warp, block; } Brief;
OPTC_COUNT Brief count_brief(LaunchForm f, const Launch *l, const int64_t *shorter)
{
    Brief x = {0, 0};
    if (f != FORM_MAP || !shorter)
        return x;
    int warp = 32 * l->v[KNOB_VECTOR], block = l->v[KNOB_THREADS] * l->v[KNOB_VECTOR] * l->v[KNOB_ITEMS];
    x.warp = shorter[warp < BRIEF ? warp : BRIEF];
    x.block = shorter[block < BRIEF ? block : BRIEF];
    return x;
}

OPTC_COUNT int64_t count_blocks(LaunchForm f, const Launch *l, int64_t units, Brief brief, int64_t longest, int multiprocessors)
{
    int warps = l->v[KNOB_THREADS] / 32;
    int64_t apart = f == FORM_FOLD ? units : brief.warp, single = f == FORM_FOLD ? 0 : brief.block - apart;        /* a warp, a block each */
    int64_t blocks = count_up(apart, warps) + single + (units - apart - single) * count_unit_blocks(f, l, longest);
    int64_t round = (int64_t)l->v[KNOB_GRID] * multiprocessors;
    return round && round < blocks ? round : blocks;
}
enum { MOST_BLOCKS = 0x7fffffff };             /* of a launch */
#endif

/* Forms, knobs and the launch model: which launches a stage may have, and which one it gets without
 * tuning. */
#include "gen/plan/launch.h"

#include <limits.h>
#include <string.h>

const char *const form_name[NFORM] = {
    [FORM_MAP] = "map",     [FORM_FOLD] = "fold",     [FORM_TILE] = "tile",
    [FORM_ROWS] = "rows",   [FORM_LIST] = "list",     [FORM_LANES] = "lanes",
    [FORM_COLS] = "cols",   [FORM_SLICES] = "slices", [FORM_SINGLE] = "single",
    [FORM_CPU] = "cpu",     [FORM_WARPS] = "warps",   [FORM_HALF] = "half",
    [FORM_EIGEN] = "eigen", [FORM_ROOT] = "root"};
_Static_assert(FORM_ROOT == NFORM - 1, "every form has a name");
const char *const knob_name[NKNOB] = {
    [KNOB_THREADS] = "threads", [KNOB_VECTOR] = "vector", [KNOB_ITEMS] = "items",
    [KNOB_BLOCKS] = "blocks",   [KNOB_LOAD] = "load",     [KNOB_STORE] = "store",
    [KNOB_GRID] = "grid"};
_Static_assert(KNOB_GRID == NKNOB - 1, "every knob has a name");

/* The values that a tuner may try; a list of one value is fixed. Lists end with -1. Values that are
 * no longer tried stay here because files of results may contain them; launch_valid refuses
 * them. */
static const short choices[NFORM][NKNOB][MOST_VALUES + 1] = {
    [FORM_MAP] = {{128, 256, 512, -1},
                  {2, 4, 8, -1},
                  {1, 2, 4, 8, -1},
                  {0, 4, 6, 8, 10, -1},
                  {0, 1, 2, 3, -1},
                  {0, 1, -1},
                  {0, 4, -1}},
    [FORM_FOLD] = {{64, 128, 256, 512, -1},
                   {4, 8, -1},
                   {1, 2, 4, 8, -1},
                   {0, 2, 3, 4, 6, 8, 12, -1},
                   {0, 1, 2, -1},
                   {0, 1, -1},
                   {0, 8, -1}},
    [FORM_TILE] = {{256, -1},
                   {4, -1},
                   {1, 2, 4, 8, -1},
                   {0, 2, 3, 4, 5, 6, -1},
                   {0, 1, 2, -1},
                   {0, 1, -1},
                   {0, -1}},
    [FORM_ROWS] = {{128, 256, 512, 1024, -1},
                   {4, -1},
                   {1, 2, 4, 8, -1},
                   {0, 3, 4, 6, 8, -1},
                   {0, 1, 2, -1},
                   {0, 1, -1},
                   {0, -1}},
    [FORM_LIST] = {{128, -1}, {1, -1}, {1, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_LANES] = {{128, 512, 1024, -1}, {1, -1}, {1, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_COLS] = {{256, -1}, {1, -1}, {1, -1}, {0, 4, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_SLICES] = {{128, -1}, {1, -1}, {1, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_SINGLE] = {{128, -1}, {1, -1}, {1, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_WARPS] = {{128, -1}, {1, -1}, {1, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_HALF] =
        {{128, -1}, {4, 2, 8, -1}, {4, 2, 8, -1}, {0, 8, 12, 16, -1}, {0, -1}, {0, -1}, {0, -1}},
    /* EigenMethod */
    [FORM_EIGEN] = {{1, 2, 3, 4, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_ROOT] = {{3, 4, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}, {0, -1}},
    [FORM_CPU] = {{0, 1, 2, 4, 8, 16, 32, 64, -1},
                  {1, -1},
                  {0, 1, 2, 4, 8, 16, 32, 64, -1},
                  {0, -1},
                  {0, -1},
                  {0, -1},
                  {0, -1}}};

const char *knob_text(LaunchForm f, Knob k)
{
    if (f == FORM_EIGEN || f == FORM_ROOT)
        return k == KNOB_METHOD ? "way" : NULL;
    return knob_name[k];
}

LaunchForm stage_form(const Stage *s)
{
    if (s->kind == S_FLAT)
        return s->nfold ? FORM_FOLD : FORM_MAP;
    if (is_tiled(s->kind))
        /* without column folds a warp may walk a row to its end */
        return s->kind == S_TILE ? FORM_TILE : FORM_ROWS;
    if (!is_list(s->kind))
        return FORM_SINGLE;
    /* many values: the forms of element passes */
    if (dom_square(stage_info[s->kind].dom))
        return s->half ? FORM_HALF : s->nfold ? FORM_FOLD : FORM_MAP;
    if (s->nfold)
        return FORM_LANES;
    if (s->folds_arrays)
        return dom_info[stage_info[s->kind].dom].axis[0] == AXIS_ONE ? FORM_COLS : FORM_WARPS;
    /* Partials of columns and slices come from many tiles: several threads finish one value. */
    return !s->nfin                             ? FORM_LIST
           : s->kind == S_COL                   ? FORM_COLS
           : dom_wide(stage_info[s->kind].dom) ? FORM_SLICES
                                               : FORM_LIST;
}

/* Lists over two axes always take the model's launch: rules that have them spend their time in
 * calls. */
bool stage_tunes(const Stage *s) { return is_elem(s->kind); }

int knob_values(LaunchForm f, Knob k, int out[MOST_VALUES])
{
    int n = 0;
    for (; choices[f][k][n] >= 0; n++)
        out[n] = choices[f][k][n];
    return n;
}

/* True if the stage walks along the array: an array of elements, or of the values of a list over
 * two axes. */
static bool is_walked(const Plan *p, const Stage *s, const Access *a)
{
    Dom own = stage_info[s->kind].dom;
    return p->mem[a->mem].dom == (dom_square(own) ? own : ELEM);
}

static int elements_of(const Plan *p, const Stage *s, const Access *a, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += is_walked(p, s, &a[i]);
    return count;
}

/* Properties of a stage that the model distinguishes. "Arrays" are those that the stage walks
 * along. */
enum Trait {
    BY_ROWS = 1,            /* reads values of rows, columns or slices */
    WRITES = 2,             /* writes arrays */
    LIGHT = 4,              /* writes at most one array */
    THREE = 8,              /* reads three arrays or more */
    HEAVY = 16,             /* holds four values or more per element: arrays and columns that it
                             * reads */
    /* has an array that the model treats as one of so many bits */
    WIDTH_16 = 32, WIDTH_64 = 64, WIDTH_32 = 128,
    ALL_16 = 256,           /* the model treats all arrays as 16 bits wide */
    CROWD = 512,            /* reads five arrays or more */
    COSTLY_LOAD = 1024,     /* has an array that takes many registers to unpack: f16, compared with
                             * bf16 */
    BLOCK_CODE = 2048,      /* has an array of block codes (templates/codes.h) */
    DRAWS = 4096            /* stores one with stochastic rounding: random bits take registers */
};

static const int type_traits[NTYPES] = {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, digits, least, most, \
             beyond, dtype, dlpack, launch, ...) \
    [T_##ID] = launch,
#include "gen/abi/types.def"
};

static int traits_of(const Plan *p, const Stage *s)
{
    int written = elements_of(p, s, s->store, s->nstore), held = 0;
    int traits = (s->uses_rows ? BY_ROWS : 0) | (written ? WRITES : 0) |
                 (written <= 1 ? LIGHT : 0) |
                 (elements_of(p, s, s->load, s->nload) >= 3 ? THREE : 0);
    for (int i = 0; i < s->nload + s->nstore; i++) {
        const Access *a = i < s->nload ? &s->load[i] : &s->store[i - s->nload];
        const Mem *m = &p->mem[a->mem];
        bool walked = is_walked(p, s, a);
        held += i < s->nload && (walked || m->dom == COL);
        traits |= walked ? type_traits[m->type] & ~(i < s->nload ? DRAWS : 0) : 0;
    }
    traits |= elements_of(p, s, s->load, s->nload) > 4 ? CROWD : 0;
    if ((traits & (WIDTH_16 | WIDTH_32 | WIDTH_64)) == WIDTH_16)
        traits |= ALL_16;
    return traits | (held > 3 ? HEAVY : 0);
}

int rows_ahead(const Plan *p, const Stage *s)
{
    enum { MOST = 8 };
    int n = 0;
    bool rows = dom_info[stage_info[s->kind].dom].axis[0] != AXIS_ONE;
    for (int i = 0; i < s->nfin && rows && stage_form(s) == FORM_LANES; i++)
        n += p->mem[s->fin[i].mem].kind != MEM_PART;
    return n <= MOST ? n : 0;
}

/* Shared memory of a thread block. A column fold needs its strips for each of the eight row lanes
 * (strips 0: one strip that all column folds use in turn). A tile's fold to a slice or tensor needs
 * a value for each row. A list's fold needs a chunk of its values, and a chunk of f64 for each
 * array whose rows are folded ahead. */
static int64_t shared_bytes(const Plan *p, const Stage *s, int strips, int chunk)
{
    LaunchForm f = stage_form(s);
    int64_t bytes = 0, strip = 0;
    for (int i = 0; i < s->nfold; i++) {
        const Mem *m = &p->mem[s->fold[i].mem];
        int64_t each = type_info[m->type].bytes;
        if (f == FORM_LANES)
            bytes += chunk * each;
        /* by a block: the values of a round, and the lanes */
        else if (f == FORM_FOLD)
            bytes += chunk * (int64_t)type_info[p->real].bytes + LANES * each;
        else if (f == FORM_TILE && m->dom == COL && !strips)
            strip = ROW_LANES * LANES * each;
        else if (f == FORM_TILE && m->dom != ROW)
            bytes += (m->dom == COL ? ROW_LANES * LANES * strips : OPTC_TILE_ROWS) * each;
    }
    return bytes + strip + rows_ahead(p, s) * chunk * (int64_t)sizeof(double);
}

/* bytes that a thread block may have without opting in to more */
enum { SHARED = 48 * 1024 };

int tile_strips(const Plan *p, const Stage *s)
{
    int strips = OPTC_TILE_COLS / LANES;
    /* half: room for several blocks */
    while (strips > 1 && shared_bytes(p, s, strips, 0) > SHARED / 2)
        strips /= 2;
    return shared_bytes(p, s, strips, 0) > SHARED ? 0 : strips;
}

int list_chunk(const Plan *p, const Stage *s)
{
    int chunk = SEG;
    while (chunk > LANES && shared_bytes(p, s, 0, chunk) > SHARED)
        chunk /= 2;
    return chunk;
}

/* Shared memory of a map whose vectors wait there, with the scales of block codes. */
static int64_t staged_bytes(const Plan *p, const Stage *s, const Launch *l)
{
    int64_t each = 0, vectors = (int64_t)l->v[KNOB_THREADS] * l->v[KNOB_ITEMS];
    for (int i = 0; i < s->nload; i++) {
        Type t = p->mem[s->load[i].mem].type;
        each += is_walked(p, s, &s->load[i])
                    ? l->v[KNOB_VECTOR] * type_info[t].bytes + (type_coded(t) ? 4 : 0)
                    : 0;
    }
    return each * vectors;
}

/* Loads that wait in shared memory are for flat maps with values narrower than 32 bits. A copy has
 * 16 bytes at most: with two copies for a vector, each would fetch half of a sector of memory. */
static bool may_stage(const Plan *p, const Stage *s, const Launch *l)
{
    bool whole = true;
    for (int i = 0; i < s->nload; i++)
        whole = whole && (!is_walked(p, s, &s->load[i]) ||
                          l->v[KNOB_VECTOR] * type_info[p->mem[s->load[i].mem].type].bytes <= 16);
    return s->kind == S_FLAT && !s->nfold && !s->uses_rows &&
           traits_of(p, s) & (BLOCK_CODE | WIDTH_16) && whole && l->v[KNOB_VECTOR] >= 4 &&
           staged_bytes(p, s, l) <= SHARED;
}

/* When everything was tried for two of Adafactor's maps on an H200, threads of more values came no
 * nearer than 0.7 % to the best. */
static int most_values(const Plan *p, const Stage *s)
{
    return traits_of(p, s) & BLOCK_CODE ? 32 : 16;
}

bool launch_valid(const Plan *p, const Stage *s, const Launch *l)
{
    LaunchForm f = stage_form(s);
    for (int k = 0; k < NKNOB; k++) {
        const short *c = choices[f][k];
        while (*c >= 0 && *c != l->v[k])
            c++;
        if (*c < 0)
            return false;
    }
    const int *v = l->v, resident = v[KNOB_THREADS] * v[KNOB_BLOCKS],
              values = v[KNOB_VECTOR] * v[KNOB_ITEMS];
    /* Below 512: a cap of more than 128 registers. Above 2048: more threads than a multiprocessor
     * holds. */
    if (v[KNOB_BLOCKS] && (resident < 512 || resident > 2048))
        return false;
    /* Hints without such accesses give the same kernel as no hints. */
    if ((v[KNOB_STORE] && !elements_of(p, s, s->store, s->nstore)) ||
        (v[KNOB_LOAD] && !elements_of(p, s, s->load, s->nload)))
        return false;
    if (f == FORM_MAP && v[KNOB_THREADS] * values > SEG)
        return false;
    if (f == FORM_MAP && v[KNOB_LOAD] == 3 && !may_stage(p, s, l))
        return false;
    /* Half-filled loads: as above. */
    if (f == FORM_MAP &&
        (values > most_values(p, s) || (v[KNOB_VECTOR] == 2 && !(traits_of(p, s) & WIDTH_64))))
        return false;
    /* a warp has a whole block */
    if (traits_of(p, s) & BLOCK_CODE && v[KNOB_VECTOR] < 4)
        return false;
    if (f == FORM_MAP && v[KNOB_ITEMS] == 8 && !(traits_of(p, s) & BLOCK_CODE))
        return false;
    /* By a block: rows are looked up by vectors of a warp, and block codes belong to a warp too.
     * Lanes are in shared memory, so a block takes one unit. */
    if (f == FORM_FOLD && v[KNOB_VECTOR] == 8 &&
        (v[KNOB_THREADS] < LANES || v[KNOB_ITEMS] != 1 || v[KNOB_GRID] || s->uses_rows ||
         traits_of(p, s) & (BLOCK_CODE | DRAWS) ||
         shared_bytes(p, s, 0, 8 * v[KNOB_THREADS]) > SHARED))
        return false;
    if (f == FORM_FOLD && v[KNOB_VECTOR] == 4 && v[KNOB_THREADS] > 256)
        return false;
    if (f == FORM_HALF && v[KNOB_THREADS] * values != 32 * 64)
        return false;
    /* a band has 16 rows: more warps would be idle */
    if (f == FORM_ROWS && v[KNOB_THREADS] > 512)
        return false;
    return shared_bytes(p, s, 0, LANES) <= SHARED;
}

Launch launch_plain(const Stage *s)
{
    LaunchForm f = stage_form(s);
    Launch l = {{0}};
    for (int k = 0; k < NKNOB; k++)
        l.v[k] = choices[f][k][0];
    return l;
}

/* The fastest launches on an H200 at 2^20, 2^24 and 2^28 elements, on one tensor and on the many
 * tensors of a model: for the whole library in f32, for part of it in f64 and bf16 and with
 * wrappers (tests/gpu/tune.sh tries everything, tests/gpu/model.sh compares this table with what
 * was tried).
 *
 * The first row of the form whose traits the stage has applies; the last row of each form has none.
 * `small` applies to fewer than `below` elements, `large` otherwise; below 0: always large. Limits
 * are odd powers of two, where size buckets meet. They were measured, not derived. In most cases:
 * - Streaming hints help small tensors and cost time on large ones; with writes of elements the
 *   limit is smaller.
 * - A thread loads 16 bytes of an array at a time, or 32 if the stage writes one array.
 * - Maps with values narrower than 32 bits load through shared memory: the loads need no registers
 *   while they are under way. With block codes a thread takes 32 values, and 16 warps per
 *   multiprocessor are enough.
 * - A cap on registers allows more warps and helps until they spill. f64 needs no cap, or a wide
 *   one.
 * - Rows and tiles of a tensor with few blocks need many warps per block, or many loads in flight.
 *   Bands of large
 *   tensors: SinkGD, Nero and Apollo-Mini at 124M elements, 5 to 9 % faster than with 512 threads.
 *   Bands of one array load eight vectors ahead, with a streaming hint: SinkGD 1.69 ms instead of
 *   1.77, Apollo-Mini 0.53 instead of 0.545.
 * - Tiles that write get no limit of blocks: SM3 takes 128 registers then too, but 0.409 ms instead
 *   of 0.424.
 * - Folds that write arrays take a block per unit: with a warp per unit D-Adaptation reached 84 to
 *   91 % of copy, by a block 93 to 96 %, LAMB 97 and 100 %. 256 threads: 91 to 95 %; 512: 81 to 95
 *   %.
 * - Lists that fold: 1024 threads are as fast as 512 in whole steps or up to 2.5 % faster, 128 were
 *   17 % slower. */
typedef struct Model { LaunchForm form; int traits; int64_t below; Launch small, large; } Model;

static const Model models[] = {
    {FORM_MAP, BY_ROWS | WIDTH_64, 0, {{0}}, {{128, 4, 1, 0, 1, 1, 0}}},
    {FORM_MAP, BY_ROWS | HEAVY, 1 << 23, {{128, 4, 1, 10, 1, 1, 0}}, {{128, 8, 1, 10, 1, 1, 0}}},
    {FORM_MAP, BY_ROWS | WIDTH_16, 0, {{0}}, {{128, 8, 1, 10, 1, 1, 0}}},
    {FORM_MAP, BY_ROWS | THREE, 1 << 23, {{128, 4, 1, 10, 1, 1, 0}}, {{128, 8, 1, 8, 0, 0, 0}}},
    {FORM_MAP, BY_ROWS, 1 << 25, {{128, 8, 1, 10, 1, 1, 0}}, {{128, 8, 2, 8, 0, 0, 0}}},
    {FORM_MAP, DRAWS, 1 << 23, {{128, 8, 1, 0, 2, 1, 0}}, {{128, 8, 4, 4, 3, 0, 0}}},
    {FORM_MAP,
     BLOCK_CODE | WIDTH_32,
     1 << 23,
     {{128, 8, 1, 8, 2, 1, 0}},
     {{128, 4, 8, 4, 3, 0, 0}}},
    {FORM_MAP, BLOCK_CODE, 1 << 23, {{128, 8, 1, 0, 2, 1, 0}}, {{128, 8, 4, 4, 3, 0, 0}}},
    {FORM_MAP, WIDTH_64, 1 << 23, {{128, 2, 1, 0, 2, 1, 0}}, {{128, 2, 2, 0, 0, 0, 0}}},
    {FORM_MAP, LIGHT, 1 << 23, {{128, 4, 1, 0, 2, 1, 0}}, {{128, 8, 1, 6, 0, 0, 0}}},
    {FORM_MAP, ALL_16 | CROWD, 1 << 23, {{128, 8, 1, 10, 2, 1, 0}}, {{128, 8, 1, 8, 0, 0, 0}}},
    {FORM_MAP,
     ALL_16 | COSTLY_LOAD | HEAVY,
     1 << 23,
     {{128, 8, 1, 10, 2, 1, 0}},
     {{128, 8, 1, 10, 0, 0, 0}}},
    {FORM_MAP, ALL_16, 1 << 23, {{128, 8, 1, 10, 2, 1, 0}}, {{128, 8, 2, 0, 3, 0, 0}}},
    {FORM_MAP, WIDTH_16, 1 << 23, {{128, 4, 1, 0, 2, 1, 0}}, {{128, 8, 1, 6, 0, 0, 0}}},
    {FORM_MAP, 0, 1 << 23, {{128, 4, 1, 0, 2, 1, 0}}, {{128, 4, 2, 0, 0, 0, 0}}},
    {FORM_FOLD, BY_ROWS | WRITES, 0, {{0}}, {{64, 4, 2, 0, 0, 0, 0}}},
    {FORM_FOLD, BY_ROWS | WIDTH_64, 0, {{0}}, {{64, 4, 2, 0, 1, 0, 0}}},
    {FORM_FOLD, BY_ROWS | WIDTH_16, 1 << 23, {{64, 4, 2, 0, 1, 0, 0}}, {{256, 4, 1, 4, 1, 0, 0}}},
    {FORM_FOLD, BY_ROWS, 1 << 25, {{128, 4, 4, 8, 0, 0, 0}}, {{128, 4, 4, 8, 1, 0, 0}}},
    {FORM_FOLD, WIDTH_64, 1 << 23, {{64, 4, 2, 0, 0, 0, 0}}, {{128, 4, 1, 0, 0, 0, 0}}},
    {FORM_FOLD, WRITES | WIDTH_16, 0, {{0}}, {{128, 4, 2, 8, 0, 0, 0}}},
    {FORM_FOLD, WRITES, 1 << 23, {{64, 4, 2, 8, 1, 1, 0}}, {{128, 8, 1, 0, 0, 0, 0}}},
    {FORM_FOLD, 0, 1 << 25, {{64, 4, 2, 8, 1, 0, 0}}, {{128, 4, 4, 0, 0, 0, 0}}},
    {FORM_TILE, WRITES | WIDTH_64, 1 << 23, {{256, 4, 4, 0, 2, 1, 0}}, {{256, 4, 4, 0, 0, 0, 0}}},
    {FORM_TILE, WRITES | WIDTH_16, 1 << 23, {{256, 4, 8, 0, 2, 1, 0}}, {{256, 4, 8, 2, 0, 1, 0}}},
    {FORM_TILE, WRITES, 1 << 23, {{256, 4, 8, 0, 2, 1, 0}}, {{256, 4, 8, 0, 0, 0, 0}}},
    {FORM_TILE, WIDTH_64, 1 << 25, {{256, 4, 8, 2, 1, 0, 0}}, {{256, 4, 8, 2, 0, 0, 0}}},
    {FORM_TILE, WIDTH_16, 0, {{0}}, {{256, 4, 1, 2, 2, 0, 0}}},
    {FORM_TILE, 0, 1 << 25, {{256, 4, 8, 2, 2, 0, 0}}, {{256, 4, 8, 3, 0, 0, 0}}},
    {FORM_ROWS, WIDTH_64, 1 << 27, {{512, 4, 1, 0, 1, 1, 0}}, {{128, 4, 1, 0, 0, 0, 0}}},
    {FORM_ROWS, HEAVY | WRITES, 1 << 25, {{512, 4, 1, 0, 1, 1, 0}}, {{256, 4, 2, 3, 0, 0, 0}}},
    {FORM_ROWS, HEAVY, 1 << 25, {{512, 4, 1, 0, 1, 1, 0}}, {{256, 4, 1, 3, 1, 0, 0}}},
    {FORM_ROWS, THREE, 1 << 25, {{512, 4, 1, 0, 1, 1, 0}}, {{256, 4, 2, 4, 2, 0, 0}}},
    {FORM_ROWS, 0, 1 << 25, {{512, 4, 1, 0, 1, 1, 0}}, {{128, 4, 8, 8, 1, 0, 0}}},
    {FORM_LIST, 0, 0, {{0}}, {{128, 1, 1, 0, 0, 0, 0}}},
    {FORM_LANES, 0, 0, {{0}}, {{1024, 1, 1, 0, 0, 0, 0}}},
    {FORM_COLS, 0, 0, {{0}}, {{256, 1, 1, 4, 0, 0, 0}}},
    {FORM_SLICES, 0, 0, {{0}}, {{128, 1, 1, 0, 0, 0, 0}}},
    {FORM_WARPS, 0, 0, {{0}}, {{128, 1, 1, 0, 0, 0, 0}}},
    {FORM_HALF, WIDTH_64, 0, {{0}}, {{128, 2, 8, 0, 0, 0, 0}}},
    {FORM_HALF, ALL_16, 0, {{0}}, {{128, 8, 2, 8, 0, 0, 0}}},
    {FORM_HALF, 0, 0, {{0}}, {{128, 4, 4, 0, 0, 0, 0}}},
    {FORM_SINGLE, 0, 0, {{0}}, {{128, 1, 1, 0, 0, 0, 0}}}};

static const Model *model_of(const Plan *p, const Stage *s)
{
    LaunchForm f = stage_form(s);
    int traits = traits_of(p, s);
    const Model *m = models;
    while (m->form != f || (m->traits & ~traits))
        m++;
    return m;
}

/* Registers for the lanes of folds. A thread of a tile holds lanes for its four columns; for folds
 * to rows, slices and tensors it holds lanes for each of its eight rows. Folds of one value to rows
 * and to the tensor share lanes; all folds to slices and tensors are taken for such. */
static int lane_registers(const Plan *p, const Stage *s, int vector)
{
    int cols = 0, rows = 0, others = 0;
    for (int i = 0; i < s->nfold; i++) {
        const Mem *m = &p->mem[s->fold[i].mem];
        int width = vector * type_info[m->type].bytes / 4;
        *(stage_form(s) != FORM_TILE || m->dom == COL ? &cols
          : m->dom == ROW                             ? &rows
                                                      : &others) += width;
    }
    return cols + OPTC_TILE_ROWS / 8 * (rows > others ? rows : others);
}

int band_lines(const Plan *p, const Stage *s, const Launch *l)
{
    enum { MOST = 16 };
    bool one = elements_of(p, s, s->load, s->nload) == 1;
    return l->v[KNOB_ITEMS] > 1 && one && lane_registers(p, s, 4) <= MOST ? 2 : 1;
}

/* Registers that a thread holds while its loads are under way: the values of each vector, those of
 * columns (a thread of a tile keeps its columns for all rows) and rows, and sums of folds. */
static int held_registers(const Plan *p, const Stage *s, const Launch *l)
{
    int vector = l->v[KNOB_VECTOR], deep = l->v[KNOB_ITEMS], walked = 0, cols = 0, rows = 0;
    for (int i = 0; i < s->nload; i++) {
        const Mem *m = &p->mem[s->load[i].mem];
        int width = type_info[type_info[m->type].compute].bytes / 4;
        walked += is_walked(p, s, &s->load[i]) ? width : 0;
        cols += m->dom == COL ? width : 0;
        rows += m->dom == ROW ? width : 0;
    }
    return vector * (deep * walked + (stage_form(s) == FORM_TILE ? 1 : deep) * cols) + deep * rows +
           lane_registers(p, s, vector);
}

/* Registers that the launch allows a thread. */
static int allowed_registers(const Launch *l)
{
    int blocks = l->v[KNOB_BLOCKS], most = 255;
    /* allocated eight at a time */
    return blocks ? 65536 / (l->v[KNOB_THREADS] * blocks) / 8 * 8 : most;
}

/* A stage that holds more values than those the table was measured with would spill registers. It
 * gets some more of them, then takes fewer or shorter vectors at a time, then gets more again.
 * Measured on SinkGD, Mano and TAM: their slow stages take half of the time. Stages that hold just
 * what fits are fastest as they are. */
static void fit_registers(const Plan *p, const Stage *s, Launch *l)
{
    LaunchForm f = stage_form(s);
    bool map = f == FORM_MAP;
    /* registers for addresses and intermediate values; blocks per multiprocessor */
    int *v = l->v, least = map ? 8 : 0, usual = map ? 20 : 32, enough = map ? 8 : 2;
    if (held_registers(p, s, l) + least <= allowed_registers(l))
        return;
    while (v[KNOB_BLOCKS] && held_registers(p, s, l) + usual > allowed_registers(l)) {
        const short *at = choices[f][KNOB_BLOCKS];
        while (*at >= 0 && *at != v[KNOB_BLOCKS])
            at++;
        if (v[KNOB_BLOCKS] <= enough && v[KNOB_ITEMS] > 1)
            v[KNOB_ITEMS] /= 2;
        else if (v[KNOB_BLOCKS] <= enough && map && v[KNOB_VECTOR] > 4)
            v[KNOB_VECTOR] /= 2;
        else
            /* the list begins with 0: no limit */
            v[KNOB_BLOCKS] = *at > 0 ? at[-1] : 0;
    }
}

/* Fits a row to the stage. Removes the hints for loads or stores that the stage does not have.
 * Vectors wait in shared memory only where there is room for them: the thread then takes fewer, or
 * the launch is the one that was fastest without shared memory. */
static Launch fitted(const Plan *p, const Stage *s, Launch l)
{
    int *v = l.v;
    v[KNOB_LOAD] *= elements_of(p, s, s->load, s->nload) > 0;
    v[KNOB_STORE] *= elements_of(p, s, s->store, s->nstore) > 0;
    while (v[KNOB_LOAD] == 3 && v[KNOB_ITEMS] > 1 &&
           (!may_stage(p, s, &l) || v[KNOB_VECTOR] * v[KNOB_ITEMS] > most_values(p, s)))
        v[KNOB_ITEMS] /= 2;
    if (v[KNOB_LOAD] == 3 && !may_stage(p, s, &l))
        l = (Launch){{128, 8, traits_of(p, s) & BLOCK_CODE ? 2 : 1, 0, 0, 0, 0}};
    if (stage_form(s) == FORM_FOLD && v[KNOB_VECTOR] == 8 && !launch_valid(p, s, &l))
        l = (Launch){{128, 4, 4, 0, v[KNOB_LOAD], v[KNOB_STORE], 0}};
    if ((stage_form(s) == FORM_MAP || stage_form(s) == FORM_TILE) && v[KNOB_LOAD] != 3)
        fit_registers(p, s, &l);
    /* Bands of several arrays would spill registers with two rows, or with eight vectors ahead. */
    if (stage_form(s) == FORM_ROWS && v[KNOB_ITEMS] > 2 && elements_of(p, s, s->load, s->nload) > 1)
        v[KNOB_ITEMS] = 2, v[KNOB_LOAD] = 0;
    return l;
}

static bool is_small(const Model *m, int64_t elements)
{
    return elements > 0 && elements < m->below;
}

Launch launch_model(const Plan *p, const Stage *s, int64_t elements)
{
    const Model *m = model_of(p, s);
    return fitted(p, s, is_small(m, elements) ? m->small : m->large);
}

Launch launch_rival(const Plan *p, const Stage *s, int64_t elements)
{
    const Model *m = model_of(p, s);
    return fitted(p, s, is_small(m, elements) || !m->below ? m->large : m->small);
}

void launch_range(const Plan *p, const Stage *s, int64_t elements, int *lo, int *hi)
{
    const Model *m = model_of(p, s);
    int border = 0;
    while (m->below >> (border + 1))
        border++;
    bool small = is_small(m, elements);
    *lo = small ? 0 : border;
    *hi = small ? border - 1 : INT_MAX;
}

int64_t launch_unit_blocks(const Stage *s, const Launch *l)
{
    return count_unit_blocks(stage_form(s), l, 0);
}

/* Reductions, in the order that gen/plan/plan.h fixes: lanes in order from the identity, then the
 * lanes in halves. */
#include "tools/verify/verify.h"

typedef struct Fold {
    PlanSide *s;
    Op op;
    bool norm;                                             /* adds squares */
    int width;                                             /* of the lanes */
    Term lane[OPTC_LANES]; int n;
} Fold;

static bool is_max(Op op) { return op == OP_RMAX || op == OP_GMAX; }
static bool is_min(Op op) { return op == OP_RMIN || op == OP_GMIN; }

static Term identity(const Fold *f)
{
    uint64_t inf = f->width == 8 ? 0x7ff0000000000000u : 0x7f800000u;
    uint64_t sign = (uint64_t)1 << (8 * f->width - 1);
    return term_const(&f->s->c->v->pool, f->width,
                      is_max(f->op)   ? inf | sign
                      : is_min(f->op) ? inf
                                      : 0);
}

static Term with(const Fold *f, Term a, Term b)
{
    if (is_max(f->op) || is_min(f->op))
        return side_less(f->s, is_max(f->op), a, b);
    return term_float(&f->s->c->v->pool, TERM_ADD, f->width, a, b, 0);
}

static void start(Fold *f, PlanSide *s, const Node *n, int width, int lanes, bool norm)
{
    *f = (Fold){.s = s, .op = (Op)n->op, .norm = norm, .width = width, .n = lanes};
    for (int i = 0; i < lanes; i++)
        f->lane[i] = identity(f);
}

static void add(Fold *f, int64_t nth, Term x)
{
    x = side_cast(f->s, f->width, x);
    if (f->norm)
        x = term_float(&f->s->c->v->pool, TERM_MUL, f->width, x, x, 0);
    f->lane[nth % f->n] = with(f, f->lane[nth % f->n], x);
}

static Term tree(Fold *f)
{
    for (int h = f->n / 2; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            f->lane[i] = with(f, f->lane[i], f->lane[i + h]);
    return f->lane[0];
}

/* ---- partials that the stage writes ---- */
/* The operand of a fold at an index of the stage's domain. */
static Term folded(PlanSide *s, const Node *n, int64_t index)
{
    Ref r = n->arg[is_global(n) ? s->s->variant : 0];
    s->now++;
    Term x = side_value(s, r, index);
    return x;
}

static Term range(PlanSide *s, const Node *n, int w, int64_t from, int64_t count)
{
    Fold f;
    start(&f, s, n, w, OPTC_LANES, is_norm(n));
    for (int64_t i = 0; i < count; i++)
        add(&f, i, folded(s, n, from + i));
    return tree(&f);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The results of a tile's rows, folded: 64 lanes, of which bands use 16. */
static Term tile_rows(PlanSide *s, const Node *n, int w, Shape h, int64_t unit)
{
    const StageInfo *k = &stage_info[s->s->kind];
    int64_t segs = count_up(h.cols, k->cols), blocks = count_up(h.rows, k->rows);
    int64_t seg = unit % segs, block = unit / segs % blocks, slice = unit / segs / blocks;
    Fold f;
    start(&f, s, n, w, OPTC_TILE_ROWS, false);
    for (int64_t r = 0; r < k->rows && block * k->rows + r < h.rows; r++) {
        int64_t row = slice * h.rows + block * k->rows + r, col = seg * k->cols;
        f.lane[r] = range(s, n, w, row * h.cols + col, least(h.cols - col, k->cols));
    }
    return tree(&f);
}

static Term tile_partial(PlanSide *s, const Node *n, int w, Shape h, int64_t index)
{
    const StageInfo *k = &stage_info[s->s->kind];
    int64_t segs = count_up(h.cols, k->cols), blocks = count_up(h.rows, k->rows);
    if (n->dom == ROW) {
        int64_t col = index % segs * k->cols;
        return range(s, n, w, index / segs * h.cols + col, least(h.cols - col, k->cols));
    }
    if (n->dom != COL)
        return tile_rows(s, n, w, h, index);
    int64_t col = index % h.cols, block = index / h.cols % blocks, slice = index / h.cols / blocks;
    Fold f;
    start(&f, s, n, w, OPTC_ROW_LANES, is_norm(n));
    for (int64_t r = 0; r < k->rows && block * k->rows + r < h.rows; r++)
        add(&f, r, folded(s, n, (slice * h.rows + block * k->rows + r) * h.cols + col));
    return tree(&f);
}

Term side_partial(PlanSide *s, Access a, int64_t index)
{
    const Node *n = &s->g->n[a.val];
    const StageInfo *k = &stage_info[s->s->kind];
    Shape h = s->c->plan->tensor[s->tensor].shape;
    int w = type_info[s->c->v->plan->mem[a.mem].type].bytes;
    if (k->walk == WALK_SINGLE)
        return side_cast(s, w, folded(s, n, 0));
    if (k->walk == WALK_TILED)
        return tile_partial(s, n, w, h, index);
    int64_t length = k->walk == WALK_FLAT ? h.n : list_length(s->s->kind, h),
            segs = count_up(length, OPTC_SEG);
    int64_t list = index / segs, from = index % segs * OPTC_SEG;
    return range(s, n, w, list * length + from, least(length - from, OPTC_SEG));
}

/* ---- partials that an earlier stage wrote ---- */
typedef struct Parts { int64_t from, count, step; int lanes; } Parts;

/* The partials of value `index` of the stage: which ones, and in how many lanes. */
static Parts parts_of(PlanSide *s, const Mem *m, int64_t index)
{
    Shape h = s->c->plan->tensor[s->tensor].shape;
    int64_t all = case_length(s->c, s->tensor, (int)(m - s->c->v->plan->mem));
    const Axis *axis = dom_info[m->dom].axis;
    if (is_single(s->s->kind))
        return (Parts){0, all, 1, OPTC_LANES};
    if (dom_wide(m->dom))
        return (Parts){index * (all / h.slices), all / h.slices, 1, OPTC_LANES};
    if (axis[1] == AXIS_ONE) {
        int64_t n = count_up(h.cols, stage_info[m->by].cols);
        return (Parts){index * n, n, 1, 1};
    }
    int64_t tiles = count_up(h.rows, stage_info[m->by].rows), slice = index / h.cols;
    return (Parts){slice * tiles * h.cols + index % h.cols, tiles, h.cols, OPTC_COL_LANES};
}

/* A fold of a whole array along one axis, in 32 lanes. */
static Term folded_array(PlanSide *s, Access a, const Mem *m, int64_t index)
{
    const Node *n = &s->g->n[a.val];
    Shape h = s->c->plan->tensor[s->tensor].shape;
    int64_t down = axis_len(dom_info[m->dom].axis[0], h),
            across = axis_len(dom_info[m->dom].axis[1], h);
    bool columns = dom_info[n->dom].axis[0] == AXIS_ONE;
    int64_t from = columns ? index / across * down * across + index % across : index * across;
    Fold f;
    start(&f, s, n, 8, OPTC_COL_LANES, is_norm(n));
    for (int64_t j = 0; j < (columns ? down : across); j++) {
        int64_t at = from + j * (columns ? across : 1);
        Term leaf = term_leaf(&s->c->v->pool, type_info[m->type].bytes,
                              case_area(s->c, s->tensor, a.mem), at);
        add(&f, j, side_loaded(s, m->type, leaf));
    }
    Term raw = tree(&f);
    return is_norm(n) ? raw : side_cast(s, s->real, raw);
}

/* Partials of earlier stages, added in f64. */
static Term folded_partials(PlanSide *s, Access a, const Mem *m, int64_t index)
{
    const Node *n = &s->g->n[a.val];
    Parts x = parts_of(s, m, index);
    int w = type_info[m->type].bytes, area = case_area(s->c, s->tensor, a.mem);
    Fold f;
    start(&f, s, n, 8, x.lanes, false);
    for (int64_t i = 0; i < x.count; i++)
        add(&f, i, term_leaf(&s->c->v->pool, w, area, x.from + i * x.step));
    Term raw = tree(&f);
    return is_single(s->s->kind) || dom_wide(m->dom) ? raw : side_cast(s, w, raw);
}

Term side_finished(PlanSide *s, Access a, int64_t index)
{
    TermPool *p = &s->c->v->pool;
    const Node *n = &s->g->n[a.val];
    const Mem *m = &s->c->v->plan->mem[a.mem];
    if (dom_of_block(m->from)) {
        s->missing = "a reduction of blocks";
        return term_const(p, s->real, 0);
    }
    bool partials = m->kind == MEM_PART;
    Term raw = partials ? folded_partials(s, a, m, index) : folded_array(s, a, m, index);
    if (n->op == OP_RMS)
        raw = term_float(p, TERM_DIV, 8, raw, side_count(s, n), 0);
    if (is_norm(n))
        raw = term_float(p, TERM_SQRT, 8, side_cast(s, 8, raw), 0, 0);
    return side_cast(s, s->real, raw);
}

/* Domains: where a value varies. One row per domain:
 *
 *   X(ID, name, scope, down, across, one value per)
 *
 * scope   what has one set of values: the compilation, a hyperparameter group, a tensor, a matrix
 *         of a tensor, or a block of such a matrix. SCOPE_BLOCK occurs in rules that declare
 *         `block`: values over two axes other than the elements, and their reductions. A block
 *         domain never joins a matrix domain
 * axes    the axes of the values of one matrix, down and across; AXIS_ONE: length 1. Two domains
 *         join axis by axis. An axis is a row of AXES: its id, and the field of Shape and of a view
 *         (stage_abi.h) that holds its length
 *
 * Lengths, joins, broadcasts, the index at which a value is read inside another domain, possible
 * reductions, the precision and the stage kind (S_ID, counts.h) follow from the row: a new domain
 * is a row of SMALL_DOMAINS and nothing else. Pasted into packages and included by the other
 * sources, ahead of counts.h. */
#ifndef OPTC_DOMAINS_H
#define OPTC_DOMAINS_H
#define OPTC_COUNT static inline __attribute__((unused))

typedef enum { SCOPE_CONST, SCOPE_GROUP, SCOPE_TENSOR, SCOPE_MATRIX, SCOPE_BLOCK } Scope;
#define AXES(X) X(ROWS, rows) X(COLS, cols) X(RANK, rank)
typedef enum {
    AXIS_ONE,
#define AXIS_ID(ID, field) AXIS_##ID,
    AXES(AXIS_ID)
#undef AXIS_ID
    NAXIS
} Axis;

#define SMALL_DOMAINS(X) \
    X(GROUP, "group", SCOPE_GROUP, AXIS_ONE, AXIS_ONE, "group") \
    X(TENSOR, "tensor", SCOPE_TENSOR, AXIS_ONE, AXIS_ONE, "tensor") \
    X(SLICE, "slice", SCOPE_MATRIX, AXIS_ONE, AXIS_ONE, "matrix") \
    X(ROW, "row", SCOPE_MATRIX, AXIS_ROWS, AXIS_ONE, "row") \
    X(COL, "col", SCOPE_MATRIX, AXIS_ONE, AXIS_COLS, "column") \
    X(ROW_T, "row_t", SCOPE_MATRIX, AXIS_ONE, AXIS_ROWS, "row, transposed") \
    X(COL_T, "col_t", SCOPE_MATRIX, AXIS_COLS, AXIS_ONE, "column, transposed") \
    X(RANK, "rank1", SCOPE_MATRIX, AXIS_RANK, AXIS_ONE, "direction") \
    X(RANK_T, "rank1_t", SCOPE_MATRIX, AXIS_ONE, AXIS_RANK, "direction, transposed") \
    X(ROWS2, "rows", SCOPE_MATRIX, AXIS_ROWS, AXIS_ROWS, "pair of rows") \
    X(COLS2, "cols", SCOPE_MATRIX, AXIS_COLS, AXIS_COLS, "pair of columns") \
    X(RANK2, "rank", SCOPE_MATRIX, AXIS_RANK, AXIS_RANK, "pair of directions") \
    X(ROWS_RANK, "rows_rank", SCOPE_MATRIX, AXIS_ROWS, AXIS_RANK, "row and direction") \
    X(COLS_RANK, "cols_rank", SCOPE_MATRIX, AXIS_COLS, AXIS_RANK, "column and direction") \
    X(RANK_ROWS, "rank_rows", SCOPE_MATRIX, AXIS_RANK, AXIS_ROWS, "direction and row") \
    X(RANK_COLS, "rank_cols", SCOPE_MATRIX, AXIS_RANK, AXIS_COLS, "direction and column") \
    X(ELEM_T, "elem_t", SCOPE_MATRIX, AXIS_COLS, AXIS_ROWS, "element, transposed") \
    X(BLOCK, "block", SCOPE_BLOCK, AXIS_ONE, AXIS_ONE, "block") \
    X(BLOCK_ROW, "block_row", SCOPE_BLOCK, AXIS_ROWS, AXIS_ONE, "row of a block") \
    X(BLOCK_COL, "block_col", SCOPE_BLOCK, AXIS_ONE, AXIS_COLS, "column of a block") \
    X(BLOCK_ROW_T, "block_row_t", SCOPE_BLOCK, AXIS_ONE, AXIS_ROWS, "row of a block, transposed") \
    X(BLOCK_COL_T, "block_col_t", SCOPE_BLOCK, AXIS_COLS, AXIS_ONE, \
      "column of a block, transposed") \
    X(BLOCK_RANK, "block_rank1", SCOPE_BLOCK, AXIS_RANK, AXIS_ONE, "direction of a block") \
    X(BLOCK_RANK_T, "block_rank1_t", SCOPE_BLOCK, AXIS_ONE, AXIS_RANK, \
      "direction of a block, transposed") \
    X(BLOCK_ROWS2, "block_rows", SCOPE_BLOCK, AXIS_ROWS, AXIS_ROWS, "pair of rows of a block") \
    X(BLOCK_COLS2, "block_cols", SCOPE_BLOCK, AXIS_COLS, AXIS_COLS, "pair of columns of a block") \
    X(BLOCK_RANK2, "block_rank", SCOPE_BLOCK, AXIS_RANK, AXIS_RANK, \
      "pair of directions of a block") \
    X(BLOCK_ROWS_RANK, "block_rows_rank", SCOPE_BLOCK, AXIS_ROWS, AXIS_RANK, \
      "row and direction of a block") \
    X(BLOCK_COLS_RANK, "block_cols_rank", SCOPE_BLOCK, AXIS_COLS, AXIS_RANK, \
      "column and direction of a block") \
    X(BLOCK_RANK_ROWS, "block_rank_rows", SCOPE_BLOCK, AXIS_RANK, AXIS_ROWS, \
      "direction and row of a block") \
    X(BLOCK_RANK_COLS, "block_rank_cols", SCOPE_BLOCK, AXIS_RANK, AXIS_COLS, \
      "direction and column of a block")

#define DOMAINS(X) \
    X(CONST_, "const",  SCOPE_CONST,  AXIS_ONE,  AXIS_ONE,  "compilation") \
    SMALL_DOMAINS(X) \
    X(ELEM,   "elem",   SCOPE_MATRIX, AXIS_ROWS, AXIS_COLS, "element")

typedef enum {
#define DOM_ID(ID, name, scope, down, across, per) ID,
    DOMAINS(DOM_ID)
#undef DOM_ID
    NDOM
} Dom;

typedef struct DomInfo { const char *name; Scope scope; Axis axis[2]; const char *per; } DomInfo;
static const DomInfo dom_info[NDOM] = {
#define DOM_ROW(ID, name, scope, down, across, per) {name, scope, {down, across}, per},
    DOMAINS(DOM_ROW)
#undef DOM_ROW
};

/* A tensor as slices x rows x cols (a vector: 1 x 1 x n).
 * rank: length of the rank axis (rank_length); 0: the rule has no such axis.
 * block: matrices are cut into blocks of at most this many rows and columns, and each block has its
 * own values in domains of SCOPE_BLOCK; 0: they are not cut. */
typedef struct Shape { int64_t n, slices, rows, cols, rank, block; } Shape;

/* The length of the rank axis as a share of an axis, rounded up; of: AXIS_ONE is the shorter one of
 * rows and columns. share 0: it is a number. */
typedef struct RankShare { double share; Axis of; } RankShare;

/* The length of the rank axis: at most `most`, rows and columns, or the share. */
OPTC_COUNT int64_t rank_length(int most, RankShare r, Shape s)
{
    int64_t side = s.rows < s.cols ? s.rows : s.cols;
    int64_t of = r.of == AXIS_ROWS   ? s.rows
                 : r.of == AXIS_COLS ? s.cols
                                     : side,
            n = most < side ? most : side;
    if (!(r.share > 0))
        return n;
    n = (int64_t)(r.share * (double)of);
    n += (double)n < r.share * (double)of;
    return n < of ? n : of;
}

OPTC_COUNT int64_t axis_len(Axis a, Shape s)
{
    switch (a) {
#define AXIS_LEN(ID, field) case AXIS_##ID: return s.field;
    AXES(AXIS_LEN)
#undef AXIS_LEN
    default: return 1;
    }
}

/* A product of lengths, saturated at 2^58: no memory holds as many values, so every allocation of
 * them fails, and later arithmetic does not overflow. */
OPTC_COUNT int64_t dom_times(int64_t a, int64_t b)
{
    const int64_t most = (int64_t)1 << 58;
    return b > 0 && a > most / b ? most : a * b;
}

OPTC_COUNT int64_t dom_len_inside(Dom d, Shape s)         /* values of one matrix */
{
    return dom_times(axis_len(dom_info[d].axis[0], s), axis_len(dom_info[d].axis[1], s));
}

/* Varies inside a tensor, or may. */
OPTC_COUNT bool dom_inside(Dom d) { return dom_info[d].scope >= SCOPE_MATRIX; }
OPTC_COUNT bool dom_of_block(Dom d) { return dom_info[d].scope == SCOPE_BLOCK; }

/* Blocks of one size: whole blocks, the right edge, the bottom edge, the corner.
 * down, across: how many blocks of this size a matrix has along each axis; row, col: where the
 * first one begins. */
enum { BLOCK_SIZES = 4 };
typedef struct BlockSize { Shape shape; int64_t down, across, row, col; } BlockSize;

/* Cuts a length n: if n is at most `block`, there is one edge piece and no whole one; else n /
 * block whole pieces, and an edge piece if there is a remainder. Returns the number of pieces of
 * the requested kind. */
OPTC_COUNT int64_t block_pieces(int64_t n, int64_t block, bool edge, int64_t *each, int64_t *from)
{
    int64_t whole = n <= block ? 0 : n / block;
    *each = edge ? n - whole * block : block;
    *from = edge ? whole * block : 0;
    return edge ? !whole || *each : whole;
}

/* All blocks of size k (0 to BLOCK_SIZES - 1) as a tensor with one matrix per block, ordered by
 * matrix of the tensor, then by row of blocks. slices 0: there are no blocks of this size. */
OPTC_COUNT BlockSize block_size(Shape s, int k)
{
    BlockSize b;
    b.shape = s;
    b.shape.block = 0;
    b.down = block_pieces(s.rows, s.block, k / 2, &b.shape.rows, &b.row);
    b.across = block_pieces(s.cols, s.block, k % 2, &b.shape.cols, &b.col);
    b.shape.slices = dom_times(s.slices, dom_times(b.down, b.across));
    b.shape.n = dom_times(b.shape.slices, dom_times(b.shape.rows, b.shape.cols));
    b.shape.rank = s.rank < b.shape.rows ? s.rank : b.shape.rows;
    b.shape.rank = b.shape.rank < b.shape.cols ? b.shape.rank : b.shape.cols;
    return b;
}

OPTC_COUNT int64_t dom_len(Dom d, Shape s)                /* values of a tensor of this shape */
{
    int64_t n = 0;
    if (!dom_of_block(d) || !s.block)
        return dom_times(dom_inside(d) ? s.slices : 1, dom_len_inside(d, s));
    for (int k = 0; k < BLOCK_SIZES; k++) {
        Shape part = block_size(s, k).shape;
        n += dom_times(part.slices, dom_len_inside(d, part));
    }
    return n;
}

/* The smallest domain that both broadcast to, axis by axis (an axis of length one broadcasts); n if
 * there is none. */
OPTC_COUNT int dom_join_in(const DomInfo *table, int n, int a, int b)
{
    const DomInfo *x = &table[a], *y = &table[b];
    Scope scope = x->scope > y->scope ? x->scope : y->scope;
    Axis axis[2];
    if (scope == SCOPE_BLOCK && (x->scope == SCOPE_MATRIX || y->scope == SCOPE_MATRIX))
        return n;
    for (int k = 0; k < 2; k++) {
        if (x->axis[k] != y->axis[k] && x->axis[k] != AXIS_ONE && y->axis[k] != AXIS_ONE)
            return n;
        axis[k] = x->axis[k] != AXIS_ONE ? x->axis[k] : y->axis[k];
    }
    for (int i = 0; i < n; i++)
        if (table[i].scope == scope && table[i].axis[0] == axis[0] && table[i].axis[1] == axis[1])
            return i;
    return n;
}

/* NDOM: there is none */
OPTC_COUNT Dom dom_join(Dom a, Dom b) { return (Dom)dom_join_in(dom_info, NDOM, (int)a, (int)b); }
/* `from` broadcasts to `to`, or equals it */
OPTC_COUNT bool dom_spreads(Dom from, Dom to) { return dom_join(from, to) == to; }
/* known when the rule is compiled */
OPTC_COUNT bool dom_fixed(Dom d) { return dom_info[d].scope == SCOPE_CONST; }

/* Varies along both axes. */
OPTC_COUNT bool dom_square(Dom d)
{
    return dom_info[d].axis[0] != AXIS_ONE && dom_info[d].axis[1] != AXIS_ONE;
}

OPTC_COUNT Dom dom_scoped(Scope scope, Axis down, Axis across)       /* NDOM: there is none */
{
    for (int i = 0; i < NDOM; i++)
        if (dom_info[i].scope == scope && dom_info[i].axis[0] == down &&
            dom_info[i].axis[1] == across)
            return (Dom)i;
    return NDOM;
}
OPTC_COUNT Dom dom_of_axes(Axis down, Axis across)
{
    return dom_scoped(SCOPE_MATRIX, down, across);
}
OPTC_COUNT Dom dom_transposed(Dom d)
{
    return dom_inside(d) ? dom_scoped(dom_info[d].scope, dom_info[d].axis[1], dom_info[d].axis[0])
                         : d;
}

/* The block domain with the axes of a matrix domain. ELEM has none and stays: elements belong to
 * the matrix. */
OPTC_COUNT Dom dom_blocked(Dom d)
{
    const DomInfo *x = &dom_info[d];
    Dom own = x->scope == SCOPE_MATRIX ? dom_scoped(SCOPE_BLOCK, x->axis[0], x->axis[1]) : NDOM;
    return own == NDOM ? d : own;
}

/* The axes of an operand of a product. Values along one axis are a matrix with one column. */
typedef struct MatrixAxes { Axis down, across; } MatrixAxes;
OPTC_COUNT MatrixAxes dom_matrix(Dom d, bool transposed)
{
    MatrixAxes m = {dom_info[d].axis[0], dom_info[d].axis[1]};
    if (m.down == AXIS_ONE)
        m.down = m.across, m.across = AXIS_ONE;
    if (transposed) {
        Axis x = m.down;
        m.down = m.across, m.across = x;
    }
    return m;
}
/* The domain of a product with these axes. A result along one axis has domain row or col, also if
 * it is transposed. */
OPTC_COUNT Dom dom_product(Axis down, Axis across)
{
    if ((down == AXIS_ONE) == (across == AXIS_ONE))
        return dom_of_axes(down, across);
    Axis a = down != AXIS_ONE ? down : across;
    return a == AXIS_COLS ? COL : dom_of_axes(a, AXIS_ONE);
}

/* At most one value per matrix. Such values are computed in f64, whatever the type of the
 * elements. */
OPTC_COUNT bool dom_wide(Dom d)
{
    return dom_info[d].axis[0] == AXIS_ONE && dom_info[d].axis[1] == AXIS_ONE;
}

/* The index at which a stage over `in` reads the value of domain `d` that belongs to its current
 * value. */
typedef enum {
    INDEX_NONE,            /* no single value belongs to it */
    INDEX_ONE,             /* the tensor's or group's only value */
    INDEX_MATRIX,          /* the index of the matrix or block */
    INDEX_DOWN,            /* along the first axis: position in the matrix / length of the second
                            * axis */
    INDEX_ACROSS,          /* along the second axis: position % length of the second axis */
    INDEX_SAME             /* the same index */
} DomIndex;

OPTC_COUNT DomIndex dom_find(Dom in, Dom d)
{
    const DomInfo *x = &dom_info[d];
    if (!dom_spreads(d, in))
        return INDEX_NONE;
    if (x->scope < SCOPE_MATRIX)
        return INDEX_ONE;
    if (d == in)
        return INDEX_SAME;
    return dom_wide(d)              ? INDEX_MATRIX
           : x->axis[1] == AXIS_ONE ? INDEX_DOWN
           : x->axis[0] == AXIS_ONE ? INDEX_ACROSS
                                    : INDEX_NONE;
}

/* A reduction from `from` to `to` exists. Transposed elements are never folded: the front end folds
 * them before it transposes. */
OPTC_COUNT bool dom_folds(Dom from, Dom to)
{
    return from != to && from != ELEM_T && dom_info[to].scope != SCOPE_CONST &&
           dom_spreads(to, from);
}

/* The index of the value of domain `to` that belongs to value i of domain `from`; `to` must
 * broadcast to `from`. For
 * blocks: the index among blocks of one size. */
OPTC_COUNT int64_t dom_index(Dom from, Dom to, int64_t i, Shape s)
{
    const DomInfo *x = &dom_info[from], *y = &dom_info[to];
    /* most calls; the divisions below take ten times as long */
    if (from == to)
        return i;
    if (y->scope < SCOPE_MATRIX)
        return 0;
    int64_t down = axis_len(x->axis[0], s), across = axis_len(x->axis[1], s);
    int64_t line = across ? i / across : 0, c = i - line * across;
    int64_t matrix = down ? line / down : 0, r = line - matrix * down;
    int64_t at = dom_inside(to) && dom_inside(from) ? matrix : 0;
    at = at * axis_len(y->axis[0], s) + (y->axis[0] == AXIS_ONE ? 0 : r);
    return at * axis_len(y->axis[1], s) + (y->axis[1] == AXIS_ONE ? 0 : c);
}
#endif

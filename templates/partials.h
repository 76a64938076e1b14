/* Where the partials of a reduction lie. A bound tensor may be a piece of a larger one: a stretch of its elements, so also of its units of
 * work, that begins where a unit of the whole does. Along the axes that are folded partials lie as the whole's do, a place for each of its
 * units, of which a piece fills its own; along those that stay they lie as the piece does. So what is folded in the end is, in number and
 * order, that of the whole, once others have filled theirs. Of a whole tensor everything here is 0. */

/* Of values that belong to blocks of at most so many rows and columns how many a tensor has, or (parts) how many partials a fold of all of them
 * leaves: of whole blocks, those at the right edge, at the lower edge, in the corner, as gen/abi/domains.h has them. down, across: axes
 * of the values, 0 none, 1 rows, 2 columns, 3 directions. */
OPTC_FN long long optc_of_blocks(const optc_view *self, long long block, int down, int across, int parts)
{
    const long long tall = self->rows <= block ? 0 : self->rows / block, wide = self->cols <= block ? 0 : self->cols / block;
    long long n = 0;
    for (int k = 0; k < 4; k++) {
        const long long rows = k < 2 ? block : self->rows - tall * block, cols = k % 2 ? self->cols - wide * block : block;
        const long long blocks = self->slices * (k < 2 ? tall : !tall || rows) * (k % 2 ? !wide || cols : wide);
        const long long least = rows < cols ? rows : cols, length[4] = {1, rows, cols, self->rank < least ? self->rank : least};
        const long long values = length[down] * length[across];
        n += !parts ? blocks * values : down || across ? blocks * optc_up(values, OPTC_SEG) : optc_up(blocks, OPTC_SEG);
    }
    return n;
}

/* Rows and columns of its first matrix that come before. */
OPTC_FN long long optc_rows_inside(const optc_view *self) { return self->first_row - self->first_slice * self->whole_rows; }

OPTC_FN long long optc_cols_inside(const optc_view *self) { return self->first_col - self->first_slice * self->whole_cols; }

/* Tiles that come before: in the first matrix, in the tensor. */
OPTC_FN long long optc_tiles_inside(const optc_view *self, int rows, int cols)
{
    return optc_rows_inside(self) / rows * optc_up(self->whole_cols, cols) + optc_cols_inside(self) / cols;
}

OPTC_FN long long optc_tiles_before(const optc_view *self, int rows, int cols)
{
    return self->first_slice * optc_up(self->whole_rows, rows) * optc_up(self->whole_cols, cols) + optc_tiles_inside(self, rows, cols);
}

/* Segments that come before in a list of so many values a matrix: `inside` of them in the first one. */
OPTC_FN long long optc_segs_before(const optc_view *self, long long inside, long long length)
{
    return self->first_slice * optc_up(length, OPTC_SEG) + inside / OPTC_SEG;
}

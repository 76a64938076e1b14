/* Where the partials of a reduction are stored. A bound tensor may be a piece of a larger one: a
 * range of its elements that starts at a unit of the whole tensor. Along reduced axes there is one
 * partial per unit of the whole tensor, and a piece writes its own; along the other axes there is
 * one per row or column of the piece. So the last reduction adds the same partials in the same
 * order as for the whole tensor. For a whole tensor all offsets here are 0. */

/* The number of values that all blocks of a tensor have in a domain, or (parts) the number of
 * partials of a reduction over them. A block has at most `block` rows and columns. Complete blocks
 * come first, then those at the right edge, at the lower edge and in the corner
 * (gen/abi/domains.h). down, across: axes of the domain, 0 none, 1 rows, 2 columns, 3 rank. */
OPTC_FN long long optc_of_blocks(const optc_view *self, long long block, int down, int across,
                                 int parts)
{
    const long long tall = self->rows <= block ? 0 : self->rows / block;
    const long long wide = self->cols <= block ? 0 : self->cols / block;
    long long n = 0;
    for (int k = 0; k < 4; k++) {
        const long long rows = k < 2 ? block : self->rows - tall * block;
        const long long cols = k % 2 ? self->cols - wide * block : block;
        const long long blocks =
            self->slices * (k < 2 ? tall : !tall || rows) * (k % 2 ? !wide || cols : wide);
        const long long least = rows < cols ? rows : cols;
        const long long length[4] = {1, rows, cols, self->rank < least ? self->rank : least};
        const long long values = length[down] * length[across];
        n += !parts           ? blocks * values
             : down || across ? blocks * optc_up(values, OPTC_SEG)
                              : optc_up(blocks, OPTC_SEG);
    }
    return n;
}

/* Rows and columns of its first matrix before the piece. */
OPTC_FN long long optc_rows_inside(const optc_view *self)
{
    return self->first_row - self->first_slice * self->whole_rows;
}

OPTC_FN long long optc_cols_inside(const optc_view *self)
{
    return self->first_col - self->first_slice * self->whole_cols;
}

/* Tiles before the piece: in the first matrix, in the tensor. */
OPTC_FN long long optc_tiles_inside(const optc_view *self, int rows, int cols)
{
    return optc_rows_inside(self) / rows * optc_up(self->whole_cols, cols) +
           optc_cols_inside(self) / cols;
}

OPTC_FN long long optc_tiles_before(const optc_view *self, int rows, int cols)
{
    return self->first_slice * optc_up(self->whole_rows, rows) * optc_up(self->whole_cols, cols) +
           optc_tiles_inside(self, rows, cols);
}

/* Segments before the piece in a list with `length` values per matrix, `inside` of them in the
 * first matrix. */
OPTC_FN long long optc_segs_before(const optc_view *self, long long inside, long long length)
{
    return self->first_slice * optc_up(length, OPTC_SEG) + inside / OPTC_SEG;
}

/* runs.h: numbers of elements in pieces that consist of runs. A tensor that is cut along another
 * dimension than the first has such pieces: runs of self->cols elements, which are -self->first_col
 * elements apart in the whole tensor. In other pieces first_col is not negative. Only code for
 * bindings with such pieces contains these functions. Pasted after the rounding functions. */

/* The number in the whole tensor of the piece's element i. */
OPTC_FN long long optc_nth(const optc_view *self, long long i)
{
    return self->first + i +
           (self->first_col < 0 ? i / self->cols * (-self->first_col - self->cols) : 0);
}

/* How many of the next n elements from element i on are in the same run. */
OPTC_FN int optc_run_left(const optc_view *self, long long i, int n)
{
    const long long left = self->first_col < 0 ? self->cols - i % self->cols : n;
    return left < n ? (int)left : n;
}

/* A view in which element i has its number, and those behind it in its run. */
OPTC_FN optc_view optc_run_of(const optc_view *self, long long i)
{
    optc_view run = *self;
    run.first = optc_nth(self, i) - i;
    return run;
}

//@ cuda
/* Bits of the elements from number i of the piece on, two per word (rounding_cuda.h). */
template <int V>
OPTC_FN void optc_draw_runs(unsigned (&pair)[V / 2], optc_draws draws, const optc_view *self,
                            long long i)
{
    if (optc_run_left(self, i, V) == V) {
        optc_draw_all<false, V>(pair, draws, optc_nth(self, i), 0);
        return;
    }
#pragma unroll 1
    for (int k = 0; k < V; k++) {
        const long long nth = optc_nth(self, i + k);
        const unsigned bits = optc_draw_of(optc_draw8(draws, nth >> 3), (int)(nth & 7));
        pair[k / 2] = k % 2 ? pair[k / 2] | bits << 16 : bits;
    }
}

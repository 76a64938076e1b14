/* Reductions on the CPU, in the order that every target uses. A segment of OPTC_SEG values has
 * OPTC_LANES lanes. Lane l adds values l, l + LANES, … in order; then the upper half of the lanes
 * is added to the lower half, and so on. A lane without a value holds the identity, so a segment
 * shorter than the lanes may start with fewer lanes (optc_width).
 *
 * OPTC_FOLDS, OPTC_COLS and OPTC_ENDS(T, s, k, first, with, dwith) define the functions for type T
 * (suffix s) and kind k (sum, max, min), OPTC_AXIS those over whole arrays. */

#define OPTC_ADD(a, b) ((a) + (b))

#define OPTC_SQUARE(x) ((double)(x) * (double)(x))

//@ types
#define OPTC_SQUARE_{{name}}(x) OPTC_SQUARE({{load}}(x))

/* lanes in use for n values, as a power of two */
OPTC_FN int optc_width(int n)
{
    int w = 1;
    while (w < n && w < OPTC_LANES)
        w *= 2;
    return w;
}

/* Called once per segment or row. They are not inlined, so that a rule with many stages compiles
 * quickly. */
#ifndef OPTC_CLONES
#define OPTC_CLONES
#endif
#define OPTC_CALLED static __attribute__((noinline, unused)) OPTC_CLONES

#define OPTC_FOLDS(T, s, k, first, with, dwith) \
    OPTC_CALLED void optc_start_##k##s(T *acc, int n) \
    { \
        for (int l = 0; l < n; l++) acc[l] = (T)(first); \
    } \
    OPTC_CALLED void optc_lanes_##k##s(T *restrict acc, const T *restrict x, int n) \
    { \
        int i = 0; \
        for (; i + OPTC_LANES <= n; i += OPTC_LANES) \
            for (int l = 0; l < OPTC_LANES; l++) acc[l] = with(acc[l], x[i + l]); \
        for (int l = 0; l < n - i; l++) acc[l] = with(acc[l], x[i + l]); \
    } \
    OPTC_CALLED T optc_tree_##k##s(T *acc, int width) \
    { \
        for (int h = width / 2; h > 0; h /= 2) \
            for (int l = 0; l < h; l++) acc[l] = with(acc[l], acc[l + h]); \
        return acc[0]; \
    } \
    OPTC_CALLED T optc_fold_##k##s(const T *x, int n) /* a short list: lanes, then the tree */ \
    { \
        T acc[OPTC_LANES]; \
        int w = optc_width(n); \
        optc_start_##k##s(acc, w); \
        optc_lanes_##k##s(acc, x, n); \
        return optc_tree_##k##s(acc, w); \
    }

/* The columns of a tile at once. */
#define OPTC_COLS(T, s, k, first, with, dwith) \
    OPTC_CALLED void optc_cols_##k##s(T *restrict acc, const T *restrict x, int n) \
    { \
        for (int i = 0; i < n; i++) acc[i] = with(acc[i], x[i]); \
    } \
    OPTC_CALLED void optc_cols_end_##k##s(T *restrict acc, T *restrict out, int n) \
    { \
        for (int h = OPTC_ROW_LANES / 2; h > 0; h /= 2) \
            for (int r = 0; r < h; r++) \
                optc_cols_##k##s(acc + r * OPTC_TILE_COLS, acc + (r + h) * OPTC_TILE_COLS, n); \
        for (int i = 0; i < n; i++) out[i] = acc[i]; \
    }

/* Combine partials in f64: a list, the tiles of each row, the tiles of each column. */
#define OPTC_ENDS(T, s, k, first, with, dwith) \
    OPTC_CALLED double optc_finish_##k##s(const T *x, \
                                          long long n) /* a list of partials, in f64 */ \
    { \
        double acc[OPTC_LANES]; \
        int w = n < OPTC_LANES ? optc_width((int)n) : OPTC_LANES; \
        for (int l = 0; l < w; l++) acc[l] = first; \
        long long i = 0; \
        for (; i + OPTC_LANES <= n; i += OPTC_LANES) \
            for (int l = 0; l < OPTC_LANES; l++) acc[l] = dwith(acc[l], (double)x[i + l]); \
        for (int l = 0; l < (int)(n - i); l++) acc[l] = dwith(acc[l], (double)x[i + l]); \
        for (int h = w / 2; h > 0; h /= 2) \
            for (int l = 0; l < h; l++) acc[l] = dwith(acc[l], acc[l + h]); \
        return acc[0]; \
    } \
    OPTC_CALLED void optc_rows_##k##s(T *out, const T *x, int n, \
                                      long long segs) /* the tiles of each row */ \
    { \
        for (int i = 0; i < n; i++) { \
            double a = first; \
            for (long long j = 0; j < segs; j++) a = dwith(a, (double)x[i * segs + j]); \
            out[i] = (T)a; \
        } \
    } \
    OPTC_CALLED void optc_columns_##k##s(T *out, const T *x, int n, long long tiles, \
                                         long long cols) \
    { \
        double acc[OPTC_COL_LANES][64]; \
        for (int c = 0; c < n; c += 64) { \
            int m = n - c < 64 ? n - c : 64; \
            for (int l = 0; l < OPTC_COL_LANES; l++) \
                for (int i = 0; i < m; i++) acc[l][i] = first; \
            for (long long j = 0; j < tiles; j++) \
                for (int i = 0; i < m; i++) \
                    acc[j % OPTC_COL_LANES][i] = \
                        dwith(acc[j % OPTC_COL_LANES][i], (double)x[j * cols + c + i]); \
            for (int h = OPTC_COL_LANES / 2; h > 0; h /= 2) \
                for (int l = 0; l < h; l++) \
                    for (int i = 0; i < m; i++) acc[l][i] = dwith(acc[l][i], acc[l + h][i]); \
            for (int i = 0; i < m; i++) out[c + i] = (T)acc[0][i]; \
        } \
    }

/* Reductions of rows and columns of a whole array (gen/plan/plan.h, axis): lane j mod
 * OPTC_COL_LANES adds entry j in f64, then the tree combines the lanes. load converts from the
 * storage type. */
#define OPTC_AXIS(T, s, k, first, load, dwith) \
    OPTC_CALLED void optc_across_##k##_##s(double *out, const T *x, int n, long long entries) \
    { \
        for (int i = 0; i < n; i++, x += entries) { \
            double acc[OPTC_COL_LANES]; \
            for (int l = 0; l < OPTC_COL_LANES; l++) acc[l] = first; \
            long long j = 0; \
            for (; j + OPTC_COL_LANES <= entries; j += OPTC_COL_LANES) \
                for (int l = 0; l < OPTC_COL_LANES; l++) \
                    acc[l] = dwith(acc[l], (double)load(x[j + l])); \
            for (int l = 0; l < (int)(entries - j); l++) \
                acc[l] = dwith(acc[l], (double)load(x[j + l])); \
            for (int h = OPTC_COL_LANES / 2; h > 0; h /= 2) \
                for (int l = 0; l < h; l++) acc[l] = dwith(acc[l], acc[l + h]); \
            out[i] = acc[0]; \
        } \
    } \
    OPTC_CALLED void optc_down_##k##_##s(double *out, const T *x, int n, long long entries, \
                                         long long stride) \
    { \
        double acc[OPTC_COL_LANES][64]; \
        for (int c = 0; c < n; c += 64) { \
            int m = n - c < 64 ? n - c : 64; \
            for (int l = 0; l < OPTC_COL_LANES; l++) \
                for (int i = 0; i < m; i++) acc[l][i] = first; \
            for (long long j = 0; j < entries; j++) \
                for (int i = 0; i < m; i++) \
                    acc[j % OPTC_COL_LANES][i] = \
                        dwith(acc[j % OPTC_COL_LANES][i], (double)load(x[j * stride + c + i])); \
            for (int h = OPTC_COL_LANES / 2; h > 0; h /= 2) \
                for (int l = 0; l < h; l++) \
                    for (int i = 0; i < m; i++) acc[l][i] = dwith(acc[l][i], acc[l + h][i]); \
            for (int i = 0; i < m; i++) out[c + i] = acc[0][i]; \
        } \
    }

//@ = optc_start_sumf optc_lanes_sumf optc_tree_sumf optc_fold_sumf
OPTC_FOLDS(float, f, sum, 0.0, OPTC_ADD, OPTC_ADD)

//@ = optc_cols_sumf optc_cols_end_sumf
OPTC_COLS(float, f, sum, 0.0, OPTC_ADD, OPTC_ADD)

//@ = optc_finish_sumf optc_rows_sumf optc_columns_sumf
OPTC_ENDS(float, f, sum, 0.0, OPTC_ADD, OPTC_ADD)

//@ = optc_start_maxf optc_lanes_maxf optc_tree_maxf optc_fold_maxf
OPTC_FOLDS(float, f, max, -OPTC_INF, optc_maxf, optc_max)

//@ = optc_cols_maxf optc_cols_end_maxf
OPTC_COLS(float, f, max, -OPTC_INF, optc_maxf, optc_max)

//@ = optc_finish_maxf optc_rows_maxf optc_columns_maxf
OPTC_ENDS(float, f, max, -OPTC_INF, optc_maxf, optc_max)

//@ = optc_start_minf optc_lanes_minf optc_tree_minf optc_fold_minf
OPTC_FOLDS(float, f, min, OPTC_INF, optc_minf, optc_min)

//@ = optc_cols_minf optc_cols_end_minf
OPTC_COLS(float, f, min, OPTC_INF, optc_minf, optc_min)

//@ = optc_finish_minf optc_rows_minf optc_columns_minf
OPTC_ENDS(float, f, min, OPTC_INF, optc_minf, optc_min)

//@ = optc_start_sum optc_lanes_sum optc_tree_sum optc_fold_sum
OPTC_FOLDS(double, , sum, 0.0, OPTC_ADD, OPTC_ADD)

//@ = optc_cols_sum optc_cols_end_sum
OPTC_COLS(double, , sum, 0.0, OPTC_ADD, OPTC_ADD)

//@ = optc_finish_sum optc_rows_sum optc_columns_sum
OPTC_ENDS(double, , sum, 0.0, OPTC_ADD, OPTC_ADD)

//@ = optc_start_max optc_lanes_max optc_tree_max optc_fold_max
OPTC_FOLDS(double, , max, -OPTC_INF, optc_max, optc_max)

//@ = optc_cols_max optc_cols_end_max
OPTC_COLS(double, , max, -OPTC_INF, optc_max, optc_max)

//@ = optc_finish_max optc_rows_max optc_columns_max
OPTC_ENDS(double, , max, -OPTC_INF, optc_max, optc_max)

//@ = optc_start_min optc_lanes_min optc_tree_min optc_fold_min
OPTC_FOLDS(double, , min, OPTC_INF, optc_min, optc_min)

//@ = optc_cols_min optc_cols_end_min
OPTC_COLS(double, , min, OPTC_INF, optc_min, optc_min)

//@ = optc_finish_min optc_rows_min optc_columns_min
OPTC_ENDS(double, , min, OPTC_INF, optc_min, optc_min)

//@ types = optc_across_sum_{{name}} optc_down_sum_{{name}}
OPTC_AXIS({{c}}, {{name}}, sum, 0.0, {{load}}, OPTC_ADD)

//@ types = optc_across_max_{{name}} optc_down_max_{{name}}
OPTC_AXIS({{c}}, {{name}}, max, -OPTC_INF, {{load}}, optc_max)

//@ types = optc_across_min_{{name}} optc_down_min_{{name}}
OPTC_AXIS({{c}}, {{name}}, min, OPTC_INF, {{load}}, optc_min)

//@ types = optc_across_squares_{{name}} optc_down_squares_{{name}}
OPTC_AXIS({{c}}, {{name}}, squares, 0.0, OPTC_SQUARE_{{name}}, OPTC_ADD)

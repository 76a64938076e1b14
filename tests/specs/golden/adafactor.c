/* ---- the stages of adafactor ---- */
/* Arrays by number. */
enum {
    at_p = 0, at_g = 1, at_c = 2, at_r = 4, at_v = 5, at_out_of_range = 6, at_rate = 7, at_w = 8,
    at_rms_p = 9, at_rms_p_2 = 10, at_rms_u = 10, at_max_v_new = 11, at_rowsum_sq = 12, at_colsum_sq = 13,
    at_rms_u_2 = 14, at_slice_sum_r_new = 15, at_one_over_sqrt_c_new = 16, at_slice_mean_r_new = 17,
    at_one_over_sqrt_r_new_over_slice_mean_r_new = 18, at_rms_u_3 = 19, at_rate_times_weight_decay = 20,
    at_rate_over_max_one_rms_u_over_clip_threshold = 21,
    at_rate_over_max_one_rms_u_over_clip_threshold_2 = 22
};

/* Once a group: writes rate w. 0 + 16 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[6];
    const double t = self->hyper[0];
    const double decay = self->hyper[3];
    const double rate = optc_min(lr, 1.0 / sqrt(t));
    const double w = optc_pow(t, -decay);
    ((double *)self->mem[at_rate])[0] = rate;
    ((double *)self->mem[at_w])[0] = w;
}

/* One pass over the elements: reads p g v w; writes v; folds into rms_p rms_u max_v_new. 12 + 4 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float eps1 = (float)self->hyper[4];
    const float w = (float)((const double *)self->mem[at_w])[0];
    double rms_p_lanes[OPTC_LANES];
    optc_start_sum(rms_p_lanes, OPTC_LANES);
    double rms_u_lanes[OPTC_LANES];
    optc_start_sum(rms_u_lanes, OPTC_LANES);
    float max_v_new_lanes[OPTC_LANES];
    optc_start_maxf(max_v_new_lanes, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_LANES) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_LANES);
        const float *restrict p = (const float *)self->mem[at_p] + offset;
        optc_fetch(p + OPTC_AHEAD, OPTC_LANES * sizeof *p);
        const float *restrict g = (const float *)self->mem[at_g] + offset;
        optc_fetch(g + OPTC_AHEAD, OPTC_LANES * sizeof *g);
        float *restrict v = (float *)self->mem[at_v] + offset;
        optc_fetch(v + OPTC_AHEAD, OPTC_LANES * sizeof *v);
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float g_i = g[i];
            const float v_i = v[i];
            const float sq = g_i * g_i + eps1;
            const float v_new = v_i + w * (sq - v_i);
            const float u = g_i / sqrtf(v_new);
            rms_p_lanes[i] += (double)p[i] * (double)p[i];
            rms_u_lanes[i] += (double)u * (double)u;
            max_v_new_lanes[i] = optc_maxf(max_v_new_lanes[i], v_new);
            v[i] = v_new;
        }
    }
    ((double *)self->mem[at_rms_p])[self->first / OPTC_SEG + unit] = optc_tree_sum(rms_p_lanes, OPTC_LANES);
    ((double *)self->mem[at_rms_u])[self->first / OPTC_SEG + unit] = optc_tree_sum(rms_u_lanes, OPTC_LANES);
    ((float *)self->mem[at_max_v_new])[self->first / OPTC_SEG + unit] = optc_tree_maxf(max_v_new_lanes, OPTC_LANES);
}

/* One pass over tiles of each matrix: reads g; folds into rowsum_sq colsum_sq. 4 + 0 bytes. */
static void step_2_tile_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->cols, OPTC_TILE_COLS),
                    blocks = optc_up(self->rows, OPTC_TILE_ROWS);
    const long long seg = unit % segs, block = unit / segs % blocks, slice = unit / segs / blocks;
    const long long start = seg * OPTC_TILE_COLS;
    const int rows = optc_least(self->rows - block * OPTC_TILE_ROWS, OPTC_TILE_ROWS);
    const int count = optc_least(self->cols - start, OPTC_TILE_COLS);
    const int width = optc_width(count);
    const float eps1 = (float)self->hyper[4];
    float rowsum_sq_lanes[OPTC_LANES];
    float colsum_sq_cols[OPTC_ROW_LANES * OPTC_TILE_COLS];
    for (int l = 0; l < OPTC_ROW_LANES; l++)
        optc_start_sumf(colsum_sq_cols + l * OPTC_TILE_COLS, count);
    for (int line = 0; line < rows; line++) {
        const long long row = slice * self->rows + block * OPTC_TILE_ROWS + line;
        optc_start_sumf(rowsum_sq_lanes, width);
        for (int from = 0; from < count; from += OPTC_LANES) {
            const long long col = start + from, offset = row * self->cols + col;
            const int len = optc_least(count - from, OPTC_LANES);
            const float *restrict g = (const float *)self->mem[at_g] + offset;
            optc_fetch(g + (from + OPTC_AHEAD < count ? OPTC_AHEAD : self->cols - count + OPTC_AHEAD),
                    OPTC_LANES * sizeof *g);
            float *colsum_sq_here = colsum_sq_cols + line % OPTC_ROW_LANES * OPTC_TILE_COLS + from;
            OPTC_EACH
            for (int i = 0; i < len; i++) {
                const float g_i = g[i];
                const float sq = g_i * g_i + eps1;
                rowsum_sq_lanes[i] += sq;
                colsum_sq_here[i] += sq;
            }
        }
        ((float *)self->mem[at_rowsum_sq])[row * optc_up(self->whole_cols, OPTC_TILE_COLS) +
                optc_cols_inside(self) / OPTC_TILE_COLS + seg] = optc_tree_sumf(rowsum_sq_lanes, width);
    }
    optc_cols_end_sumf(colsum_sq_cols, ((float *)self->mem[at_colsum_sq]) +
            (slice * optc_up(self->whole_rows, OPTC_TILE_ROWS) + optc_rows_inside(self) / OPTC_TILE_ROWS + block) *
            self->cols + start, count);
}

/* Once a tensor: writes out_of_range rms_u_2. 0 + 16 bytes. */
static void step_3_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double rms_u_squares = optc_finish_sum((const double *)self->mem[at_rms_u], optc_up(self->whole_n, OPTC_SEG));
    const double rms_u = sqrt(rms_u_squares / (double)(self->whole_n));
    const double max_v_new = optc_finish_maxf((const float *)self->mem[at_max_v_new], optc_up(self->whole_n, OPTC_SEG));
    ((double *)self->mem[at_out_of_range])[0] =
            (fabs(optc_max(0.0, max_v_new)) < optc_frombits(0x7ff0000000000000ull)) ? 0.0 : 1.0;
    ((double *)self->mem[at_rms_u_2])[0] = rms_u;
}

/* Once a row: reads w r; writes r; folds into slice_sum_r_new. 4 + 4 bytes. */
static void step_4_row_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->rows, OPTC_SEG), slice = unit / segs,
                    start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->rows - start, OPTC_SEG);
    const long long offset = slice * self->rows + start;
    const float elems_per_row = (float)(self->whole_cols);
    const float w = (float)((const double *)self->mem[at_w])[0];
    float rowsum_sq[OPTC_SEG];
    optc_rows_sumf(rowsum_sq, (const float *)self->mem[at_rowsum_sq] +
            offset * optc_up(self->whole_cols, OPTC_TILE_COLS), count, optc_up(self->whole_cols, OPTC_TILE_COLS));
    float r_new_buf[OPTC_SEG];
    float *restrict r = (float *)self->mem[at_r] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float r_i = r[i];
        const float r_new = r_i + w * (rowsum_sq[i] / elems_per_row - r_i);
        r_new_buf[i] = r_new;
        r[i] = r_new;
    }
    ((float *)self->mem[at_slice_sum_r_new])[optc_rows_inside(self) / OPTC_SEG + unit] =
            optc_fold_sumf(r_new_buf, count);
}

/* Once a column: reads w c; writes c one_over_sqrt_c_new. 4 + 8 bytes. */
static void step_5_col_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->cols, OPTC_SEG), slice = unit / segs,
                    start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->cols - start, OPTC_SEG);
    const long long offset = slice * self->cols + start;
    const float elems_per_col = (float)(self->whole_rows);
    const float w = (float)((const double *)self->mem[at_w])[0];
    float colsum_sq[OPTC_SEG];
    optc_columns_sumf(colsum_sq, (const float *)self->mem[at_colsum_sq] +
            slice * optc_up(self->whole_rows, OPTC_TILE_ROWS) * self->cols + start, count,
        optc_up(self->whole_rows, OPTC_TILE_ROWS), self->cols);
    float *restrict c = (float *)self->mem[at_c] + offset;
    float *restrict one_over_sqrt_c_new = (float *)self->mem[at_one_over_sqrt_c_new] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float c_i = c[i];
        const float c_new = c_i + w * (colsum_sq[i] / elems_per_col - c_i);
        c[i] = c_new;
        one_over_sqrt_c_new[i] = 1.0f / sqrtf(c_new);
    }
}

/* Once a matrix: writes slice_mean_r_new. 0 + 8 bytes. */
static void step_6_slice_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->slices, OPTC_SEG), slice = unit / segs,
                    start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->slices - start, OPTC_SEG);
    const long long offset = slice * self->slices + start;
    const double nrows = (double)(self->whole_rows);
    double slice_sum_r_new[OPTC_SEG];
    for (int i = 0; i < count; i++)
        slice_sum_r_new[i] = optc_finish_sumf((const float *)self->mem[at_slice_sum_r_new] +
                (start + i) * (optc_up(self->whole_rows, OPTC_SEG)), optc_up(self->whole_rows, OPTC_SEG));
    double *restrict slice_mean_r_new = (double *)self->mem[at_slice_mean_r_new] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        slice_mean_r_new[i] = slice_sum_r_new[i] / nrows;
    }
}

/* Once a row: reads r slice_mean_r_new; writes one_over_sqrt_r_new_over_slice_mean_r_new. 4 + 4 bytes. */
static void step_7_row_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->rows, OPTC_SEG), slice = unit / segs,
                    start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->rows - start, OPTC_SEG);
    const long long offset = slice * self->rows + start;
    const float slice_mean_r_new = (float)((const double *)self->mem[at_slice_mean_r_new])[slice];
    const float *restrict r = (const float *)self->mem[at_r] + offset;
    float *restrict one_over_sqrt_r_new_over_slice_mean_r_new =
            (float *)self->mem[at_one_over_sqrt_r_new_over_slice_mean_r_new] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        one_over_sqrt_r_new_over_slice_mean_r_new[i] = 1.0f / sqrtf(r[i] / slice_mean_r_new);
    }
}

/* One pass over the elements: reads p g one_over_sqrt_r_new_over_slice_mean_r_new one_over_sqrt_c_new; folds into
 * rms_p_2 rms_u_3. 8 + 0 bytes. */
static void step_8_map_matrix(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    double rms_p_lanes[OPTC_LANES];
    optc_start_sum(rms_p_lanes, OPTC_LANES);
    double rms_u_lanes[OPTC_LANES];
    optc_start_sum(rms_u_lanes, OPTC_LANES);
    long long row = start / self->cols, col = start - row * self->cols;
    /* values of one row, each lane at most once */
    for (int from = 0, len; from < count; from += len) {
        const long long offset = start + from, slice = row / self->rows;
        const int lane = from % OPTC_LANES;
        len = optc_least(self->cols - col, optc_least(count - from, OPTC_LANES - lane));
        const float *restrict p = (const float *)self->mem[at_p] + offset;
        optc_fetch(p + OPTC_AHEAD, OPTC_LANES * sizeof *p);
        const float *restrict g = (const float *)self->mem[at_g] + offset;
        optc_fetch(g + OPTC_AHEAD, OPTC_LANES * sizeof *g);
        const float one_over_sqrt_r_new_over_slice_mean_r_new =
                ((const float *)self->mem[at_one_over_sqrt_r_new_over_slice_mean_r_new])[row];
        const float *restrict one_over_sqrt_c_new =
                (const float *)self->mem[at_one_over_sqrt_c_new] + slice * self->cols + col;
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float u = g[i] * one_over_sqrt_r_new_over_slice_mean_r_new * one_over_sqrt_c_new[i];
            rms_p_lanes[lane + i] += (double)p[i] * (double)p[i];
            rms_u_lanes[lane + i] += (double)u * (double)u;
        }
        col = col + len < self->cols ? col + len : 0;
        row += !col;
    }
    ((double *)self->mem[at_rms_p_2])[self->first / OPTC_SEG + unit] = optc_tree_sum(rms_p_lanes, OPTC_LANES);
    ((double *)self->mem[at_rms_u_3])[self->first / OPTC_SEG + unit] = optc_tree_sum(rms_u_lanes, OPTC_LANES);
}

/* Once a tensor: reads rate rms_u_2; writes rate_times_weight_decay rate_over_max_one_rms_u_over_clip_threshold. 8 + 16
 * bytes. */
static void step_9_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double eps2 = self->hyper[5];
    const double weight_decay = self->hyper[7];
    const double clip_threshold = self->hyper[2];
    const double rms_p_squares = optc_finish_sum((const double *)self->mem[at_rms_p], optc_up(self->whole_n, OPTC_SEG));
    const double rms_p = sqrt(rms_p_squares / (double)(self->whole_n));
    const double rate = ((const double *)self->mem[at_rate])[0];
    const double rms_u_2 = ((const double *)self->mem[at_rms_u_2])[0];
    const double rate_2 = rate * optc_max(eps2, rms_p);
    ((double *)self->mem[at_rate_times_weight_decay])[0] = rate_2 * weight_decay;
    ((double *)self->mem[at_rate_over_max_one_rms_u_over_clip_threshold])[0] =
            rate_2 / optc_max(1.0, rms_u_2 / clip_threshold);
}

/* Once a tensor: reads rate; writes out_of_range rate_times_weight_decay
 * rate_over_max_one_rms_u_over_clip_threshold_2. 0 + 24 bytes. */
static void step_10_tensor_matrix(const optc_view *self, long long unit)
{
    (void)unit;
    const double eps2 = self->hyper[5];
    const double weight_decay = self->hyper[7];
    const double clip_threshold = self->hyper[2];
    const double numel = (double)(self->whole_n);
    const double rms_p_squares = optc_finish_sum((const double *)self->mem[at_rms_p_2],
            optc_up(self->whole_n, OPTC_SEG));
    const double rms_p = sqrt(rms_p_squares / (double)(self->whole_n));
    const double rms_u_squares = optc_finish_sum((const double *)self->mem[at_rms_u_3],
            optc_up(self->whole_n, OPTC_SEG));
    const double rms_u = sqrt(rms_u_squares / (double)(self->whole_n));
    const double rate = ((const double *)self->mem[at_rate])[0];
    const double rate_2 = rate * optc_max(eps2, rms_p);
    ((double *)self->mem[at_out_of_range])[0] =
            optc_min(numel, (fabs(rms_u) < optc_frombits(0x7ff0000000000000ull)) ? 0.0 : 1.0);
    ((double *)self->mem[at_rate_times_weight_decay])[0] = rate_2 * weight_decay;
    ((double *)self->mem[at_rate_over_max_one_rms_u_over_clip_threshold_2])[0] =
            rate_2 / optc_max(1.0, rms_u / clip_threshold);
}

/* One pass over the elements: reads p rate_times_weight_decay g v rate_over_max_one_rms_u_over_clip_threshold; writes
 * p. 12 + 4 bytes. */
static void step_11_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float rate_times_weight_decay = (float)((const double *)self->mem[at_rate_times_weight_decay])[0];
    const float rate_over_max_one_rms_u_over_clip_threshold =
            (float)((const double *)self->mem[at_rate_over_max_one_rms_u_over_clip_threshold])[0];
    float *restrict p = (float *)self->mem[at_p] + offset;
    const float *restrict g = (const float *)self->mem[at_g] + offset;
    const float *restrict v = (const float *)self->mem[at_v] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float u = g[i] / sqrtf(v[i]);
        p[i] = p_i - rate_times_weight_decay * p_i - rate_over_max_one_rms_u_over_clip_threshold * u;
    }
}

/* One pass over the elements: reads p rate_times_weight_decay g one_over_sqrt_r_new_over_slice_mean_r_new
 * one_over_sqrt_c_new rate_over_max_one_rms_u_over_clip_threshold_2; writes p. 8 + 4 bytes. */
static void step_12_map_matrix(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float rate_times_weight_decay = (float)((const double *)self->mem[at_rate_times_weight_decay])[0];
    const float rate_over_max_one_rms_u_over_clip_threshold_2 =
            (float)((const double *)self->mem[at_rate_over_max_one_rms_u_over_clip_threshold_2])[0];
    long long row = start / self->cols, col = start - row * self->cols;
    /* values of one row, each lane at most once */
    for (int from = 0, len; from < count; from += len) {
        const long long offset = start + from, slice = row / self->rows;
        const int lane = from % OPTC_CHUNK;
        len = optc_least(self->cols - col, optc_least(count - from, OPTC_CHUNK - lane));
        float *restrict p = (float *)self->mem[at_p] + offset;
        optc_fetch(p + OPTC_AHEAD, OPTC_CHUNK * sizeof *p);
        const float *restrict g = (const float *)self->mem[at_g] + offset;
        optc_fetch(g + OPTC_AHEAD, OPTC_CHUNK * sizeof *g);
        const float one_over_sqrt_r_new_over_slice_mean_r_new =
                ((const float *)self->mem[at_one_over_sqrt_r_new_over_slice_mean_r_new])[row];
        const float *restrict one_over_sqrt_c_new =
                (const float *)self->mem[at_one_over_sqrt_c_new] + slice * self->cols + col;
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float p_i = p[i];
            const float u = g[i] * one_over_sqrt_r_new_over_slice_mean_r_new * one_over_sqrt_c_new[i];
            p[i] = p_i - rate_times_weight_decay * p_i - rate_over_max_one_rms_u_over_clip_threshold_2 * u;
        }
        col = col + len < self->cols ? col + len : 0;
        row += !col;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map, step_2_tile_matrix, step_3_tensor, step_4_row_matrix,
        step_5_col_matrix, step_6_slice_matrix, step_7_row_matrix, step_8_map_matrix, step_9_tensor,
        step_10_tensor_matrix, step_11_map, step_12_map_matrix };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

/* ---- the stages of muon ---- */
/* Arrays by number. */
enum {
    at_p = 0, at_g = 1, at_adamw_m = 3, at_adamw_v = 4, at_lr_times_weight_decay = 6,
    at_adamw_lr_times_adamw_weight_decay = 7, at_adamw_lr_over_one_minus_adamw_beta1_pow_t = 8,
    at_one_minus_adamw_beta1 = 9, at_one_over_sqrt_one_minus_adamw_beta2_pow_t = 10,
    at_one_minus_adamw_beta2 = 11, at_one_minus_momentum = 12
};

/* Once a group: writes lr_times_weight_decay adamw_lr_times_adamw_weight_decay
 * adamw_lr_over_one_minus_adamw_beta1_pow_t one_minus_adamw_beta1 one_over_sqrt_one_minus_adamw_beta2_pow_t
 * one_minus_adamw_beta2 one_minus_momentum. 0 + 56 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double adamw_lr = self->hyper[7];
    const double adamw_weight_decay = self->hyper[8];
    const double adamw_beta1 = self->hyper[4];
    const double t = self->hyper[0];
    const double adamw_beta2 = self->hyper[5];
    const double lr = self->hyper[1];
    const double weight_decay = self->hyper[3];
    const double momentum = self->hyper[2];
    ((double *)self->mem[at_lr_times_weight_decay])[0] = lr * weight_decay;
    ((double *)self->mem[at_adamw_lr_times_adamw_weight_decay])[0] = adamw_lr * adamw_weight_decay;
    ((double *)self->mem[at_adamw_lr_over_one_minus_adamw_beta1_pow_t])[0] =
            adamw_lr / (1.0 - optc_powi(adamw_beta1, t));
    ((double *)self->mem[at_one_minus_adamw_beta1])[0] = 1.0 - adamw_beta1;
    ((double *)self->mem[at_one_over_sqrt_one_minus_adamw_beta2_pow_t])[0] =
            1.0 / sqrt(1.0 - optc_powi(adamw_beta2, t));
    ((double *)self->mem[at_one_minus_adamw_beta2])[0] = 1.0 - adamw_beta2;
    ((double *)self->mem[at_one_minus_momentum])[0] = 1.0 - momentum;
}

/* Once a matrix: writes lr_times_size. 0 + 8 bytes. Several stages share this function, each with its own arrays. */
static void step_1_slice_matrix(const optc_view *self, long long unit, const int *arrays)
{
    const long long segs = optc_up(self->slices, OPTC_SEG), slice = unit / segs,
                    start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->slices - start, OPTC_SEG);
    const long long offset = slice * self->slices + start;
    const double lr = self->hyper[1];
    const double nrows = (double)(self->whole_rows);
    const double ncols = (double)(self->whole_cols);
    double *restrict lr_times_size = (double *)self->mem[arrays[0]] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const double size = sqrt(nrows / ncols);
        const double size_2 = optc_max(1.0, size);
        lr_times_size[i] = lr * size_2;
    }
}

/* One pass over bands of each matrix: reads g m one_minus_momentum; writes m; folds into slice_norm_u. 8 + 4 bytes.
 * Several stages share this function, each with its own arrays. */
static void step_2_band_matrix(const optc_view *self, long long unit, const int *arrays)
{
    const long long segs = optc_up(self->cols, OPTC_BAND_COLS),
                    blocks = optc_up(self->rows, OPTC_BAND_ROWS);
    const long long seg = unit % segs, block = unit / segs % blocks, slice = unit / segs / blocks;
    const long long start = seg * OPTC_BAND_COLS;
    const int rows = optc_least(self->rows - block * OPTC_BAND_ROWS, OPTC_BAND_ROWS);
    const int count = optc_least(self->cols - start, OPTC_BAND_COLS);
    const int width = optc_width(count);
    const float momentum = (float)self->hyper[2];
    const float one_minus_momentum = (float)((const double *)self->mem[arrays[2]])[0];
    double slice_norm_u_lanes[OPTC_LANES];
    double slice_norm_u_rows[OPTC_BAND_ROWS];
    for (int line = 0; line < rows; line++) {
        const long long row = slice * self->rows + block * OPTC_BAND_ROWS + line;
        optc_start_sum(slice_norm_u_lanes, width);
        for (int from = 0; from < count; from += OPTC_LANES) {
            const long long col = start + from, offset = row * self->cols + col;
            const int len = optc_least(count - from, OPTC_LANES);
            const float *restrict g = (const float *)self->mem[arrays[0]] + offset;
            optc_fetch(g + (from + OPTC_AHEAD < count ? OPTC_AHEAD : self->cols - count + OPTC_AHEAD),
                    OPTC_LANES * sizeof *g);
            float *restrict m = (float *)self->mem[arrays[1]] + offset;
            optc_fetch(m + (from + OPTC_AHEAD < count ? OPTC_AHEAD : self->cols - count + OPTC_AHEAD),
                    OPTC_LANES * sizeof *m);
            OPTC_EACH
            for (int i = 0; i < len; i++) {
                const float g_i = g[i];
                const float m_i = m[i];
                const float m_new = m_i + one_minus_momentum * (g_i - m_i);
                const float u = g_i + momentum * (m_new - g_i);
                slice_norm_u_lanes[i] += (double)u * (double)u;
                m[i] = m_new;
            }
        }
        slice_norm_u_rows[line] = optc_tree_sum(slice_norm_u_lanes, width);
    }
    ((double *)self->mem[arrays[4]])[optc_tiles_inside(self, OPTC_BAND_ROWS, OPTC_BAND_COLS) + unit] =
            optc_fold_sum(slice_norm_u_rows, rows);
}

/* Once a matrix: writes slice_norm_u_where_zero_ne_slice_norm_u. 0 + 8 bytes. Several stages share this function, each
 * with its own arrays. */
static void step_3_slice_matrix(const optc_view *self, long long unit, const int *arrays)
{
    const long long segs = optc_up(self->slices, OPTC_SEG), slice = unit / segs,
                    start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->slices - start, OPTC_SEG);
    const long long offset = slice * self->slices + start;
    double slice_norm_u_squares[OPTC_SEG];
    for (int i = 0; i < count; i++)
        slice_norm_u_squares[i] = optc_finish_sum((const double *)self->mem[arrays[0]] +
                (start + i) * (optc_up(self->whole_rows, OPTC_BAND_ROWS) * optc_up(self->whole_cols, OPTC_BAND_COLS)),
                optc_up(self->whole_rows, OPTC_BAND_ROWS) * optc_up(self->whole_cols, OPTC_BAND_COLS));
    double *restrict slice_norm_u_where_zero_ne_slice_norm_u = (double *)self->mem[arrays[1]] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const double slice_norm_u = sqrt(slice_norm_u_squares[i]);
        slice_norm_u_where_zero_ne_slice_norm_u[i] = (0.0 != slice_norm_u) ? slice_norm_u : 1.0;
    }
}

/* One pass over the elements: reads p adamw_lr_times_adamw_weight_decay
 * adamw_lr_over_one_minus_adamw_beta1_pow_t adamw.m one_minus_adamw_beta1 g
 * one_over_sqrt_one_minus_adamw_beta2_pow_t adamw.v one_minus_adamw_beta2; writes p adamw.m adamw.v. 16 + 12 bytes. */
static void step_4_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float adamw_beta2 = (float)self->hyper[5];
    const float adamw_eps = (float)self->hyper[6];
    const float adamw_lr_times_adamw_weight_decay =
            (float)((const double *)self->mem[at_adamw_lr_times_adamw_weight_decay])[0];
    const float adamw_lr_over_one_minus_adamw_beta1_pow_t =
            (float)((const double *)self->mem[at_adamw_lr_over_one_minus_adamw_beta1_pow_t])[0];
    const float one_minus_adamw_beta1 = (float)((const double *)self->mem[at_one_minus_adamw_beta1])[0];
    const float one_over_sqrt_one_minus_adamw_beta2_pow_t =
            (float)((const double *)self->mem[at_one_over_sqrt_one_minus_adamw_beta2_pow_t])[0];
    const float one_minus_adamw_beta2 = (float)((const double *)self->mem[at_one_minus_adamw_beta2])[0];
    float *restrict p = (float *)self->mem[at_p] + offset;
    float *restrict adamw_m = (float *)self->mem[at_adamw_m] + offset;
    const float *restrict g = (const float *)self->mem[at_g] + offset;
    float *restrict adamw_v = (float *)self->mem[at_adamw_v] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float adamw_m_i = adamw_m[i];
        const float g_i = g[i];
        const float adamw_v_i = adamw_v[i];
        const float adamw_m_new = adamw_m_i + one_minus_adamw_beta1 * (g_i - adamw_m_i);
        const float adamw_v_new = adamw_beta2 * adamw_v_i + one_minus_adamw_beta2 * g_i * g_i;
        const float p_new = p_i - adamw_lr_times_adamw_weight_decay * p_i -
                adamw_lr_over_one_minus_adamw_beta1_pow_t * adamw_m_new /
                (one_over_sqrt_one_minus_adamw_beta2_pow_t * sqrtf(adamw_v_new) + adamw_eps);
        p[i] = p_new;
        adamw_m[i] = adamw_m_new;
        adamw_v[i] = adamw_v_new;
    }
}

/* One pass over the elements: reads g m slice_norm_u_where_zero_ne_slice_norm_u; writes
 * u_over_slice_norm_u_where_zero_ne_slice_norm_u. 8 + 4 bytes. Several stages share this function, each with its own
 * arrays. */
static void step_5_map_matrix(const optc_view *self, long long unit, const int *arrays)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float momentum = (float)self->hyper[2];
    long long row = start / self->cols, col = start - row * self->cols;
    /* values of one row, each lane at most once */
    for (int from = 0, len; from < count; from += len) {
        const long long offset = start + from, slice = row / self->rows;
        const int lane = from % OPTC_CHUNK;
        len = optc_least(self->cols - col, optc_least(count - from, OPTC_CHUNK - lane));
        const float *restrict g = (const float *)self->mem[arrays[0]] + offset;
        optc_fetch(g + OPTC_AHEAD, OPTC_CHUNK * sizeof *g);
        const float *restrict m = (const float *)self->mem[arrays[1]] + offset;
        optc_fetch(m + OPTC_AHEAD, OPTC_CHUNK * sizeof *m);
        const float slice_norm_u_where_zero_ne_slice_norm_u = (float)((const double *)self->mem[arrays[2]])[slice];
        float *restrict u_over_slice_norm_u_where_zero_ne_slice_norm_u = (float *)self->mem[arrays[3]] + offset;
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float g_i = g[i];
            const float u = g_i + momentum * (m[i] - g_i);
            u_over_slice_norm_u_where_zero_ne_slice_norm_u[i] = u / slice_norm_u_where_zero_ne_slice_norm_u;
        }
        col = col + len < self->cols ? col + len : 0;
        row += !col;
    }
}

/* One pass over the elements: reads p lr_times_weight_decay lr_times_size mm_8; writes p. 8 + 4 bytes. Several stages
 * share this function, each with its own arrays. */
static void step_6_map_matrix(const optc_view *self, long long unit, const int *arrays)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float lr_times_weight_decay = (float)((const double *)self->mem[arrays[1]])[0];
    long long row = start / self->cols, col = start - row * self->cols;
    /* values of one row, each lane at most once */
    for (int from = 0, len; from < count; from += len) {
        const long long offset = start + from, slice = row / self->rows;
        const int lane = from % OPTC_CHUNK;
        len = optc_least(self->cols - col, optc_least(count - from, OPTC_CHUNK - lane));
        float *restrict p = (float *)self->mem[arrays[0]] + offset;
        optc_fetch(p + OPTC_AHEAD, OPTC_CHUNK * sizeof *p);
        const float lr_times_size = (float)((const double *)self->mem[arrays[2]])[slice];
        const float *restrict mm_8 = (const float *)self->mem[arrays[3]] + offset;
        optc_fetch(mm_8 + OPTC_AHEAD, OPTC_CHUNK * sizeof *mm_8);
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float p_i = p[i];
            p[i] = p_i - lr_times_weight_decay * p_i - lr_times_size * mm_8[i];
        }
        col = col + len < self->cols ? col + len : 0;
        row += !col;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, (optc_stage_fn)(void (*)(void))step_1_slice_matrix,
        (optc_stage_fn)(void (*)(void))step_2_band_matrix, (optc_stage_fn)(void (*)(void))step_3_slice_matrix,
        step_4_map, (optc_stage_fn)(void (*)(void))step_5_map_matrix,
        (optc_stage_fn)(void (*)(void))step_6_map_matrix };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

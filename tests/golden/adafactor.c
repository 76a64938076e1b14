/* ---- the stages of adafactor ---- */
/* Once a group: writes tmp6 tmp7. 0 + 16 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[6];
    const double t = self->hyper[0];
    const double decay = self->hyper[3];
    const double rate = optc_min(lr, 1.0 / sqrt(t));
    const double w = optc_pow(t, -decay);
    ((double *)self->mem[6])[0] = rate;
    ((double *)self->mem[7])[0] = w;
}

/* One pass over the elements: reads p g v tmp7; writes v; folds into part8 part9. 12 + 4 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float eps1 = (float)self->hyper[4];
    const float w = (float)((const double *)self->mem[7])[0];
    float fold_buf[OPTC_CHUNK];
    float sum_lanes[OPTC_LANES];
    optc_start_sumf(sum_lanes, OPTC_LANES);
    float fold_buf_2[OPTC_CHUNK];
    float sum_lanes_2[OPTC_LANES];
    optc_start_sumf(sum_lanes_2, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_CHUNK) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_CHUNK);
        const float *restrict p = (const float *)self->mem[0] + offset;
        optc_fetch(p + 2 * len, sizeof *p);
        const float *restrict g = (const float *)self->mem[1] + offset;
        optc_fetch(g + 2 * len, sizeof *g);
        float *restrict v = (float *)self->mem[5] + offset;
        optc_fetch(v + 2 * len, sizeof *v);
        for (int i = 0; i < len; i++) {
            const float p_i = p[i];
            const float g_i = g[i];
            const float v_i = v[i];
            const float sq = g_i * g_i + eps1;
            const float v_new = v_i + w * (sq - v_i);
            const float u = g_i / sqrtf(v_new);
            fold_buf[i] = p_i * p_i;
            fold_buf_2[i] = u * u;
            v[i] = v_new;
        }
        optc_lanes_sumf(sum_lanes, fold_buf, len);
        optc_lanes_sumf(sum_lanes_2, fold_buf_2, len);
    }
    ((float *)self->mem[8])[unit] = optc_tree_sumf(sum_lanes, OPTC_LANES);
    ((float *)self->mem[9])[unit] = optc_tree_sumf(sum_lanes_2, OPTC_LANES);
}

/* One pass over tiles of each matrix: reads g; folds into part10 part11. 4 + 0 bytes. */
static void step_2_tile_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->cols, OPTC_TILE_COLS), blocks = optc_up(self->rows, OPTC_TILE_ROWS);
    const long long seg = unit % segs, block = unit / segs % blocks, slice = unit / segs / blocks, start = seg * OPTC_TILE_COLS;
    const int rows = optc_least(self->rows - block * OPTC_TILE_ROWS, OPTC_TILE_ROWS), count = optc_least(self->cols - start, OPTC_TILE_COLS);
    const int width = optc_width(count);
    const float eps1 = (float)self->hyper[4];
    float sq_buf[OPTC_CHUNK];
    float sum_lanes[OPTC_LANES];
    float sum_cols[OPTC_ROW_LANES * OPTC_TILE_COLS];
    for (int l = 0; l < OPTC_ROW_LANES; l++)
        optc_start_sumf(sum_cols + l * OPTC_TILE_COLS, count);
    for (int line = 0; line < rows; line++) {
        const long long row = slice * self->rows + block * OPTC_TILE_ROWS + line;
        optc_start_sumf(sum_lanes, width);
        for (int from = 0; from < count; from += OPTC_CHUNK) {
            const long long col = start + from, offset = row * self->cols + col;
            const int len = optc_least(count - from, OPTC_CHUNK);
            const float *restrict g = (const float *)self->mem[1] + offset;
            optc_fetch(g + (from + 2 * len < count ? 2 * len : self->cols - count + 2 * len), sizeof *g);
            for (int i = 0; i < len; i++) {
                const float g_i = g[i];
                const float sq = g_i * g_i + eps1;
                sq_buf[i] = sq;
            }
            optc_lanes_sumf(sum_lanes, sq_buf, len);
            optc_cols_sumf(sum_cols + line % OPTC_ROW_LANES * OPTC_TILE_COLS + from, sq_buf, len);
        }
        ((float *)self->mem[10])[row * segs + seg] = optc_tree_sumf(sum_lanes, width);
    }
    optc_cols_end_sumf(sum_cols, (float *)self->mem[11] + (slice * blocks + block) * self->cols + start, count);
}

/* Once a tensor: writes tmp12. 0 + 8 bytes. */
static void step_3_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double numel = (double)(self->n);
    const double clip_threshold = self->hyper[2];
    const double sum33 = optc_finish_sumf((const float *)self->mem[9], optc_up(self->n, OPTC_SEG));
    ((double *)self->mem[12])[0] = optc_max(1.0, sqrt(sum33 / numel) / clip_threshold);
}

/* Once a row: reads tmp7 r; writes r; folds into part13. 4 + 4 bytes. */
static void step_4_row_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->rows, OPTC_SEG), slice = unit / segs, start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->rows - start, OPTC_SEG);
    const long long offset = slice * self->rows + start;
    const float numel = (float)(self->cols);
    const float w = (float)((const double *)self->mem[7])[0];
    float sum43[OPTC_SEG];
    optc_rows_sumf(sum43, (const float *)self->mem[10] + offset * optc_up(self->cols, OPTC_TILE_COLS), count, optc_up(self->cols, OPTC_TILE_COLS));
    float fold_buf[OPTC_SEG];
    float *restrict r = (float *)self->mem[4] + offset;
    for (int i = 0; i < count; i++) {
        const float r_i = r[i];
        const float r_new = r_i + w * (sum43[i] / numel - r_i);
        fold_buf[i] = r_new;
        r[i] = r_new;
    }
    ((float *)self->mem[13])[unit] = optc_fold_sumf(fold_buf, count);
}

/* Once a column: reads tmp7 c; writes c tmp14. 4 + 8 bytes. */
static void step_5_col_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->cols, OPTC_SEG), slice = unit / segs, start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->cols - start, OPTC_SEG);
    const long long offset = slice * self->cols + start;
    const float numel = (float)(self->rows);
    const float w = (float)((const double *)self->mem[7])[0];
    float sum57[OPTC_SEG];
    optc_columns_sumf(sum57, (const float *)self->mem[11] + slice * optc_up(self->rows, OPTC_TILE_ROWS) * self->cols + start, count,
        optc_up(self->rows, OPTC_TILE_ROWS), self->cols);
    float *restrict c = (float *)self->mem[2] + offset;
    float *restrict x64 = (float *)self->mem[14] + offset;
    for (int i = 0; i < count; i++) {
        const float c_i = c[i];
        const float c_new = c_i + w * (sum57[i] / numel - c_i);
        c[i] = c_new;
        x64[i] = 1.0f / sqrtf(c_new);
    }
}

/* Once a matrix: writes tmp15. 0 + 8 bytes. */
static void step_6_slice_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->slices, OPTC_SEG), slice = unit / segs, start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->slices - start, OPTC_SEG);
    const long long offset = slice * self->slices + start;
    const double nrows = (double)(self->rows);
    double sum49[OPTC_SEG];
    for (int i = 0; i < count; i++)
        sum49[i] = optc_finish_sumf((const float *)self->mem[13] + (start + i) * (optc_up(self->rows, OPTC_SEG)), optc_up(self->rows, OPTC_SEG));
    double *restrict x51 = (double *)self->mem[15] + offset;
    for (int i = 0; i < count; i++) {
        x51[i] = sum49[i] / nrows;
    }
}

/* Once a row: reads r tmp15; writes tmp16. 4 + 4 bytes. */
static void step_7_row_matrix(const optc_view *self, long long unit)
{
    const long long segs = optc_up(self->rows, OPTC_SEG), slice = unit / segs, start = unit % segs * OPTC_SEG;
    const int count = optc_least(self->rows - start, OPTC_SEG);
    const long long offset = slice * self->rows + start;
    const float x51 = (float)((const double *)self->mem[15])[slice];
    const float *restrict r = (const float *)self->mem[4] + offset;
    float *restrict x54 = (float *)self->mem[16] + offset;
    for (int i = 0; i < count; i++) {
        x54[i] = 1.0f / sqrtf(r[i] / x51);
    }
}

/* One pass over the elements: reads p g tmp16 tmp14; folds into part9 part17. 8 + 0 bytes. */
static void step_8_map_matrix(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    float fold_buf[OPTC_CHUNK];
    float sum_lanes[OPTC_LANES];
    optc_start_sumf(sum_lanes, OPTC_LANES);
    float fold_buf_2[OPTC_CHUNK];
    float sum_lanes_2[OPTC_LANES];
    optc_start_sumf(sum_lanes_2, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_CHUNK) {
        const int len = optc_least(count - from, OPTC_CHUNK);
        for (int done = 0, run; done < len; done += run) {             /* one row's part of the chunk at a time */
            const long long offset = start + from + done, row = offset / self->cols, slice = row / self->rows, col = offset - row * self->cols;
            run = optc_least(self->cols - col, len - done);
            const float *restrict p = (const float *)self->mem[0] + offset;
            optc_fetch(p + 2 * run, sizeof *p);
            const float *restrict g = (const float *)self->mem[1] + offset;
            optc_fetch(g + 2 * run, sizeof *g);
            const float x54 = ((const float *)self->mem[16])[row];
            const float *restrict x64 = (const float *)self->mem[14] + slice * self->cols + col;
            for (int i = 0; i < run; i++) {
                const float p_i = p[i];
                const float u = g[i] * x54 * x64[i];
                fold_buf[done + i] = p_i * p_i;
                fold_buf_2[done + i] = u * u;
            }
        }
        optc_lanes_sumf(sum_lanes, fold_buf, len);
        optc_lanes_sumf(sum_lanes_2, fold_buf_2, len);
    }
    ((float *)self->mem[9])[unit] = optc_tree_sumf(sum_lanes, OPTC_LANES);
    ((float *)self->mem[17])[unit] = optc_tree_sumf(sum_lanes_2, OPTC_LANES);
}

/* Once a tensor: reads tmp6 tmp12; writes tmp18 tmp19. 8 + 16 bytes. */
static void step_9_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double eps2 = self->hyper[5];
    const double numel = (double)(self->n);
    const double weight_decay = self->hyper[7];
    const double sum9 = optc_finish_sumf((const float *)self->mem[8], optc_up(self->n, OPTC_SEG));
    const double rate = ((const double *)self->mem[6])[0];
    const double x38 = ((const double *)self->mem[12])[0];
    const double rate_2 = rate * optc_max(eps2, sqrt(sum9 / numel));
    ((double *)self->mem[18])[0] = rate_2 * weight_decay;
    ((double *)self->mem[19])[0] = rate_2 / x38;
}

/* Once a tensor: reads tmp6; writes tmp18 tmp20. 0 + 16 bytes. */
static void step_10_tensor_matrix(const optc_view *self, long long unit)
{
    (void)unit;
    const double eps2 = self->hyper[5];
    const double numel = (double)(self->n);
    const double weight_decay = self->hyper[7];
    const double clip_threshold = self->hyper[2];
    const double sum9 = optc_finish_sumf((const float *)self->mem[9], optc_up(self->n, OPTC_SEG));
    const double sum67 = optc_finish_sumf((const float *)self->mem[17], optc_up(self->n, OPTC_SEG));
    const double rate = ((const double *)self->mem[6])[0];
    const double rate_2 = rate * optc_max(eps2, sqrt(sum9 / numel));
    ((double *)self->mem[18])[0] = rate_2 * weight_decay;
    ((double *)self->mem[20])[0] = rate_2 / optc_max(1.0, sqrt(sum67 / numel) / clip_threshold);
}

/* One pass over the elements: reads p tmp18 g v tmp19; writes p. 12 + 4 bytes. */
static void step_11_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float x16 = (float)((const double *)self->mem[18])[0];
    const float x39 = (float)((const double *)self->mem[19])[0];
    float *restrict p = (float *)self->mem[0] + offset;
    const float *restrict g = (const float *)self->mem[1] + offset;
    const float *restrict v = (const float *)self->mem[5] + offset;
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float u = g[i] / sqrtf(v[i]);
        const float u_2 = x39 * u;
        p[i] = p_i - x16 * p_i - u_2;
    }
}

/* One pass over the elements: reads p tmp18 g tmp16 tmp14 tmp20; writes p. 8 + 4 bytes. */
static void step_12_map_matrix(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float x16 = (float)((const double *)self->mem[18])[0];
    const float x72 = (float)((const double *)self->mem[20])[0];
    for (int from = 0; from < count; from += OPTC_CHUNK) {
        const int len = optc_least(count - from, OPTC_CHUNK);
        for (int done = 0, run; done < len; done += run) {             /* one row's part of the chunk at a time */
            const long long offset = start + from + done, row = offset / self->cols, slice = row / self->rows, col = offset - row * self->cols;
            run = optc_least(self->cols - col, len - done);
            float *restrict p = (float *)self->mem[0] + offset;
            optc_fetch(p + 2 * run, sizeof *p);
            const float *restrict g = (const float *)self->mem[1] + offset;
            optc_fetch(g + 2 * run, sizeof *g);
            const float x54 = ((const float *)self->mem[16])[row];
            const float *restrict x64 = (const float *)self->mem[14] + slice * self->cols + col;
            for (int i = 0; i < run; i++) {
                const float p_i = p[i];
                const float u = g[i] * x54 * x64[i];
                const float u_2 = x72 * u;
                p[i] = p_i - x16 * p_i - u_2;
            }
        }
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map, step_2_tile_matrix, step_3_tensor, step_4_row_matrix, step_5_col_matrix, step_6_slice_matrix, step_7_row_matrix, step_8_map_matrix, step_9_tensor, step_10_tensor_matrix, step_11_map, step_12_map_matrix };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

/* ---- the stages of adamw ---- */
/* Once a group: writes tmp6 tmp7 tmp8 tmp9 tmp10. 0 + 40 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[4];
    const double weight_decay = self->hyper[5];
    const double beta1 = self->hyper[1];
    const double t = self->hyper[0];
    const double beta2 = self->hyper[2];
    ((double *)self->mem[6])[0] = lr * weight_decay;
    ((double *)self->mem[7])[0] = lr / (1.0 - optc_powi(beta1, t));
    ((double *)self->mem[8])[0] = 1.0 - beta1;
    ((double *)self->mem[9])[0] = 1.0 / sqrt(1.0 - optc_powi(beta2, t));
    ((double *)self->mem[10])[0] = 1.0 - beta2;
}

/* One pass over the elements: reads g; folds into part11. 4 + 0 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    float fold_buf[OPTC_CHUNK];
    float sum_lanes[OPTC_LANES];
    optc_start_sumf(sum_lanes, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_CHUNK) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_CHUNK);
        const float *restrict g = (const float *)self->mem[1] + offset;
        optc_fetch(g + 2 * len, sizeof *g);
        for (int i = 0; i < len; i++) {
            const float g_i = g[i];
            fold_buf[i] = g_i * g_i;
        }
        optc_lanes_sumf(sum_lanes, fold_buf, len);
    }
    ((float *)self->mem[11])[unit] = optc_tree_sumf(sum_lanes, OPTC_LANES);
}

/* Once a tensor:; folds into part12. 0 + 0 bytes. */
static void step_2_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double sum18 = optc_finish_sumf((const float *)self->mem[11], optc_up(self->n, OPTC_SEG));
    ((double *)self->mem[12])[self->id] = sum18;
}

/* Once a group: writes tmp13. 0 + 8 bytes. */
static void step_3_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double clip_max_norm = self->hyper[7];
    const double clip_eps = self->hyper[6];
    const double sum19 = optc_finish_sum((const double *)self->mem[12], self->ntensors);
    ((double *)self->mem[13])[0] = optc_min(1.0, clip_max_norm / (sqrt(sum19) + clip_eps));
}

/* One pass over the elements: reads p tmp6 tmp7 m tmp8 g tmp13 tmp9 v tmp10; writes m v; folds into part11. 16 + 8 bytes. */
static void step_4_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float x4 = (float)((const double *)self->mem[6])[0];
    const float x12 = (float)((const double *)self->mem[7])[0];
    const float x14 = (float)((const double *)self->mem[8])[0];
    const float x24 = (float)((const double *)self->mem[13])[0];
    const float x34 = (float)((const double *)self->mem[9])[0];
    const float x36 = (float)((const double *)self->mem[10])[0];
    float fold_buf[OPTC_CHUNK];
    float sum_lanes[OPTC_LANES];
    optc_start_sumf(sum_lanes, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_CHUNK) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_CHUNK);
        const float *restrict p = (const float *)self->mem[0] + offset;
        float *restrict m = (float *)self->mem[2] + offset;
        const float *restrict g = (const float *)self->mem[1] + offset;
        float *restrict v = (float *)self->mem[3] + offset;
        for (int i = 0; i < len; i++) {
            const float p_i = p[i];
            const float m_i = m[i];
            const float g_i = g[i];
            const float v_i = v[i];
            const float x25 = x24 * g_i;
            const float m_new = m_i + x14 * (x25 - m_i);
            const float s = v_i + x36 * (x25 * x25 - v_i);
            const float x46 = p_i - x4 * p_i - x12 * m_new / (x34 * sqrtf(s) + eps);
            const float u = p_i - x46;
            const int agrees = 0.0f < u * g_i;
            fold_buf[i] = agrees ? 1.0f : 0.0f;
            m[i] = m_new;
            v[i] = s;
        }
        optc_lanes_sumf(sum_lanes, fold_buf, len);
    }
    ((float *)self->mem[11])[unit] = optc_tree_sumf(sum_lanes, OPTC_LANES);
}

/* Once a tensor: writes tmp14. 0 + 8 bytes. */
static void step_5_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double numel = (double)(self->n);
    const double cautious_min_share = self->hyper[8];
    const double sum51 = optc_finish_sumf((const float *)self->mem[11], optc_up(self->n, OPTC_SEG));
    const double share = sum51 / numel;
    ((double *)self->mem[14])[0] = 1.0 / optc_max(share, cautious_min_share);
}

/* One pass over the elements: reads p tmp6 tmp7 g m tmp9 v tmp14 ema.avg; writes p ema.avg. 20 + 8 bytes. */
static void step_6_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float ema_decay = (float)self->hyper[9];
    const float x4 = (float)((const double *)self->mem[6])[0];
    const float x12 = (float)((const double *)self->mem[7])[0];
    const float x34 = (float)((const double *)self->mem[9])[0];
    const float x56 = (float)((const double *)self->mem[14])[0];
    float *restrict p = (float *)self->mem[0] + offset;
    const float *restrict g = (const float *)self->mem[1] + offset;
    const float *restrict m = (const float *)self->mem[2] + offset;
    const float *restrict v = (const float *)self->mem[3] + offset;
    float *restrict ema_avg = (float *)self->mem[5] + offset;
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float ema_avg_i = ema_avg[i];
        const float x46 = p_i - x4 * p_i - x12 * m[i] / (x34 * sqrtf(v[i]) + eps);
        const float u = p_i - x46;
        const int agrees = 0.0f < u * g[i];
        const float p_new = p_i - (agrees ? (x56 * u) : 0.0f);
        p[i] = p_new;
        ema_avg[i] = p_new + ema_decay * (ema_avg_i - p_new);
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map, step_2_tensor, step_3_group, step_4_map, step_5_tensor, step_6_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

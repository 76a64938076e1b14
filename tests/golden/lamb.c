/* ---- the stages of lamb ---- */
/* Once a group: writes tmp4 tmp5 tmp6 tmp7. 0 + 32 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double beta1 = self->hyper[1];
    const double t = self->hyper[0];
    const double beta2 = self->hyper[2];
    ((double *)self->mem[4])[0] = 1.0 / (1.0 - optc_powi(beta1, t));
    ((double *)self->mem[5])[0] = 1.0 - beta1;
    ((double *)self->mem[6])[0] = 1.0 / sqrt(1.0 - optc_powi(beta2, t));
    ((double *)self->mem[7])[0] = 1.0 - beta2;
}

/* One pass over the elements: reads p tmp4 m tmp5 g tmp6 v tmp7; writes m v; folds into part8 part9. 16 + 8 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float weight_decay = (float)self->hyper[5];
    const float x12 = (float)((const double *)self->mem[4])[0];
    const float x14 = (float)((const double *)self->mem[5])[0];
    const float x24 = (float)((const double *)self->mem[6])[0];
    const float x26 = (float)((const double *)self->mem[7])[0];
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
        float *restrict m = (float *)self->mem[2] + offset;
        const float *restrict g = (const float *)self->mem[1] + offset;
        float *restrict v = (float *)self->mem[3] + offset;
        for (int i = 0; i < len; i++) {
            const float p_i = p[i];
            const float m_i = m[i];
            const float g_i = g[i];
            const float v_i = v[i];
            const float m_new = m_i + x14 * (g_i - m_i);
            const float v_new = v_i + x26 * (g_i * g_i - v_i);
            const float u = x12 * m_new / (x24 * sqrtf(v_new) + eps) + weight_decay * p_i;
            fold_buf[i] = p_i * p_i;
            fold_buf_2[i] = u * u;
            m[i] = m_new;
            v[i] = v_new;
        }
        optc_lanes_sumf(sum_lanes, fold_buf, len);
        optc_lanes_sumf(sum_lanes_2, fold_buf_2, len);
    }
    ((float *)self->mem[8])[unit] = optc_tree_sumf(sum_lanes, OPTC_LANES);
    ((float *)self->mem[9])[unit] = optc_tree_sumf(sum_lanes_2, OPTC_LANES);
}

/* Once a tensor: writes tmp10. 0 + 8 bytes. */
static void step_2_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[4];
    const double sum4 = optc_finish_sumf((const float *)self->mem[8], optc_up(self->n, OPTC_SEG));
    const double sum40 = optc_finish_sumf((const float *)self->mem[9], optc_up(self->n, OPTC_SEG));
    const double pn = sqrt(sum4);
    const double un = sqrt(sum40);
    const double ratio = ((0.0 < pn) & (0.0 < un)) ? (pn / un) : 1.0;
    ((double *)self->mem[10])[0] = lr * ratio;
}

/* One pass over the elements: reads p tmp4 m tmp6 v tmp10; writes p. 12 + 4 bytes. */
static void step_3_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float weight_decay = (float)self->hyper[5];
    const float x12 = (float)((const double *)self->mem[4])[0];
    const float x24 = (float)((const double *)self->mem[6])[0];
    const float x46 = (float)((const double *)self->mem[10])[0];
    float *restrict p = (float *)self->mem[0] + offset;
    const float *restrict m = (const float *)self->mem[2] + offset;
    const float *restrict v = (const float *)self->mem[3] + offset;
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float u = x12 * m[i] / (x24 * sqrtf(v[i]) + eps) + weight_decay * p_i;
        p[i] = p_i - x46 * u;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map, step_2_tensor, step_3_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

/* ---- the stages of lamb ---- */
/* Arrays by number. */
enum {
    at_p = 0, at_g = 1, at_k = 2, at_m = 3, at_v = 4, at_one_over_one_minus_beta1_pow_k_new = 5,
    at_one_minus_beta1 = 6, at_one_over_sqrt_one_minus_beta2_pow_k_new = 7, at_one_minus_beta2 = 8, at_pn = 9,
    at_un = 10, at_lr_times_ratio = 11
};

/* Once a group: reads k; writes k one_over_one_minus_beta1_pow_k_new one_minus_beta1
 * one_over_sqrt_one_minus_beta2_pow_k_new one_minus_beta2. 8 + 40 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double beta1 = self->hyper[1];
    const double beta2 = self->hyper[2];
    const double k = ((const double *)self->mem[at_k])[0];
    const double k_new = k + 1.0;
    ((double *)self->mem[at_k])[0] = k_new;
    ((double *)self->mem[at_one_over_one_minus_beta1_pow_k_new])[0] = 1.0 / (1.0 - optc_pow(beta1, k_new));
    ((double *)self->mem[at_one_minus_beta1])[0] = 1.0 - beta1;
    ((double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_k_new])[0] = 1.0 / sqrt(1.0 - optc_pow(beta2, k_new));
    ((double *)self->mem[at_one_minus_beta2])[0] = 1.0 - beta2;
}

/* One pass over the elements: reads p one_over_one_minus_beta1_pow_k_new m one_minus_beta1 g
 * one_over_sqrt_one_minus_beta2_pow_k_new v one_minus_beta2; writes m v; folds into pn un. 16 + 8 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float beta2 = (float)self->hyper[2];
    const float eps = (float)self->hyper[3];
    const float weight_decay = (float)self->hyper[5];
    const float one_over_one_minus_beta1_pow_k_new =
            (float)((const double *)self->mem[at_one_over_one_minus_beta1_pow_k_new])[0];
    const float one_minus_beta1 = (float)((const double *)self->mem[at_one_minus_beta1])[0];
    const float one_over_sqrt_one_minus_beta2_pow_k_new =
            (float)((const double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_k_new])[0];
    const float one_minus_beta2 = (float)((const double *)self->mem[at_one_minus_beta2])[0];
    double pn_lanes[OPTC_LANES];
    optc_start_sum(pn_lanes, OPTC_LANES);
    double un_lanes[OPTC_LANES];
    optc_start_sum(un_lanes, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_LANES) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_LANES);
        const float *restrict p = (const float *)self->mem[at_p] + offset;
        float *restrict m = (float *)self->mem[at_m] + offset;
        const float *restrict g = (const float *)self->mem[at_g] + offset;
        float *restrict v = (float *)self->mem[at_v] + offset;
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float p_i = p[i];
            const float m_i = m[i];
            const float g_i = g[i];
            const float v_i = v[i];
            const float m_new = m_i + one_minus_beta1 * (g_i - m_i);
            const float v_new = beta2 * v_i + one_minus_beta2 * g_i * g_i;
            const float u = one_over_one_minus_beta1_pow_k_new * m_new /
                    (one_over_sqrt_one_minus_beta2_pow_k_new * sqrtf(v_new) + eps) + weight_decay * p_i;
            pn_lanes[i] += (double)p_i * (double)p_i;
            un_lanes[i] += (double)u * (double)u;
            m[i] = m_new;
            v[i] = v_new;
        }
    }
    ((double *)self->mem[at_pn])[self->first / OPTC_SEG + unit] = optc_tree_sum(pn_lanes, OPTC_LANES);
    ((double *)self->mem[at_un])[self->first / OPTC_SEG + unit] = optc_tree_sum(un_lanes, OPTC_LANES);
}

/* Once a tensor: writes lr_times_ratio. 0 + 8 bytes. */
static void step_2_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[4];
    const double pn_squares = optc_finish_sum((const double *)self->mem[at_pn], optc_up(self->whole_n, OPTC_SEG));
    const double pn = sqrt(pn_squares);
    const double un_squares = optc_finish_sum((const double *)self->mem[at_un], optc_up(self->whole_n, OPTC_SEG));
    const double un = sqrt(un_squares);
    const double ratio = ((0.0 < pn) & (0.0 < un)) ? (pn / un) : 1.0;
    ((double *)self->mem[at_lr_times_ratio])[0] = lr * ratio;
}

/* One pass over the elements: reads p one_over_one_minus_beta1_pow_k_new m
 * one_over_sqrt_one_minus_beta2_pow_k_new v lr_times_ratio; writes p. 12 + 4 bytes. */
static void step_3_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float weight_decay = (float)self->hyper[5];
    const float one_over_one_minus_beta1_pow_k_new =
            (float)((const double *)self->mem[at_one_over_one_minus_beta1_pow_k_new])[0];
    const float one_over_sqrt_one_minus_beta2_pow_k_new =
            (float)((const double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_k_new])[0];
    const float lr_times_ratio = (float)((const double *)self->mem[at_lr_times_ratio])[0];
    float *restrict p = (float *)self->mem[at_p] + offset;
    const float *restrict m = (const float *)self->mem[at_m] + offset;
    const float *restrict v = (const float *)self->mem[at_v] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float u = one_over_one_minus_beta1_pow_k_new * m[i] /
                (one_over_sqrt_one_minus_beta2_pow_k_new * sqrtf(v[i]) + eps) + weight_decay * p_i;
        p[i] = p_i - lr_times_ratio * u;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map, step_2_tensor, step_3_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

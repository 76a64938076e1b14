/* ---- the stages of adamw ---- */
/* Arrays by number. */
enum {
    at_p = 0, at_g = 1, at_m = 2, at_v = 3, at_lr_times_weight_decay = 5,
    at_lr_over_one_minus_beta1_pow_t = 6, at_one_minus_beta1 = 7, at_one_over_sqrt_one_minus_beta2_pow_t = 8,
    at_one_minus_beta2 = 9
};

/* Once a group: writes lr_times_weight_decay lr_over_one_minus_beta1_pow_t one_minus_beta1
 * one_over_sqrt_one_minus_beta2_pow_t one_minus_beta2. 0 + 40 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[4];
    const double weight_decay = self->hyper[5];
    const double beta1 = self->hyper[1];
    const double t = self->hyper[0];
    const double beta2 = self->hyper[2];
    ((double *)self->mem[at_lr_times_weight_decay])[0] = lr * weight_decay;
    ((double *)self->mem[at_lr_over_one_minus_beta1_pow_t])[0] = lr / (1.0 - optc_powi(beta1, t));
    ((double *)self->mem[at_one_minus_beta1])[0] = 1.0 - beta1;
    ((double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_t])[0] = 1.0 / sqrt(1.0 - optc_powi(beta2, t));
    ((double *)self->mem[at_one_minus_beta2])[0] = 1.0 - beta2;
}

/* One pass over the elements: reads p lr_times_weight_decay lr_over_one_minus_beta1_pow_t m one_minus_beta1 g
 * one_over_sqrt_one_minus_beta2_pow_t v one_minus_beta2; writes p m v. 16 + 12 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float beta2 = (float)self->hyper[2];
    const float eps = (float)self->hyper[3];
    const float lr_times_weight_decay = (float)((const double *)self->mem[at_lr_times_weight_decay])[0];
    const float lr_over_one_minus_beta1_pow_t = (float)((const double *)self->mem[at_lr_over_one_minus_beta1_pow_t])[0];
    const float one_minus_beta1 = (float)((const double *)self->mem[at_one_minus_beta1])[0];
    const float one_over_sqrt_one_minus_beta2_pow_t =
            (float)((const double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_t])[0];
    const float one_minus_beta2 = (float)((const double *)self->mem[at_one_minus_beta2])[0];
    float *restrict p = (float *)self->mem[at_p] + offset;
    float *restrict m = (float *)self->mem[at_m] + offset;
    const float *restrict g = (const float *)self->mem[at_g] + offset;
    float *restrict v = (float *)self->mem[at_v] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float m_i = m[i];
        const float g_i = g[i];
        const float v_i = v[i];
        const float m_new = m_i + one_minus_beta1 * (g_i - m_i);
        const float v_new = beta2 * v_i + one_minus_beta2 * g_i * g_i;
        const float p_new = p_i - lr_times_weight_decay * p_i -
                lr_over_one_minus_beta1_pow_t * m_new / (one_over_sqrt_one_minus_beta2_pow_t * sqrtf(v_new) + eps);
        p[i] = p_new;
        m[i] = m_new;
        v[i] = v_new;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

/* ---- the stages of adamw ---- */
/* Once a group: writes tmp5 tmp6 tmp7 tmp8 tmp9. 0 + 40 bytes. */
static void step_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double lr = self->hyper[4];
    const double weight_decay = self->hyper[5];
    const double beta1 = self->hyper[1];
    const double t = self->hyper[0];
    const double beta2 = self->hyper[2];
    ((double *)self->mem[5])[0] = lr * weight_decay;
    ((double *)self->mem[6])[0] = lr / (1.0 - optc_powi(beta1, t));
    ((double *)self->mem[7])[0] = 1.0 - beta1;
    ((double *)self->mem[8])[0] = 1.0 / sqrt(1.0 - optc_powi(beta2, t));
    ((double *)self->mem[9])[0] = 1.0 - beta2;
}

/* One pass over the elements: reads p tmp5 tmp6 m tmp7 g tmp8 v tmp9; writes p m v. 16 + 12 bytes. */
static void step_1_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float x3 = (float)((const double *)self->mem[5])[0];
    const float x11 = (float)((const double *)self->mem[6])[0];
    const float x13 = (float)((const double *)self->mem[7])[0];
    const float x23 = (float)((const double *)self->mem[8])[0];
    const float x25 = (float)((const double *)self->mem[9])[0];
    float *restrict p = (float *)self->mem[0] + offset;
    float *restrict m = (float *)self->mem[2] + offset;
    const float *restrict g = (const float *)self->mem[1] + offset;
    float *restrict v = (float *)self->mem[3] + offset;
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float m_i = m[i];
        const float g_i = g[i];
        const float v_i = v[i];
        const float m_new = m_i + x13 * (g_i - m_i);
        const float s = v_i + x25 * (g_i * g_i - v_i);
        const float p_new = p_i - x3 * p_i - x11 * m_new / (x23 * sqrtf(s) + eps);
        p[i] = p_new;
        m[i] = m_new;
        v[i] = s;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

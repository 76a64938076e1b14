/* ---- the stages of sgd ---- */
/* Arrays by number. */
enum {
    at_p = 0, at_g = 1, at_b = 2, at_lookahead_slow = 3, at_share = 4
};

/* Once a group: writes share. 0 + 8 bytes. */
static void step_phase0_0_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double t = self->hyper[0];
    const double dampening = self->hyper[1];
    const double share = (t == 1.0) ? 1.0 : (1.0 - dampening);
    ((double *)self->mem[at_share])[0] = share;
}

/* One pass over the elements: reads p b share g; writes p b. 12 + 8 bytes. */
static void step_phase0_1_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float lr = (float)self->hyper[2];
    const float momentum = (float)self->hyper[3];
    const float weight_decay = (float)self->hyper[4];
    const float share = (float)((const double *)self->mem[at_share])[0];
    float *restrict p = (float *)self->mem[at_p] + offset;
    float *restrict b = (float *)self->mem[at_b] + offset;
    const float *restrict g = (const float *)self->mem[at_g] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float p_i = p[i];
        const float b_i = b[i];
        const float d = g[i] + weight_decay * p_i;
        const float b_new = momentum * b_i + share * d;
        p[i] = p_i - lr * b_new;
        b[i] = b_new;
    }
}

/* Once a group: writes share. 0 + 8 bytes. */
static void step_phase1_2_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double t = self->hyper[0];
    const double dampening = self->hyper[1];
    const double share = (t == 1.0) ? 1.0 : (1.0 - dampening);
    ((double *)self->mem[at_share])[0] = share;
}

/* One pass over the elements: reads lookahead.slow p b share g; writes p b lookahead.slow. 16 + 12 bytes. */
static void step_phase1_3_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float lookahead_alpha = (float)self->hyper[5];
    const float lr = (float)self->hyper[2];
    const float momentum = (float)self->hyper[3];
    const float weight_decay = (float)self->hyper[4];
    const float share = (float)((const double *)self->mem[at_share])[0];
    float *restrict lookahead_slow = (float *)self->mem[at_lookahead_slow] + offset;
    float *restrict p = (float *)self->mem[at_p] + offset;
    float *restrict b = (float *)self->mem[at_b] + offset;
    const float *restrict g = (const float *)self->mem[at_g] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float lookahead_slow_i = lookahead_slow[i];
        const float p_i = p[i];
        const float b_i = b[i];
        const float d = g[i] + weight_decay * p_i;
        const float b_new = momentum * b_i + share * d;
        const float p_new = lookahead_slow_i + lookahead_alpha * (p_i - lr * b_new - lookahead_slow_i);
        p[i] = p_new;
        b[i] = b_new;
        lookahead_slow[i] = p_new;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_phase0_0_group, step_phase0_1_map, step_phase1_2_group,
        step_phase1_3_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

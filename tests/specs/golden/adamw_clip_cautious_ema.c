/* ---- the stages of adamw ---- */
/* Arrays by number. */
enum {
    at_p = 0, at_g = 1, at_m = 2, at_v = 3, at_clip_grad_norm = 5, at_ema_avg = 6, at_ema_exchanged = 7,
    at_lr_times_weight_decay = 8, at_lr_over_one_minus_beta1_pow_t = 9, at_one_minus_beta1 = 10,
    at_one_over_sqrt_one_minus_beta2_pow_t = 11, at_one_minus_beta2 = 12, at_if_it_is = 13, at_norm_g = 14,
    at_global_sum_norm_g_squared = 15, at_min_one_clip_max_norm_over_add = 16, at_sum_one_where_agrees = 17,
    at_one_over_max_share_cautious_min_share = 18
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

/* Once a tensor: reads ema.exchanged; writes ema.exchanged if_it_is. 8 + 16 bytes. */
static void step_1_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double ema_exchanged = ((const double *)self->mem[at_ema_exchanged])[0];
    const int if_it_is = 0.0 < ema_exchanged;
    ((double *)self->mem[at_ema_exchanged])[0] = 0.0;
    ((double *)self->mem[at_if_it_is])[0] = if_it_is;
}

/* One pass over the elements: reads g; folds into norm_g. 4 + 0 bytes. */
static void step_2_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    double norm_g_lanes[OPTC_LANES];
    optc_start_sum(norm_g_lanes, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_LANES) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_LANES);
        const float *restrict g = (const float *)self->mem[at_g] + offset;
        optc_fetch(g + OPTC_AHEAD, OPTC_LANES * sizeof *g);
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            norm_g_lanes[i] += (double)g[i] * (double)g[i];
        }
    }
    ((double *)self->mem[at_norm_g])[self->first / OPTC_SEG + unit] = optc_tree_sum(norm_g_lanes, OPTC_LANES);
}

/* Once a tensor: folds into global_sum_norm_g_squared. 0 + 0 bytes. */
static void step_3_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    if (self->n < 0) {
        ((double *)self->mem[at_global_sum_norm_g_squared])[self->id] = 0.0;
        return;
    }
    const double norm_g_squares = optc_finish_sum((const double *)self->mem[at_norm_g],
            optc_up(self->whole_n, OPTC_SEG));
    const double norm_g = sqrt(norm_g_squares);
    ((double *)self->mem[at_global_sum_norm_g_squared])[self->id] = norm_g * norm_g;
}

/* Once a group: writes clip.grad_norm min_one_clip_max_norm_over_add. 0 + 16 bytes. */
static void step_4_group(const optc_view *self, long long unit)
{
    (void)unit;
    const double clip_max_norm = self->hyper[7];
    const double clip_eps = self->hyper[6];
    const double global_sum_norm_g_squared =
            optc_finish_sum((const double *)self->mem[at_global_sum_norm_g_squared], self->ntensors);
    const double clip_grad_norm_new = sqrt(global_sum_norm_g_squared);
    ((double *)self->mem[at_clip_grad_norm])[0] = clip_grad_norm_new;
    ((double *)self->mem[at_min_one_clip_max_norm_over_add])[0] =
            optc_min(1.0, clip_max_norm / (clip_grad_norm_new + clip_eps));
}

/* One pass over the elements: reads if_it_is ema.avg p lr_times_weight_decay lr_over_one_minus_beta1_pow_t m
 * one_minus_beta1 g min_one_clip_max_norm_over_add one_over_sqrt_one_minus_beta2_pow_t v one_minus_beta2; writes
 * m v; folds into sum_one_where_agrees. 20 + 8 bytes. */
static void step_5_map(const optc_view *self, long long unit)
{
    const long long start = unit * OPTC_SEG;
    const int count = optc_least(self->n - start, OPTC_SEG);
    const float beta2 = (float)self->hyper[2];
    const float eps = (float)self->hyper[3];
    const int if_it_is = ((const double *)self->mem[at_if_it_is])[0] != 0;
    const float lr_times_weight_decay = (float)((const double *)self->mem[at_lr_times_weight_decay])[0];
    const float lr_over_one_minus_beta1_pow_t = (float)((const double *)self->mem[at_lr_over_one_minus_beta1_pow_t])[0];
    const float one_minus_beta1 = (float)((const double *)self->mem[at_one_minus_beta1])[0];
    const float min_one_clip_max_norm_over_add =
            (float)((const double *)self->mem[at_min_one_clip_max_norm_over_add])[0];
    const float one_over_sqrt_one_minus_beta2_pow_t =
            (float)((const double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_t])[0];
    const float one_minus_beta2 = (float)((const double *)self->mem[at_one_minus_beta2])[0];
    float sum_one_where_agrees_lanes[OPTC_LANES];
    optc_start_sumf(sum_one_where_agrees_lanes, OPTC_LANES);
    for (int from = 0; from < count; from += OPTC_LANES) {
        const long long offset = start + from;
        const int len = optc_least(count - from, OPTC_LANES);
        const float *restrict ema_avg = (const float *)self->mem[at_ema_avg] + offset;
        const float *restrict p = (const float *)self->mem[at_p] + offset;
        float *restrict m = (float *)self->mem[at_m] + offset;
        const float *restrict g = (const float *)self->mem[at_g] + offset;
        float *restrict v = (float *)self->mem[at_v] + offset;
        OPTC_EACH
        for (int i = 0; i < len; i++) {
            const float m_i = m[i];
            const float g_i = g[i];
            const float v_i = v[i];
            const float before = if_it_is ? ema_avg[i] : p[i];
            const float min_one_clip_max_norm_over_add_times_g = min_one_clip_max_norm_over_add * g_i;
            const float m_new = m_i + one_minus_beta1 * (min_one_clip_max_norm_over_add_times_g - m_i);
            const float v_new = beta2 * v_i + one_minus_beta2 * min_one_clip_max_norm_over_add_times_g *
                    min_one_clip_max_norm_over_add_times_g;
            const float before_minus_mul_minus_mul_over_add = before - lr_times_weight_decay * before -
                    lr_over_one_minus_beta1_pow_t * m_new / (one_over_sqrt_one_minus_beta2_pow_t * sqrtf(v_new) + eps);
            const float u = before - before_minus_mul_minus_mul_over_add;
            const int agrees = 0.0f < u * g_i;
            sum_one_where_agrees_lanes[i] += agrees ? 1.0f : 0.0f;
            m[i] = m_new;
            v[i] = v_new;
        }
    }
    ((float *)self->mem[at_sum_one_where_agrees])[self->first / OPTC_SEG + unit] =
            optc_tree_sumf(sum_one_where_agrees_lanes, OPTC_LANES);
}

/* Once a tensor: writes one_over_max_share_cautious_min_share. 0 + 8 bytes. */
static void step_6_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double numel = (double)(self->whole_n);
    const double cautious_min_share = self->hyper[8];
    const double sum_one_where_agrees = optc_finish_sumf((const float *)self->mem[at_sum_one_where_agrees],
            optc_up(self->whole_n, OPTC_SEG));
    const double share = sum_one_where_agrees / numel;
    ((double *)self->mem[at_one_over_max_share_cautious_min_share])[0] = 1.0 / optc_max(share, cautious_min_share);
}

/* One pass over the elements: reads if_it_is ema.avg p lr_times_weight_decay lr_over_one_minus_beta1_pow_t g m
 * one_over_sqrt_one_minus_beta2_pow_t v one_over_max_share_cautious_min_share; writes p ema.avg. 20 + 8 bytes. */
static void step_7_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const float eps = (float)self->hyper[3];
    const float ema_decay = (float)self->hyper[9];
    const int if_it_is = ((const double *)self->mem[at_if_it_is])[0] != 0;
    const float lr_times_weight_decay = (float)((const double *)self->mem[at_lr_times_weight_decay])[0];
    const float lr_over_one_minus_beta1_pow_t = (float)((const double *)self->mem[at_lr_over_one_minus_beta1_pow_t])[0];
    const float one_over_sqrt_one_minus_beta2_pow_t =
            (float)((const double *)self->mem[at_one_over_sqrt_one_minus_beta2_pow_t])[0];
    const float one_over_max_share_cautious_min_share =
            (float)((const double *)self->mem[at_one_over_max_share_cautious_min_share])[0];
    float *restrict ema_avg = (float *)self->mem[at_ema_avg] + offset;
    float *restrict p = (float *)self->mem[at_p] + offset;
    const float *restrict g = (const float *)self->mem[at_g] + offset;
    const float *restrict m = (const float *)self->mem[at_m] + offset;
    const float *restrict v = (const float *)self->mem[at_v] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float ema_avg_i = ema_avg[i];
        const float p_i = p[i];
        const float before = if_it_is ? ema_avg_i : p_i;
        const float before_minus_mul_minus_mul_over_add = before - lr_times_weight_decay * before -
                lr_over_one_minus_beta1_pow_t * m[i] / (one_over_sqrt_one_minus_beta2_pow_t * sqrtf(v[i]) + eps);
        const float u = before - before_minus_mul_minus_mul_over_add;
        const int agrees = 0.0f < u * g[i];
        const float kept = agrees ? (one_over_max_share_cautious_min_share * u) : 0.0f;
        const float p_new = before - kept;
        p[i] = p_new;
        ema_avg[i] = p_new + ema_decay * ((if_it_is ? p_i : ema_avg_i) - p_new);
    }
}

/* Once a tensor: reads ema.exchanged; writes ema.exchanged if_it_is. 8 + 16 bytes. */
static void to_eval_8_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double ema_exchanged = ((const double *)self->mem[at_ema_exchanged])[0];
    const int if_it_is = ema_exchanged == 0.0;
    ((double *)self->mem[at_ema_exchanged])[0] = 1.0;
    ((double *)self->mem[at_if_it_is])[0] = if_it_is;
}

/* One pass over the elements: reads if_it_is ema.avg p; writes p ema.avg. 8 + 8 bytes. */
static void to_eval_9_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const int if_it_is = ((const double *)self->mem[at_if_it_is])[0] != 0;
    float *restrict ema_avg = (float *)self->mem[at_ema_avg] + offset;
    float *restrict p = (float *)self->mem[at_p] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float ema_avg_i = ema_avg[i];
        const float p_i = p[i];
        p[i] = if_it_is ? ema_avg_i : p_i;
        ema_avg[i] = if_it_is ? p_i : ema_avg_i;
    }
}

/* Once a tensor: reads ema.exchanged; writes ema.exchanged if_it_is. 8 + 16 bytes. */
static void to_train_10_tensor(const optc_view *self, long long unit)
{
    (void)unit;
    const double ema_exchanged = ((const double *)self->mem[at_ema_exchanged])[0];
    const int if_it_is = 0.0 < ema_exchanged;
    ((double *)self->mem[at_ema_exchanged])[0] = 0.0;
    ((double *)self->mem[at_if_it_is])[0] = if_it_is;
}

/* One pass over the elements: reads if_it_is ema.avg p; writes p ema.avg. 8 + 8 bytes. */
static void to_train_11_map(const optc_view *self, long long unit)
{
    const long long offset = unit * OPTC_SEG;
    const int count = optc_least(self->n - offset, OPTC_SEG);
    const int if_it_is = ((const double *)self->mem[at_if_it_is])[0] != 0;
    float *restrict ema_avg = (float *)self->mem[at_ema_avg] + offset;
    float *restrict p = (float *)self->mem[at_p] + offset;
    OPTC_EACH
    for (int i = 0; i < count; i++) {
        const float ema_avg_i = ema_avg[i];
        const float p_i = p[i];
        p[i] = if_it_is ? ema_avg_i : p_i;
        ema_avg[i] = if_it_is ? p_i : ema_avg_i;
    }
}


#ifndef OPTC_MODULE
#define OPTC_MODULE optc_rule_module
#endif
extern const optc_module OPTC_MODULE;
static const optc_stage_fn stages[] = { step_0_group, step_1_tensor, step_2_map, step_3_tensor, step_4_group,
        step_5_map, step_6_tensor, step_7_map, to_eval_8_tensor, to_eval_9_map, to_train_10_tensor, to_train_11_map };
const optc_module OPTC_MODULE = { OPTC_ABI, sizeof stages / sizeof *stages, stages };

-- As the authors' code (DepenM/Simplified-AdEMAMix dba14d0). m is a sum, not a mean: lr is smaller
-- than AdamW's by 1 - beta1. beta1_warmup = 0: no warm-up of beta1 (their None).
-- f32 range: v is infinite from |g| = 8.2e19 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "simplified_ademamix",
  cite  = "Morwani et al. 2025, arXiv:2502.02431",
  use   = "In place of AdEMAMix to save one state, mostly with small batches",
  family = "adam", follows = "DepenM/Simplified-AdEMAMix dba14d0",
  doc   = "AdamW of a summed momentum plus alpha times the gradient: AdEMAMix with one momentum",
  hyper = {
    lr = { 1e-4, min = 0 }, beta1 = { 0.99, above = 0, below = 1 },
    beta2 = { 0.95, min = 0, below = 1 },
    alpha = { 0, min = 0 }, beta1_warmup = { 0, min = 0 }, eps = { 1e-8, min = 0 },
    weight_decay = { 0, min = 0 },
    min_beta1 = { 0.9, above = 0, below = 1 },
  },
  options = { bias_correction1 = false, bias_correction2 = true },
  state = { m = zeros, v = zeros, num_sum = zeros "tensor" },
  step = function()
    local x, from, to = t / max(beta1_warmup, 1), log(min_beta1 + 1e-8), log(beta1 + 1e-8)
    -- half-life grows evenly
    local b1 = where(lt(t, beta1_warmup), exp(from * to / ((1 - x) * to + x * from)), beta1)
    local root, rate = sqrt(1 - beta2 ^ t), 1
    m = b1 * m + g
    v = beta2 * v + (1 - beta2) * g * g
    if bias_correction1 then
      num_sum = b1 * num_sum + 1
      rate = 1 / num_sum
    end
    if bias_correction2 then rate = rate * root end
    p = descend(p, rate * (alpha * g + m) / (sqrt(v) + eps * root), lr, weight_decay)
  end,
}

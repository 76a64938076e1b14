-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As the authors' package prodigyopt 1.1.2 without slice_p. d is one number for all tensors and
-- groups. The step uses the d of the step before it, and its eps the new d. A group with lr = 0
-- does not change; theirs still applies decoupled decay to it. Theirs refuses groups of two other
-- rates; here each steps with its own. beta3 = 0: the square root of beta2 (the authors' None).
-- f32 range: v is infinite from |d g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "prodigy",
  cite  = "Mishchenko and Defazio 2024, arXiv:2306.06101",
  use   = "In place of AdamW when the rate is unknown, as for fine-tuning of diffusion models",
  family = "no rate", follows = "prodigyopt.Prodigy 1.1.2",
  doc   = "AdamW whose step size d is estimated from the distance to the first weights; lr stays 1",
  hyper = {
    lr = { 1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 }, beta2 = { 0.999, min = 0, below = 1 },
    beta3 = { 0, min = 0, below = 1 }, eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 },
    d0 = { 1e-6, above = 0 }, d_coef = { 1, above = 0 },
    growth_rate = { inf, above = 1, max = inf },
  },
  options = { decouple = true, use_bias_correction = false, safeguard_warmup = false },
  state = {
    p0 = copy(p), m = zeros, v = zeros, s = zeros,
    d = fill(d0, "group"), d_max = fill(d0, "group"), d_numerator = zeros "group",
    k = zeros "group",
  },
  step = function()
    local b3 = where(gt(beta3, 0), beta3, sqrt(beta2))
    local rate, x = d * lr, g
    if use_bias_correction then
      k = k + 1
      rate = rate * sqrt(1 - beta2 ^ k) / (1 - beta1 ^ k)
    end
    if not decouple then x = g + weight_decay * p end
    local share = d / d0 * rate
    if safeguard_warmup then share = d / d0 * d end
    when(gt(lr, 0), function()
      m = beta1 * m + (d * (1 - beta1)) * x
      v = beta2 * v + (d * d * (1 - beta2)) * x * x
      s = b3 * s + share * x
    end)
    local total = global.sum(where(gt(lr, 0), sum(abs(s)), 0))
    local gain = global.sum(where(gt(lr, 0), d / d0 * rate * dot(x, p0 - p), 0))
    when(gt(total, 0), function()
      d_numerator = b3 * d_numerator + gain
      local d_hat = d_coef * d_numerator / total
      d_max = max(d_max, d_hat)
      d = min(d_max, where(eq(d, d0), max(d, d_hat), d) * growth_rate)
      when(gt(lr, 0), function()
        if decouple then p = shrink(p, rate * weight_decay) end
        p = descend(p, { m, over = sqrt(v) + d * eps }, rate)
      end)
    end)
  end,
}

-- As DAdaptAdan of the authors' package dadaptation 3.2. d is one number for all tensors and
-- groups; the step uses the d of the step before it. Weights of a group with lr = 0 stand still
-- here, and its v is updated; theirs steps all groups with the lr of the first. Until the first
-- step with lr > 0 the change of gradients is 0, as theirs is.
-- f32 range: v is infinite once |x| exceeds 1.8e20 (sqrt(3.4e38 / (1 - beta3))): the element stands
-- still from then on.
return optimizer {
  name  = "dadapt_adan",
  cite  = "Defazio and Mishchenko 2023, arXiv:2301.07733; Adan: Xie et al. 2022, arXiv:2208.06677",
  use   = "In place of Adan when the rate is unknown",
  family = "no rate", follows = "dadaptation.DAdaptAdan 3.2",
  doc   = "Adan whose step size d is a growing lower bound of the distance to the solution; lr " ..
          "stays 1",
  hyper = {
    lr = { 1, min = 0 }, beta1 = { 0.98, min = 0, below = 1 }, beta2 = { 0.92, min = 0, below = 1 },
    beta3 = { 0.99, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0.02, min = 0 },
    d0 = { 1e-6, above = 0 }, growth_rate = { inf, above = 1, max = inf },
  },
  options = { no_prox = false },                -- true: weight decay as in AdamW
  state = { m = zeros, diff = zeros, v = zeros, s = zeros, g_old = zeros, d = fill(d0, "group"),
            seen = zeros "group" },
  step = function()
    local rate, change = d * lr, where(both(gt(t, 1), gt(seen, 0)), g - g_old, 0)
    local x = g + beta2 * change
    v = beta3 * v + (1 - beta3) * x * x
    when(gt(lr, 0), function()
      m = beta1 * m + (rate * (1 - beta1)) * g
      diff = beta2 * diff + (rate * (1 - beta2)) * change
      s = beta3 * s + (rate * (1 - beta3)) * g
      if no_prox then p = p - (rate * weight_decay) * p end
      p = p - (m + beta2 * diff) / (sqrt(v) + eps)
      if not no_prox then p = (1 / (1 + rate * weight_decay)) * p end
    end)
    g_old = g
    local scale, total = sqrt(v) + eps, global.sum(abs(s))
    -- squares overflow
    local far, gain = global.sum(s * (s / scale)), global.sum(rate * rate * sum(g * (g / scale)))
    when(gt(total, 0), function()
      seen = beta3 * seen + (1 - beta3) * gain
      d = max(d, min((far / (1 - beta3) - seen) / total, d * growth_rate))
    end)
  end,
}

-- clip_power: 0.25, as in the authors' code (iShohei220/adopt). timm has 1/3, as clip_exp.
-- f32 range: v is infinite from |g| = 1.8e21 on (sqrt(3.4e38 / (1 - beta2)); 1.8e19 at step 1): the
-- element's update is 0 from then on. |g| under 1e-20 adds 0 to v; sqrt(v) counts as eps long
-- before that.
return optimizer {
  name  = "adopt",
  cite  = "Taniguchi et al. 2024, arXiv:2411.02853",
  use   = "In place of Adam when training is unstable; by its paper it converges with any beta2",
  family = "adam", follows = "timm.optim.Adopt 1.0.30",
  doc   = "Adam that normalises by the second moment before this gradient, then takes momentum; " ..
          "step 1 only starts v",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.9999, min = 0, below = 1 },
    eps = { 1e-6, min = 0 }, clip_power = { 0.25, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { clip = true, decoupled = false },   -- decoupled: weight decay as in AdamW
  state = { m = zeros, v = zeros },
  step = function()
    local first = eq(t, 1)
    local d = g
    if decoupled then p = shrink(p, where(first, 0, lr * weight_decay)) else
      d = g + weight_decay * p end
    local u = where(first, 0, d / max(sqrt(v), eps))
    if clip then
      local c = max(t - 1, 1) ^ clip_power
      u = clamp(u, -c, c)
    end
    m = lerp(m, u, where(first, 0, 1 - beta1))
    v = beta2 * v + where(first, 1, 1 - beta2) * d * d
    p = descend(p, m, lr)
  end,
}

local radial_part = include "radial_part"

-- Adam's update, before the step size.
local function direction()
  m = lerp(m, g, 1 - beta1)
  v = beta2 * v + (1 - beta2) * g * g
  local n = m
  if nesterov then n = lerp(g, m, beta1) end
  return n / ((1 / sqrt(1 - beta2 ^ t)) * sqrt(v) + eps)
end

-- The component of the update along a scale-invariant weight would only lengthen it, and is
-- removed.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: the
-- element stands still from then on. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before
-- that.
return optimizer {
  name  = "adamp",
  cite  = "Heo et al. 2021, arXiv:2006.08217",
  use   = "For networks with batch or layer normalisation, whose weights are scale-invariant",
  family = "adam", follows = "timm.optim.AdamP 1.0.30",
  doc   = "AdamW without the radial part of updates to scale-invariant weights",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 },
    delta = { 0.1, min = 0 }, wd_ratio = { 0.1, min = 0, max = 1 },
  },
  options = { nesterov = false },
  state = { m = zeros, v = zeros },
  step = function()
    local u = direction()
    p = descend(shrink(p, lr * weight_decay, "factor"), u, lr / (1 - beta1 ^ t))
  end,
  matrix = function()
    local u = direction()
    local radial, by_row, by_all = radial_part(u)
    local decay = weight_decay * where(either(by_row, by_all), wd_ratio, 1)
    p = descend(shrink(p, lr * decay, "factor"), u - radial * p, lr / (1 - beta1 ^ t))
  end,
}

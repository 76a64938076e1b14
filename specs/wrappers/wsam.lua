-- The rule steps by the gradient at the weights. The difference to the gradient uphill, the sharpness, is a step of its
-- own with weight gamma / (1 - gamma): `decouple`. Without it, the rule steps by the weighted sum of both gradients.
return wrapper {
  name  = "wsam",
  cite  = "Yue et al. 2023, arXiv:2305.15817",
  use   = "In place of sam when the weight of the sharpness should be tuned",
  family = "sharpness", follows = "pytorch_optimizer.WSAM 4.1.0",
  doc   = "SAM with a weight of the sharpness, which is a step of its own; entries perturb and step",
  args  = { "rho", "gamma" },
  hyper = { rho = { 0.05, min = 0 }, gamma = { 0.9, min = 0, below = 1 }, eps = { 1e-12, min = 0 } },
  options = { adaptive = false, decouple = true },
  state = { saved = copy(p), first = zeros { type = "f32" }, up = zeros "tensor" },
  gradients = { "perturb", "step" },
  perturb = function()
    saved = where(gt(up, 0), saved, p)
    local size, uphill = global.norm(g), g
    if adaptive then size, uphill = global.norm(saved * g), saved * saved * g end
    p = where(isfinite(size), saved + (rho / (size + eps)) * uphill, saved)
    first, up = g, where(isfinite(size), 1, 0)       -- a gradient that is not finite is not used
  end,
  step  = function()
    local weight = gamma / (1 - gamma)
    p = where(gt(up, 0), saved, p)
    local here, uphill = where(gt(up, 0), first, g), g
    up = 0
    if decouple then
      g = here
      local x, rate, amount = inner { apart = true }
      p = shrink(p, amount)
      p = descend(p, x, rate)
      p = p - rate * weight * (uphill - here)
    else
      g = lerp(uphill, here, 1 - weight)
      inner()
    end
  end,
}

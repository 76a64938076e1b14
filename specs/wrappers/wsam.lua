-- The sharpness term is the gradient uphill minus the gradient at the weights, times gamma / (1 -
-- gamma). With `decouple` the rule steps by the gradient at the weights, and the term is a step of
-- its own. Without it the rule steps by the weighted sum of both gradients.
local uphill = include "uphill"

return wrapper {
  name  = "wsam",
  cite  = "Yue et al. 2023, arXiv:2305.15817",
  use   = "In place of sam when the weight of the sharpness should be tuned",
  family = "sharpness", follows = "pytorch_optimizer.WSAM 4.1.0",
  doc   = "SAM whose sharpness term has a weight and is a step of its own; entries perturb and " ..
          "step",
  args  = { "rho", "gamma" },
  hyper = { rho = { 0.05, min = 0 }, gamma = { 0.9, min = 0, below = 1 },
            eps = { 1e-12, min = 0 } },
  options = { adaptive = false, decouple = true },
  state = { saved = copy(p), first = zeros { type = "f32" }, up = zeros "tensor" },
  gradients = { "perturb", "step" },
  perturb = function() uphill.climb_and_keep() end,
  step  = function()
    local weight = gamma / (1 - gamma)
    uphill.return_to_saved()
    local here, there = where(gt(up, 0), first, g), g
    up = 0
    if decouple then
      g = here
      local x, rate, amount = inner { apart = true }
      p = shrink(p, amount)
      p = descend(p, x, rate)
      p = p - rate * weight * (there - here)
    else
      g = lerp(there, here, 1 - weight)
      inner()
    end
  end,
}

-- As sam, but the point uphill leaves out the mean of earlier gradients: what is left is the noise
-- of the batch. Follows pytorch_optimizer 4.1: the first step perturbs by the gradient itself. A
-- tensor may miss either entry, as with sam.
local uphill = include "uphill"

return wrapper {
  name  = "friendlysam",
  cite  = "Li et al. 2024, arXiv:2403.12350",
  use   = "In place of sam when the noise of the batch should define the perturbation",
  family = "sharpness", follows = "pytorch_optimizer.FriendlySAM 4.1.0",
  doc   = "SAM whose perturbation leaves out the mean of earlier gradients; entries perturb and " ..
          "step",
  args  = { "rho", "sigma" },
  hyper = {
    rho = { 0.05, min = 0 }, sigma = { 1, min = 0 }, lmbda = { 0.9, min = 0, max = 1 },
    eps = { 1e-12, min = 0 },
  },
  options = { adaptive = false },
  state = { saved = copy(p), mean_g = zeros, seen = zeros "tensor", up = zeros "tensor" },
  gradients = { "perturb", "step" },
  perturb = function()
    local size = uphill.climb(g - sigma * mean_g)
    when(isfinite(size), function()                  -- a gradient that is not finite is not used
      mean_g = where(gt(seen, 0), lerp(mean_g, g, 1 - lmbda), g)
      seen = 1
    end)
    up = 1
  end,
  step  = function()
    uphill.return_to_saved()
    up = 0
    inner()
  end,
}

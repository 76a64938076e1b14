-- One step in k computes the gradient uphill, as sam does, and keeps v: its part orthogonal to the
-- gradient at the weights. The other steps take one gradient and add v, scaled to its norm. k = 1
-- is sam. Follows pytorch_optimizer
-- 4.1: norms are per tensor, the first step is one with two gradients. A tensor may miss either
-- entry, as with sam.
local uphill = include "uphill"

return wrapper {
  name  = "looksam",
  cite  = "Liu et al. 2022, arXiv:2203.02714",
  use   = "In place of sam when two gradients at each step are too expensive",
  family = "sharpness", follows = "pytorch_optimizer.LookSAM 4.1.0",
  doc   = "SAM with a second gradient at one step in k; entries perturb and step",
  args  = { "rho", "k" },
  hyper = { rho = { 0.1, min = 0 }, alpha = { 0.7, min = 0 }, eps = { 1e-12, min = 0 } },
  options = { k = 10, adaptive = false },
  state = { saved = copy(p), first = zeros { type = "f32" }, v = zeros { type = "f32" },
            up = zeros "tensor" },
  gradients = { { "perturb", every = "k", offset = 1 }, "step" },
  perturb = function() uphill.climb_and_keep() end,
  step  = function()
    local here, size = g, norm(g)
    g = g + alpha * (size / (norm(v) + 1e-8)) * v
    every(k, { offset = 1 }, function()
      local a, b = first / max(norm(first), eps), here / max(size, eps)
      v = where(gt(up, 0), here - (size * sum(a * b)) * a, v)
      g = here
    end)
    uphill.return_to_saved()
    up = 0
    inner()
  end,
}

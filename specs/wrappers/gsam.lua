-- As sam, but the step leaves out a part of the first gradient: what is orthogonal to the second
-- one grows the gap between the loss uphill and the loss here. rho and alpha are fixed here; the
-- paper lowers rho with lr, by the caller.
local uphill = include "uphill"

return wrapper {
  name  = "gsam",
  cite  = "Zhuang et al. 2022, arXiv:2203.08065",
  use   = "In place of sam when flat minima should also have a low loss",
  family = "sharpness", follows = "pytorch_optimizer.GSAM 4.1.0",
  doc   = "SAM that also lowers the gap between the loss uphill and at the weights; entries " ..
          "perturb and step",
  args  = { "rho", "alpha" },
  hyper = { rho = { 0.05, min = 0 }, alpha = { 0.4, min = 0, max = 1 }, eps = { 1e-12, min = 0 } },
  options = { adaptive = false },
  state = { saved = copy(p), first = zeros { type = "f32" }, up = zeros "tensor" },
  gradients = { "perturb", "step" },
  perturb = function() uphill.climb_and_keep() end,
  step  = function()
    uphill.return_to_saved()
    local f = where(gt(up, 0), first, 0)
    local n, nf = global.norm(g), global.norm(f)
    local cosine = global.sum(f * g) / (n * nf + eps)
    g = g - alpha * (f - (cosine * nf) * g / (n + eps))
    up = 0
    inner()
  end,
}

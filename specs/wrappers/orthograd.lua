-- As the authors' code (LucasPrietoAl/grokking-at-the-edge-of-numerical-stability 0cc9e8d). eps,
-- 1e-30 there, is added to the squared norm of the weights and to the norm of the projected
-- gradient. Of a scalar's gradient only rounding errors are left: step scalars by another rule.
return wrapper {
  name  = "orthograd",
  cite  = "Prieto et al. 2025, arXiv:2501.04697",
  use   = "When logits grow without bound, as in grokking; not for scalars",
  family = "gradient",
  follows = "LucasPrietoAl/grokking-at-the-edge-of-numerical-stability 0cc9e8d",
  doc   = "Removes the part of each gradient along its weights and restores the gradient's norm",
  hyper = { eps = { 1e-30, above = 0 } },
  step  = function()
    local rest = g - (dot(p, g) / (norm(p) ^ 2 + eps)) * p
    g = (norm(g) / (norm(rest) + eps)) * rest
    inner()
  end,
}

-- apart=true: decoupled weight decay is not masked, as in the authors' code and in timm, for rules
-- that make their step by shrink and descend. Without it the wrapper sees only the change of the
-- weights, and masks decay with the rest.
return wrapper {
  name  = "cautious",
  cite  = "Liang et al. 2024, arXiv:2411.16085",
  use   = "With rules that have momentum, whose old gradients may disagree with the new one",
  family = "step",
  follows = "timm.optim.AdamWLegacy 1.0.30 and timm.optim.SGDW 1.0.30 with caution",
  doc   = "Drops the parts of a step that go against the gradient, and scales up the rest to " ..
          "keep its mean size",
  hyper = { min_share = { 1e-3, above = 0, max = 1 } },
  options = { apart = false },
  step  = function()
    local before, grad, u, rate, amount = p, g
    if apart then
      u, rate, amount = inner { apart = true }
    else
      inner()
      u = before - p
    end
    local agrees = gt(u * grad, 0)
    local share = mean(where(agrees, 1, 0))
    local kept = where(agrees, (1 / max(share, min_share)) * u, 0)
    if apart then p = descend(shrink(p, amount), kept, rate) else p = before - kept end
  end,
}

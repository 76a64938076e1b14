-- The wrapper sees only the change of the weights, so decoupled weight decay is masked with the rest of the step.
return wrapper {
  name  = "cautious",
  cite  = "Liang et al. 2024, arXiv:2411.16085",
  doc   = "Drops the parts of a step that go against the gradient, and scales up the rest to keep its mean size",
  hyper = { min_share = { 1e-3, above = 0, max = 1 } },
  step  = function()
    local before, grad = p, g
    inner()
    local u = before - p
    local agrees = gt(u * grad, 0)
    local share = mean(where(agrees, 1, 0))
    p = before - where(agrees, (1 / max(share, min_share)) * u, 0)
  end,
}

-- As the authors' code (jxbz/fromage 4a6593b). bounded: the norm of a tensor stays within p_bound
-- of its first one.
return optimizer {
  name  = "fromage",
  cite  = "Bernstein et al. 2020, arXiv:2002.03432",
  use   = "For GANs and networks whose layers differ in scale; one rate serves all layers",
  family = "momentum", follows = "jxbz/fromage 4a6593b",
  doc   = "Gradients scaled to the norm of their weights, which are then divided by sqrt(1 + lr^2)",
  hyper = { lr = { 0.01, min = 0 }, p_bound = { 2, min = 0 } },
  options = { bounded = false },
  state = { first = zeros "tensor" },
  step = function()
    local pn, gn = norm(p), norm(g)
    p = (p - (lr * where(both(gt(pn, 0), gt(gn, 0)), pn / gn, 1)) * g) / sqrt(1 + lr * lr)
    if bounded then
      first = where(eq(t, 1), pn, first)
      local now = norm(p)
      p = where(gt(now, p_bound * first), p_bound * first / now, 1) * p
    end
  end,
}

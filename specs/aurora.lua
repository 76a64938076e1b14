-- As the authors' code (tilde-research/aurora-release 3d79a5c). Rows of tall matrices, columns of
-- wide ones, are scaled before the polar factor is taken, so that those of the factor come out
-- equally long. Square ones are not scaled.
-- products: f16, as in muon.
return optimizer {
  name  = "aurora",
  cite  = "Aurora, 2026, github.com/tilde-research/aurora-release",
  use   = "In place of Muon when rows of tall matrices get updates of very different size",
  family = "muon", follows = "tilde-research/aurora-release 3d79a5c",
  doc   = "Muon with rows (or columns) of the polar factor at equal norms; AdamW for what is no " ..
          "matrix",
  hyper = {
    lr = { 0.05, min = 0 }, momentum = { 0.95, min = 0, below = 1 }, pp_beta = { 0.5, above = 0 },
    eps = { 1e-7, above = 0 }, weight_decay = { 0.025, min = 0 },
  },
  options = { nesterov = true, pp_iterations = 2 },
  products = "f16",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    local function factor(x)
      return polar(x, { steps = 12, coefficients = { { 2, -1.5, 0.5 } } })
    end
    m = lerp(m, g, 1 - momentum)
    local u, o = m
    if nesterov then u = lerp(g, m, momentum) end
    local length, share = rownorm, ncols / nrows
    local wide = nrows <= ncols
    if wide then length, share = colnorm, nrows / ncols end
    if wide and ncols <= nrows then             -- square
      o = factor(u)
    else
      local d = 1 / max(length(u), eps)
      for k = 1, pp_iterations do
        o = factor(d * u)
        if k < pp_iterations then d = d * (share / max(length(o) ^ 2, eps * eps)) ^ pp_beta end
      end
    end
    p = descend(shrink(p, lr * weight_decay), o, lr * sqrt(max(1, nrows / ncols)))
  end,
}

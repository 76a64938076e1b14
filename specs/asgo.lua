-- The authors compute the root with the PolarExpress iteration. Here it is power(), which needs
-- relative_eps.
-- products: f32. The root amplifies small eigenvalues of the Gram matrix; in 11 bits these would be
-- rounding errors.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it no root can be made, and the last one stays. Gram matrices under 1e-45 are 0: eps decides the
-- direction there.
return optimizer {
  name  = "asgo",
  cite  = "An et al. 2025, arXiv:2503.20762, its authors' code; Xie et al. 2025, " ..
          "arXiv:2503.10537 (one-sided Shampoo)",
  use   = "In place of Shampoo when only one of the two factors is affordable",
  family = "shampoo", follows = "infinity-stars/ASGO d3ef14b",
  doc   = "Momentum times the inverse root of one Gram matrix, that of the smaller side; AdamW " ..
          "for what is no matrix",
  hyper = {
    lr = { 0.01, min = 0 }, momentum = { 0.9, min = 0, below = 1 }, weight_decay = { 0.1, min = 0 },
    beta2 = { 0.8, min = 0, below = 1 }, eps = { 1e-10, min = 0 }, relative_eps = { 1e-6, min = 0 },
  },
  -- steps between roots; rms: 0.2 per element, as AdamW
  options = { interval = 1, scale = { "rms", "none" } },
  products = "f32",
  state = { m = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"), Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    local flat, u = nrows < ncols
    m = lerp(m, g, 1 - momentum)
    if flat then L = lerp(L, gram(g), 1 - beta2) else R = lerp(R, gram(g.T), 1 - beta2) end
    every(interval, { first = true }, function()
      if flat then X = power(L, -1/2, { ridge = eps, relative = relative_eps, last = X })
      else Y = power(R, -1/2, { ridge = eps, relative = relative_eps, last = Y }) end
    end)
    if flat then u = mm(X, m) else u = mm(m, Y) end
    if scale == "rms" then u = (0.2 * sqrt(nrows * ncols) / max(slice.norm(u), 1e-30)) * u end
    p = descend(shrink(p, lr * weight_decay), u, lr)
  end,
}

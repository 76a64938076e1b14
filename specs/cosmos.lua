-- As the authors' code (lliu606/COSMOS 61de180). Adam steps the part of the gradient in
-- `directions` right singular vectors (their rank), which follow by one power iteration a step;
-- Muon steps the rest. Both together get the norm sqrt(elements). limit: AdamW steps matrices with
-- more rows, as they do. Their nestrov=False uses no momentum at all and is left out.
-- products: f32. Rounding errors in the power iteration rotate the directions. f64 for the first
-- directions, as squares in f32 lose what their SVD keeps.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it the directions stay; at step 1 there are none, and Muon steps the matrix from then on.
return optimizer {
  name  = "cosmos",
  cite  = "Liu et al. 2025, arXiv:2502.17410",
  use   = "For language models when SOAP's state does not fit and Muon alone is not enough",
  family = "shampoo", follows = "lliu606/COSMOS 61de180",
  doc   = "SOAP's step in the leading directions of the gradient and Muon's in the others; " ..
          "AdamW for the rest",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, above = 0 }, lr_ratio = { 0.1, min = 0 }, weight_decay = { 0, min = 0 },
    gamma = { 0.2, min = 0 },
  },
  options = { directions = 64, limit = 10000 },
  rank  = "directions",
  products = "f32",
  state = { m = zeros, P = zeros "cols rank", S = zeros "rank", v = zeros "rows rank" },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit then return step() end
    m = beta1 * m + g
    local Q = qr(beta2 * mm(P, S) + (1 - beta2) * mm(g.T, mm(g, P)), { last = P })
    local turn, first, exact, U, _ = mm(P.T, Q), eq(t, 1), { products = "f64" }
    local kept = mm(turn.T, mm(S, turn))
    P = Q
    -- right singular vectors, by way of the shorter side
    every(1e9, { offset = 1 }, function()
      if nrows <= ncols then
        _, U = eigh(gram(g, exact), "rank")
        P = qr(mm(g.T, U, exact), { last = P })
      else
        _, P = eigh(gram(g.T, exact), "rank", { last = P })
      end
    end)
    local low = mm(g, P)
    S = beta2 * where(first, 0, kept) + (1 - beta2) * gram(low.T)
    v = beta2 * v + (1 - beta2) * low * low
    local fair = (1 - beta1 ^ t) / (1 - beta1)
    local x = (g + beta1 * m) / (1 + beta1 * fair)
    local h = mm(x, P)
    local rest = polar(x - mm(h, P.T), { eps = 1e-7 })
    local size = sqrt(nrows * ncols)
    local u = mm(h / (sqrt(v) / sqrt(1 - beta2 ^ t) + eps), P.T)
      + (gamma * size / (slice.norm(rest) + eps)) * rest
    p = descend(shrink(p, lr * weight_decay), u, lr * lr_ratio * size / (slice.norm(u) + eps))
  end,
}

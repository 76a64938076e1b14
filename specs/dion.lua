-- The authors call momentum mu and directions rank.
-- products: f32. The part outside of the low rank stays in m; rounding to 11 bits would lose it.
return optimizer {
  name  = "dion",
  cite  = "Ahn et al. 2025, arXiv:2504.05295",
  use   = "In place of Muon when matrices are sharded and full products are too expensive",
  family = "muon", follows = "microsoft/dion 0a059a4",
  doc   = "Muon of low rank: one power iteration of the momentum, whose rest stays for later " ..
          "steps; " ..
          "AdamW for what is no matrix",
  hyper = {
    lr = { 0.01, min = 0 }, momentum = { 0.95, min = 0, max = 1 }, eps = { 1e-8, min = 0 },
    weight_decay = { 0.01, min = 0 },
  },
  options = { directions = 768 },
  rank  = "directions",
  products = "f32",
  state = { m = zeros, Q = zeros "cols rank" },
  step  = rule "adamw",
  matrix = function()
    local b, q = m + g, where(eq(t, 1), normal "cols rank", Q)
    local P = qr(mm(b, q))
    local R = mm(b.T, P)
    local W = R / (colnorm(R) + eps)
    m = b - (1 - momentum) * mm(P, R.T)
    p = descend(shrink(p, lr * weight_decay), mm(P, W.T), lr * sqrt(nrows / ncols))
    Q = where(gt(slice.max(abs(R)), 0), W, q)   -- R is zero: keep the directions
  end,
}

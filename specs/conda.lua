-- As the authors' code (jie040109/Conda 449af71) with proj_type std: the basis is that of the
-- shorter side, by the singular vectors of m. v keeps its place when the basis turns. Their step
-- counts from 0: the basis turns at steps 1, update_proj_gap + 1, …
-- products: f32, and f64 for the Gram matrix: squares in f32 lose the directions below 1e-3 of the
-- largest, which the authors' SVD of m keeps.
return optimizer {
  name  = "conda",
  cite  = "Wang et al. 2025, arXiv:2509.24218",
  use   = "For language models when SOAP's two bases cost too much",
  family = "shampoo", follows = "jie040109/Conda 449af71",
  doc   = "Adam in the singular vectors of the momentum, on the shorter side; AdamW for what is " ..
          "no matrix",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 }, scale = { 1, min = 0 },
  },
  options = { update_proj_gap = 2000 },
  products = "f32",
  state = { m = zeros, v = zeros, U = eye(1, "rows"), V = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - beta1)
    local left, exact, _ = nrows < ncols, { products = "f64" }
    every(update_proj_gap, { offset = 1 }, function()
      if left then _, U = eigh(gram(m, exact), { last = U }) else
        _, V = eigh(gram(m.T, exact), { last = V }) end
    end)
    local function into(x) if left then return mm(U.T, x) else return mm(x, V) end end
    local function back(x) if left then return mm(U, x) else return mm(x, V.T) end end
    local d = into(g)
    v = beta2 * v + (1 - beta2) * d * d
    p = descend(p, back(into(m) / (sqrt(v) + eps)),
                lr * scale * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t))
    p = shrink(p, lr * weight_decay)
  end,
}

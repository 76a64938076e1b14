-- As REKLS of NVIDIA's Emerging-Optimizers fd77292: KL-SOAP with eigenvectors of the present
-- factors at every step. Each step computes all eigenvectors, as theirs does, which takes longer
-- than all of its other work. klsoap has a period.
-- Rectangles: as klsoap.
-- limit: they have none; AdamW steps matrices with a longer side.
-- products: f32. Rounding errors in the factors rotate the basis.
-- f32 range: as klsoap.
return optimizer {
  name  = "rekls",
  cite  = "NVIDIA 2026, Emerging-Optimizers; Lin et al. 2025, arXiv:2509.03378",
  use   = "As the exact form of klsoap, for small matrices or as a reference",
  family = "shampoo", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "KL-SOAP whose basis is computed anew at every step; AdamW for the rest and for sides " ..
          "over the limit",
  hyper = {
    lr = { 3e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.95, min = 0, below = 1 },
    shampoo_beta = { 0.95, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0.01, min = 0 },
  },
  options = { limit = 4096 },
  products = "f32",
  state = { m = zeros, v = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"),
            Y = eye(1, "cols"),
            a = zeros "row", b = zeros "col" },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    local w = (1 - shampoo_beta) / (1 - shampoo_beta ^ t)
    local l, r = mm(g, Y) * rsqrt(max(b, eps)), mm(X.T, g) * rsqrt(max(a, eps))
    L, R = lerp(L, gram(l) / ncols, w), lerp(R, gram(r.T) / nrows, w)
    local u = mm(mm(X, m), Y.T)
    a, X = eigh(L, { last = X })
    b, Y = eigh(R, { last = Y })
    local h = mm(mm(X.T, g), Y)
    m = lerp(mm(mm(X.T, u), Y), h, 1 - beta1)
    v = beta2 * v + (1 - beta2) * h * h
    p = shrink(p, lr * weight_decay)
    p = descend(p, mm(mm(X, m / (sqrt(v / (1 - beta2 ^ t)) + eps)), Y.T), lr / (1 - beta1 ^ t))
  end,
}

-- As SOAP of NVIDIA's Emerging-Optimizers fd77292 with use_kl_shampoo: the factors are those of
-- KL-Shampoo, the basis turns at every step by one power iteration. rekls computes it anew at every
-- step.
-- Directions are sorted at every step and v is not permuted, unlike in soap: so does their code,
-- although the docstring of update_eigenbasis_and_exp_avgs says that exp_avg_sq is permuted.
-- The factor of a rectangle's longer side has not its full rank in the first steps. The rest of its
-- basis is arbitrary then, here and there, and steps in it differ between solvers.
-- limit: they have none, but a square of the size of a vocabulary fits on no GPU; AdamW steps such
-- matrices.
-- products: f32. Rounding errors in the factors rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it the last basis stays, at step 1 the identity.
local measured = include("power_iteration").measured
local function turned(A, Q)
  local w, q = measured(A, Q)
  local order = sort(w)
  return take(w, order), take(q, order, "cols")
end

return optimizer {
  name  = "klsoap",
  cite  = "Lin et al. 2025, arXiv:2509.03378",
  use   = "In place of SOAP when its factors should be fitted to each other, as in KL-Shampoo",
  family = "shampoo", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Adam in the eigenvectors of KL-Shampoo's factors; AdamW for the rest and for sides " ..
          "over the limit",
  hyper = {
    lr = { 3e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.95, min = 0, below = 1 },
    shampoo_beta = { 0.95, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0.01, min = 0 },
  },
  options = { nesterov = false, correct_bias = true, limit = 4096 },
  products = "f32",
  state = { m = zeros, v = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"),
            Y = eye(1, "cols"),
            a = zeros "row", b = zeros "col" },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    local w, c1, c2, c3 = 1 - shampoo_beta, 1, 1, 1
    if correct_bias then
      w, c1, c2, c3 = w / (1 - shampoo_beta ^ t), 1 - beta1 ^ t, 1 - beta2 ^ t, 1 - beta1 ^ (t + 1)
    end
    local l, r = mm(g, Y) * rsqrt(max(b, eps)), mm(X.T, g) * rsqrt(max(a, eps))
    L, R = lerp(L, gram(l) / ncols, w), lerp(R, gram(r.T) / nrows, w)
    local u = mm(mm(X, m), Y.T)
    local of_rows
    of_rows, X = turned(L, X)
    b, Y = turned(R, Y)
    a = of_rows.T
    every(1e9, { offset = 1 }, function()
      a, X = eigh(L, { last = X })
      b, Y = eigh(R, { last = Y })
    end)
    local h = mm(mm(X.T, g), Y)
    m = lerp(mm(mm(X.T, u), Y), h, 1 - beta1)
    v = beta2 * v + (1 - beta2) * h * h
    local x = m / c1
    if nesterov then x = beta1 * m / c3 + (1 - beta1) * h / c1 end
    p = shrink(p, lr * weight_decay)
    p = descend(p, mm(mm(X, x / (sqrt(v / c2) + eps)), Y.T), lr)
  end,
}

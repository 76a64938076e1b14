local function kept(a, x, n)                    -- 1 / sqrt(eigenvalue) is at most `most`
  local most = max(10, min(n, 4000))
  return max(beta2 * a + (1 - beta2) * x, 1 / (most * most))
end

-- limit: the authors have none, but a square of the size of a vocabulary fits on no GPU. Tensors of
-- three and more dimensions are viewed as dim 0 x the rest; the authors keep a factor for each of
-- three axes.
-- products: f32. Rounding errors in the factors would rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it no basis can be made, and the last one stays; at step 1 there is none, and the matrix becomes
-- NaN. Eigenvalues have a floor, which tiny gradients meet. A step divides by the moments of the
-- gradients before it, as the authors' code does: a gradient k times as large as those moves the
-- weights k times as far, in f64 too (measured at k = 1e6 and 1e18). Clip them.
return optimizer {
  name  = "klshampoo",
  cite  = "Lin et al. 2025, arXiv:2509.03378, as its authors' code has it",
  use   = "In place of Shampoo when grafting is not wanted",
  family = "shampoo", follows = "yorkerlin/KL-Methods a02e622",
  doc   = "Shampoo whose two factors are fitted to each other, with eigenvalues from every " ..
          "step; " ..
          "AdamW for the rest and for sides over the limit",
  hyper = {
    lr = { 1e-4, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.98, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0.01, min = 0 },
  },
  -- first: initial eigenvalues
  options = { interval = 10, limit = 4096, first = 0.1, start = { "eigh", "identity" } },
  products = "f32",
  state = { m = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"), Y = eye(1, "cols"),
            a = fill(first, "row"), b = fill(first, "col") },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    -- the first gradient only starts the basis
    local left, right, late, _ = mm(X.T, g), mm(g, Y), gt(t, 1)
    local h = mm(left, Y)
    local x, y = rowmean(h * h / b), colmean(h * h / a)
    local mean = lerp(m, g, 1 - beta1)
    local turned = mm(mm(X.T, mean), Y)
    local even = turned / (sqrt(a) * sqrt(b) + eps)
    when(late, function()
      m, p = mean, descend(p, mm(mm(X, even), Y.T), lr)
      p = shrink(p, lr * weight_decay)
    end)
    local l, r = right * where(late, rsqrt(b), 1), left * where(late, rsqrt(a), 1)
    L, R = lerp(L, gram(l) / ncols, 1 - beta2), lerp(R, gram(r.T) / nrows, 1 - beta2)
    when(late, function() a, b = kept(a, x, nrows), kept(b, y, ncols) end)
    local function turn() X, Y = qr(mm(L, X), { last = X }), qr(mm(R, Y), { last = Y }) end
    every(interval, { offset = 1 }, function() when(late, turn) end)
    if start == "eigh" then
      every(1e9, { offset = 1 }, function() _, X = eigh(L)  _, Y = eigh(R) end)
    end
  end,
}

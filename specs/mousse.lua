-- As the authors' code (Anti-Entrophic/Mousse d00c1bf), which multiplies by the inverse powers
-- before and after polar. Their LR_correction is left out: it cancels when factors are divided by
-- their mean diagonal. So is use_LorR, which drops a factor.
-- Eigenvalues: they shift all of them if one is negative; here negative ones, which are rounding
-- errors, become 0.
-- limit: they have none, but a square of the size of a vocabulary fits on no GPU; AdamW steps such
-- matrices.
-- products: f32. Rounding errors in the factors rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it all eigenvalues count as 1, and steps are Muon's.
local function along(A, mean, Q)
  local w, V = eigh(A / max(mean, 1e-37), { last = Q })
  return where(isfinite(w), max(w, 0), 1), V
end

return optimizer {
  name  = "mousse",
  cite  = "Zhang et al. 2026, arXiv:2603.09697",
  use   = "In place of Muon when curvature differs much between directions and roots are " ..
          "affordable",
  family = "muon", follows = "Anti-Entrophic/Mousse d00c1bf",
  doc   = "Muon between weak powers of Shampoo's factors; AdamW for the rest and for sides over " ..
          "the limit",
  hyper = {
    lr = { 0.01, min = 0 }, mu = { 0.95, min = 0, below = 1 }, weight_decay = { 0.01, min = 0 },
    shampoo_epsilon = { 1e-10, above = 0 }, shampoo_beta = { 0.95, min = 0, below = 1 },
    shampoo_alpha = { 0.125, min = 0 },
  },
  options = { nesterov = false, shampoo_update_freq = 10, apply_norm = true, limit = 4096,
              adjust_lr = { "spectral_norm", "rms_norm", "none" } },
  products = "f32",
  state = { m = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"), Y = eye(1, "cols"),
            a = zeros "row", b = zeros "col" },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    m = mu * m + g
    local u, size = m, 1
    if nesterov then u = mu * m + g end
    L, R = lerp(L, gram(g), 1 - shampoo_beta), lerp(R, gram(g.T), 1 - shampoo_beta)
    every(shampoo_update_freq, { offset = 1 }, function()
      a, X = along(L, trace(L) / nrows, X)
      b, Y = along(R, trace(R) / ncols, Y)
    end)
    local l, r = (a + 2 * shampoo_epsilon) ^ shampoo_alpha,
      (b + 2 * shampoo_epsilon) ^ shampoo_alpha
    local o = polar(mm(mm(X.T, u), Y) / l / r, { coefficients = "quintic" })
    local x = mm(mm(X, o / l / r), Y.T)
    if apply_norm then x = (slice.norm(o) / max(slice.norm(x), 1e-30)) * x end
    if adjust_lr == "spectral_norm" then size = sqrt(nrows / ncols) end
    if adjust_lr == "rms_norm" then size = 0.2 * sqrt(max(nrows, ncols)) end
    p = descend(shrink(p, lr * weight_decay), x, lr * size)
  end,
}

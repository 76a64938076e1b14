-- As MOSO of NVIDIA's Emerging-Optimizers fd77292. max_update_rms = 0: no limit. The basis is that
-- of the shorter side and turns at every step: eigenvectors at the first, then one power iteration.
-- v keeps its place.
-- products: f32. Rounding errors in the Gram matrix rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |m| under 1.8e19 / sqrt(longer side). Beyond
-- it the last basis stays, at step 1 the identity.
local measured = include("power_iteration").measured
local function turned(A, Q)
  local w, q = measured(A, Q)
  return take(q, sort(w), "cols")
end

return optimizer {
  name  = "moso",
  cite  = "NVIDIA 2026, Emerging-Optimizers; after Vyas et al. 2024, arXiv:2409.11321",
  use   = "In place of SOAP when only one basis, of the shorter side, is affordable",
  family = "shampoo", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "RMSprop of the momentum in the eigenvectors of the momentum's Gram matrix, on the " ..
          "shorter side; " ..
          "AdamW for the rest",
  hyper = {
    lr = { 3e-4, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
    rms_beta = { 0.95, min = 0, below = 1 },
    shampoo_beta = { 0.95, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0.01, min = 0 },
  },
  options = { max_update_rms = 0.0 },
  products = "f32",
  state = { m = zeros, v = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"),
            Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local w, h, u, _ = (1 - shampoo_beta) / (1 - shampoo_beta ^ t)
    local left = nrows <= ncols
    if left then
      L = lerp(L, gram(m), w)
      X = turned(L, X)
      every(1e9, { offset = 1 }, function() _, X = eigh(L, { last = X }) end)
      h = mm(X.T, m)
    else
      R = lerp(R, gram(m.T), w)
      Y = turned(R, Y)
      every(1e9, { offset = 1 }, function() _, Y = eigh(R, { last = Y }) end)
      h = mm(m, Y)
    end
    v = rms_beta * v + (1 - rms_beta) * h * h
    local d = h / (sqrt(v) + eps)
    if left then u = mm(X, d) else u = mm(d, Y.T) end
    if max_update_rms > 0 then u = min(1, max_update_rms / (rms(u) + 1e-7)) * u end
    p = descend(shrink(p, lr * weight_decay), u, lr)
  end,
}

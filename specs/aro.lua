-- As microsoft/dion's branch dev/aro at 9c6b30d; the authors have published no code. It always
-- rotates rows; here the shorter side is rotated, and a tall matrix is treated as its transpose. On
-- the longer side most rotated rows would be rounding errors, which f scales up. eps and
-- sinkhorn_iters are constants there.
-- limit: they have none. AdamW steps matrices with both sides over it.
-- products: f32. The rotation is orthogonal to the precision of products, and steps come back
-- through it.
local function rows(x) return x * (sqrt(ncols) / max(rownorm(x), eps)) end
local function cols(x) return x * (sqrt(nrows) / max(colnorm(x), eps)) end

local function f(x, first, second)
  if base_opt == "sign" then return sign(x) end
  if base_opt == "row_norm" then return first(x) end
  for _ = 1, sinkhorn_iters do x = second(first(x)) end
  return x
end

return optimizer {
  name  = "aro",
  cite  = "Gong et al. 2026, arXiv:2602.09006",
  use   = "In place of Muon or SinkGD when a QR of the shorter side at every step is affordable",
  family = "muon", follows = "microsoft/dion 9c6b30d",
  doc   = "Momentum whose rows and columns are normalised in a rotated basis; AdamW for the rest",
  hyper = {
    lr = { 0.01, min = 0 }, mu = { 0.95, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0.01, min = 0 },
  },
  options = { base_opt = { "sinkhorn", "row_norm", "sign" }, sinkhorn_iters = 5, limit = 4096,
              adjust_lr = { "rms_norm", "spectral_norm", "none" } },
  products = "f32",
  state = { m = zeros, X = eye(1, "rows"), Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit and ncols > limit then return step() end
    local u, size = nil, 1
    m = lerp(m, g, 1 - mu)
    if nrows <= ncols then
      X = qr(mm(m, f(mm(X.T, m), rows, cols).T), { last = X })
      u = mm(X, f(mm(X.T, m), rows, cols))
    else
      Y = qr(mm(m.T, f(mm(m, Y), cols, rows)), { last = Y })
      u = mm(f(mm(m, Y), cols, rows), Y.T)
    end
    if adjust_lr == "rms_norm" then size = 0.2 * sqrt(max(nrows, ncols)) end
    if adjust_lr == "spectral_norm" then size = sqrt(nrows / ncols) end
    p = descend(shrink(p, lr * weight_decay), u, lr * size)
  end,
}

-- As record 18 of modded-nanogpt's track 3 (KellerJordan/modded-nanogpt f411b3d, 20260507_pmuon).
-- Its README has Gram matrices of gradients; its code, and this, those of the Nesterov momentum.
-- The newest one counts 1 + beta times. Powers are along directions that turn by one power
-- iteration at every step. They start as the identity; theirs are random. Their powers are brought
-- to norm sqrt(n), which polar cancels.
-- lr and weight_decay are those of the record's run; the class has 0.02 and 0.
-- limit: they have none, but a square of the size of a vocabulary fits on no GPU; AdamW steps such
-- matrices.
-- products: f32. Rounding errors in the factors rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it all powers count as 1, and steps are Muon's.
local measured = include("power_iteration").measured
local function turned(A, Q)
  local w, q = measured(A, Q)
  return where(isfinite(w), max(w, eps), 1) ^ -gamma, q
end

return optimizer {
  name  = "pmuon",
  cite  = "zzp1012 2026, github.com/KellerJordan/modded-nanogpt/pull/285",
  use   = "In place of Muon when curvature differs much between directions, without eigenvectors",
  family = "muon", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Muon after powers of the gradients' Gram matrices; AdamW for the rest and for sides " ..
          "over the limit",
  hyper = {
    lr = { 0.035, min = 0 }, mu = { 0.95, min = 0, below = 1 }, beta = { 0.95, min = 0, below = 1 },
    gamma = { 0.3, min = 0 }, eps = { 1e-6, above = 0 }, weight_decay = { 0.025, min = 0 },
  },
  options = { limit = 4096 },
  products = "f32",
  state = { m = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"), Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    m = lerp(m, g, 1 - mu)
    local u, l, r = lerp(g, m, mu)
    local A, B = gram(u), gram(u.T)
    L, R = beta * L + A, beta * R + B
    l, X = turned(A + beta * L + eye(eps, "rows"), X)
    r, Y = turned(B + beta * R + eye(eps, "cols"), Y)
    local x = mm(X, l.T * mm(mm(X.T, u), Y) * r)
    local o = polar(mm(x, Y.T), { steps = 12, coefficients = { { 2, -1.5, 0.5 } } })
    p = descend(shrink(p, lr * weight_decay), o, lr * sqrt(max(1, nrows / ncols)))
  end,
}

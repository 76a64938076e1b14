-- A transcription of the paper's algorithm; the authors have published no code. A third party's
-- class FISMO (public code whose repository we could not name), retyped in float64, gives the
-- references of root = "eigenvectors" to 3e-15. Defaults are ours: lr, beta and the iteration of
-- muon, gamma 0.95 and mu 1e-4 as in that class. It has weight decay and eps too: 1e-6 there.
-- With 1e-4, or 1e-3 added, steps along flat directions are so long that Rosenbrock's function
-- hardly falls.
-- root: with "eigenvectors" eps is the least eigenvalue of a factor, as in that class. With
-- "products" eps and 1e-6 of the largest row sum are added to eigenvalues instead: 621 ms a step
-- over GPT-2 124M on an H200, where eigenvectors by cuSOLVER took 2415 ms.
-- limit: AdamW steps matrices with longer sides; a square of the size of a vocabulary fits on no
-- GPU.
-- products: f32. Rounding errors in the factors rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it the last factors stay, at step 1 the identity.
-- traces are n, so that the damping mu * trace / n is mu
local function smoothed(P, L, n)
  local S = gamma * P + (1 - gamma) * L
  local s = trace(S)
  return where(isfinite(s), S * (n / s), P)
end

local function inverse_root(A, last)
  if root == "eigenvectors" then return power(A, -1/2, { floor = eps, last = last }) end
  return power(A, -1/2, { ridge = eps, relative = 1e-6, last = last })
end

return optimizer {
  name  = "fismo",
  cite  = "Xu et al. 2026, arXiv:2601.21750",
  use   = "In place of Muon when steps should keep curvature as KL-Shampoo's factors see it",
  family = "muon",
  follows = "the paper's algorithm, transcribed; with root = eigenvectors as a third party's",
  doc   = "Muon of gradients whitened by factors of the Fisher matrix; AdamW for the rest and " ..
          "for sides over the limit",
  hyper = {
    lr = { 0.02, min = 0 }, beta = { 0.95, min = 0, below = 1 },
    gamma = { 0.95, min = 0, below = 1 },
    mu = { 1e-4, min = 0 }, eps = { 1e-2, above = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { limit = 4096, root = { "products", "eigenvectors" } },
  products = "f32",
  state = { m = zeros, P = eye(1, "rows"), Q = eye(1, "cols"), X = eye(1, "rows"),
            Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    P = smoothed(P, gram(mm(g, Y)) / ncols + eye(mu, "rows"), nrows)
    X = inverse_root(P, X)
    Q = smoothed(Q, gram(mm(g.T, X)) / nrows + eye(mu, "cols"), ncols)
    Y = inverse_root(Q, Y)
    m = lerp(m, mm(mm(X, g), Y), 1 - beta)
    p = descend(shrink(p, lr * weight_decay), mm(mm(X, polar(m)), Y), lr)
  end,
}

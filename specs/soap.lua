local turned = include("power_iteration").sorted

-- Tensors of three and more dimensions are viewed as dim 0 x the rest, with two bases; the authors
-- have one for each axis.
-- limit: 10000 in the authors' code. A basis of 8580 needs 2.4 GB of workspace, more than the
-- default on a CPU and most GPUs: binding would be refused. limit=10000 with enough workspace is
-- the authors' rule. Longer sides have no basis.
-- products: f32. Rounding errors in the Gram matrices rotate the basis; 11 bits lose their small
-- eigenvalues.
-- apply: precision of the products that rotate g, m and the update into and out of the basis. tf32:
-- m and v carry errors of 2^-11, the basis does not: Gram matrices, power iteration and QR stay in
-- f32. Operands have 11 bits on a
-- GPU: a direction in which gradients are under 2^-11 of the largest ones has noise for a gradient,
-- which Adam scales up. Training does not notice. Five seeds of a small transformer
-- (tests/gpu/precision_loss.py, H200): loss 1.3315 in f32, 0.0010 more in tf32, 0.0025 more in f32
-- from weights that differ by 1e-6. apply=f32 and products=f32 give the authors' precision; a step
-- over GPT-2 124M then takes 20 ms more.
-- normalize_grads: each matrix's update has the RMS 1, times lr. Vectors take AdamW as always; the
-- authors normalise them too, as here with precondition_1d.
-- precondition_1d: vectors are matrices of one row, whose other basis is 1. A vector longer than
-- limit has no basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it no basis can be made, and the last one stays; at step 1 there is none, and the matrix becomes
-- NaN. Squares under 1e-45 are 0: eps decides there.
return optimizer {
  name  = "soap",
  cite  = "Vyas et al. 2024, arXiv:2409.11321",
  use   = "For language models when fewer steps are worth longer ones: Adam in Shampoo's " ..
          "eigenbases",
  family = "shampoo", follows = "nikhilvyas/SOAP a1e5535",
  doc   = "Adam in the eigenvectors of gradients' Gram matrices; AdamW for what is no matrix",
  hyper = {
    lr = { 3e-3, min = 0 }, beta1 = { 0.95, min = 0, below = 1 },
    beta2 = { 0.95, min = 0, below = 1 },
    beta3 = { 0.95, min = 0, below = 1 }, eps = { 1e-8, min = 0 }, weight_decay = { 0.01, min = 0 },
  },
  options = { interval = 10, limit = 4096, sides = { "both", "smaller" },
              start = { "eigh", "identity" },
              stagger = false, apply = { "tf32", "f32" }, normalize_grads = false,
              precondition_1d = false },
  vectors = "precondition_1d",
  products = "f32",
  state = { m = zeros, v = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"),
            Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    local down, across, _
    local fast = { products = apply }
    if sides == "both" then down, across = nrows <= limit, ncols <= limit
    elseif nrows <= ncols then down = nrows <= limit else across = ncols <= limit end
    local function into(x)
      if down then x = mm(X.T, x, fast) end
      if across then x = mm(x, Y, fast) end
      return x
    end
    local function back(x)
      if down then x = mm(X, x, fast) end
      if across then x = mm(x, Y.T, fast) end
      return x
    end
    -- the first gradient only starts the basis
    local h, k, late, order = into(g), max(t - 1, 1), gt(t, 1)
    local mean, square = lerp(m, h, 1 - beta1), beta2 * v + (1 - beta2) * h * h
    when(late, function()
      local u = back(mean / (sqrt(square) + eps))
      if normalize_grads then u = u / (1e-30 + rms(u)) end
      m, v, p = mean, square, descend(p, u, lr * sqrt(1 - beta2 ^ k) / (1 - beta1 ^ k))
      p = shrink(p, lr * weight_decay)
    end)
    if down then L = lerp(L, gram(g), 1 - beta3) end
    if across then R = lerp(R, gram(g.T), 1 - beta3) end
    local function turn()                       -- v is permuted as its directions, m is rotated
      local u = back(m)
      if down then X, order = turned(L, X)  v = take(v, order) end
      if across then Y, order = turned(R, Y)  v = take(v, order, "cols") end
      m = into(u)
    end
    local function basis() if down then _, X = eigh(L) end  if across then _, Y = eigh(R) end end
    every(interval, stagger and { stagger = true } or { offset = 1, first = start ~= "eigh" },
          function()
      if start == "eigh" then turn() else when(late, turn) end
    end)
    if start == "eigh" then every(1e9, { offset = 1 }, basis) end
  end,
}

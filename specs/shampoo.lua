-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- Defaults: beta1, eps and blocks of 1024 are those of facebookresearch/optimizers, beta2 0.999 and
-- grafting those of Anil et al. Ours: roots every 50 steps (a root per step costs ten times the
-- rest), Adam's lr (its steps are grafted), relative_eps and limit. start: earlier steps are those
-- of the grafted rule, as in facebookresearch/optimizers (there start is the interval). Here the
-- first root is computed at step 1 and used at once. One graft scales all blocks of a matrix (there
-- one each), as in Anil et al. stagger, relative_eps and this graft are compared with a
-- transcription alone.
local function gathered(how, s, x)              -- second result: the weight of the mean
  if how == "sum" or how == "adagrad" then return s + x, 1 end
  return beta2 * s + (1 - beta2) * x, how == "rmsprop" and 1 or 1 - beta2 ^ k
end

-- x, scaled to the length of the grafted rule's step along u
local function taken(x, u, norm)
  local like, seen = u
  if graft ~= "none" and graft ~= "sgd" then
    v, seen = gathered(graft, v, g * g)
    like = u / (sqrt(v / seen) + graft_eps)
  end
  if graft ~= "none" then x = (norm(like) / max(norm(x), 1e-30)) * x end
  if start > 1 then x = where(lt(k, start), like, x) end
  x = x + weight_decay * p
  if heavy_ball then b = momentum * b + x  x = b end
  p = descend(p, x, lr)
end

-- products: f32. At condition 1e6 the inverse fourth root of f32 sums has an error of 2e-4; of tf32
-- sums, over 100 %.
-- apply: precision of the products of roots and momentum. tf32, because a root is applied once and
-- its errors are not carried on. Operands have 11 bits on a GPU. A root's condition is at most
-- relative_eps^-1/4, 32, so a side adds an error of 2^-11 to 2^-6 of the step. Five seeds of a
-- small transformer (tests/gpu/precision_loss.py, H200): losses differ by 4e-5 at most, as they do
-- from weights that differ by 1e-6. apply=f32 and products=f32 compute all in f32; a step over
-- GPT-2 124M then takes 6 ms more.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it no root can be made, and the last one stays. Grafting stands still where v is infinite. Gram
-- matrices under 1e-45 are 0: eps decides there.
return optimizer {
  name  = "shampoo",
  cite  = "Gupta et al. 2018, arXiv:1802.09568; grafting, blocks: Anil et al. 2020, " ..
          "arXiv:2002.09018; " ..
          "Shi et al. 2023, arXiv:2309.06497",
  use   = "When steps are few and expensive, so that better directions pay for matrix roots",
  family = "shampoo",
  follows = "facebookresearch/optimizers f606606; diagonals: tensorflow/tensorflow 0771f37",
  doc   = "Gradients between inverse fourth roots of their Gram matrices, as long as another " ..
          "rule's steps; " ..
          "diagonals for vectors and long sides",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-12, min = 0 }, relative_eps = { 1e-6, min = 0 }, graft_eps = { 1e-8, min = 0 },
    momentum = { 0.9, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
  },
  options = {
    graft = { "adam", "rmsprop", "adagrad", "sgd", "none" }, accumulate = { "ema", "sum" },
    heavy_ball = false,
    stagger = true, interval = 50, start = 1, apply = { "tf32", "f32" },
    -- side: of a block; sides over limit have a diagonal
    side = 1024, limit = 8192,
  },
  products = "f32",  block = "side",
  state = { m = zeros, v = zeros, b = zeros, d = zeros, l = zeros "row", r = zeros "col",
            L = zeros "rows", R = zeros "cols", X = eye(1, "rows"), Y = eye(1, "cols"),
            k = zeros "group" },
  step  = function()
    k = k + 1
    local n
    m, d, n = lerp(m, g, 1 - beta1), gathered(accumulate, d, g * g)
    taken(m / (1 - beta1 ^ k) / sqrt(d / n + eps), m / (1 - beta1 ^ k), norm)
  end,
  matrix = function()
    k = k + 1
    local flat, thin, n = nrows <= limit, ncols <= limit
    m = lerp(m, g, 1 - beta1)
    if flat then L, n = gathered(accumulate, L, gram(g)) else
      l, n = gathered(accumulate, l, rowsum(g * g)) end
    if thin then R, n = gathered(accumulate, R, gram(g.T)) else
      r, n = gathered(accumulate, r, colsum(g * g)) end
    every(interval, { first = true, stagger = stagger }, function()
      if flat then X = power(L / n, -1/4, { ridge = eps, relative = relative_eps, last = X }) end
      if thin then Y = power(R / n, -1/4, { ridge = eps, relative = relative_eps, last = Y }) end
    end)
    local u, x = m / (1 - beta1 ^ k), m / (1 - beta1 ^ k)
    if flat then x = mm(X, x, { products = apply }) else x = (l / n + eps) ^ -0.25 * x end
    if thin then x = mm(x, Y, { products = apply }) else x = (r / n + eps) ^ -0.25 * x end
    taken(x, u, slice.norm)
  end,
}

-- Defaults: lr, momentum, precond_lr, balance and clip_rms are those of kron_torch, beta and
-- damping those of the authors' KronWhiten. limit: 8192 in kron_torch, but one solve with a
-- triangle of 8192 per step costs more than the rest of training.
-- triangle, diagonal: move a factor until s (from the preconditioned gradient) equals n (from
-- noise). The largest row sum bounds the spectral norm.
local function triangle(C, l, s, n)
  l = max(lerp(slice.max(rowsum(abs(s + n))), l, beta), slice.max(rowsum(abs(s + n))))
  return C - (precond_lr / l) * mm(C, tril(s - n)), l
end

local function diagonal(c, l, s, n)
  l = max(lerp(slice.max(s + n), l, beta), slice.max(s + n))
  return c - (precond_lr / l) * ((s - n) * c), l
end

-- products: f32. A step changes the factors by a small relative amount, which 11 bits would lose.
-- apply: precision of the products of the factors' squares and the momentum. tf32: operands have 11
-- bits on a GPU. Not the default, although these errors are not carried on. Five seeds of a small
-- transformer (tests/gpu/precision_loss.py 300 cuda psgd_kron 0,1,2,3,4 small, H200): loss 2.94 in
-- f32; in tf32 0.14 more, at most 0.46; in f32 from weights that differ by 1e-6 0.05 more, at most
-- 0.08. GPT-2 124M in f32: 22.6 ms a step.
-- f32 range: factors start at 1, so the Gram matrix of the first gradients must stay under 3.4e38:
-- |g| under 1.8e19 / sqrt(elements). Beyond it the factors and the matrix become NaN in that step.
-- Gram matrices of tiny gradients may
-- be 0: the factors grow as they should.
-- out_of_range (optc_read_value) of a matrix is 1 at steps whose update is not finite. Tensors that
-- AdamW steps have no such value.
return optimizer {
  name  = "psgd_kron",
  cite  = "Li 2015, arXiv:1512.04202; Pooladzandi and Li 2024, arXiv:2402.04553; its form EQ",
  use   = "In place of psgd when triangular factors are wanted, as in kron_torch",
  family = "shampoo", follows = "lixilinx/psgd_torch a8616f1",
  doc   = "Momentum between triangles that were fitted to whiten gradients, " ..
          "diagonals for sides over the limit; AdamW for what is no matrix",
  hyper = {
    lr = { 1e-3, min = 0 }, momentum = { 0.9, min = 0, below = 1 }, precond_lr = { 0.1, min = 0 },
    beta = { 0.9, min = 0, below = 1 }, damping = { 1e-9, min = 0 }, clip_rms = { 1.1, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  -- balance: steps between two balancings of the factors' sizes
  options = { limit = 2048, balance = 100,
              apply = { "f32", "tf32" } },
  products = "f32",
  state = { m = zeros, C = eye(1, "rows"), D = eye(1, "cols"), c = fill(1, "row"),
            d = fill(1, "col"),
            l = zeros "slice", r = zeros "slice" },
  values = { out_of_range = "tensor" },
  step  = rule "adamw",
  matrix = function()
    local down, across = nrows <= limit, ncols <= limit
    m = lerp(m, g, max(1 / t, 1 - momentum))
    local noise, u = normal(), m
    local a, b = g + damping * noise, noise
    if down then a, b = mm(C.T, a), solve(C, b) else a, b = c * a, b / c end
    if across then a, b = mm(a, D), solve(D.T, b, { right = true }) else a, b = d * a, b / d end
    if down then C, l = triangle(C, l, gram(a), gram(b))
    else c, l = diagonal(c, l, rowsum(a * a), rowsum(b * b)) end
    if across then D, r = triangle(D, r, gram(a.T), gram(b.T))
    else d, r = diagonal(d, r, colsum(a * a), colsum(b * b)) end
    every(balance, function()
      local x, y = slice.max(abs(c)), slice.max(abs(d))
      if down then x = slice.max(abs(C)) end
      if across then y = slice.max(abs(D)) end
      if down then C = sqrt(y / x) * C else c = sqrt(y / x) * c end
      if across then D = sqrt(x / y) * D else d = sqrt(x / y) * d end
    end)
    if down then u = mm(gram(C), u, { products = apply }) else u = c * c * u end
    if across then u = mm(u, gram(D), { products = apply }) else u = d * d * u end
    out_of_range = min(numel, where(isfinite(rms(u)), 0, 1))      -- 0 without elements
    p = descend(shrink(p, lr * weight_decay), u, lr * min(1, clip_rms / rms(u)))
  end,
}

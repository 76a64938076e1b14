-- Defaults: those of the authors' KronWhiten, with these differences: momentum 0.9 (0 in the class,
-- 0.9 in all of their examples); the form QUAD (Q0.5EQ1.5 in the class); factors start at 1 (the
-- class scales them by the first gradient); no noise is added to the gradient; limit (the class has
-- none and uses diagonals for a side longer than the other one).
-- fitted: moves one factor of the preconditioner towards whitening by a quadratic form that keeps
-- it symmetric
-- and positive: E q E with E = (1 + w n) I - w a.
-- a: the Gram matrix of the preconditioned gradient; n: its value for a white gradient. The largest
-- row sum is used as a bound on the spectral norm.
local function fitted(q, l, a, n)
  local w = 0.5 * precond_lr / l
  local half = q - w * (mm(a, q) - n * q)
  local whole = half - w * (mm(half, a) - n * half)
  return 0.5 * (whole + whole.T)
end

-- fitted_long: the same for a side that is at least twice as long as the other one. Products have
-- the shape of x, the preconditioned gradient, so nothing costs the cube of the long side.
-- Differences do not cancel: each row sum of w a is below precond_lr / 2. down: the rows are
-- longer. w is inside of products, which would overflow otherwise.
local function fitted_long(q, l, x, n, down)
  local w = 0.5 * precond_lr / l
  local c, y, z, half = 1 + w * n
  if down then
    y = mm(q, x)
    z = c * y - mm(x, 0.5 * w * mm(x.T, y))
    half = mm(z, x.T)
  else
    y = mm(x, q)
    z = c * y - mm(0.5 * w * mm(y, x.T), x)
    half = mm(x.T, z)
  end
  return c * c * q - w * (half + half.T)
end

-- products: f32. A step changes the factors by a small relative amount, which 11 bits would lose.
-- apply: precision of the products of the factors and the momentum. Their errors are not carried
-- on, so a GPU may compute them in tf32, with operands of 11 bits.
-- f32 range: factors start at 1, so the Gram matrix of the first gradients must stay under 3.4e38:
-- |g| under 1.8e19 / sqrt(elements). Beyond it the factors and the matrix become NaN in that step.
-- Gram matrices of tiny gradients may
-- be 0: the factors grow as they should.
-- out_of_range (optc_read_value) of a matrix is 1 at steps whose update is not finite. Tensors that
-- AdamW steps have no such value.
return optimizer {
  name  = "psgd",
  cite  = "Li 2015, arXiv:1512.04202; Pooladzandi and Li 2024, arXiv:2402.04553; its form QUAD",
  use   = "In place of Shampoo when inverse roots are too expensive or gradients are very noisy",
  family = "shampoo", follows = "lixilinx/psgd_torch a8616f1",
  doc   = "Momentum between two matrices that were fitted to whiten gradients; " ..
          "AdamW for the rest and for sides over the limit",
  hyper = {
    lr = { 1e-3, min = 0 }, momentum = { 0.9, min = 0, below = 1 }, precond_lr = { 0.1, min = 0 },
    beta = { 0.9, min = 0, below = 1 }, clip_rms = { 2, above = 0 }, clip = { 10, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  -- balance: steps between two that make both factors equally large
  options = { limit = 4096, balance = 100,
              apply = { "f32", "tf32" } },
  products = "f32",
  state = { m = zeros, Ql = eye(1, "rows"), Qr = eye(1, "cols"), Ll = zeros "slice",
            Lr = zeros "slice" },
  values = { out_of_range = "tensor" },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    m = lerp(m, g, max(1 / t, 1 - momentum))
    local flat = 2 * nrows <= ncols
    local tall = not flat and 2 * ncols <= nrows
    -- twice by a long side's factor costs less than its square
    local function whitened(v, how)
      if tall then return mm(Ql, mm(Ql, mm(v, gram(Qr), how), how), how) end
      if flat then return mm(mm(mm(gram(Ql), v, how), Qr, how), Qr, how) end
      return mm(mm(gram(Ql), v, how), gram(Qr), how)
    end
    local x = whitened(g)
    local A, B = gram(x), gram(x.T)
    local a, b = slice.max(rowsum(abs(A))) + ncols, slice.max(colsum(abs(B))) + nrows
    Ll, Lr = max(lerp(a, Ll, beta), a), max(lerp(b, Lr, beta), b)
    if tall then Ql = fitted_long(Ql, Ll, x, ncols, true) else Ql = fitted(Ql, Ll, A, ncols) end
    if flat then Qr = fitted_long(Qr, Lr, x, nrows, false) else Qr = fitted(Qr, Lr, B, nrows) end
    every(balance, function()
      local l, r = slice.max(abs(Ql)), slice.max(abs(Qr))
      Ql, Qr = sqrt(r / l) * Ql, sqrt(l / r) * Qr
    end)
    local u = whitened(m, { products = apply })
    out_of_range = min(numel, where(isfinite(rms(u)), 0, 1))      -- 0 without elements
    u = min(1, clip_rms / rms(u)) * u
    p = descend(shrink(p, lr * weight_decay), clamp(u, -clip, clip), lr)
  end,
}

-- As pytorch_optimizer's SM3 for matrices, vectors and scalars: SM3-II of the paper, one value for
-- each row and each column, one for each element of a vector. Tensors of more dimensions are viewed
-- as dim 0 x the rest; theirs have one set of values for each dimension. beta = 0 sums squares, as
-- in the paper.
-- A scalar with beta > 0 keeps the larger of both values here, as vectors do; theirs keeps the new
-- one.
-- f32 range: squares are infinite from |g| = 1.8e19 on: rows and columns with them stand still from
-- then on.
local function step_by(nu)
  local u = g * rsqrt(nu + eps)
  if momentum_buffer then
    m = lerp(m, u, 1 - momentum)
    u = m
  end
  p = descend(p, u, lr)
end

return optimizer {
  name  = "sm3",
  cite  = "Anil et al. 2019, arXiv:1901.11150",
  use   = "In place of AdaGrad when its state does not fit, as for large embeddings",
  family = "small state", follows = "pytorch_optimizer.SM3 4.1.0",
  doc   = "AdaGrad with one second moment for each row and each column of a matrix",
  hyper = {
    lr = { 0.1, min = 0 }, momentum = { 0.9, min = 0, below = 1 }, beta = { 0, min = 0, below = 1 },
    eps = { 1e-30, above = 0 },
  },
  options = { momentum_buffer = false },
  state = { m = zeros, v = zeros, r = zeros "row", c = zeros "col" },
  step = function()
    local nu = where(gt(beta, 0), beta, 1) * v + (1 - beta) * g * g
    v = where(gt(beta, 0), max(v, nu), nu)
    step_by(nu)
  end,
  matrix = function()
    local nu = where(gt(beta, 0), beta, 1) * min(r, c) + (1 - beta) * g * g
    local down, across = rowmax(nu), colmax(nu)
    r = where(gt(beta, 0), max(r, down), down)
    c = where(gt(beta, 0), max(c, across), across)
    step_by(nu)
  end,
}

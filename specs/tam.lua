-- As TAM of pytorch_optimizer 4.1. Momentum and gradient are divided by the norm of their column
-- (of a vector: its norm); s is the mean of their products.
local function unit(x, n) return x * (1 / max(n, 1e-12)) end

local function move(aligned)
  s = lerp(s, aligned, 1 - decay_rate)
  b = momentum * where(eq(t, 1), g, b) + ((1 + s) / 2 + eps) * g
  p = shrink(p, lr * weight_decay)
  p = descend(p, b, lr)
end

return optimizer {
  name  = "tam",
  cite  = "Malviya et al. 2024, arXiv:2412.18790",
  use   = "In place of SGD with momentum when gradients of successive steps disagree",
  family = "momentum", follows = "pytorch_optimizer.TAM 4.1.0",
  doc   = "Momentum to which a gradient adds more, the better it agrees with the momentum",
  hyper = {
    lr = { 1e-3, min = 0 }, momentum = { 0.9, min = 0, below = 1 },
    decay_rate = { 0.9, min = 0, below = 1 },
    weight_decay = { 0, min = 0 }, eps = { 1e-8, min = 0 },
  },
  state = { s = zeros, b = zeros },
  step = function()
    local last = where(eq(t, 1), g, b)
    move(unit(last, norm(last)) * unit(g, norm(g)))
  end,
  matrix = function()
    local last = where(eq(t, 1), g, b)
    move(unit(last, colnorm(last)) * unit(g, colnorm(g)))
  end,
}

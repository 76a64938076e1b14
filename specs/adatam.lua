-- As AdaTAM of pytorch_optimizer 4.1: TAM's momentum over the root of a second moment, without bias
-- corrections.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
local function unit(x, n) return x * (1 / max(n, 1e-12)) end

local function move(aligned)
  p = shrink(p, lr * weight_decay)
  s = lerp(s, aligned, 1 - decay_rate)
  m = beta1 * m + ((1 + s) / 2 + eps) * g
  v = beta2 * v + (1 - beta2) * g * g
  p = descend(p, { m, over = sqrt(v) + eps }, lr)
end

return optimizer {
  name  = "adatam",
  cite  = "Malviya et al. 2024, arXiv:2412.18790",
  use   = "In place of Adam when gradients of successive steps disagree strongly",
  family = "adam", follows = "pytorch_optimizer.AdaTAM 4.1.0",
  doc   = "Adam to whose momentum a gradient adds more, the better it agrees with it",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    decay_rate = { 0.9, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    eps = { 1e-8, min = 0 },
  },
  state = { s = zeros, m = zeros, v = zeros },
  step = function() move(unit(m, norm(m)) * unit(g, norm(g))) end,
  matrix = function() move(unit(m, colnorm(m)) * unit(g, colnorm(g))) end,
}

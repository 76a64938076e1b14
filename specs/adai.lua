-- As the authors' code (zeke-xie/adaptive-inertia-adai e6c1b9d). The mean of v is taken over all
-- tensors of all groups. Their lr has no default: 1 is that of their demo. If all gradients have
-- been 0, their weights become NaN; here they stay.
-- f32 range: v is infinite from |g| = 1.8e20 on (sqrt(3.4e38 / (1 - beta2))): all weights become
-- NaN then. A mean of v under 1e-37 counts as 1e-37.
return optimizer {
  name  = "adai",
  cite  = "Xie et al. 2022, arXiv:2006.15815",
  use   = "In place of SGD for image models when generalisation matters more than speed",
  family = "momentum", follows = "zeke-xie/adaptive-inertia-adai e6c1b9d",
  doc   = "Momentum whose inertia, element by element, shrinks as the gradient's variance grows",
  hyper = {
    lr = { 1, min = 0 }, beta0 = { 0.1, min = 0 }, beta2 = { 0.99, min = 0, below = 1 },
    eps = { 1e-3, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  options = { decoupled = false },
  state = { m = zeros, v = zeros, share = zeros { min = 0 } },
  step = function()
    local d = g
    if decoupled then p = shrink(p, lr * weight_decay) else d = g + weight_decay * p end
    v = beta2 * v + (1 - beta2) * d * d
    local average = global.sum(sum(v) / (1 - beta2 ^ t)) / global.sum(numel)
    local rest = clamp(beta0 * v / max((1 - beta2 ^ t) * average, 1e-37), eps, 1)     -- 1 - beta1
    -- 1 - the product of all beta1
    share = share + (1 - share) * rest
    m = lerp(m, d, rest)
    p = descend(p, { m, over = share }, lr)
  end,
}

-- As in the paper and torch. The authors' code decays weights as decoupled = true does. By default
-- it makes no step while the variance is intractable (degenerated_to_sgd = false).
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: the
-- element stands still at rectified steps. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long
-- before that.
return optimizer {
  name  = "radam",
  cite  = "Liu et al. 2020, arXiv:1908.03265",
  use   = "In place of Adam when a warm-up is not wanted",
  family = "adam", follows = "torch.optim.RAdam 2.13.0",
  doc   = "Adam whose step is rectified for the variance of its rate, and is plain momentum " ..
          "while that is intractable",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { decoupled = false },   -- true: weight decay as in AdamW
  state = { m = zeros, v = zeros },
  step = function()
    local d = g
    if decoupled then p = shrink(p, lr * weight_decay) else d = g + weight_decay * p end
    m = lerp(m, d, 1 - beta1)
    v = beta2 * v + (1 - beta2) * d * d
    local last = 2 / (1 - beta2) - 1
    local rho = last - 2 * t * beta2 ^ t / (1 - beta2 ^ t)
    local r = sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
    local adapted = (r * sqrt(1 - beta2 ^ t)) / (sqrt(v) + eps)
    p = descend(p, { m, times = where(gt(rho, 5), adapted, 1) }, lr / (1 - beta1 ^ t))
  end,
}

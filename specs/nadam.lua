-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: the
-- element stands still from then on. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before
-- that.
return optimizer {
  name  = "nadam",
  cite  = "Dozat 2016, ICLR workshop, Incorporating Nesterov Momentum into Adam",
  use   = "In place of Adam when Nesterov momentum is wanted",
  family = "adam", follows = "torch.optim.NAdam 2.13.0",
  doc   = "Adam with Nesterov momentum under the paper's warm-up of beta1",
  hyper = {
    lr = { 2e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, momentum_decay = { 4e-3, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { decoupled = false },   -- true: weight decay as in AdamW
  state = { m = zeros, v = zeros, mu_product = fill(1, "tensor") },
  step = function()
    local d = g
    if decoupled then p = shrink(p, lr * weight_decay) else d = g + weight_decay * p end
    local mu = beta1 * (1 - 0.5 * 0.96 ^ (t * momentum_decay))
    local mu_next = beta1 * (1 - 0.5 * 0.96 ^ ((t + 1) * momentum_decay))
    mu_product = mu_product * mu
    m = lerp(m, d, 1 - beta1)
    v = beta2 * v + (1 - beta2) * d * d
    local root = (1 / sqrt(1 - beta2 ^ t)) * sqrt(v) + eps
    p = descend(p, { m, plus = d, rate = lr * (1 - mu) / (1 - mu_product), over = root },
                lr * mu_next / (1 - mu_product * mu_next))
  end,
}

-- rho: the default is torch's; the paper uses 0.95.
-- f32 range: v is infinite from |g| = 5.8e19 on (sqrt(3.4e38 / (1 - rho))), as in torch: the
-- element stands still from then on. |g| under 1e-22 adds 0 to v; eps outweighs v long before that.
return optimizer {
  name  = "adadelta",
  cite  = "Zeiler 2012, arXiv:1212.5701",
  use   = "For small models when choosing a rate by hand is not practical; AdamW is usually better",
  family = "adagrad", follows = "torch.optim.Adadelta 2.13.0",
  doc   = "Gradients rescaled by the ratio of running RMS of updates and of gradients",
  hyper = {
    lr = { 1, min = 0 }, rho = { 0.9, min = 0, max = 1 }, eps = { 1e-6, min = 0 },
    weight_decay = { 0, min = 0 },
  },
  state = { v = zeros, u = zeros },
  step = function()
    local d = g + weight_decay * p
    v = rho * v + (1 - rho) * d * d
    -- not the root of the quotient: it may underflow
    local delta = sqrt(u + eps) / sqrt(v + eps) * d
    u = rho * u + (1 - rho) * delta * delta
    p = descend(p, delta, lr)
  end,
}

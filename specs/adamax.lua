return optimizer {
  name  = "adamax",
  cite  = "Kingma and Ba 2015, arXiv:1412.6980, section 7.1",
  use   = "For embeddings and other sparse gradients; the infinity norm needs no bias correction",
  family = "adam", follows = "torch.optim.Adamax 2.13.0",
  doc   = "Adam with a decayed maximum of the gradient in place of the second moment",
  hyper = {
    lr = { 2e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { m = zeros, u = zeros },
  step = function()
    local d = g + weight_decay * p
    m = lerp(m, d, 1 - beta1)
    u = max(beta2 * u, abs(d) + eps)
    p = descend(p, { m, over = u }, lr / (1 - beta1 ^ t))
  end,
}

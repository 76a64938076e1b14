return optimizer {
  name  = "signum",
  cite  = "Bernstein et al. 2018, arXiv:1802.04434",
  use   = "When gradients are sent as signs between processes, or as a baseline for Lion",
  family = "sign", follows = "pytorch_optimizer.SignSGD 4.1.0",
  doc   = "The sign of the momentum; with momentum 0 it is signSGD",
  hyper = { lr = { 1e-3, min = 0 }, momentum = { 0.9, min = 0, below = 1 },
            weight_decay = { 0, min = 0 } },
  state = { m = zeros },
  step = function()
    m = lerp(m, g, 1 - momentum)
    p = descend(p, sign(m), lr, weight_decay)
  end,
}

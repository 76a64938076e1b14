-- rho: the default is torch's; the paper uses 0.95.
return optimizer {
  name  = "adadelta",
  cite  = "Zeiler 2012, arXiv:1212.5701",
  doc   = "Gradients rescaled by the ratio of running RMS of updates and of gradients",
  hyper = {
    lr = { 1, min = 0 }, rho = { 0.9, min = 0, max = 1 }, eps = { 1e-6, above = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { v = zeros, u = zeros },
  step = function()
    local d = g + weight_decay * p
    v = lerp(v, d * d, 1 - rho)
    local delta = sqrt((u + eps) / (v + eps)) * d
    u = lerp(u, delta * delta, 1 - rho)
    p = p - lr * delta
  end,
}

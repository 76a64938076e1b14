-- lr is that of NVIDIA's class (Jasper) and timm's. beta2 is the paper's and timm's; NVIDIA's class has 0.
return optimizer {
  name  = "novograd",
  cite  = "Ginsburg et al. 2019, arXiv:1905.11286",
  doc   = "Momentum of gradients normalised by one second moment a tensor, with weight decay inside the momentum",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.95, min = 0, below = 1 }, beta2 = { 0.98, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { grad_averaging = false },
  state = { m = zeros, v = zeros "tensor" },
  step = function()
    v = lerp(v, dot(g, g), where(eq(t, 1), 1, 1 - beta2))
    local d = (1 / (sqrt(v) + eps)) * g + weight_decay * p
    if grad_averaging then d = (1 - beta1) * d end
    m = beta1 * m + d
    p = p - lr * m
  end,
}

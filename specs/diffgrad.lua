-- As the authors' code (shivram1987/diffGrad 73233ba, diffGrad_v2.py). Their first file compares a
-- gradient with itself by mistake. Weight decay is part of the compared gradients; eps is outside
-- of the bias correction.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): the element stands
-- still from then on.
return optimizer {
  name  = "diffgrad",
  cite  = "Dubey et al. 2020, arXiv:1909.11015",
  use   = "In place of Adam when training oscillates near a minimum",
  family = "adam", follows = "shivram1987/diffGrad 73233ba",
  doc   = "Adam that is slowed down where the gradient hardly changes: times the sigmoid of its " ..
          "change",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { m = zeros, v = zeros, g_old = zeros },
  step = function()
    local d = g + weight_decay * p
    m = lerp(m, d, 1 - beta1)
    v = beta2 * v + (1 - beta2) * d * d
    local friction = sigmoid(abs(g_old - d))
    g_old = d
    p = descend(p, { m * friction, over = sqrt(v) + eps },
                lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t))
  end,
}

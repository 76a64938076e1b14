-- As the authors' code (Gunale0926/Grams f91a375). eps is not scaled by the bias correction, unlike
-- torch's Adam.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "grams",
  cite  = "Cao, Li and Song 2024, arXiv:2412.17107",
  use   = "In place of AdamW when momentum often points against the gradient",
  family = "adam", follows = "Gunale0926/Grams f91a375",
  doc   = "AdamW's magnitude with the sign of the current gradient",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-6, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { correct_bias = true },
  state = { m = zeros, v = zeros },
  step = function()
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    local rate = lr
    if correct_bias then rate = lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t) end
    p = descend(p, { sign(g), times = abs(m), over = sqrt(v) + eps }, rate)
  end,
}

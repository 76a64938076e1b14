-- As the authors' code (lancopku/AdaMod d866407). eps is outside of the bias correction.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "adamod",
  cite  = "Ding et al. 2019, arXiv:1910.12249",
  use   = "When Adam's first steps are too large and a warm-up is not wanted",
  family = "adam", follows = "lancopku/AdaMod d866407",
  doc   = "AdamW whose rate of each element is bounded by the running mean of its rates",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    beta3 = { 0.999, min = 0, below = 1 }, eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { m = zeros, v = zeros, rate_mean = zeros },
  step = function()
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    p = p - (lr * weight_decay) * p
    local rate = (lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t)) / (sqrt(v) + eps)
    rate_mean = lerp(rate_mean, rate, 1 - beta3)
    p = p - min(rate, rate_mean) * m
  end,
}

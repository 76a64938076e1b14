-- As timm's LaProp, which follows the authors' code (Z-T-WANG/LaProp-Optimizer): lr enters the
-- momentum's bias correction, so that steps of a schedule are weighed by their lr. Decoupled weight
-- decay is timm's; amsgrad is the authors' alone.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): such gradients enter
-- m as 0. |g| under 1e-21 adds 0 to v; eps decides there.
return optimizer {
  name  = "laprop",
  cite  = "Ziyin, Wang and Ueda 2020, arXiv:2002.04839",
  use   = "In place of Adam when beta2 is small or gradients jump",
  family = "adam", follows = "timm.optim.LaProp 1.0.31",
  doc   = "Momentum of normalised gradients: Adam that divides before it averages; decoupled " ..
          "weight decay",
  hyper = {
    lr = { 4e-4, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-15, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { amsgrad = false },
  state = { m = zeros, v = zeros, vmax = zeros, lr_mean = zeros "tensor" },
  step = function()
    v = beta2 * v + (1 - beta2) * g * g
    local w = v
    if amsgrad then
      vmax = max(vmax, v)
      w = vmax
    end
    lr_mean = beta1 * lr_mean + (1 - beta1) * lr
    m = beta1 * m + (lr * (1 - beta1)) * (g / ((1 / sqrt(1 - beta2 ^ t)) * sqrt(w) + eps))
    p = descend(p, m, where(gt(lr_mean, 0), lr / lr_mean, 0))
    p = shrink(p, lr * weight_decay)
  end,
}

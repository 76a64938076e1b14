-- As the authors' code (zeke-xie/Positive-Negative-Momentum 9ffd201). The two momenta change roles
-- at each step: even gradients enter one of them, odd ones the other.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "adapnm",
  cite  = "Xie et al. 2021, arXiv:2103.17182",
  use   = "In place of AMSGrad when more gradient noise helps generalisation",
  family = "adam", follows = "zeke-xie/Positive-Negative-Momentum 9ffd201",
  doc   = "AMSGrad with the difference of two momenta, of even and of odd steps",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    beta3 = { 1, min = 0 }, eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { amsgrad = true, decoupled = true },
  state = { pos = zeros, neg = zeros, v = zeros, v_max = zeros },
  step = function()
    local d = g
    if decoupled then p = shrink(p, lr * weight_decay) else d = g + weight_decay * p end
    pos, neg = lerp(neg, d, 1 - beta1 * beta1), pos
    v = beta2 * v + (1 - beta2) * d * d
    local s = v
    if amsgrad then
      v_max = max(v_max, v)
      s = v_max
    end
    local rate = lr / (1 - beta1 ^ t) / sqrt((1 + beta3) ^ 2 + beta3 ^ 2)
    local root = (1 / sqrt(1 - beta2 ^ t)) * sqrt(s) + eps
    p = descend(p, { (1 + beta3) * pos - beta3 * neg, over = root }, rate)
  end,
}

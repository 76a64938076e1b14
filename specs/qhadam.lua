-- As the authors' package qhoptim 1.1.0. nu1 = nu2 = 1 is Adam, with eps outside of the
-- bias correction; the paper recommends nu1 = 0.7 or 0.8. decouple_weight_decay: their QHAdamW.
-- f32 range: v is infinite from |g| = 1.8e19 on: the element stands still from then on.
return optimizer {
  name  = "qhadam",
  cite  = "Ma and Yarats 2019, arXiv:1810.06801",
  use   = "In place of Adam when the weight of the current gradient should be tuned",
  family = "adam", follows = "qhoptim.pyt.QHAdam 1.1.0",
  doc   = "Adam whose moments are mixed with the current gradient by nu1 and nu2",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    nu1 = { 1, min = 0, max = 1 }, nu2 = { 1, min = 0, max = 1 }, weight_decay = { 0, min = 0 },
    eps = { 1e-8, min = 0 },
  },
  options = { decouple_weight_decay = false },
  state = { m = zeros, v = zeros { min = 0 } },
  step = function()
    local x = g
    if decouple_weight_decay then p = shrink(p, lr * weight_decay) else x = g + weight_decay * p end
    local share = (1 - beta2) / (1 - beta2 ^ t)
    m = lerp(m, x, (1 - beta1) / (1 - beta1 ^ t))
    v = (1 - share) * v + share * x * x
    p = descend(p, { nu1 * m + (1 - nu1) * x, over = sqrt(nu2 * v + (1 - nu2) * x * x) + eps }, lr)
  end,
}

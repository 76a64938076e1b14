-- As the authors' code (uclaml/Padam 586a02b). The root of v plus eps is raised to 2 partial: 1/2
-- is AMSGrad, 0 is SGD with momentum.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): the element stands
-- still from then on.
return optimizer {
  name  = "padam",
  cite  = "Chen et al. 2020, arXiv:1806.06763",
  use   = "To choose between Adam's speed and SGD's generalisation by one exponent",
  family = "adam", follows = "uclaml/Padam 586a02b",
  doc   = "AMSGrad whose second moment is raised to the power partial instead of 1/2",
  hyper = {
    lr = { 0.1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 },
    partial = { 0.25, min = 0, max = 0.5 },
  },
  options = { amsgrad = true },
  state = { m = zeros, v = zeros, v_max = zeros },
  step = function()
    local d = g + weight_decay * p
    m = lerp(m, d, 1 - beta1)
    v = beta2 * v + (1 - beta2) * d * d
    local s = v
    if amsgrad then
      v_max = max(v_max, v)
      s = v_max
    end
    p = descend(p, { m, over = (sqrt(s) + eps) ^ (2 * partial) },
                lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t))
  end,
}

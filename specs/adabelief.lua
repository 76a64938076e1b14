-- rectify: RAdam's factor, and plain momentum while that factor is undefined. On by default, as in
-- the authors' code (adabelief-pytorch 0.1.0 and later) and timm.
-- f32 range: s is infinite once |g - m| exceeds 5.8e20 (sqrt(3.4e38 / (1 - beta2))): the element
-- stands still at rectified steps. |g - m| under 1e-21 adds only eps to s.
return optimizer {
  name  = "adabelief",
  cite  = "Zhuang et al. 2020, arXiv:2010.07468",
  use   = "In place of Adam for image models, where its paper reports the accuracy of SGD",
  family = "adam", follows = "timm.optim.AdaBelief 1.0.30 and adabelief_pytorch.AdaBelief 0.2.1",
  doc   = "Adam that divides by how far the gradient strays from its mean; decoupled weight decay",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-16, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { rectify = true, amsgrad = false },
  state = { m = zeros, s = zeros, smax = zeros },
  step = function()
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    local surprise = g - m
    s = beta2 * s + (1 - beta2) * surprise * surprise + eps
    local w = s
    if amsgrad then
      smax = max(smax, s)
      w = smax
    end
    if rectify then
      local last = 2 / (1 - beta2) - 1
      local rho = last - 2 * t * beta2 ^ t / (1 - beta2 ^ t)
      local r = sqrt((1 - beta2 ^ t) * (rho - 4) * (rho - 2) * last
                     / ((last - 4) * (last - 2) * rho))
      p = descend(p, { m, times = where(ge(rho, 5), r / (sqrt(w) + eps), 1) }, lr / (1 - beta1 ^ t))
    else
      p = descend(p, { m, over = (1 / sqrt(1 - beta2 ^ t)) * sqrt(w) + eps }, lr / (1 - beta1 ^ t))
    end
  end,
}

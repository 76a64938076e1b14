-- As DAdaptSGD of the authors' package dadaptation 3.2. d is one number for all tensors and groups; the step uses the d
-- of the step before it. The norm of the first gradient excludes weight decay, as in their code (its add is not in
-- place). The first gradient that is not zero sets it; theirs divides by 0 if the first one is zero.
return optimizer {
  name  = "dadapt_sgd",
  cite  = "Defazio and Mishchenko 2023, arXiv:2301.07733",
  use   = "In place of SGD when the rate is unknown",
  family = "no rate", follows = "dadaptation.DAdaptSGD 3.2",
  doc   = "SGD whose step size d is a growing lower bound of the distance to the solution; lr stays 1",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    d0 = { 1e-6, above = 0 }, growth_rate = { inf, above = 1, max = inf },
  },
  state = {
    x0 = copy(p), s = zeros, d = fill(d0, "group"), numerator = zeros "group", g0_norm = zeros "group",
  },
  step = function()
    g0_norm = where(gt(g0_norm, 0), g0_norm, global.norm(g))
    local rate, x = where(gt(g0_norm, 0), d * lr / g0_norm, 0), g + weight_decay * p
    numerator = numerator + rate * global.sum(dot(x, s))
    s = s + rate * x
    local size = global.norm(s)
    d = where(both(gt(size, 0), gt(lr, 0)), max(d, min(2 * numerator / size, d * growth_rate)), d)
    p = lerp(p, x0 - s, 1 - momentum)
  end,
}

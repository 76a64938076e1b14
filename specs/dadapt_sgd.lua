-- As DAdaptSGD of the authors' package dadaptation 3.2. d is one number for all tensors and groups;
-- the step uses the d of the step before it. The norm of the first gradient excludes weight decay,
-- as in their code (its add is not in place). The first gradient that is not zero sets it; theirs
-- divides by 0 if the first one is zero. Estimates exclude groups with lr = 0. Theirs takes
-- weight_decay and momentum of the first group for all; here each has its own.
return optimizer {
  name  = "dadapt_sgd",
  cite  = "Defazio and Mishchenko 2023, arXiv:2301.07733",
  use   = "In place of SGD when the rate is unknown",
  family = "no rate", follows = "dadaptation.DAdaptSGD 3.2",
  doc   = "SGD whose step size d is a growing lower bound of the distance to the solution; lr " ..
          "stays 1",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    d0 = { 1e-6, above = 0 }, growth_rate = { inf, above = 1, max = inf },
  },
  state = {
    x0 = copy(p), s = zeros, d = fill(d0, "group"), numerator = zeros "group",
    g0_norm = zeros "group",
  },
  step = function()
    local on = gt(lr, 0)
    g0_norm = where(gt(g0_norm, 0), g0_norm, global.norm(where(on, g, 0)))
    local function scaled(lr) return where(gt(g0_norm, 0), d * lr / g0_norm, 0) end
    local x = g + weight_decay * p
    numerator = numerator + global.sum(scaled(lr) * dot(x, s))
    s = s + scaled(lr) * x
    local size = global.norm(where(on, s, 0))
    d = where(gt(size, 0), max(d, min(2 * numerator / size, d * growth_rate)), d)
    p = lerp(p, x0 - s, 1 - momentum)
  end,
}

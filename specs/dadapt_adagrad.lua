-- As DAdaptAdaGrad of the authors' package dadaptation 3.2 for dense gradients. d is one number for
-- all tensors and groups; the step uses the d of the step before it. Their running sums of s are
-- plain sums here. They take lr and momentum of the first group for all; here each group has its
-- own. A group with lr = 0 adds nothing to d.
-- f32 range: a is infinite from |g| = 1.8e19 on: the element then moves back to where it began.
return optimizer {
  name  = "dadapt_adagrad",
  cite  = "Defazio and Mishchenko 2023, arXiv:2301.07733",
  use   = "For convex problems when no rate is known; prodigy is usually better for networks",
  family = "no rate", follows = "dadaptation.DAdaptAdaGrad 3.2",
  doc   = "AdaGrad by dual averaging whose step size d bounds the distance to the solution; lr " ..
          "stays 1",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    eps = { 1e-6, above = 0 }, d0 = { 1e-6, above = 0 },
    growth_rate = { inf, above = 1, max = inf },
  },
  state = { x0 = copy(p), s = zeros, a = fill(1e-6), d = fill(d0, "group"),
            squares = zeros "group" },
  step = function()
    local x = g + weight_decay * p
    a = a + x * x
    local root = sqrt(a) + eps
    s = s + (d * lr) * x
    local total, gain = global.sum(abs(s)), global.sum(s * (s / root))
    -- of tensors that count: one launch with the sums
    local top = global.max(where(gt(sum(abs(s)), 0), lr, 0))
    squares = squares + global.sum((d * lr) * (d * lr) * sum(x * (x / root)))
    d = where(both(gt(total, 0), gt(top, 0)),
              max(d, min((gain - squares) / total, d * growth_rate)), d)
    p = lerp(p, x0 - s / root, 1 - momentum)
  end,
}

-- As DAdaptLion of the authors' package dadaptation 3.2; no paper has it. d is one number for all
-- tensors and groups; the step uses the d of the step before it. As in their code, gradients enter
-- m times d lr, but the sign's interpolation takes them whole: m counts little until d has grown. A
-- group with lr = 0 stands still here; theirs steps all groups with the largest lr.
return optimizer {
  name  = "dadapt_lion",
  cite  = "Defazio and Mishchenko 2023, arXiv:2301.07733; Lion: Chen et al. 2023, arXiv:2302.06675",
  use   = "In place of Lion when the rate is unknown",
  family = "no rate", follows = "dadaptation.DAdaptLion 3.2",
  doc   = "Lion whose step size d is a growing lower bound of the distance to the solution; lr " ..
          "stays 1",
  hyper = {
    lr = { 1, min = 0 }, beta1 = { 0.9, min = 0, max = 1 }, beta2 = { 0.99, above = 0, below = 1 },
    weight_decay = { 0, min = 0 }, d0 = { 1e-6, above = 0 },
  },
  state = { m = zeros, s = zeros, d = fill(d0, "group"), numerator = zeros "group" },
  step = function()
    local rate, root = d * lr, sqrt(beta2)
    local u = sign(lerp(m, g, 1 - beta1))
    local gain = global.sum(rate * dot(u, s))
    p = shrink(p, rate * weight_decay)
    p = descend(p, u, rate)
    m = beta2 * m + ((1 - beta2) * rate) * g
    s = root * s + ((1 - root) * rate) * u
    local total, moving = global.sum(abs(s)), global.sum(where(gt(lr, 0), sum(abs(s)), 0))
    when(gt(total, 0), function()
      numerator = root * numerator + (1 - root) * gain
      d = where(gt(moving, 0), max(d, numerator / ((1 - root) * total)), d)
    end)
  end,
}

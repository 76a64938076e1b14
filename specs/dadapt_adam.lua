-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As DAdaptAdam of the authors' package dadaptation 3.2. d is one number for all tensors and
-- groups; the step uses the d of the step before it. layer_scale scales the steps of a group. A
-- group with lr = 0 does not change; theirs still applies decoupled decay to it. Theirs refuses
-- groups of two other rates; here each steps with its own.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "dadapt_adam",
  cite  = "Defazio and Mishchenko 2023, arXiv:2301.07733",
  use   = "In place of Adam when the rate is unknown; prodigy adapts faster",
  family = "no rate", follows = "dadaptation.DAdaptAdam 3.2",
  doc   = "Adam whose step size d is a growing lower bound of the distance to the solution; lr " ..
          "stays 1",
  hyper = { lr = { 1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
            beta2 = { 0.999, above = 0, below = 1 },
            eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 }, d0 = { 1e-6, above = 0 },
            growth_rate = { inf, above = 1, max = inf }, layer_scale = { 1, min = 0 } },
  options = { decouple = false, use_bias_correction = false },
  state = { m = zeros, v = zeros, s = zeros, d = fill(d0, "group"), numerator = zeros "group",
            k = zeros "group" },
  step = function()
    local rate, root, x = d * lr, sqrt(beta2), g
    if use_bias_correction then
      k = k + 1
      rate = rate * sqrt(1 - beta2 ^ k) / (1 - beta1 ^ k)
    end
    if not decouple then x = g + weight_decay * p end
    local gain = global.sum(where(gt(lr, 0), layer_scale * rate * dot(x, s / (sqrt(v) + eps)), 0))
    when(gt(lr, 0), function()
      m = beta1 * m + (layer_scale * rate * (1 - beta1)) * x
      v = beta2 * v + (1 - beta2) * x * x
      s = root * s + (rate * (1 - root)) * x
      if decouple then p = p - (rate * weight_decay) * p end
      p = p - m / (sqrt(v) + eps)
    end)
    local total = global.sum(where(gt(lr, 0), layer_scale * sum(abs(s)), 0))
    when(gt(total, 0), function()
      numerator = root * numerator + (1 - root) * gain
      d = max(d, min(numerator / ((1 - root) * total), d * growth_rate))
    end)
  end,
}

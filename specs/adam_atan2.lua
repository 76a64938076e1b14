-- As lucidrains/adam-atan2-pytorch b42d7cb; the paper's authors have published no code. a and b are
-- its defaults: a makes the step of a constant gradient 1. For its cautious_factor use the wrapper
-- cautious.
-- f32 range: v is infinite from |g| = 1.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element. |g| under 1e-22 adds 0 to v: the step is then a pi/2.
return optimizer {
  name  = "adam_atan2",
  cite  = "Everett et al. 2024, arXiv:2407.05872",
  use   = "In place of AdamW when gradients are tiny or vary in scale, since it has no eps to " ..
          "choose",
  family = "adam", follows = "lucidrains/adam-atan2-pytorch b42d7cb",
  doc   = "AdamW with atan2(m, b sqrt(v)) in place of the division: no eps, invariant to the " ..
          "scale of gradients",
  hyper = {
    lr = { 1e-4, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.99, min = 0, below = 1 },
    weight_decay = { 0, min = 0 }, a = { 1.27, above = 0 }, b = { 1, above = 0 },
  },
  state = { m = zeros, v = zeros },
  step = function()
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    p = shrink(p, lr * weight_decay)
    p = descend(p, atan2((1 / (1 - beta1 ^ t)) * m, (b / sqrt(1 - beta2 ^ t)) * sqrt(v)), lr * a)
  end,
}

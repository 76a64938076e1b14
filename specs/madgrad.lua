-- As in the authors' code, eps is added to lr unless lr is 0. The paper does not do this.
-- f32 range: v is infinite from |g| = 1.8e20 on at the default lr (lr g^2 over 3.4e38): the element
-- then moves back to where it began. |g| under 1e-22 adds 0 to v; eps outweighs its root long
-- before that.
return optimizer {
  name  = "madgrad",
  cite  = "Defazio and Jelassi 2021, arXiv:2101.11075",
  use   = "For sparse problems, and for tasks such as MRI reconstruction, on which its paper " ..
          "compares it",
  family = "adagrad", follows = "timm.optim.MADGRAD 1.0.30",
  doc   = "Dual averaging from the first weights, over a cube root of summed squared gradients; " ..
          "L2 weight decay",
  hyper = {
    lr = { 1e-2, min = 0 }, momentum = { 0.9, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    eps = { 1e-6, min = 0 },
  },
  state = { x0 = copy(p), s = zeros, v = zeros },
  step = function()
    local d = g + weight_decay * p
    local lambda = where(gt(lr, 0), lr + eps, 0) * sqrt(t)
    s = s + lambda * d
    v = v + lambda * d * d
    local z = x0 - s / (cbrt(v) + eps)
    p = lerp(p, z, 1 - momentum)
  end,
}

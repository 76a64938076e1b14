-- base_lr: the learning rate at the start of a schedule; the bounds are scaled by lr / base_lr. 0
-- means lr itself, a constant rate. optc.torch sets it to each group's first lr.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): the element then
-- steps at the lower bound. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before that.
return optimizer {
  name  = "adabound",
  cite  = "Luo et al. 2019, arXiv:1902.09843",
  use   = "When training should start as fast as Adam and end like SGD",
  family = "adam", follows = "adabound.AdaBound 0.0.5",
  doc   = "Adam's rate for each coordinate, clipped to bounds that close in on final_lr, so " ..
          "that it ends as SGD",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    final_lr = { 0.1, min = 0 }, gamma = { 1e-3, above = 0 }, eps = { 1e-8, min = 0 },
    weight_decay = { 0, min = 0 },
    base_lr = { 0, min = 0 },
  },
  options = { amsbound = false },
  state = { m = zeros, v = zeros, vmax = zeros },
  step = function()
    local d = g + weight_decay * p
    m = lerp(m, d, 1 - beta1)
    v = beta2 * v + (1 - beta2) * d * d
    local s = v
    if amsbound then
      vmax = max(vmax, v)
      s = vmax
    end
    local final = final_lr * where(gt(base_lr, 0), lr / base_lr, 1)
    local lower = final * (1 - 1 / (gamma * t + 1))
    local upper = final * (1 + 1 / (gamma * t))
    local rate = (lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t)) / (sqrt(s) + eps)
    p = p - clamp(rate, lower, upper) * m
  end,
}

-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: the
-- element stands still from then on. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before
-- that.
return optimizer {
  name  = "adamw",
  cite  = "Loshchilov and Hutter 2019, arXiv:1711.05101; amsgrad: Reddi et al. 2018, " ..
          "arXiv:1904.09237",
  use   = "First: it is the standard for transformers and most deep networks",
  family = "adam", follows = "torch.optim.AdamW 2.13.0",
  doc   = "Adam with weight decay kept apart from the gradient",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 1e-2, min = 0 },
  },
  options = { amsgrad = false },
  state = { m = zeros, v = zeros, vmax = zeros },
  step = function()
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    local s = v
    if amsgrad then
      vmax = max(vmax, v)
      s = vmax
    end
    -- the bias corrections are group values: computed once, not divided by at every element
    p = descend(p, { m, over = (1 / sqrt(1 - beta2 ^ t)) * sqrt(s) + eps }, lr / (1 - beta1 ^ t))
  end,
}

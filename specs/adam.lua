-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: the
-- element stands still from then on. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before
-- that.
return optimizer {
  name  = "adam",
  cite  = "Kingma and Ba 2015, arXiv:1412.6980; amsgrad: Reddi et al. 2018, arXiv:1904.09237",
  use   = "To reproduce results that used Adam with L2 decay; prefer adamw for new work",
  family = "adam", follows = "torch.optim.Adam 2.13.0",
  doc   = "Bias-corrected first moment over the root of the second; weight decay, if any, is L2",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { amsgrad = false },
  state = { m = zeros, v = zeros, vmax = zeros },
  step = function()
    local d = g + weight_decay * p
    m = lerp(m, d, 1 - beta1)
    v = beta2 * v + (1 - beta2) * d * d
    local s = v
    if amsgrad then
      vmax = max(vmax, v)
      s = vmax
    end
    p = descend(p, { m, over = (1 / sqrt(1 - beta2 ^ t)) * sqrt(s) + eps }, lr / (1 - beta1 ^ t))
  end,
}

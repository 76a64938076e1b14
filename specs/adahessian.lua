-- As timm's Adahessian without avg_conv_kernel. Ahead of each step (or each k-th) the caller
-- computes H z with random signs z, gives z * H z in place of the gradient and runs the entry
-- set_hessian, then gives the gradient and runs step. Without a new estimate, h enters v again;
-- before the first one it is 1.
-- f32 range: v is infinite from |h| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "adahessian",
  cite  = "Yao et al. 2021, arXiv:2006.00719",
  use   = "When Hessian-vector products are affordable and Adam's scaling is not good enough",
  family = "curvature", follows = "timm.optim.Adahessian 1.0.31",
  doc   = "AdamW with a diagonal of the Hessian in place of the gradient in v; entries " ..
          "set_hessian and step",
  hyper = {
    lr = { 0.1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, above = 0 }, weight_decay = { 0, min = 0 },
    hessian_power = { 1, above = 0, max = 1 },
  },
  state = { m = zeros, v = zeros, h = fill(1) },
  set_hessian = function() h = abs(g) end,
  step = function()
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * h * h
    local root = where(gt(v, 0), ((1 / (1 - beta2 ^ t)) * v) ^ (0.5 * hessian_power), 0)
    p = descend(p, { m, over = root + eps }, lr / (1 - beta1 ^ t))
  end,
}

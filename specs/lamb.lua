-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- Defaults: the paper has none. eps and weight_decay are from the authors' BERT code, lr is timm's.
-- timm's clips all gradients to norm 1 (write lamb+clip(1)) and has ratio 1 without weight decay.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: weight
-- decay alone moves the element from then on. If that is all of the tensor, the ratio of norms
-- makes its step lr * p. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before that.
return optimizer {
  name  = "lamb",
  cite  = "You et al. 2020, arXiv:1904.00962",
  use   = "For training with very large batches, such as BERT at 32K samples",
  family = "layerwise", follows = "timm.optim.Lamb 1.0.30",
  doc   = "Adam's direction with weight decay, scaled for each tensor by the ratio of weight " ..
          "and update norms",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-6, min = 0 }, weight_decay = { 1e-2, min = 0 },
  },
  options = { trust_clip = false },             -- LAMBC: the ratio of norms is at most 1
  state = { m = zeros, v = zeros, k = zeros "group" },
  step = function()
    k = k + 1
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    local u = (1 / (1 - beta1 ^ k)) * m / ((1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps)
      + weight_decay * p
    local pn, un = norm(p), norm(u)
    local ratio = where(both(gt(pn, 0), gt(un, 0)), pn / un, 1)
    if trust_clip then ratio = min(ratio, 1) end
    p = descend(p, u, lr * ratio)
  end,
}

-- As SophiaG of the authors' code (Liuhong99/Sophia a7e1572). Every k steps (the authors: 10) the
-- caller computes a gradient with labels sampled from the model's output and runs the entry
-- update_hessian, then goes on with ordinary gradients and step. bs is the batch size in tokens.
-- Sophia-H: give update_hessian the root of an estimate of the diagonal, and bs = 1.
-- f32 range: h is infinite from |g| = 1.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves the element.
return optimizer {
  name  = "sophia",
  cite  = "Liu et al. 2023, arXiv:2305.14342",
  use   = "For language-model pre-training when a Hessian estimate every ten steps is affordable",
  family = "curvature", follows = "Liuhong99/Sophia a7e1572",
  doc   = "Momentum over a diagonal of the Hessian, clipped element by element; entries " ..
          "update_hessian and step",
  hyper = {
    lr = { 1e-4, min = 0 }, beta1 = { 0.965, min = 0, below = 1 },
    beta2 = { 0.99, min = 0, below = 1 },
    rho = { 0.04, above = 0 }, weight_decay = { 0.1, min = 0 }, bs = { 5120, above = 0 },
  },
  state = { m = zeros, h = zeros },
  update_hessian = function() h = beta2 * h + (1 - beta2) * g * g end,
  step = function()
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    p = descend(p, { sign(m), times = min(abs(m) / ((rho * bs) * h + 1e-15), 1) }, lr)
  end,
}

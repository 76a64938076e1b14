-- As optax.contrib.dowg, which agrees with the authors' DoWG (rka97/dowg e4dbe02): squares over all
-- tensors. Theirs has neither lr nor weight decay. init_estim_sq_dist = 0: eps (optax's None).
return optimizer {
  name  = "dowg",
  cite  = "Khaled, Mishchenko and Jin 2023, arXiv:2305.16284",
  use   = "In place of DoG when weights move far from their start",
  family = "no rate", follows = "optax.contrib.dowg 0.2.8",
  doc   = "SGD whose rate is the squared distance from the first weights over weighted " ..
          "gradients; lr stays 1",
  hyper = {
    lr = { 1, min = 0 }, init_estim_sq_dist = { 0, min = 0 }, eps = { 1e-4, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  state = { x0 = copy(p), r = zeros "group", v = zeros "group" },
  step = function()
    local x = g + weight_decay * p
    r = max(r,
            max(where(gt(init_estim_sq_dist, 0), init_estim_sq_dist, eps), global.norm(p - x0) ^ 2))
    v = v + r * global.norm(x) ^ 2
    p = descend(p, x, lr * r / (sqrt(v) + eps))
  end,
}

-- As the authors' package qhoptim 1.1.0, whose lr, momentum and nu have no defaults: these
-- are the values of its example. The momentum is a mean: lr is larger than that of sgd by 1 / (1 -
-- momentum).
return optimizer {
  name  = "qhm",
  cite  = "Ma and Yarats 2019, arXiv:1810.06801",
  use   = "In place of SGD with momentum when the weight of the current gradient should be tuned",
  family = "momentum", follows = "qhoptim.pyt.QHM 1.1.0",
  doc   = "Mixes plain SGD and momentum by nu",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0.999, min = 0, max = 1 }, nu = { 0.7, min = 0, max = 1 },
    weight_decay = { 0, min = 0 },
  },
  options = { weight_decay_type = { "grad", "direct" } },
  state = { b = zeros },
  step = function()
    local d = g
    if weight_decay_type == "grad" then d = g + weight_decay * p else
    p = shrink(p, lr * weight_decay) end
    b = lerp(b, d, 1 - momentum)
    p = descend(p, nu * b + (1 - nu) * d, lr)
  end,
}

-- As the authors' code (AtheMathmo/AggMo f91730d) with three buffers, its default. Its lr has no
-- default: 0.1 is that of its first experiment.
return optimizer {
  name  = "aggmo",
  cite  = "Lucas et al. 2019, arXiv:1804.00325",
  use   = "In place of SGD with momentum when large momentum oscillates",
  family = "momentum", follows = "AtheMathmo/AggMo f91730d",
  doc   = "The mean of three momenta with different rates of decay",
  hyper = {
    lr = { 0.1, min = 0 }, beta1 = { 0, min = 0, max = 1 }, beta2 = { 0.9, min = 0, max = 1 },
    beta3 = { 0.99, min = 0, max = 1 }, weight_decay = { 0, min = 0 },
  },
  state = { b1 = zeros, b2 = zeros, b3 = zeros },
  step = function()
    local d = g + weight_decay * p
    b1 = beta1 * b1 + d
    b2 = beta2 * b2 + d
    b3 = beta3 * b3 + d
    p = descend(p, b1 + b2 + b3, lr / 3)
  end,
}

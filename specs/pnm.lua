-- As the authors' code (zeke-xie/Positive-Negative-Momentum 9ffd201). The two momenta change roles
-- at each step: even gradients enter one of them, odd ones the other. lr has no default there: 0.1
-- is that of their demo.
return optimizer {
  name  = "pnm",
  cite  = "Xie et al. 2021, arXiv:2103.17182",
  use   = "In place of SGD when more gradient noise helps generalisation",
  family = "momentum", follows = "zeke-xie/Positive-Negative-Momentum 9ffd201",
  doc   = "The difference of two momenta, of even and of odd steps: adds noise of a chosen size " ..
          "to SGD",
  hyper = {
    lr = { 0.1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 }, beta2 = { 1, min = 0 },
    weight_decay = { 0, min = 0 },
  },
  options = { decoupled = true },
  state = { pos = zeros, neg = zeros },
  step = function()
    local d = g
    if decoupled then p = shrink(p, lr * weight_decay) else d = g + weight_decay * p end
    pos, neg = lerp(neg, d, 1 - beta1 * beta1), pos
    p = descend(p, (1 + beta2) * pos - beta2 * neg, lr / sqrt((1 + beta2) ^ 2 + beta2 ^ 2))
  end,
}

return optimizer {
  name  = "lion",
  cite  = "Chen et al. 2023, arXiv:2302.06675",
  use   = "In place of AdamW to halve the state; take a third to a tenth of its rate and 3 to " ..
          "10 times its decay",
  family = "sign", follows = "timm.optim.Lion 1.0.30",
  doc   = "The sign of an interpolated momentum, with decoupled weight decay",
  hyper = {
    lr = { 1e-4, min = 0 }, beta1 = { 0.9, min = 0, max = 1 }, beta2 = { 0.99, min = 0, max = 1 },
    weight_decay = { 0, min = 0 },
  },
  state = { m = zeros },
  step = function()
    local c = lerp(m, g, 1 - beta1)
    p = descend(p, sign(c), lr, weight_decay)
    m = lerp(m, g, 1 - beta2)
  end,
}

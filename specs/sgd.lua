-- lr: for networks with normalisation. torch has momentum 0 and lr 1e-3; optc.torch uses torch's
-- values.
return optimizer {
  name  = "sgd",
  cite  = "Polyak 1964, USSR Comput. Math. Math. Phys. 4(5); Sutskever et al. 2013, ICML 28(3)",
  use   = "For convolutional networks with a tuned schedule, and as the baseline of a comparison",
  family = "momentum", follows = "torch.optim.SGD 2.13.0",
  doc   = "Gradient descent with heavy-ball or Nesterov momentum and L2 weight decay",
  hyper = {
    lr = { 1e-2, min = 0 }, momentum = { 0.9, min = 0, max = 1 },
    dampening = { 0, min = 0, max = 1 }, weight_decay = { 0, min = 0 },
  },
  options = { momentum_buffer = true, nesterov = false },
  state = { b = zeros },
  step = function()
    local d = g + weight_decay * p
    if momentum_buffer then
      -- the first gradient enters the buffer whole
      local share = where(eq(t, 1), 1, 1 - dampening)
      b = momentum * b + share * d
      if nesterov then d = d + momentum * b else d = b end
    end
    p = descend(p, d, lr)
  end,
}

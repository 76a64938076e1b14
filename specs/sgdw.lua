-- Defaults: lr is the authors'. Their momentum and decay default to 0, which is plain SGD; 0.9 is
-- the value of the paper's runs, and 0.01 is AdamW's decay. lr multiplies the decay, as in timm;
-- the authors multiply it by the schedule only.
return optimizer {
  name  = "sgdw",
  cite  = "Loshchilov and Hutter 2019, arXiv:1711.05101",
  use   = "In place of SGD when decay should not depend on momentum",
  family = "momentum", follows = "timm.optim.SGDW 1.0.30",
  doc   = "SGD with momentum and weight decay kept apart from the gradient",
  hyper = {
    lr = { 1e-3, min = 0 }, momentum = { 0.9, min = 0, max = 1 },
    dampening = { 0, min = 0, max = 1 }, weight_decay = { 1e-2, min = 0 },
  },
  options = { nesterov = false },
  state = { b = zeros },
  step = function()
    local share = where(eq(t, 1), 1, 1 - dampening)   -- the first gradient enters the buffer whole
    b = momentum * b + share * g
    local d = b
    if nesterov then d = g + momentum * b end
    p = shrink(p, lr * weight_decay)
    p = descend(p, d, lr)
  end,
}

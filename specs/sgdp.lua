local radial_part = include "radial_part"

-- Momentum, before the rate.
local function direction()
  b = momentum * b + (1 - dampening) * g
  if nesterov then return g + momentum * b end
  return b
end

-- As the authors' code (clovaai/AdamP 7f6f038). The component of the update along a scale-invariant
-- weight is removed. Weight decay is divided by 1 - momentum. Their lr has no default and their
-- momentum is 0; 0.1 and 0.9 are the values of their ImageNet runs. As in their code the buffer
-- itself is projected, unless nesterov.
return optimizer {
  name  = "sgdp",
  cite  = "Heo et al. 2021, arXiv:2006.08217",
  use   = "In place of SGD for networks with batch normalisation",
  family = "momentum", follows = "clovaai/AdamP 7f6f038",
  doc   = "SGD with momentum without the radial part of updates to scale-invariant weights",
  hyper = {
    lr = { 0.1, min = 0 }, momentum = { 0.9, min = 0, below = 1 },
    dampening = { 0, min = 0, max = 1 },
    weight_decay = { 0, min = 0 }, eps = { 1e-8, above = 0 }, delta = { 0.1, min = 0 },
    wd_ratio = { 0.1, min = 0, max = 1 },
  },
  options = { nesterov = false },
  state = { b = zeros },
  step = function()
    local u = direction()
    p = descend(shrink(p, lr * weight_decay / (1 - momentum), "factor"), u, lr)
  end,
  matrix = function()
    local u = direction()
    local radial, by_row, by_all = radial_part(u)
    local decay = weight_decay * where(either(by_row, by_all), wd_ratio, 1) / (1 - momentum)
    u = u - radial * p
    if not nesterov then b = u end
    p = descend(shrink(p, lr * decay, "factor"), u, lr)
  end,
}

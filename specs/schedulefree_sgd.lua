-- As SGDScheduleFree of the authors' package schedulefree 1.4.1. p holds the paper's y, where gradients are taken; z
-- is the base iterate. Entry to_eval puts the average x = p + (1 - 1/momentum) (z - p) into p, to_train puts y back.
-- Running one of them twice changes nothing. A step in evaluation mode returns to y first (the authors raise an
-- error); its gradient must belong to y.
local function to_y(if_it_is) p = where(if_it_is, lerp(p, z, 1 - momentum), p) end

return optimizer {
  name  = "schedulefree_sgd",
  cite  = "Defazio et al. 2024, arXiv:2405.15682",
  use   = "In place of SGD when the length of training is not known in advance",
  family = "averaging", follows = "schedulefree.SGDScheduleFree 1.4.1",
  doc   = "SGD without a schedule: a weighted average of the iterates; entries to_eval and to_train",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0.9, above = 0, below = 1 }, weight_decay = { 0, min = 0 },
    warmup_steps = { 0, min = 0 }, r = { 0, min = 0 }, weight_lr_power = { 2, min = 0 },
  },
  state = { z = copy(p), k = zeros "group", weight_sum = zeros "group", lr_max = zeros "group",
            evaluated = zeros "tensor" },
  step = function()
    to_y(gt(evaluated, 0))
    evaluated = 0
    k = k + 1
    local rate = lr * min(1, k / max(warmup_steps, 1))
    lr_max = max(lr_max, rate)
    local weight = k ^ r * lr_max ^ weight_lr_power
    weight_sum = weight_sum + weight
    local c = where(gt(weight_sum, 0), weight / weight_sum, 0)
    local d = g + weight_decay * p
    p = lerp(p, z, c) - (rate * (1 - momentum * (1 - c))) * d
    z = z - rate * d
  end,
  to_eval = function()
    p = where(eq(evaluated, 0), lerp(p, z, 1 - 1 / momentum), p)
    evaluated = 1
  end,
  to_train = function()
    to_y(gt(evaluated, 0))
    evaluated = 0
  end,
}

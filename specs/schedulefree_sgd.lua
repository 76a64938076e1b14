-- As SGDScheduleFree of the authors' package schedulefree 1.4.1; shared/schedulefree.lua has the
-- average.
local average = include "schedulefree"

return optimizer {
  name  = "schedulefree_sgd",
  cite  = "Defazio et al. 2024, arXiv:2405.15682",
  use   = "In place of SGD when the length of training is not known in advance",
  family = "averaging", follows = "schedulefree.SGDScheduleFree 1.4.1",
  doc   = "SGD without a schedule: a weighted average of the iterates; entries to_eval and " ..
          "to_train",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0.9, above = 0, below = 1 }, weight_decay = { 0, min = 0 },
    warmup_steps = { 0, min = 0 }, r = { 0, min = 0 }, weight_lr_power = { 2, min = 0 },
  },
  state = { z = copy(p), k = zeros "group", weight_sum = zeros "group", lr_max = zeros "group",
            evaluated = zeros "tensor" },
  step = function()
    average.to_train(momentum)
    k = k + 1
    local rate = lr * min(1, k / max(warmup_steps, 1))
    local c = average.weight(rate)
    local d = g + weight_decay * p
    average.step(momentum, rate, c, d)
  end,
  to_eval = function() average.to_eval(momentum) end,
  to_train = function() average.to_train(momentum) end,
}

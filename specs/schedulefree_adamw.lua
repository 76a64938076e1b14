-- As AdamWScheduleFree of the authors' package schedulefree 1.4.1; shared/schedulefree.lua has the
-- average. k counts the group's steps, also for the bias correction of a tensor that joins late.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves z from then on.
local average = include "schedulefree"

return optimizer {
  name  = "schedulefree_adamw",
  cite  = "Defazio et al. 2024, arXiv:2405.15682",
  use   = "In place of AdamW when the length of training is not known in advance",
  family = "averaging", follows = "schedulefree.AdamWScheduleFree 1.4.1",
  doc   = "AdamW without a schedule: a weighted average of the iterates; entries to_eval and " ..
          "to_train",
  hyper = {
    lr = { 2.5e-3, min = 0 }, beta1 = { 0.9, above = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
    warmup_steps = { 0, min = 0 }, r = { 0, min = 0 }, weight_lr_power = { 2, min = 0 },
  },
  state = { z = copy(p), v = zeros, k = zeros "group", weight_sum = zeros "group",
            lr_max = zeros "group",
            evaluated = zeros "tensor" },
  step = function()
    average.to_train(beta1)
    k = k + 1
    local rate = lr * min(1, k / max(warmup_steps, 1))
    local c = average.weight(rate)
    v = beta2 * v + (1 - beta2) * g * g
    local d = g / ((1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps) + weight_decay * p
    average.step(beta1, rate, c, d)
  end,
  to_eval = function() average.to_eval(beta1) end,
  to_train = function() average.to_train(beta1) end,
}

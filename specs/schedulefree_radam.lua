-- As RAdamScheduleFree of the authors' package schedulefree 1.4.1; shared/schedulefree.lua has the
-- average. k counts the group's steps, also for the bias correction of a tensor that joins late.
-- silent_sgd_phase: no step while RAdam's factor is undefined.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves z from then on.
local average = include "schedulefree"

return optimizer {
  name  = "schedulefree_radam",
  cite  = "Defazio et al. 2024, arXiv:2405.15682; Liu et al. 2020, arXiv:1908.03265",
  use   = "In place of schedulefree_adamw when a warm-up is not wanted",
  family = "averaging", follows = "schedulefree.RAdamScheduleFree 1.4.1",
  doc   = "RAdam without a schedule or warm-up: a weighted average of the iterates; entries " ..
          "to_eval and to_train",
  hyper = { lr = { 2.5e-3, min = 0 }, beta1 = { 0.9, above = 0, below = 1 },
            beta2 = { 0.999, min = 0, below = 1 },
            eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 }, r = { 0, min = 0 },
            weight_lr_power = { 2, min = 0 } },
  options = { silent_sgd_phase = true },
  state = { z = copy(p), v = zeros, k = zeros "group", weight_sum = zeros "group",
            lr_max = zeros "group",
            evaluated = zeros "tensor" },
  step = function()
    average.to_train(beta1)
    k = k + 1
    local last = 2 / (1 - beta2) - 1
    local rho = last - 2 * k * beta2 ^ k / (1 - beta2 ^ k)
    local adapts = gt(rho, 4)
    local factor = sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
    local rate = lr * where(adapts, factor, silent_sgd_phase and 0 or 1)
    local c = average.weight(rate)
    v = beta2 * v + (1 - beta2) * g * g
    local d = g / where(adapts, (1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps, 1) + weight_decay * p
    average.step(beta1, rate, c, d)
  end,
  to_eval = function() average.to_eval(beta1) end,
  to_train = function() average.to_train(beta1) end,
}

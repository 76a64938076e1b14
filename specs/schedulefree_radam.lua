-- As RAdamScheduleFree of the authors' package schedulefree 1.4.1. p holds the paper's y, where gradients are taken;
-- z is the base iterate. Entry to_eval puts the average x = p + (1 - 1/beta1) (z - p) into p, to_train puts y back.
-- Running one of them twice changes nothing. A step in evaluation mode returns to y first (the authors raise an
-- error); its gradient must belong to y. silent_sgd_phase: no step while RAdam's factor is undefined.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone moves z from then on.
local function to_y(if_it_is) p = where(if_it_is, lerp(p, z, 1 - beta1), p) end

return optimizer {
  name  = "schedulefree_radam",
  cite  = "Defazio et al. 2024, arXiv:2405.15682; Liu et al. 2020, arXiv:1908.03265",
  use   = "In place of schedulefree_adamw when a warm-up is not wanted",
  family = "averaging", follows = "schedulefree.RAdamScheduleFree 1.4.1",
  doc   = "RAdam without a schedule or warm-up: a weighted average of the iterates; entries to_eval and to_train",
  hyper = {
    lr = { 2.5e-3, min = 0 }, beta1 = { 0.9, above = 0, below = 1 }, beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 }, r = { 0, min = 0 }, weight_lr_power = { 2, min = 0 },
  },
  options = { silent_sgd_phase = true },
  state = { z = copy(p), v = zeros, k = zeros "group", weight_sum = zeros "group", lr_max = zeros "group",
            evaluated = zeros "tensor" },
  step = function()
    to_y(gt(evaluated, 0))
    evaluated = 0
    k = k + 1
    local last = 2 / (1 - beta2) - 1
    local rho = last - 2 * k * beta2 ^ k / (1 - beta2 ^ k)
    local adapts = gt(rho, 4)
    local factor = sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
    local rate = lr * where(adapts, factor, silent_sgd_phase and 0 or 1)
    lr_max = max(lr_max, rate)
    local weight = k ^ r * lr_max ^ weight_lr_power
    weight_sum = weight_sum + weight
    local c = where(gt(weight_sum, 0), weight / weight_sum, 0)
    v = beta2 * v + (1 - beta2) * g * g
    local d = g / where(adapts, (1 / sqrt(1 - beta2 ^ t)) * sqrt(v) + eps, 1) + weight_decay * p
    p = lerp(p, z, c) - (rate * (1 - beta1 * (1 - c))) * d
    z = z - rate * d
  end,
  to_eval = function()
    p = where(eq(evaluated, 0), lerp(p, z, 1 - 1 / beta1), p)
    evaluated = 1
  end,
  to_train = function()
    to_y(gt(evaluated, 0))
    evaluated = 0
  end,
}

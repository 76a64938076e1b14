-- As the authors' code (kjeiun/amuse 4c6383f): Muon and AdamW without a schedule. p is the point of
-- the gradient, z the base iterate; shared/schedulefree.lua has the entries. beta, the share of the
-- average in p, starts as beta1 and grows towards 1 after the warm-up, by rho. As there, a step
-- reads the average from p by its own beta, not the last step's. The authors give vectors a group
-- of their own, with lr_1d as its lr. Theirs has no default of warmup_steps.
-- products: f16, as in muon.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): weight decay alone
-- moves z from then on.
local average = include "schedulefree"

-- Calls step with the rate of this step, with the average in p; the point of the next gradient is
-- in p after it.
local function averaged(base, step)
  average.to_train(beta)
  k = k + 1
  local rate = base * min(1, k / warmup_steps)
  local weight = k ^ r * rate ^ weight_lr_power
  weight_sum = weight_sum + weight
  local c = where(gt(weight_sum, 0), weight / weight_sum, 1)
  c_warmup = where(le(k, warmup_steps), c, c_warmup)
  local s = c * (1 - c_warmup) / (c_warmup * (1 - c))
  beta = where(gt(k, warmup_steps), 1 - s ^ rho * (1 - beta1), beta1)
  z, p = z - (rate * weight_decay_at_y) * p, p - (rate * weight_decay_at_y * (1 - beta)) * p
  p = lerp(p, z, 1 - 1 / beta)
  step(rate)
  p = lerp(lerp(p, z, c), z, 1 - beta)
end

return optimizer {
  name  = "amuse",
  cite  = "Kim et al. 2026, arXiv:2605.22432",
  use   = "In place of Muon when the length of training is not known in advance",
  family = "averaging", follows = "kjeiun/amuse 4c6383f",
  doc   = "Muon without a schedule: gradients move towards the average of iterates; entries " ..
          "to_eval and to_train",
  hyper = {
    lr = { 0.02, min = 0 }, momentum = { 0.95, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    weight_decay_at_y = { 0, min = 0 }, lr_1d = { 3e-4, min = 0 },
    beta1 = { 0.9, above = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 }, eps = { 1e-10, min = 0 },
    warmup_steps = { 1000, min = 1 },
    rho = { 1, min = 0 }, r = { 0, min = 0 }, weight_lr_power = { 2, min = 0 },
  },
  products = "f16",
  state = { z = copy(p), m = zeros, v = zeros, k = zeros "tensor", weight_sum = zeros "tensor",
            c_warmup = zeros "tensor", beta = fill(beta1, "tensor"), evaluated = zeros "tensor" },
  step  = function()
    averaged(lr_1d, function(rate)
      v = beta2 * v + (1 - beta2) * g * g
      z = z - rate * (g / ((1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps) + weight_decay * z)
    end)
  end,
  matrix = function()
    averaged(lr, function(rate)
      m = lerp(m, g, 1 - momentum)
      z = z - (rate * weight_decay) * z - (rate * 0.2 * sqrt(max(nrows, ncols)))
        * polar(lerp(g, m, momentum))
    end)
  end,
  to_eval = function() average.to_eval(beta) end,
  to_train = function() average.to_train(beta) end,
}

-- The average of schedule-free rules. p holds the paper's y, where gradients are taken; z is the
-- base iterate. Entry to_eval puts the average x = p + (1 - 1/beta) (z - p) into p, to_train puts y
-- back. Running one of them twice changes nothing. A step in evaluation mode returns to y first
-- (the authors raise an error); its gradient must belong to y. The spec declares the states z and
-- evaluated ("tensor"); for weight also k, weight_sum and lr_max ("group"), and hyper r and
-- weight_lr_power.
local average = {}

function average.to_eval(beta)
  p = where(eq(evaluated, 0), lerp(p, z, 1 - 1 / beta), p)
  evaluated = 1
end

function average.to_train(beta)
  local evaluating = gt(evaluated, 0)
  p = where(evaluating, lerp(p, z, 1 - beta), p)
  evaluated = 0
end

-- The weight of this step's z in x, for the rate of this step.
function average.weight(rate)
  lr_max = max(lr_max, rate)
  local weight = k ^ r * lr_max ^ weight_lr_power
  weight_sum = weight_sum + weight
  return where(gt(weight_sum, 0), weight / weight_sum, 0)
end

-- One step along d; c: the weight of this step.
function average.step(beta, rate, c, d)
  p = lerp(p, z, c) - (rate * (1 - beta * (1 - c))) * d
  z = z - rate * d
end

return average

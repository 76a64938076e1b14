-- As the first author's class EMA_Nesterov (modded-nanogpt f411b3d, track 3, 2026-05-22); defaults:
-- its first record. After a step p is the look-ahead point of the next gradient, and `weights` has
-- the weights. Entry to_eval puts them into p; to_train and the next step put the point back. The
-- point is ahead for gradients of steps prefill_steps + 1 to rest_steps. The authors multiply
-- lookahead_stepsize by lr / first lr: schedule it as lr.
local function to_train()
  p = where(gt(evaluated, 0), weights + ahead * d, p)
  evaluated = 0
end

return wrapper {
  name  = "ema_nesterov",
  cite  = "Yau et al. 2026, arXiv:2605.25395",
  use   = "In long runs with any rule when two copies of the weights are affordable",
  family = "averaging", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Takes gradients ahead of the weights, along an average of their steps; entries " ..
          "to_eval and to_train",
  args  = { "lookahead_stepsize", "lookahead_ema" },
  hyper = {
    lookahead_stepsize = { 0.6, min = 0 }, lookahead_ema = { 0.99, min = 0, below = 1 },
    prefill_steps = { 0, min = 0 }, rest_steps = { 1e9, min = 0 },
  },
  state = { weights = copy(p), d = zeros, ahead = zeros "tensor", evaluated = zeros "tensor" },
  step  = function()
    to_train()
    inner()
    d, weights = lerp(d, p - weights, 1 - lookahead_ema), p
    ahead = where(both(ge(t, prefill_steps), lt(t, rest_steps)), lookahead_stepsize, 0)
    p = p + ahead * d
  end,
  to_eval = function() p, evaluated = weights, 1 end,
  to_train = to_train,
}

-- `to_eval` puts the average into the parameters and the weights into ema.avg; `to_train` and the
-- next step put them back; twice changes nothing. A step needs gradients of the weights: run
-- `to_train` before computing them. Values are rounded by the exchange: a narrower ema.avg rounds
-- the weights, 16-bit parameters without master= the average.
local function exchange(if_it_is)
  p, avg = where(if_it_is, avg, p), where(if_it_is, p, avg)
end

return wrapper {
  name  = "ema",
  cite  = "Polyak and Juditsky 1992, SIAM J. Control Optim. 30(4)",
  use   = "When evaluation should use averaged weights, as for diffusion models",
  family = "averaging", follows = "torch.optim.swa_utils.AveragedModel 2.13.0",
  doc   = "Keeps an exponential moving average of the weights in ema.avg; entries to_eval and " ..
          "to_train exchange them",
  args  = { "decay" },
  hyper = { decay = { 0.999, min = 0, max = 1 } },
  state = { avg = copy(p), exchanged = zeros "tensor" },
  step  = function()
    exchange(gt(exchanged, 0))
    exchanged = 0
    inner()
    avg = lerp(p, avg, decay)
  end,
  to_eval = function()
    exchange(eq(exchanged, 0))
    exchanged = 1
  end,
  to_train = function()
    exchange(gt(exchanged, 0))
    exchanged = 0
  end,
}

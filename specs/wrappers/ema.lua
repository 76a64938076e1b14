return wrapper {
  name  = "ema",
  cite  = "Polyak and Juditsky 1992, SIAM J. Control Optim. 30(4)",
  doc   = "Keeps an exponential moving average of the weights in ema.avg",
  args  = { "decay" },
  hyper = { decay = { 0.999, min = 0, max = 1 } },
  state = { avg = copy(p) },
  step  = function()
    inner()
    avg = lerp(p, avg, decay)
  end,
}

-- expect: -: expected wrapper(arguments)
-- with: ema(decay=)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

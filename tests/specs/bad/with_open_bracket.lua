-- expect: -: --with 'clip(1': expected wrapper(arguments)
-- with: clip(1
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

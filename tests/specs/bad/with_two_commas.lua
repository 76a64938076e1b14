-- expect: -: --with 'clip(1),,ema': expected
-- with: clip(1),,ema
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

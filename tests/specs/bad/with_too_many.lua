-- expect: 16: takes 1 positional argument, got 2
-- with: ema(0.9,0.99)
-- in: specs/wrappers/ema.lua
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

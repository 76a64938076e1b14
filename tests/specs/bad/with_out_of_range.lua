-- expect: 17: ema.decay = 2 is outside the range [0, 1]
-- with: ema(2)
-- in: specs/wrappers/ema.lua
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

-- expect: 17: hyperparameter 'decay' is a number, not 'slow'
-- with: ema(slow)
-- in: specs/wrappers/ema.lua
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

-- expect: 17: ema has no hyperparameter or option 'decy'
-- expect: 17: did you mean 'decay'
-- with: ema(decy=0.9)
-- in: specs/wrappers/ema.lua
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}

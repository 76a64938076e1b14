-- expect: 4: hyperparameter 'lr' must be a number
return optimizer {
  name  = "bad",
  hyper = { lr = "fast" },
  step = function()
    p = p - lr * g
  end,
}

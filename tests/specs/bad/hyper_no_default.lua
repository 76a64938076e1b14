-- expect: 4: hyperparameter 'lr' needs its default first
return optimizer {
  name  = "bad",
  hyper = { lr = { min = 0 } },
  step = function()
    p = p - lr * g
  end,
}

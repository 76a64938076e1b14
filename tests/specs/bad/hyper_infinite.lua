-- expect: 4: the default inf of hyperparameter 'lr' is outside its range [0, inf)
return optimizer {
  name  = "bad",
  hyper = { lr = { inf, min = 0 } },
  step = function()
    p = p - lr * g
  end,
}

-- expect: 6: 'lr' is a hyperparameter and cannot be assigned
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    lr = lr * 0.9
    p = p - lr * g
  end,
}

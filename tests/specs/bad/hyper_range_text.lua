-- expect: 4: hyperparameter 'lr': min must be a number, not a string
return optimizer {
  name  = "bad",
  hyper = { lr = { 0.1, min = "0" } },
  step = function()
    p = p - lr * g
  end,
}

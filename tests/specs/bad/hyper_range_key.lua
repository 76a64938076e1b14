-- expect: 4: hyperparameter 'lr' knows min, max, above and below
return optimizer {
  name  = "bad",
  hyper = { lr = { 0.1, minimum = 0 } },
  step = function()
    p = p - lr * g
  end,
}

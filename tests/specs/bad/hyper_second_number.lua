-- expect: 4: hyperparameter 'lr' knows min, max, above and below
return optimizer {
  name  = "bad",
  hyper = { lr = { 0.1, 0, 1 } },
  step = function()
    p = p - lr * g
  end,
}

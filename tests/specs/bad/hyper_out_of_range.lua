-- expect: 5: the default 1.5 of hyperparameter 'beta'
-- expect: 5: outside its range [0, 1)
return optimizer {
  name  = "bad",
  hyper = { beta = { 1.5, min = 0, below = 1 } },
  step = function()
    p = p - beta * g
  end,
}

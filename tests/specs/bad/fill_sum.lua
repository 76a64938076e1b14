-- expect: 5: a state starts as a number or as a hyperparameter
return optimizer {
  name  = "bad",
  hyper = { d0 = 1e-6 },
  state = { d = fill(d0 * 2, "group") },
  step = function()
    d = d * 2
    p = p - d * g
  end,
}

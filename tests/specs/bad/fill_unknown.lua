-- expect: 5: state 'd' starts from 'd1', which is no hyperparameter and no option that is a number; did you mean 'd0'?
return optimizer {
  name  = "bad",
  hyper = { d0 = 1e-6 },
  state = { d = fill(d1, "group") },
  step = function()
    d = d * 2
    p = p - d * g
  end,
}

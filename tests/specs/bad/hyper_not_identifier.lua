-- expect: 1: hyperparameter 'weight-decay' is not an identifier
return optimizer {
  name  = "bad",
  hyper = { ["weight-decay"] = 1 },
  step = function()
    p = p - g
  end,
}

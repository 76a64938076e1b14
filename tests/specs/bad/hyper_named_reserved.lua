-- expect: 4: hyperparameter 'seed' takes a name the language uses itself
return optimizer {
  name  = "bad",
  hyper = { seed = 1 },
  step = function()
    p = p - g
  end,
}

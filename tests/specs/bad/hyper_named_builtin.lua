-- expect: 4: hyperparameter 'sqrt' takes a name the language uses itself
return optimizer {
  name  = "bad",
  hyper = { sqrt = 0.1 },
  step = function()
    p = p - sqrt * g
  end,
}

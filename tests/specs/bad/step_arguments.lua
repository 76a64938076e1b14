-- expect: 5: 'step' takes no arguments: p, g, t, the states and the hyperparameters are known by name; write step = function()
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function(p, g)
    p = p - lr * g
  end,
}

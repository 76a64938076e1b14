-- expect: 6: sqrt takes 1 argument, got 2
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - sqrt(g, 2)
  end,
}

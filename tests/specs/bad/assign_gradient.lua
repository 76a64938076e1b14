-- expect: 6: a rule reads its gradient and does not change it
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    g = g + lr * p
    p = p - g
  end,
}

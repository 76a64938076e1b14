-- expect: 6: 't' is an input and cannot be assigned
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    t = t + 1
    p = p - g
  end,
}

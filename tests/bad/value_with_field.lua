-- expect: 6: a symbolic value has no fields
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g.T
  end,
}

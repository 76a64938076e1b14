-- expect: 6: a symbolic value has no fields
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    g.scale = 2
    p = p - g
  end,
}

-- expect: 6: a symbolic value has no fields but T, which is its transpose
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g.x
  end,
}

-- expect: 6: a symbolic value is not a function: is a '*' missing
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr (g)
  end,
}

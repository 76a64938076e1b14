-- expect: 6: bitwise operation
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - (g & 1)
  end,
}

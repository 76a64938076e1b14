-- expect: 4: outside its range (0, inf)
return optimizer {
  name  = "bad",
  hyper = { lr = { 0, above = 0 } },
  step = function()
    p = p - lr * g
  end,
}

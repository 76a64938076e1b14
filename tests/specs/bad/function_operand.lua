-- expect: 6: -: argument 2 is a function
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - sum
  end,
}

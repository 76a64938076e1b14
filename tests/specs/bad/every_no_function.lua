-- expect: 6: every takes a number and a function
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    every(10, p - g)
  end,
}

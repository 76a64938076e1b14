-- expect: 6: every takes a whole number from 1 and a function
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    every(0, function() p = p - g end)
  end,
}

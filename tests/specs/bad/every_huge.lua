-- expect: 6: every: the period is a whole number from 1 to 1000000000, not 1000000000000
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    every(1e12, function() p = p - g end)
  end,
}

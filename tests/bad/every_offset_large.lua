-- expect: 8: every: the offset is a whole number from 0 and below the period
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { k = 3 },
  state = { m = zeros },
  step = function()
    every(k, { offset = 3 }, function() m = g end)
    p = p - lr * m
  end,
}

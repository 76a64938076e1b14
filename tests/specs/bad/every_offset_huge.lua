-- expect: 8: every: the offset is a whole number from 0 to 999999999
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { k = 3 },
  state = { m = zeros },
  step = function()
    every(k, { offset = 1e9 }, function() m = g end)
    p = p - lr * m
  end,
}

-- expect: 9: over 3 different periods
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    every(2, function() p = p - g end)
    every(3, function() p = p - g end)
    every(5, function() p = p - g end)
    every(7, function() p = p - g end)
  end,
}

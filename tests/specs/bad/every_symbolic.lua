-- expect: 6: every(k, …): k must be known at compile time: make it an option
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    every(lr, function() p = p - g end)
  end,
}

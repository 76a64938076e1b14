-- expect: 8: argument 2 of 2 is nil: it was never given a value outside of every()
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local x
    every(5, function() x = 2 * g end)
    p = p - lr * x
  end,
}

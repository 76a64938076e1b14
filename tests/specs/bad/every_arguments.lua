-- expect: 6: the function of every() and when() takes no arguments
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    every(2, function(g) p = p - lr * g end)
  end,
}

-- expect: 6: inner() is for wrappers
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    inner()
    p = p - lr * g
  end,
}

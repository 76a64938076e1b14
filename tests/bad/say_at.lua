-- expect: 6: matrix products are not in the language yet
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g @ g
    p = p - lr * g
  end,
}

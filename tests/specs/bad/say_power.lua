-- expect: 6: the power is ^: x ^ 2
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g ** 2
    p = p - lr * g
  end,
}

-- expect: 4: the default
return optimizer {
  name  = "bad",
  hyper = { lr = 0 / 0 },
  step = function()
    p = p - lr * g
  end,
}

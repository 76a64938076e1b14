-- expect: 6: attempt to
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - (1 // 0) * g
  end,
}

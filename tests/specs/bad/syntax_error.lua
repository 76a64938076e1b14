-- expect: 6: unexpected symbol near
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - * g
  end,
}

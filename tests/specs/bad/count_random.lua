-- expect: 6: random takes 0 to 1 arguments, got 2
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - random("elem", 1) * g
  end,
}

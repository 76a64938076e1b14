-- expect: 6: dot takes 2 arguments, got 1
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - dot(g) * g
  end,
}

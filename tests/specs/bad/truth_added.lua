-- expect: 7: *: argument 1 is
-- expect: 7: turn it into numbers with where(c, 1, 0)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lt(g, 0) * g
  end,
}

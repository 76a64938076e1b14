-- expect: 7: 'p' cannot hold
-- expect: 7: where(c, 1, 0)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = lt(g, 0)
  end,
}

-- expect: 7: number expected
-- expect: 7: floor
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - math.floor(g)
  end,
}

-- expect: 7: math.floor works on plain numbers
-- expect: 7: write floor(…)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - math.floor(g)
  end,
}

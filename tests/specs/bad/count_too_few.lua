-- expect: 6: where takes 3 arguments, got 2
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - where(lt(g, 0), g)
  end,
}

-- expect: 6: mean: argument 1 is
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - mean(lt(g, 0)) * g
  end,
}

-- expect: 4: input 'hess' must name its domain
return optimizer {
  name  = "bad",
  inputs = { hess = "diagonal" },
  step = function()
    p = p - hess * g
  end,
}

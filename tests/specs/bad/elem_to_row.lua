-- expect: 7: 'r' has one value per row and cannot take 'g' (a value per elem): reduce it first
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { r = zeros "row" },
  step = function()
    r = g
    p = p - r
  end,
}

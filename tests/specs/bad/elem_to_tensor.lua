-- expect: 8: 's' has one value per tensor and cannot take 'sq'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { s = zeros "tensor" },
  step = function()
    local sq = g * g
    s = sq
    p = p - s
  end,
}

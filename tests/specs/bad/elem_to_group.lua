-- expect: 7: 'n' has one value per group and cannot take
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { n = zeros "group" },
  step = function()
    n = n + abs(g)
    p = p - n
  end,
}

-- expect: 7: 'c' has one value per col and cannot take the result of sum
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { c = zeros "col" },
  step = function()
    c = rowsum(g)
    p = p - c
  end,
}

-- expect: 6: colsum needs a value that varies by element
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - colsum(rowsum(g)) * g
  end,
}

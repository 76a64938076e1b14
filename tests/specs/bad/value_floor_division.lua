-- expect: 6: // is not an operation on symbolic values
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g // 2
  end,
}

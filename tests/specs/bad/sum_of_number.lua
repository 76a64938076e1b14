-- expect: 6: sum needs a value that varies inside a tensor
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - sum(3) * g
  end,
}

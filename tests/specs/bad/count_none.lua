-- expect: 6: max takes one argument (over the tensor) or several
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - max() * g
  end,
}

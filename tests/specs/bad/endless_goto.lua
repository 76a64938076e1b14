-- expect: 7: runs too long
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    ::again::
    goto again
  end,
}

-- expect: 6: error() called by the spec
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    error()
  end,
}

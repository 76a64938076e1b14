-- expect: 6: assertion failed
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    assert(false)
  end,
}

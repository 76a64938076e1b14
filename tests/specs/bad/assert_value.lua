-- expect: 6: assert cannot test a symbolic value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    assert(lr)
    p = p - g
  end,
}

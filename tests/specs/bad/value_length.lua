-- expect: 6: a symbolic value has no length: use numel
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g / #g
  end,
}

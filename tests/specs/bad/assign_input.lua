-- expect: 6: 'loss' is an input and cannot be assigned
return optimizer {
  name  = "bad",
  inputs = { loss = "group" },
  step = function()
    loss = 1
    p = p - g
  end,
}

-- expect: 7: *: argument 2 of 2 is nil
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local v
    p = p - g * v
  end,
}

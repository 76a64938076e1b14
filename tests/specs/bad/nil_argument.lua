-- expect: 7: sqrt: argument 1 of 1 is nil
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local v
    p = p - g / sqrt(v)
  end,
}

-- expect: 7: 'p' cannot take nil
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local v
    p = v
  end,
}

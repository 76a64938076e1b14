-- expect: 7: p: argument
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local v
    p = v
  end,
}

-- expect: 6: Lua's own < and > cannot compare symbolic values: use lt(a, b)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local small = g < 1
    p = p - g
  end,
}

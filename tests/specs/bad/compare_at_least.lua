-- expect: 6: Lua's own <= and >= cannot compare
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local big = lr >= 1
    p = p - g
  end,
}

-- expect: 7: Lua's 'if' cannot test 'down'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local down = lt(g, 0)
    if down then p = p - g end
  end,
}

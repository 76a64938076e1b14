-- expect: 6: Lua's 'if' cannot test 'g'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    if lt(g, 0) then p = p - g end
  end,
}

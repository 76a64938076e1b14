-- expect: 6: Lua's 'if' cannot test 'lr'
return optimizer {
  name = "bad",
  hyper = { lr = 1 },
  step = function()
    if nrows <= lr then p = p - g else p = p + g end
  end,
}

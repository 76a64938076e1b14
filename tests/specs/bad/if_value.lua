-- expect: 6: Lua's 'if' cannot test 'g', a symbolic value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    if g then p = p - g end
  end,
}

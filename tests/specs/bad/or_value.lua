-- expect: 6: Lua's 'or' cannot test 'lr'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local rate = lr or 0.1
    p = p - rate * g
  end,
}

-- expect: 6: Lua's '==' cannot test 'g', a symbolic value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local same = g == 0
    p = p - g
  end,
}

-- expect: 6: Lua's 'not' cannot test 'g'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local none = not g
    p = p - g
  end,
}

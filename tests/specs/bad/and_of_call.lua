-- expect: 6: Lua's 'and' cannot test 'g'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local x = lt(g, 0) and 1
    p = p - g
  end,
}

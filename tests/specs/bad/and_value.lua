-- expect: 6: Lua's 'and' cannot test 'lr'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - (lr and 1) * g
  end,
}

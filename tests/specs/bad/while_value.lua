-- expect: 6: Lua's 'while' cannot test 't'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    while t do p = p - g end
  end,
}

-- expect: 6: Lua's '~=' cannot test 'lr', a symbolic value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local other = 0 ~= lr
    p = p - g
  end,
}

-- expect: 7: Lua's 'elseif' cannot test 'lr'
return optimizer {
  name  = "bad",
  options = { nesterov = false }, hyper = { lr = 0.1 },
  step = function()
    if nesterov then p = p - g
    elseif lr then p = p - 2 * g end
  end,
}

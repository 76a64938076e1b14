-- expect: 5: Lua's 'if' cannot test 'nrows'
return optimizer {
  name = "bad",
  step = function()
    if nrows == 1 then p = p - g else p = p + g end
  end,
}

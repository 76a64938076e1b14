-- expect: 4: option 'k': a list must hold strings, the default first
return optimizer {
  name  = "bad",
  options = { k = { 1, 2 } },
  step = function()
    p = p - g
  end,
}

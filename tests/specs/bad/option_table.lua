-- expect: 4: option 'k'
return optimizer {
  name  = "bad",
  options = { k = {} },
  step = function()
    p = p - g
  end,
}

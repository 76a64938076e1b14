-- expect: 4: option 'k' must be true, false, a number, a string or a list
return optimizer {
  name  = "bad",
  options = { k = sqrt },
  step = function()
    p = p - g
  end,
}

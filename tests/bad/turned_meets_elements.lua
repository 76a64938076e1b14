-- expect: 5: add: 'g' (a value per elem) and the result of turn on line 5 (a value per elem, turned) do not fit: they vary along different axes
return optimizer {
  name  = "bad",
  matrix = function()
    p = p - (g + g.T)
  end,
  step = function() p = p - g end,
}

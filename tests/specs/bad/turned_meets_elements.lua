-- expect: 5: add: 'g' (a value per elem) and the transpose of 'g' (a value per elem) do not fit: they vary along different axes
return optimizer {
  name  = "bad",
  matrix = function()
    p = p - (g + g.T)
  end,
  step = function() p = p - g end,
}

-- expect: 6: 'p' has one value per elem and cannot take 'x' (a value per elem, transposed, made by transpose on line 5): transpose it with .T
return optimizer {
  name  = "bad",
  matrix = function()
    local x = 2 * g.T
    p = x
  end,
  step = function() p = p - g end,
}

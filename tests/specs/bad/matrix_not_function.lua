-- expect: 4: 'matrix' must be a function
return optimizer {
  name  = "bad",
  matrix = true,
  step = function()
    p = p - g
  end,
}

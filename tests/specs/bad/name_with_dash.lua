-- expect: 3: 'name' must be an identifier
return optimizer {
  name  = "adam-w",
  step = function()
    p = p - g
  end,
}

-- expect: 4: 'f8' is not a storage type
return optimizer {
  name  = "bad",
  state = { m = zeros("elem", "f8") },
  step = function()
    m = g
    p = p - m
  end,
}

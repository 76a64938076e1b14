-- expect: 4: 'f9' is not a storage type
return optimizer {
  name  = "bad",
  state = { m = zeros("elem", "f9") },
  step = function()
    m = g
    p = p - m
  end,
}

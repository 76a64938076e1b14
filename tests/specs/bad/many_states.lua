-- expect: 4: over 256 states
return optimizer {
  name  = "bad",
  state = { a = ring(100), b = ring(100), c = ring(100) },
  step = function()
    p = p - g
  end,
}

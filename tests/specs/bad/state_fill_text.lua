-- expect: 4: fill needs a number
return optimizer {
  name  = "bad",
  state = { m = fill("one") },
  step = function()
    m = g
    p = p - m
  end,
}

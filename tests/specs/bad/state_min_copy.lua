-- expect: 4: a state that starts as a copy of p cannot have min = 0
return optimizer {
  name  = "bad",
  state = { m = copy(p, { min = 0 }) },
  step = function()
    m = g
    p = p - m
  end,
}

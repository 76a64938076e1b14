-- expect: 4: state 'm' must be zeros, fill(c) or copy(p)
return optimizer {
  name  = "bad",
  state = { m = 0 },
  step = function()
    m = g
    p = p - m
  end,
}

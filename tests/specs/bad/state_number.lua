-- expect: 4: state 'm' must be zeros, fill(c), copy(p), normal(), ring(n) or eye(c, "rows")
return optimizer {
  name  = "bad",
  state = { m = 0 },
  step = function()
    m = g
    p = p - m
  end,
}

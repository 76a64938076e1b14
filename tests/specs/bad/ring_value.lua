-- expect: 10: max: argument 1 is a ring, not a value: s[1] is the newest value
-- expect: 11: 's' cannot take nil
-- expect: 12: 'm' cannot take nil
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { s = ring(4), m = zeros },
  step = function()
    local none
    p = p - lr * max(s)
    s:push(none)
    m = none
    p = p - lr * s[1] * m
  end,
}

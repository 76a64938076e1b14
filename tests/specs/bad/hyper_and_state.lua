-- expect: 4: state 'm': the name is declared twice
return optimizer {
  name  = "bad",
  hyper = { m = 0.9 },
  state = { m = zeros },
  step = function()
    m = m + g
    p = p - m
  end,
}

-- expect: 4: state 'm' is read but never written
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    p = p - m * g
  end,
}

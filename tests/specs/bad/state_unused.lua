-- expect: 4: state 'm' is never used
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    p = p - g
  end,
}
